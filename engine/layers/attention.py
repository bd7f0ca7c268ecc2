"""Attention as Llama has it, with one product for query, key and value.

Three products are three times that all threads have to be called together. No box of the map: what
attends is the backend of box PagedAttention. Counterpart in vLLM 0.26.0: `QKVParallelLinear` in
`vllm/model_executor/layers/linear.py`, and `rotary_embedding`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    apply_rotary_pos_emb,
    eager_attention_forward,
)

from engine.layers import few_rows
from engine.layers.code import replace, same_code
from engine.layers.linear import PackedLinear, joined

PROJECTIONS = ("q_proj", "k_proj", "v_proj")
CALLED = ("apply_rotary_pos_emb", "rotate_half", "eager_attention_forward")
# What attention functions ask a layer for, and `forward`.
ATTRIBUTES = (
    "config", "layer_idx", "head_dim", "num_key_value_groups", "scaling", "attention_dropout",
    "is_causal",
)  # fmt: skip


class FusedAttention(nn.Module):
    """`LlamaAttention` that multiplies once where that does three times."""

    def __init__(self, attention: Any) -> None:
        """`attention`: of any class whose code is Llama's, with packed projections."""
        super().__init__()
        self.config: Any
        for name in ATTRIBUTES:
            setattr(self, name, getattr(attention, name))
        parts = [getattr(attention, name) for name in PROJECTIONS]
        self.heads, self.kv_heads, _ = (part.out_features // self.head_dim for part in parts)
        self.qkv_proj, self.o_proj = joined(parts), attention.o_proj

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        cache: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """As `LlamaAttention`; hidden_states is [batch, rows, hidden]."""
        rows = hidden_states.shape[:-1]
        qkv = self.qkv_proj(hidden_states).view(*rows, -1, self.head_dim)
        cos, sin = position_embeddings
        value = qkv[..., self.heads + self.kv_heads :, :].transpose(1, 2)
        if few_rows.available() and few_rows.takes(hidden_states) and few_rows.takes(cos):
            query, key = few_rows.rotary(qkv, cos, sin, self.heads, self.kv_heads)
            query, key = query.transpose(1, 2), key.transpose(1, 2)
        else:
            query = qkv[..., : self.heads, :].transpose(1, 2)
            key = qkv[..., self.heads : self.heads + self.kv_heads, :].transpose(1, 2)
            query, key = apply_rotary_pos_emb(query, key, cos, sin)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx, kwargs=kwargs)
        attend: Any = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.attention_dropout if self.training else 0.0
        output, weights = attend(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        return self.o_proj(output.reshape(*rows, -1).contiguous()), weights


def fuse_attention(model: PreTrainedModel) -> None:
    """Put a fused one in place of each attention that does exactly what Llama's does."""
    replace(model, is_llama_attention, FusedAttention)


def is_llama_attention(module: nn.Module) -> bool:
    """By its code and that of what it calls, with projections that can be joined."""
    if not same_code(type(module).forward, LlamaAttention.forward, CALLED):
        return False
    parts = [getattr(module, name, None) for name in PROJECTIONS]
    return (
        all(isinstance(part, PackedLinear) and part.weight is None for part in parts)
        and len({part.bias is None for part in parts if isinstance(part, PackedLinear)}) == 1
        and all(hasattr(module, name) for name in ATTRIBUTES)
    )
