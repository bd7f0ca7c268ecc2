"""A model's layers in a form that the CPU runs faster: weights packed once, when it is loaded.

No box of the map: the layers compute what they did, and stand where they stood. Whatever is not
known exactly stays as Transformers made it, and so does every model on a GPU. Counterpart in vLLM
0.26.0: `vllm/model_executor/layers`.
"""

from transformers import PreTrainedModel

from engine.layers.activation import GatedMLP, fuse_gated_mlps
from engine.layers.linear import SMALLEST, PackedLinear, pack_linears

__all__ = ["GatedMLP", "PackedLinear", "optimize"]


def optimize(model: PreTrainedModel, smallest: int = SMALLEST) -> None:
    """Change `model`'s layers in place; linear ones with fewer than `smallest` weights stay."""
    pack_linears(model, smallest)
    fuse_gated_mlps(model)
