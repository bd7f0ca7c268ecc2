"""The captured graphs: kept by mode and size, captured when first asked for. Box CUDA graph.

vLLM 0.26.0 captures at start (`capture_model` in `vllm/v1/worker/gpu_model_runner.py`) and keeps
the graphs in `vllm/compilation/cuda_graph.py` (`CUDAGraphWrapper`).
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from engine.cuda_graph.arena import Arena
from engine.cuda_graph.device_graph import DeviceGraph
from engine.cuda_graph.dispatcher import CudagraphMode, Dispatch
from engine.cuda_graph.flat_list import Forms
from engine.cuda_graph.inductor import Kernels
from engine.cuda_graph.operations import Buffer, OperationList
from engine.cuda_graph.recorded_graph import RecordedGraph, Recording
from engine.cuda_graph.recorder import CannotRecord
from engine.doing import doing, tell
from engine.events import GraphCaptured
from engine.forward import Forward, ModelInputs
from engine.kv_cache import KVCache
from engine.model_loader import LoadedModel
from engine.paged_attention import PagedAttentionMetadata
from engine.reasons import CannotCapture
from engine.trace import error_text


class Graph(Protocol):
    """The decoder's forward over a batch of one size, ready for replay."""

    size: int
    mode: CudagraphMode
    backend: str  # what it is
    num_pieces: int
    tolerance: float  # how far its logits may be from the eager ones, as a part of the largest
    operations: OperationList
    num_bytes: int  # of its static buffers

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Where they lie."""

    def replay(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """The forward over at most `size` rows, padded; the logits are the caller's own."""

    def run_eagerly(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """The same by the model's modules, over exactly `size` rows."""


class GraphKey(NamedTuple):
    """Which graph: the number of requests makes no difference to what is captured."""

    mode: CudagraphMode
    size: int

    def __str__(self) -> str:
        return f"{self.mode} {self.size}"


class CapturedGraph(NamedTuple):
    """A graph and what its capture found out."""

    graph: Graph
    capture_us: float  # recording, binding and the comparison with the eager forward
    eager_us: float  # a forward of this size, right after the capture
    replay_us: float
    max_difference: float  # of a logit between the two

    def facts(self, shared: bool) -> GraphCaptured:
        """What the log says of it."""
        graph, buffers = self.graph, self.graph.buffers
        return GraphCaptured(
            mode=graph.mode,
            size=graph.size,
            backend=graph.backend,
            pieces=graph.num_pieces,
            shared=shared,
            num_bytes=graph.num_bytes,
            eager_us=self.eager_us,
            replay_us=self.replay_us,
            max_difference=self.max_difference,
            buffer_names=tuple(buffer.name for buffer in buffers),
            buffer_holds=tuple(buffer.holds for buffer in buffers),
            buffer_addresses=tuple(f"{buffer.address:#x}" for buffer in buffers),
            **graph.operations._asdict(),
        )


class CapturedGraphs:
    """The graphs of a model by mode and size, and why there is none where a capture failed."""

    def __init__(self, device: torch.device, kernels: Kernels | None = None) -> None:
        """`kernels` are inductor's, where it compiles what it can."""
        self.by_key: dict[GraphKey, CapturedGraph] = {}
        self.refused: dict[GraphKey, str] = {}
        self._on_gpu = device.type == "cuda"
        self._recordings: dict[int, Recording] = {}  # by size: those of both modes
        self._arena = Arena(device)
        self._forms: Forms = {}
        self._kernels = kernels

    @classmethod
    def of(cls, model: LoadedModel, kv_cache: KVCache, backend: str = "auto") -> CapturedGraphs:
        """Those of a model by a `compilation_backend`: all engines of the process share them.

        A recorded list is told at replay which pool it works on. A CUDA graph holds the pool's
        addresses, so there every pool has graphs of its own.
        """
        owner = kv_cache if model.model.device.type == "cuda" else model.model
        by_backend = _graphs.setdefault(owner, {})
        if backend not in by_backend:
            kernels: Kernels | None = {} if backend == "inductor" else None
            by_backend[backend] = cls(model.model.device, kernels)
        return by_backend[backend]

    def allowed(self, decision: Dispatch) -> Dispatch:
        """The decision, or the eager one where its graph is known not to be."""
        if decision.key is None:
            return decision
        refused = self.refused.get(GraphKey(decision.mode, decision.key.num_tokens))
        if refused is None:
            return decision
        return Dispatch(
            CudagraphMode.NONE, decision.num_tokens, key=None, reason=CannotCapture(refused)
        )

    def capture(self, key: GraphKey, model: LoadedModel, kv_cache: KVCache) -> CapturedGraph:
        """Capture a graph, on made-up rows that write to nothing but block 0.

        Raises CannotRecord where it cannot be done or where a replay does not give what the model
        gives, bit by bit unless inductor compiled it: the caller has its eager forward, and
        `refused` says why from then on.
        """
        began = time.perf_counter()
        try:
            with doing(f"capturing the graph {key}"):
                graph = self._graph(key, model, kv_cache)
                tell("comparing it with the eager forward")
                found = compare(graph, model, kv_cache)
        except Exception as error:  # whatever torch or the model's code objects to
            ours = isinstance(error, CannotRecord)
            self.refused[key] = str(error) if ours else error_text(error)
            raise CannotRecord(self.refused[key]) from error
        capture_us = (time.perf_counter() - began) * 1e6
        captured = self.by_key[key] = CapturedGraph(graph, capture_us, *found)
        return captured

    def _graph(self, key: GraphKey, model: LoadedModel, kv_cache: KVCache) -> Graph:
        """What a capture makes; a size is recorded once for both modes."""
        inputs = decode_rows(key.size, 0, model, kv_cache)
        if self._on_gpu:
            return DeviceGraph(key.mode, inputs, model, kv_cache)
        recording = self._recordings.get(key.size)
        if recording is None:
            recording = Recording(inputs, model, kv_cache, self._arena, self._forms, self._kernels)
            self._recordings[key.size] = recording
        return RecordedGraph(key.mode, recording)


_graphs: WeakKeyDictionary[PreTrainedModel | KVCache, dict[str, CapturedGraphs]]
_graphs = WeakKeyDictionary()


def compare(graph: Graph, model: LoadedModel, kv_cache: KVCache) -> tuple[float, float, float]:
    """Microseconds of the eager forward and of a replay over rows other than those captured, and
    the largest difference of a logit.

    Raises CannotRecord where they differ by more than the graph's tolerance.
    """
    make = decode_rows if graph.mode is CudagraphMode.FULL else mixed_rows
    inputs = make(graph.size, 1, model, kv_cache)
    with torch.inference_mode():
        eager = graph.run_eagerly(inputs, model, kv_cache)
        replay = graph.replay(inputs, model, kv_cache)
    difference = 0.0
    if not torch.equal(eager.logits, replay.logits):
        difference = float((eager.logits - replay.logits).abs().max())
        if not 0 < difference <= graph.tolerance * float(eager.logits.abs().max()):  # NaN is not
            raise CannotRecord("a replay of it gives other logits")
    return eager.times.total_us, replay.times.total_us, difference


# --- made-up batches of requests that live in block 0, which is nobody's -------------------------


def decode_rows(size: int, variant: int, model: LoadedModel, kv_cache: KVCache) -> ModelInputs:
    """Decodes of one token each."""
    return made_up_rows((1,) * size, variant, model, kv_cache)


def mixed_rows(size: int, variant: int, model: LoadedModel, kv_cache: KVCache) -> ModelInputs:
    """A chunk of a prompt, and decodes for the rest."""
    chunk = min(size, room_in_block(model, kv_cache))
    return made_up_rows((chunk, *(1,) * (size - chunk)), variant, model, kv_cache)


def made_up_rows(
    query_lens: tuple[int, ...], variant: int, model: LoadedModel, kv_cache: KVCache
) -> ModelInputs:
    """A batch with these many rows for each request, all of which sample."""
    device, room = model.model.device, room_in_block(model, kv_cache)
    positions, seq_lens, starts = list[int](), list[int](), [0]
    for place, length in enumerate(query_lens):
        first = (place + variant) % (room - length + 1)
        positions += range(first, first + length)
        seq_lens.append(first + length)
        starts.append(starts[-1] + length)
    ids = [(7 * row + 3 * variant + 1) % model.vocab_size for row in range(starts[-1])]
    slots = torch.tensor(positions, device=device)
    return ModelInputs(
        input_ids=torch.tensor([ids], device=device),
        positions=slots[None],
        logits_to_keep=torch.tensor(starts[1:], device=device) - 1,
        metadata=PagedAttentionMetadata(
            query_start_loc=tuple(starts),
            seq_lens=tuple(seq_lens),
            block_tables=((0,),) * len(query_lens),
            slot_mapping=slots,
            block_size=kv_cache.spec.block_size,
        ),
    )


def room_in_block(model: LoadedModel, kv_cache: KVCache) -> int:
    """Tokens of a request that lives in one block."""
    return min(kv_cache.spec.block_size, model.max_model_len)
