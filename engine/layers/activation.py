"""The gated MLP in three products, which apply activation and gate to what is still in cache.

No box of the map. Counterpart in vLLM 0.26.0: `SiluAndMul` in
`vllm/model_executor/layers/activation.py`, behind `MergedColumnParallelLinear`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation
from transformers.models.llama.modeling_llama import LlamaMLP

from engine.layers import few_rows
from engine.layers.code import replace, same_code
from engine.layers.linear import PackedLinear


class GatedMLP(nn.Module):
    """`down(silu(gate(x)) * up(x))`, [..., hidden] to the same."""

    def __init__(self, gate: Any, up: Any, down: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, x: Tensor) -> Tensor:
        """As `LlamaMLP`."""
        y: Tensor = self.down_proj(self.gated(x))
        return y

    def gated(self, x: Tensor) -> Tensor:
        """`silu(gate(x)) * up(x)`."""
        gate, up = self.gate_proj, self.up_proj
        y: Tensor
        if gate.few_rows and up.few_rows and few_rows.takes(x):
            y = few_rows.gated(x, gate.packed, gate.bias, up.packed, up.bias, up.out_features)
        else:
            y = up.times(x, gate.silu(x))
        return y


def fuse_gated_mlps(model: PreTrainedModel) -> None:
    """Put a fused one in place of each MLP that does exactly what Llama's does."""
    replace(model, is_gated_mlp, lambda mlp: GatedMLP(mlp.gate_proj, mlp.up_proj, mlp.down_proj))


def is_gated_mlp(module: nn.Module) -> bool:
    """By its code, since each architecture has a class of its own for the same."""
    if not same_code(type(module).forward, LlamaMLP.forward):
        return False
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    return all(isinstance(part, PackedLinear) for part in parts) and isinstance(
        getattr(module, "act_fn", None), SiLUActivation | nn.SiLU
    )
