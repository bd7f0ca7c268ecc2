"""One forward of the model over a batch, module by module: the eager way.

No box of its own: the runner's step runs through it, and so does what a graph is captured from and
compared with. Counterpart in vLLM 0.26.0: `_model_forward` in `vllm/v1/worker/gpu_model_runner.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.kv_cache import KVCache
from engine.model_loader import LoadedModel, ModelError
from engine.module_timer import ModuleTimer, ModuleTimes
from engine.paged_attention import (
    ForwardContext,
    PagedAttentionMetadata,
    attending_through_pages,
    make_context,
)


class ModelInputs(NamedTuple):
    """A step's batch, ready for the model."""

    input_ids: Tensor  # [1, rows]
    positions: Tensor  # [1, rows]
    logits_to_keep: Tensor  # rows whose logits are wanted: of prompts, and to sample from
    metadata: PagedAttentionMetadata


class Forward(NamedTuple):
    """What came of it."""

    logits: Tensor  # [rows kept, vocabulary]
    times: ModuleTimes
    attention: str  # name of the backend


def context_of(inputs: ModelInputs, kv_cache: KVCache, timer: ModuleTimer) -> ForwardContext:
    """What the attention layers of a forward over `inputs` share."""
    return make_context(inputs.metadata, kv_cache, timer, inputs.input_ids.device)


def run_eagerly(model: LoadedModel, inputs: ModelInputs, context: ForwardContext) -> Forward:
    """Call the model. ModelError where not every layer's attention went through pages."""
    with attending_through_pages(model.model):
        return call_model(model, inputs, context)


def call_model(model: LoadedModel, inputs: ModelInputs, context: ForwardContext) -> Forward:
    """The same where attention goes through pages already, as in a replay."""
    timer = context.timer
    timer.start()
    try:
        output: Any = model.model(
            input_ids=inputs.input_ids,
            position_ids=inputs.positions,
            use_cache=False,
            logits_to_keep=inputs.logits_to_keep,
            paged=context,
        )
        if inputs.input_ids.is_cuda:
            torch.cuda.synchronize()  # the clock stops when the GPU has, not when it was told
    finally:
        times = timer.stop()
    if context.layers_run != model.num_layers:
        raise ModelError(
            f"only {context.layers_run} of {model.num_layers} layers of {model.name} went through "
            "PagedAttention; it cannot be run here"
        )
    return Forward(output.logits[0], times, context.backend.name)
