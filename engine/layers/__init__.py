"""A model's layers in a form that the CPU runs faster: weights packed once, when it is loaded.

No box of the map: the layers compute what they did, and stand where they stood. Whatever is not
known exactly stays as Transformers made it, and so does every model on a GPU. Counterpart in vLLM
0.26.0: `vllm/model_executor/layers`.
"""

from transformers import PreTrainedModel

from engine.layers import few_rows
from engine.layers.activation import GatedMLP, fuse_gated_mlps
from engine.layers.attention import FusedAttention, fuse_attention
from engine.layers.layernorm import RMSNorm, fuse_norms
from engine.layers.linear import SMALLEST, PackedLinear, pack_linears
from engine.layers.quantized import QuantizedLinear

__all__ = [
    "FusedAttention",
    "GatedMLP",
    "PackedLinear",
    "QuantizedLinear",
    "RMSNorm",
    "optimize",
]


def optimize(model: PreTrainedModel, smallest: int = SMALLEST) -> None:
    """Change `model`'s layers in place; linear ones with fewer than `smallest` weights stay."""
    pack_linears(model, smallest)
    fuse_gated_mlps(model)
    fuse_attention(model)
    if any(isinstance(module, PackedLinear) and module.few_rows for module in model.modules()):
        fuse_norms(model)
    kinds = FusedAttention, RMSNorm
    if few_rows.available() and any(isinstance(module, kinds) for module in model.modules()):
        few_rows.compile_kernels()
