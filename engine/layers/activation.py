"""The gated MLP in three products, which apply activation and gate to what is still in cache.

No box of the map. Counterpart in vLLM 0.26.0: `SiluAndMul` in
`vllm/model_executor/layers/activation.py`, behind `MergedColumnParallelLinear`.
"""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation
from transformers.models.llama.modeling_llama import LlamaMLP

from engine.layers.linear import PackedLinear


class GatedMLP(nn.Module):
    """`down(silu(gate(x)) * up(x))`, [..., hidden] to the same."""

    def __init__(self, gate: PackedLinear, up: PackedLinear, down: PackedLinear) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, x: Tensor) -> Tensor:
        """As `LlamaMLP`."""
        y: Tensor = self.down_proj(self.up_proj.times(x, self.gate_proj.silu(x)))
        return y


def fuse_gated_mlps(model: PreTrainedModel) -> None:
    """Put a fused one in place of each MLP that does exactly what Llama's does."""
    for name in [name for name, module in model.named_modules() if is_gated_mlp(module)]:
        parent, _, last = name.rpartition(".")
        mlp: Any = model.get_submodule(name)
        fused = GatedMLP(mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        setattr(model.get_submodule(parent), last, fused)


def is_gated_mlp(module: nn.Module) -> bool:
    """By its code, since each architecture has a class of its own for the same."""
    if not same_code(type(module).forward, LlamaMLP.forward):
        return False
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    return all(isinstance(part, PackedLinear) for part in parts) and isinstance(
        getattr(module, "act_fn", None), SiLUActivation | nn.SiLU
    )


def same_code(one: Any, other: Any) -> bool:
    """Whether two functions do the same with the same names."""
    return essence(inspect.unwrap(one).__code__) == essence(inspect.unwrap(other).__code__)


def essence(code: CodeType) -> tuple[object, ...]:
    """What a function does, whatever it is called and wherever it stands."""
    return code.co_code, code.co_names, code.co_consts, code.co_varnames, code.co_freevars
