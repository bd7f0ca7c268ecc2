"""A batch's forward as a recorded list: what a CUDA graph is on a CPU. Part of the box CUDA graph.

On a GPU a replay is one launch for all kernels of the graph; here it is one loop over all calls.
Either way nothing of the decoder's Python runs.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from engine.cuda_graph.arena import Arena
from engine.cuda_graph.decoder import record, standing_in
from engine.cuda_graph.dispatcher import CudagraphMode
from engine.cuda_graph.flat_list import FlatList, Forms
from engine.cuda_graph.inductor import Kernels, tolerance
from engine.cuda_graph.operations import Buffer, OperationList
from engine.forward import Forward, ModelInputs, call_model, context_of, run_eagerly
from engine.kv_cache import KVCache
from engine.model_loader import LoadedModel
from engine.module_timer import KINDS, ModuleTimer


class Recording:
    """The list for one size. Token ids and positions lie in static buffers.

    Slots, block tables and lengths come with each replay, in the plan of its attention, and so does
    the pool: any engine of the model can replay it, as a whole or in pieces.
    """

    def __init__(
        self,
        inputs: ModelInputs,
        model: LoadedModel,
        kv_cache: KVCache,
        arena: Arena,
        forms: Forms,
        kernels: Kernels | None = None,
    ):
        self.backend = "recorded list" if kernels is None else "list compiled by inductor"
        self.tolerance = 0.0 if kernels is None else tolerance(model.model.dtype)
        self.size = inputs.metadata.num_tokens
        self.input_ids = inputs.input_ids.clone()
        self.positions = inputs.positions.clone()
        own = inputs._replace(input_ids=self.input_ids, positions=self.positions)
        given = (self.input_ids, self.positions)
        with torch.no_grad():
            found = record(own, model, kv_cache)
            self.list = FlatList(found.ops, given, found.hidden_states, arena, forms, kernels)
        self.decoder, self.output, self.calls = found.decoder, found.output, found.calls
        self.num_bytes = self.list.num_bytes
        self.operations = OperationList.of(
            (segment.span for segment in self.list.segments),
            recorded=len(found.ops),
            folded=self.list.num_folded,
            views=self.list.num_views,
        )

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Where token ids, positions and hidden states lie, and the memory of all results."""
        return (
            Buffer.of("input_ids", self.input_ids),
            Buffer.of("positions", self.positions),
            self.list.arena.buffer(self.num_bytes),
            Buffer.of("hidden_states", self.output.last_hidden_state),
        )

    def fill(self, inputs: ModelInputs) -> None:
        """Put a batch into the buffers. Rows of padding are token 0 at position 0."""
        rows = inputs.metadata.num_tokens
        self.input_ids.zero_()[:, :rows] = inputs.input_ids
        self.positions.zero_()[:, :rows] = inputs.positions


class RecordedGraph:
    """A recording as the graph of one mode.

    FULL: attention is one of the list's operations, over all rows. PIECEWISE: the list is cut at
    every attention, which runs between the pieces over the batch as it is, without padding.
    """

    def __init__(self, mode: CudagraphMode, recording: Recording):
        self.mode, self.recording = mode, recording
        self.size, self.num_bytes = recording.size, recording.num_bytes
        self.backend, self.operations = recording.backend, recording.operations
        self.tolerance = recording.tolerance
        self.num_pieces = 1 if mode is CudagraphMode.FULL else recording.list.num_pieces

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """As `Graph.buffers`."""
        return self.recording.buffers

    def run_eagerly(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """As `Graph.run_eagerly`."""
        context = context_of(inputs, kv_cache, ModuleTimer.of(model.model))
        return run_eagerly(model, inputs, context)

    def replay(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """As `Graph.replay`."""
        recording, timer, batch = self.recording, ModuleTimer.of(model.model), inputs.metadata
        rows = batch.num_tokens
        if self.mode is CudagraphMode.FULL:
            rows, batch = self.size, batch.padded_to(self.size)
        context = context_of(inputs._replace(metadata=batch), kv_cache, timer)

        def replay_list(*_: Any, **__: Any) -> Any:
            began = time.perf_counter()
            recording.fill(inputs)
            spent = dict.fromkeys(KINDS, 0.0)
            spent["other"] = time.perf_counter() - began
            recording.list.replay(context.backend, kv_cache.layers, rows, spent)
            timer.charge(spent, recording.calls)
            context.layers_run = model.num_layers
            return recording.output

        with standing_in(recording.decoder, replay_list):
            return call_model(model, inputs, context)
