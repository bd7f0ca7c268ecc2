"""The decoder's forward as a CUDA graph, or as several with attention between. Part of its box.

A CUDA graph holds addresses, so every input is a static buffer. One with attention in it holds
those of the KV pool, too: every pool has graphs of its own. Counterpart in vLLM 0.26.0:
`CUDAGraphWrapper` in `vllm/compilation/cuda_graph.py`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from engine.cuda_graph.decoder import record, standing_in
from engine.cuda_graph.dispatcher import CudagraphMode
from engine.cuda_graph.flat_list import classify, runs_of, span_of
from engine.cuda_graph.operations import Buffer, OperationList
from engine.cuda_graph.recorder import Attention, RecordedOp
from engine.forward import Forward, ModelInputs, call_model, context_of, run_eagerly
from engine.kv_cache import KVCache, LayerKVCache
from engine.model_loader import LoadedModel
from engine.module_timer import ModuleTimer
from engine.paged_attention import AttentionBackend, AttentionOptions, ForwardContext
from engine.paged_attention.torch_backend import DecodeGroup, TorchPagedAttention, workspace
from engine.paged_attention.triton.support import static_triton


class DeviceGraph:
    """The graph of one size and mode, over one pool.

    FULL: attention is captured as well, and takes each row as a decode of its own. So it fits any
    batch, but the rows of a request each read its pages. PIECEWISE: the decoder is cut at every
    attention, which runs between the pieces over the batch as it is, without padding.
    """

    backend = "CUDA graph"
    tolerance = 0.0

    def __init__(
        self, mode: CudagraphMode, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache
    ):
        self.mode: CudagraphMode = mode
        self.size = inputs.metadata.num_tokens
        self._input_ids = inputs.input_ids.clone()
        self._positions = inputs.positions.clone()
        self._inputs = inputs._replace(input_ids=self._input_ids, positions=self._positions)
        self._cuts: Cuts | None = None
        with torch.no_grad(), beside_the_current_stream():
            found = record(self._inputs, model, kv_cache)  # libraries set themselves up meanwhile
            self._decoder = found.decoder
            self.operations = listed(found.ops, self._inputs)
            if mode is CudagraphMode.FULL:
                self._rows = StaticRows(self.size, model, kv_cache)
                self._fill(inputs)
                self.run_eagerly(inputs, model, kv_cache)  # so do the kernels of attention
                # Torch's workspaces: the graph's as long as it is there, whoever needs larger ones.
                weight = next(model.model.parameters())  # pages are widened to its dtype
                self._workspaces = [workspace(1, t) for t in (kv_cache.layers[0].data, weight)]
            else:
                self._cuts = Cuts(found.ops)
            before = torch.cuda.memory_allocated(self._input_ids.device)
            self._graphs, self._output = self._capture(model, kv_cache)
            own = torch.cuda.memory_allocated(self._input_ids.device) - before
        self.num_pieces = len(self._graphs)
        hidden = self._output.last_hidden_state  # lies in what the capture took
        self.num_bytes = own + sum(t.nbytes for _, t in self._tensors if t is not hidden)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """As `Graph.buffers`."""
        return tuple(Buffer.of(name, tensor) for name, tensor in self._tensors)

    @property
    def _tensors(self) -> list[tuple[str, Tensor]]:
        """What goes in, what the pieces hand to attention and back, and what comes out."""
        between = self._rows.tensors if self._cuts is None else self._cuts.tensors
        return [
            ("input_ids", self._input_ids),
            ("positions", self._positions),
            *between.items(),
            ("hidden_states", self._output.last_hidden_state),
        ]

    def replay(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """As `Graph.replay`. The pieces' time is measured as a whole, with attention's: the GPU
        runs on its own.
        """
        context, rows = self._context(inputs, model, kv_cache), inputs.metadata.num_tokens
        attentions = () if self._cuts is None else self._cuts.attentions

        def replay_pieces(*_: Any, **__: Any) -> Any:
            self._fill(inputs)
            for graph, attention in zip(self._graphs, (*attentions, None), strict=True):
                graph.replay()
                if attention is not None and self._cuts is not None:
                    attention.run_into(self._cuts.output, rows, context.backend, kv_cache.layers)
            context.layers_run = model.num_layers
            return self._output

        with standing_in(self._decoder, replay_pieces):
            return call_model(model, inputs, context)

    def run_eagerly(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """As `Graph.run_eagerly`: over the same pages, masked ones too, for equal bits."""
        self._fill(inputs)
        own = self._inputs._replace(metadata=inputs.metadata, logits_to_keep=inputs.logits_to_keep)
        return run_eagerly(model, own, self._context(inputs, model, kv_cache))

    def _context(
        self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache
    ) -> ForwardContext:
        """Attention of the static rows, or of the batch as it is."""
        timer = ModuleTimer.of(model.model)
        if self.mode is CudagraphMode.FULL:
            return ForwardContext(self._rows.attention(kv_cache), kv_cache, timer)
        return context_of(inputs, kv_cache, timer)

    def _fill(self, inputs: ModelInputs) -> None:
        """Rows to spare are token 0 at position 0."""
        rows = inputs.metadata.num_tokens
        self._input_ids.zero_()[:, :rows] = inputs.input_ids
        self._positions.zero_()[:, :rows] = inputs.positions
        if self.mode is CudagraphMode.FULL:
            self._rows.fill(inputs)

    def _capture(self, model: LoadedModel, kv_cache: KVCache) -> tuple[list[Any], Any]:
        """The pieces, and what the decoder returned, which a replay fills again."""
        own_forward, outputs = self._decoder.forward, list[Any]()
        pieces, context = Pieces(), self._context(self._inputs, model, kv_cache)
        if self._cuts is not None:
            context.backend = self._cuts.between(pieces.cut)

        def run(*arguments: Any, **named: Any) -> Any:
            with pieces:
                outputs.append(own_forward(*arguments, **named))
            return outputs[-1]

        gc.collect()  # whatever goes while a capture is under way would end it
        with standing_in(self._decoder, run):
            run_eagerly(model, self._inputs, context)  # the head behind it is not captured
        return pieces.graphs, outputs[0]


class StaticRows:
    """What a captured attention reads of a batch: each of its rows as a decode of its own.

    All rows' keys and values are written before any is read, so a row sees what it may see by its
    length alone: its own token is the last one.
    """

    def __init__(self, size: int, model: LoadedModel, kv_cache: KVCache):
        longest = -(-model.max_model_len // kv_cache.spec.block_size)
        width, device = min(longest, kv_cache.num_blocks), model.model.device
        self._slots = torch.zeros(size, dtype=torch.int64, device=device)
        self._pages = torch.zeros(size, width, dtype=torch.int64, device=device)
        self._seq_lens = torch.ones(size, dtype=torch.int64, device=device)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """By name."""
        return {
            "slot_mapping": self._slots,
            "block_table": self._pages,
            "seq_lens": self._seq_lens,
        }

    def fill(self, inputs: ModelInputs) -> None:
        """Put a batch in. Rows to spare are the only token of a request in block 0."""
        batch, width, device = inputs.metadata, self._pages.shape[1], self._pages.device
        rows = batch.num_tokens
        # Filled up with a page of the request's own, and masked.
        tables = [table + table[-1:] * (width - len(table)) for table in batch.block_tables]
        owners = [i for i, length in enumerate(batch.query_lens) for _ in range(length)]
        self._slots.zero_()[:rows] = batch.slot_mapping
        self._seq_lens.fill_(1)[:rows] = inputs.positions[0] + 1
        self._pages.zero_()[:rows] = torch.tensor(tables, device=device)[owners]

    def attention(self, kv_cache: KVCache) -> AttentionBackend:
        """The engine's backend, told of the buffers instead of a batch: planning one copies from
        the host, which no graph may do.
        """
        if kv_cache.attention_backend == "triton":
            return static_triton(self._slots, self._pages, self._seq_lens)
        size, width = self._pages.shape
        pages, padded_len = self._pages.view(-1), width * kv_cache.spec.block_size
        decodes = DecodeGroup(slice(0, size), pages, self._seq_lens, padded_len)
        return TorchPagedAttention(self._slots, size, [decodes], [])


class Cuts:
    """Where the decoder is cut: every attention of it, and what lies between two pieces.

    All of them share the buffers: what one piece leaves in them is read before the next one runs.
    """

    def __init__(self, ops: list[RecordedOp]):
        """`ops` are a forward's, as recorded."""
        found = [(op.attention, op.result) for op in ops if op.attention is not None]
        first, result = found[0]
        self._query, self._key, self._value = map(
            torch.empty_like, (first.query, first.key, first.value)
        )
        self.output = torch.empty_like(result)  # [rows, heads, dim]
        self.attentions = tuple(
            attention._replace(query=self._query, key=self._key, value=self._value)
            for attention, _ in found
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """By name."""
        return {
            "query": self._query,
            "key": self._key,
            "value": self._value,
            "attention": self.output,
        }

    def between(self, cut: Callable[[], None]) -> AttentionBackend:
        """Stands in for attention while the pieces are captured."""
        return AttentionBetweenPieces(self.attentions[0], self.output, cut)


class AttentionBetweenPieces:
    """Ends a piece where attention is due, and begins the next one with its result."""

    name = "none"

    def __init__(self, given: Attention, output: Tensor, cut: Callable[[], None]):
        self._given, self._output, self._cut = given, output, cut

    def forward(
        self,
        layer: LayerKVCache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """As every backend's; attention itself runs at replay."""
        self._given.query.copy_(query)
        self._given.key.copy_(key)
        self._given.value.copy_(value)
        self._cut()
        return self._output


class Pieces:
    """While it is entered, what is launched becomes CUDA graphs instead of running."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []  # torch.cuda.CUDAGraph

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *error: object) -> None:
        self.graphs[-1].capture_end()

    def cut(self) -> None:
        """End a piece and begin the next one."""
        self.graphs[-1].capture_end()
        self._begin()

    def _begin(self) -> None:
        self.graphs.append(torch.cuda.CUDAGraph())
        self.graphs[-1].capture_begin(pool=memory_pool())


@contextmanager
def beside_the_current_stream() -> Iterator[None]:
    """Launch on another stream: the default one cannot be captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


@cache
def memory_pool() -> Any:
    """Memory that all graphs share: they never run at the same time."""
    return torch.cuda.graph_pool_handle()


def listed(ops: list[RecordedOp], inputs: ModelInputs) -> OperationList:
    """The operations that a capture of these records."""
    found = classify(ops, (inputs.input_ids, inputs.positions))
    spans = map(span_of, runs_of(found.replayed))
    return OperationList.of(spans, recorded=len(ops), folded=found.folded, views=found.views)
