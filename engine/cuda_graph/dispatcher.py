"""How a step's forward runs: by replay of a captured graph, or eagerly (map: CUDA graph).

Counterpart in vLLM 0.26.0: `vllm/v1/cudagraph_dispatcher.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from engine.config import EngineConfig
from engine.cuda_graph.captured import CapturedGraphs
from engine.events import (
    AboveLargestSize,
    CannotCapture,
    EnforceEager,
    PrefillInBatch,
    Reason,
)

CAPTURE_SIZES = (1, 2, 4, 8)  # rows of a decode batch; each is captured when it is first needed


class CudagraphMode(StrEnum):
    """What is replayed: nothing, or the whole forward."""

    NONE = "NONE"
    FULL = "FULL"


class BatchDescriptor(NamedTuple):
    """What decides about a batch: its size, and whether it is uniform decode."""

    num_tokens: int
    num_requests: int
    prefill_tokens: int  # rows of the requests that have more than one

    @classmethod
    def of(cls, query_lens: tuple[int, ...]) -> BatchDescriptor:
        """The descriptor of a batch with these many rows for each request."""
        return cls(sum(query_lens), len(query_lens), sum(n for n in query_lens if n > 1))


class Dispatch(NamedTuple):
    """The decision. Without a graph nothing is padded, and there is a reason why."""

    mode: CudagraphMode
    num_tokens: int
    num_padded_tokens: int
    reason: Reason | None


class CudagraphDispatcher:
    """Chooses the smallest graph that a decode batch fits in; every other batch runs eagerly."""

    def __init__(self, config: EngineConfig, graphs: CapturedGraphs):
        self.enforce_eager = config.enforce_eager
        self.graphs = graphs

    def dispatch(self, batch: BatchDescriptor) -> Dispatch:
        """How this batch runs."""
        tokens = batch.num_tokens
        reason = self._why_eager(batch)
        if reason is not None:
            return Dispatch(CudagraphMode.NONE, tokens, tokens, reason)
        size = next(size for size in CAPTURE_SIZES if size >= tokens)
        return Dispatch(CudagraphMode.FULL, tokens, size, None)

    def _why_eager(self, batch: BatchDescriptor) -> Reason | None:
        if self.enforce_eager:
            return EnforceEager()
        if batch.prefill_tokens:
            return PrefillInBatch(batch.prefill_tokens)
        if batch.num_tokens > CAPTURE_SIZES[-1]:
            return AboveLargestSize(batch.num_tokens, CAPTURE_SIZES[-1])
        if self.graphs.refused is not None:
            return CannotCapture(self.graphs.refused)
        return None
