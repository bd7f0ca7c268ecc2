"""The captured graphs: kept by size, captured when first asked for. Part of the box CUDA graph.

vLLM 0.26.0 captures at start (`capture_model` in `vllm/v1/worker/gpu_model_runner.py`) and keeps
the graphs in `vllm/compilation/cuda_graph.py` (`CUDAGraphWrapper`).
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from engine.cuda_graph.device_graph import DeviceGraph
from engine.cuda_graph.operations import OperationList
from engine.cuda_graph.recorded_graph import RecordedGraph
from engine.cuda_graph.recorder import CannotRecord
from engine.events import GraphCaptured
from engine.forward import Forward, ModelInputs
from engine.kv_cache import KVCache
from engine.model_loader import LoadedModel
from engine.paged_attention import PagedAttentionMetadata
from engine.trace import error_text


class DecodeGraph(Protocol):
    """The whole forward of a decode batch of one size, ready for replay."""

    size: int
    operations: OperationList
    num_bytes: int  # of its static buffers

    def replay(self, inputs: ModelInputs, kv_cache: KVCache) -> Forward:
        """The forward over at most `size` rows, padded; the logits are the caller's own."""

    def run_eagerly(self, inputs: ModelInputs, model: LoadedModel, kv_cache: KVCache) -> Forward:
        """The same by the model's modules, over exactly `size` rows."""


class CapturedGraph(NamedTuple):
    """A graph and what its capture found out."""

    graph: DecodeGraph
    capture_us: float  # recording, binding and the comparison with the eager forward
    eager_us: float  # a forward of this size, the quicker of two right after the capture
    replay_us: float

    def facts(self, shared: bool) -> GraphCaptured:
        """What the log says of it."""
        return GraphCaptured(
            size=self.graph.size,
            shared=shared,
            num_bytes=self.graph.num_bytes,
            eager_us=self.eager_us,
            replay_us=self.replay_us,
            **self.graph.operations._asdict(),
        )


class CapturedGraphs:
    """Graphs by size. Once it is known that the forward can be no graph, `refused` says why."""

    def __init__(self) -> None:
        self.by_size: dict[int, CapturedGraph] = {}
        self.refused: str | None = None

    @classmethod
    def of(cls, model: LoadedModel, kv_cache: KVCache) -> CapturedGraphs:
        """Those of a model: all engines of the process share them.

        A recorded list is told at replay which pool it works on. A CUDA graph holds the pool's
        addresses, so there every pool has graphs of its own.
        """
        owner = kv_cache if model.model.device.type == "cuda" else model.model
        graphs = _graphs.get(owner)
        if graphs is None:
            graphs = _graphs[owner] = cls()
        return graphs

    def capture(self, size: int, model: LoadedModel, kv_cache: KVCache) -> CapturedGraph:
        """Capture a size, on made-up rows that write to nothing but block 0.

        Raises CannotRecord, then and ever after, where it cannot be done or where a replay does
        not give, bit by bit, what the model gives: the caller has its eager forward.
        """
        try:
            self.by_size[size] = capture(size, model, kv_cache)
        except CannotRecord as error:
            self.refused = str(error)
            raise
        except Exception as error:  # whatever torch or the model's code objects to
            self.refused = error_text(error)
            raise CannotRecord(self.refused) from error
        return self.by_size[size]


_graphs: WeakKeyDictionary[PreTrainedModel | KVCache, CapturedGraphs] = WeakKeyDictionary()


def capture(size: int, model: LoadedModel, kv_cache: KVCache) -> CapturedGraph:
    """Capture, and compare twice with the eager forward on other rows than those captured."""
    began = time.perf_counter()
    kind = DeviceGraph if model.model.device.type == "cuda" else RecordedGraph
    graph: DecodeGraph = kind(made_up_rows(size, 0, model, kv_cache), model, kv_cache)
    eager_us, replay_us = [], []
    with torch.inference_mode():
        for variant in (1, 2):
            inputs = made_up_rows(size, variant, model, kv_cache)
            eager = graph.run_eagerly(inputs, model, kv_cache)
            replay = graph.replay(inputs, kv_cache)
            if not torch.equal(eager.logits, replay.logits):
                raise CannotRecord("a replay of it gives other logits")
            eager_us.append(eager.times.total_us)
            replay_us.append(replay.times.total_us)
    return CapturedGraph(
        graph=graph,
        capture_us=(time.perf_counter() - began) * 1e6,
        eager_us=min(eager_us),
        replay_us=min(replay_us),
    )


def made_up_rows(size: int, variant: int, model: LoadedModel, kv_cache: KVCache) -> ModelInputs:
    """A decode batch of requests that live in block 0, which is nobody's."""
    device, block_size = model.model.device, kv_cache.spec.block_size
    room = min(block_size, model.max_model_len)
    ids = [(7 * row + 3 * variant + 1) % model.vocab_size for row in range(size)]
    positions = [(row + variant) % room for row in range(size)]
    rows = torch.arange(size, device=device)
    slots = torch.tensor(positions, device=device)
    return ModelInputs(
        input_ids=torch.tensor([ids], device=device),
        positions=slots[None],
        logits_to_keep=rows,
        metadata=PagedAttentionMetadata(
            query_start_loc=tuple(range(size + 1)),
            seq_lens=tuple(position + 1 for position in positions),
            block_tables=((0,),) * size,
            slot_mapping=slots,
            block_size=block_size,
        ),
    )
