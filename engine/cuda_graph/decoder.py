"""The part of a model that graphs are of: its decoder, from token ids to hidden states.

The head stays outside, as in vLLM 0.26.0 (`compute_logits` follows the captured forward in
`vllm/v1/worker/gpu_model_runner.py`): it runs over the rows whose logits are wanted. Part of the
box CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from engine.cuda_graph.recorder import CannotRecord, RecordedAttention, RecordedOp, Recorder
from engine.forward import ModelInputs, context_of, run_eagerly
from engine.kv_cache import KVCache
from engine.model_loader import LoadedModel
from engine.module_timer import ModuleTimer, decoder_layers


class Recorded(NamedTuple):
    """One forward of the decoder, as it ran."""

    ops: list[RecordedOp]
    decoder: nn.Module  # what ran: a model takes long to look for it
    output: Any  # what the decoder returned
    calls: dict[str, int]  # of each kind of module

    @property
    def hidden_states(self) -> Tensor:
        """[1, rows, hidden]: what the head reads."""
        hidden: Tensor = self.output.last_hidden_state
        return hidden


@contextmanager
def standing_in(decoder: nn.Module, run: Callable[..., Any]) -> Iterator[None]:
    """Have `run` called instead of the decoder's own forward."""
    decoder.__dict__["forward"] = run
    try:
        yield
    finally:
        del decoder.__dict__["forward"]


def record(inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Recorded:
    """Run the model over `inputs` and note what its decoder does. Call it without gradients.

    Raises CannotRecord where the model has no decoder that gives hidden states.
    """
    timer = ModuleTimer.of(model.model)
    context = context_of(inputs, kv_cache, timer)
    recorder = Recorder(timer, decoder_layers(model.model))
    context.backend = RecordedAttention(recorder, context.backend, kv_cache.layers)
    decoder: nn.Module = model.model.get_decoder()
    own_forward, outputs, calls = decoder.forward, list[Any](), dict[str, int]()

    def run(*arguments: Any, **named: Any) -> Any:
        before = timer.calls
        with recorder:
            outputs.append(own_forward(*arguments, **named))
        calls.update({kind: count - before[kind] for kind, count in timer.calls.items()})
        return outputs[-1]

    with standing_in(decoder, run):
        run_eagerly(model, inputs, context)
    if len(outputs) != 1 or not isinstance(getattr(outputs[0], "last_hidden_state", None), Tensor):
        raise CannotRecord("no part of it turns token ids into hidden states in one call")
    return Recorded(recorder.ops, decoder, outputs[0], calls)
