"""PagedAttention under any Transformers decoder (boxes `paged-attn`, `shared-gqa`).

One function is registered with Transformers and stands in for the attention of every layer. What
belongs to a step (where K and V go, which blocks each request reads, whose pool it is) comes with
the call, so that many engines can share one model. Counterpart in vLLM 0.26.0:
`vllm/v1/attention/backends` and `vllm/model_executor/layers/attention`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from engine.kv_cache import KVCache, LayerKVCache
from engine.model_loader import ModelError
from engine.module_timer import ModuleTimer
from engine.paged_attention.choice import (
    BACKENDS,
    AttentionBackend,
    choose_backend,
    make_backend,
    prepare_backend,
    prepare_default,
)
from engine.paged_attention.metadata import AttentionOptions, PagedAttentionMetadata
from engine.paged_attention.torch_backend import TorchPagedAttention

__all__ = [
    "ATTENTION_NAME",
    "BACKENDS",
    "AttentionBackend",
    "AttentionOptions",
    "ForwardContext",
    "PagedAttentionMetadata",
    "TorchPagedAttention",
    "attending_through_pages",
    "check_pageable",
    "choose_backend",
    "make_backend",
    "make_context",
    "prepare_backend",
    "prepare_default",
]

# Transformers builds no masks for a name that is missing from its table of mask functions.
ATTENTION_NAME = "glassbox_paged"


@dataclass
class ForwardContext:
    """What the attention layers of one forward share."""

    backend: AttentionBackend
    kv_cache: KVCache
    timer: ModuleTimer
    layers_run: int = 0


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    paged: ForwardContext | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention of one layer, as Transformers calls it: query is [1, heads, rows, dim]."""
    if paged is None:
        raise ModelError("paged attention needs the batch's context: an engine runs this model")
    paged.timer.enter("attention")
    output = paged.backend.forward(
        layer_cache(paged.kv_cache, module, key, value),
        query[0],
        key[0],
        value[0],
        AttentionOptions(
            scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
            sliding_window=sliding_window,
            softcap=softcap,
            sinks=s_aux,
        ),
    )
    paged.layers_run += 1
    paged.timer.leave()
    return output.unsqueeze(0), None


def layer_cache(kv_cache: KVCache, module: nn.Module, key: Tensor, value: Tensor) -> LayerKVCache:
    """The part of the pool that belongs to this layer, if the layer fits it."""
    index: Any = getattr(module, "layer_idx", None)
    if index is None or index >= len(kv_cache.layers):
        raise ModelError(f"{type(module).__name__} does not say which layer it is")
    expected = (kv_cache.spec.num_kv_heads, kv_cache.spec.head_dim)
    for name, states in (("keys", key), ("values", value)):
        if (states.shape[1], states.shape[3]) != expected:
            raise ModelError(
                f"layer {index} of this model has {states.shape[1]} {name} of {states.shape[3]} a "
                f"token, others {expected[0]} of {expected[1]}; Glassbox needs one shape for all"
            )
    layer: LayerKVCache = kv_cache.layers[index]
    return layer


def check_pageable(model: PreTrainedModel) -> None:
    """Raise ModelError where the attention of `model` cannot be replaced."""
    if not model._can_set_attn_implementation():
        raise ModelError(
            f"{type(model).__name__} brings an attention of its own, which cannot be paged; "
            "Llama, Qwen, Mistral, Gemma, Phi and GPT-2, for example, can"
        )


@contextmanager
def attending_through_pages(model: PreTrainedModel) -> Iterator[None]:
    """Have `model` attend through `paged_attention`, and as before afterwards.

    The weights are shared: whoever runs the model without an engine finds it as it was. Nor does it
    look for padding meanwhile: GPT-2 reads token ids back for a warning, and no list can hold that.
    """
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation, config.pad_token_id
    config._attn_implementation, config.pad_token_id = ATTENTION_NAME, None
    try:
        yield
    finally:
        config._attn_implementation, config.pad_token_id = before


def make_context(
    metadata: PagedAttentionMetadata,
    kv_cache: KVCache,
    timer: ModuleTimer,
    device: torch.device,
) -> ForwardContext:
    """The context of one forward over `metadata`'s batch."""
    backend = make_backend(kv_cache.attention_backend, metadata, device)
    return ForwardContext(backend, kv_cache, timer)


AttentionInterface.register(ATTENTION_NAME, paged_attention)
