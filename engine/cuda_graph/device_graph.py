"""A decode batch's forward as a CUDA graph. Part of the box CUDA graph.

A CUDA graph holds addresses, those of the KV pool among them: every pool needs graphs of its own,
and every input, block tables too, is a static buffer. Counterpart in vLLM 0.26.0:
`CUDAGraphWrapper` in `vllm/compilation/cuda_graph.py`.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch

from engine.cuda_graph.dispatcher import CudagraphMode
from engine.cuda_graph.flat_list import classify, runs_of, span_of
from engine.cuda_graph.operations import Buffer, OperationList
from engine.cuda_graph.recorder import CannotRecord, RecordedAttention, Recorder
from engine.forward import Forward, ModelInputs, run_eagerly
from engine.kv_cache import KVCache
from engine.model_loader import LoadedModel
from engine.module_timer import ModuleTimer, ModuleTimes, decoder_layers
from engine.paged_attention import AttentionBackend, ForwardContext
from engine.paged_attention.torch_backend import DecodeGroup, TorchPagedAttention, workspace
from engine.paged_attention.triton.support import static_triton

WARM_UPS = 2  # on a side stream, so that libraries set themselves up outside of the graph


class DeviceGraph:
    """The graph of one size over one pool: FULL, of decodes with one token each."""

    backend = "CUDA graph"
    num_pieces = 1
    tolerance = 0.0

    def __init__(
        self, mode: CudagraphMode, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache
    ):
        if mode is not CudagraphMode.FULL:
            raise CannotRecord(
                "on a GPU, pieces are not captured; cudagraph_mode FULL_DECODE_ONLY asks for none"
            )
        self.mode: CudagraphMode = mode
        self.size = inputs.metadata.num_tokens
        longest = -(-model.max_model_len // kv_cache.spec.block_size)
        self._width = min(longest, kv_cache.num_blocks)
        device = inputs.input_ids.device
        self._input_ids = torch.zeros(1, self.size, dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self._input_ids)
        self._slots = torch.zeros(self.size, dtype=torch.int64, device=device)
        self._pages = torch.zeros(self.size * self._width, dtype=torch.int64, device=device)
        self._seq_lens = torch.ones(self.size, dtype=torch.int64, device=device)
        self._inputs = ModelInputs(
            self._input_ids, self._positions, inputs.logits_to_keep, inputs.metadata
        )
        self._fill(inputs)
        self.operations = self._warm_up(model, kv_cache)
        self._graph: Any = torch.cuda.CUDAGraph()
        before = torch.cuda.memory_allocated(device)
        with torch.no_grad(), torch.cuda.graph(self._graph, pool=memory_pool()):
            self._logits = self._run(model, kv_cache).logits
        own = torch.cuda.memory_allocated(device) - before
        inputs_of_graph = (self._input_ids, self._positions, self._slots, self._pages)
        self.num_bytes = own + self._seq_lens.nbytes + sum(t.nbytes for t in inputs_of_graph)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """As `Graph.buffers`."""
        return (
            Buffer.of("input_ids", self._input_ids),
            Buffer.of("positions", self._positions),
            Buffer.of("slot_mapping", self._slots),
            Buffer.of("block_table", self._pages),
            Buffer.of("seq_lens", self._seq_lens),
            Buffer.of("logits", self._logits),
        )

    def replay(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """As `Graph.replay`. Its time is measured as a whole: the GPU runs it in one go."""
        began = time.perf_counter()
        self._fill(inputs)
        self._graph.replay()
        logits = self._logits.index_select(0, inputs.logits_to_keep)
        torch.cuda.synchronize(logits.device)
        spent = {"other": time.perf_counter() - began}
        times = ModuleTimes.of(("other",), (0,), spent)
        return Forward(logits, times, kv_cache.attention_backend)

    def run_eagerly(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """As `Graph.run_eagerly`: over the same pages, masked ones too, for equal bits."""
        self._fill(inputs)
        return self._run(model, kv_cache)

    def _fill(self, inputs: ModelInputs) -> None:
        """Rows to spare are token 0 of a request of one token, in block 0."""
        batch = inputs.metadata
        rows, device = batch.num_tokens, self._pages.device
        # Filled up with a page of the request's own, and masked.
        pages = [
            page
            for table in batch.block_tables
            for page in table + table[-1:] * (self._width - len(table))
        ]
        self._input_ids.zero_()[:, :rows] = inputs.input_ids
        self._positions.zero_()[:, :rows] = inputs.positions
        self._slots.zero_()[:rows] = batch.slot_mapping
        self._pages.zero_()[: len(pages)] = torch.tensor(pages, device=device)
        self._seq_lens.fill_(1)[:rows] = torch.tensor(batch.seq_lens, device=device)

    def _warm_up(self, model: LoadedModel, kv_cache: KVCache) -> OperationList:
        """Run on a side stream; the operations of the last run are those that a capture records."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(WARM_UPS - 1):
                self._run(model, kv_cache)
            recorder = Recorder(ModuleTimer.of(model.model), decoder_layers(model.model))
            with recorder:
                self._run(model, kv_cache, recorder)
        torch.cuda.current_stream().wait_stream(stream)
        # Attention's workspaces: the graph's as long as it is there, whoever needs larger ones.
        weight = next(model.model.parameters())  # pages are widened to its dtype
        self._workspaces = [workspace(1, like) for like in (kv_cache.layers[0].data, weight)]
        given = (self._input_ids, self._positions, self._inputs.logits_to_keep)
        found = classify(recorder.ops, given)
        return OperationList.of(
            map(span_of, runs_of(found.replayed)),
            recorded=len(recorder.ops),
            folded=found.folded,
            views=found.views,
        )

    def _run(
        self, model: LoadedModel, kv_cache: KVCache, recorder: Recorder | None = None
    ) -> Forward:
        """The forward over the static buffers, its attention as well."""
        # No backend of a batch: planning one copies from the host, which no graph may do.
        backend = self._attention(kv_cache)
        if recorder is not None:
            backend = RecordedAttention(recorder, backend, kv_cache.layers)
        context = ForwardContext(backend, kv_cache, ModuleTimer.of(model.model))
        return run_eagerly(model, self._inputs, context)

    def _attention(self, kv_cache: KVCache) -> AttentionBackend:
        """The engine's backend, told of the static buffers instead of a batch."""
        if kv_cache.attention_backend == "triton":
            return static_triton(
                self._slots, self._pages.view(self.size, self._width), self._seq_lens
            )
        width = self._width * kv_cache.spec.block_size
        decodes = DecodeGroup(slice(0, self.size), self._pages, self._seq_lens, width)
        return TorchPagedAttention(self._slots, self.size, [decodes], [])


@cache
def memory_pool() -> Any:
    """Memory that all graphs share: they never run at the same time."""
    return torch.cuda.graph_pool_handle()
