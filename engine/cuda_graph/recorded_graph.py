"""A decode batch's forward as a recorded list: what a CUDA graph is on a CPU. Part of the box.

On a GPU a replay is one launch for all kernels of the graph; here it is one loop over all calls.
Either way nothing of the model's Python runs.
"""

from __future__ import annotations

import time

import torch

from engine.cuda_graph.flat_list import FlatList
from engine.cuda_graph.operations import OperationList
from engine.cuda_graph.recorder import RecordedAttention, Recorder
from engine.forward import Forward, ModelInputs, context_of, run_eagerly
from engine.kv_cache import KVCache
from engine.model_loader import LoadedModel
from engine.module_timer import KINDS, ModuleTimer, ModuleTimes, decoder_layers
from engine.paged_attention import make_backend


class RecordedGraph:
    """The list for one size. Token ids and positions lie in static buffers.

    Slots, block tables and lengths come with each replay, in the plan of its attention, and so does
    the pool: any engine of the model can replay it.
    """

    def __init__(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache):
        self.size = inputs.metadata.num_tokens
        self._input_ids = inputs.input_ids.clone()
        self._positions = inputs.positions.clone()
        own = inputs._replace(input_ids=self._input_ids, positions=self._positions)
        timer = ModuleTimer.of(model.model)
        context = context_of(own, kv_cache, timer)
        recorder = Recorder(timer, decoder_layers(model.model))
        context.backend = RecordedAttention(recorder, context.backend, kv_cache.layers)
        with torch.no_grad():
            with recorder:
                forward = run_eagerly(model, own, context)
            given = (self._input_ids, self._positions, own.logits_to_keep)
            self._list = FlatList(recorder.ops, given, forward.logits)
        self._kinds, self._calls = forward.times.kinds, forward.times.calls
        self.num_bytes = self._list.num_bytes
        self.operations = OperationList.of(
            (segment.span for segment in self._list.segments),
            recorded=len(recorder.ops),
            folded=self._list.num_folded,
            views=self._list.num_views,
        )

    def run_eagerly(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """As `DecodeGraph.run_eagerly`."""
        context = context_of(inputs, kv_cache, ModuleTimer.of(model.model))
        return run_eagerly(model, inputs, context)

    def replay(self, inputs: ModelInputs, kv_cache: KVCache) -> Forward:
        """As `DecodeGraph.replay`. Rows of padding are token 0 at position 0."""
        began = time.perf_counter()
        rows = inputs.metadata.num_tokens
        self._input_ids.zero_()[:, :rows] = inputs.input_ids
        self._positions.zero_()[:, :rows] = inputs.positions
        padded, device = inputs.metadata.padded_to(self.size), self._input_ids.device
        backend = make_backend(kv_cache.attention_backend, padded, device)
        spent = dict.fromkeys(KINDS, 0.0)
        spent["other"] = time.perf_counter() - began
        self._list.replay(backend, kv_cache.layers, spent)
        logits = self._list.output.index_select(0, inputs.logits_to_keep)  # the next replay's soon
        return Forward(logits, ModuleTimes.of(self._kinds, self._calls, spent), backend.name)
