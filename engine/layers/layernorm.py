"""RMSNorm in one call for a few rows. No box of the map.

Counterpart in vLLM 0.26.0: `RMSNorm` in `vllm/model_executor/layers/layernorm.py`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from engine.layers import few_rows
from engine.layers.code import replace, same_code


class RMSNorm(LlamaRMSNorm):
    """`LlamaRMSNorm`."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[..., size] to the same."""
        if few_rows.takes(hidden_states):
            y: Tensor = few_rows.rms_norm(hidden_states, self.weight, self.variance_epsilon)
            return y
        return super().forward(hidden_states)


def fuse_norms(model: PreTrainedModel) -> None:
    """Put one in place of each norm that does exactly what Llama's does."""
    replace(model, is_llama_norm, fused)


def fused(norm: Any) -> RMSNorm:
    """The same norm, with the same weight."""
    made = RMSNorm(norm.weight.numel(), norm.variance_epsilon)
    made.weight = norm.weight
    return made


def is_llama_norm(module: nn.Module) -> bool:
    """By its code."""
    return same_code(type(module).forward, LlamaRMSNorm.forward)
