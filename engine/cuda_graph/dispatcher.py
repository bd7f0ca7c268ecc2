"""How a step's forward runs: by replay of a captured graph, or eagerly (map: CUDA graph).

Nothing is captured or run here: this is the rule alone. Counterpart in vLLM 0.26.0:
`vllm/v1/cudagraph_dispatcher.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from engine.config import EngineConfig
from engine.cuda_graph.capture_sizes import capture_sizes, for_decode_query_len
from engine.reasons import (
    AboveLargestDecodeSize,
    AboveLargestSize,
    EnforceEager,
    ModeForAnyBatch,
    NotUniformDecode,
    Reason,
    UniformDecode,
)


class CudagraphMode(StrEnum):
    """What is replayed: nothing, the pieces between attentions, or the whole forward.

    The last two settings are pairs of the first three: one for uniform decode batches, one for all
    others (`CUDAGraphMode` in `vllm/config/compilation.py`).
    """

    NONE = "NONE"
    PIECEWISE = "PIECEWISE"
    FULL = "FULL"
    FULL_DECODE_ONLY = "FULL_DECODE_ONLY"
    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"

    @property
    def is_pair(self) -> bool:
        """Whether uniform decode batches and others are treated differently."""
        return self in _PAIRS

    @property
    def for_decode(self) -> CudagraphMode:
        """What uniform decode batches get."""
        return _PAIRS[self][0] if self.is_pair else self

    @property
    def for_mixed(self) -> CudagraphMode:
        """What all other batches get."""
        return _PAIRS[self][1] if self.is_pair else self


_PAIRS = {
    CudagraphMode.FULL_DECODE_ONLY: (CudagraphMode.FULL, CudagraphMode.NONE),
    CudagraphMode.FULL_AND_PIECEWISE: (CudagraphMode.FULL, CudagraphMode.PIECEWISE),
}


class BatchDescriptor(NamedTuple):
    """What tells graphs of one mode apart."""

    num_tokens: int  # rows, padding included
    num_reqs: int | None = None  # None: any number
    uniform: bool = False  # each request has `uniform_decode_query_len` rows


class Dispatch(NamedTuple):
    """The decision, and why. In mode NONE nothing is padded."""

    mode: CudagraphMode  # NONE, PIECEWISE or FULL
    num_tokens: int
    key: BatchDescriptor | None  # of the graph taken
    reason: Reason

    @property
    def num_padded_tokens(self) -> int:
        """Rows that run."""
        return self.num_tokens if self.key is None else self.key.num_tokens


class NotWholeRequests(Exception):
    """A decode graph would end within a request; no engine has such sizes, a bare rule may."""


class CudagraphDispatcher:
    """Knows the keys of all graphs there can be, and chooses the smallest that a batch fits in."""

    def __init__(
        self,
        mode: CudagraphMode,
        sizes: Sequence[int],
        max_num_seqs: int,
        uniform_decode_query_len: int = 1,
        enforce_eager: bool = False,
    ):
        """`sizes` ascend. NotWholeRequests where a decode graph of one of them cannot be."""
        self.mode = mode
        self.sizes = () if mode is CudagraphMode.NONE else tuple(sizes)
        self.uniform_decode_query_len = uniform_decode_query_len
        self._max_num_seqs = max_num_seqs
        self._enforce_eager = enforce_eager
        self.keys: dict[CudagraphMode, tuple[BatchDescriptor, ...]] = {
            CudagraphMode.PIECEWISE: (),
            CudagraphMode.FULL: (),
        }
        if mode.for_mixed is CudagraphMode.PIECEWISE:
            self.keys[CudagraphMode.PIECEWISE] = tuple(map(BatchDescriptor, self.sizes))
        if mode.for_mixed is CudagraphMode.FULL:
            self.keys[CudagraphMode.FULL] = tuple(self._key(n, uniform=False) for n in self.sizes)
        elif mode.for_decode is CudagraphMode.FULL:
            least, most = uniform_decode_query_len, uniform_decode_query_len * max_num_seqs
            self.keys[CudagraphMode.FULL] = tuple(
                self._key(n, uniform=True) for n in self.sizes if least <= n <= most
            )

    @classmethod
    def of(cls, config: EngineConfig) -> CudagraphDispatcher:
        """That of an engine. ConfigError where its sizes cannot be."""
        mode = CudagraphMode(config.cudagraph_mode)
        if config.enforce_eager:
            mode = CudagraphMode.NONE
        query_len = 1 + config.num_speculative_tokens
        sizes = capture_sizes(
            config.max_num_seqs,
            config.max_num_batched_tokens,
            query_len,
            config.cudagraph_capture_sizes,
            config.max_cudagraph_capture_size,
        )
        if mode.for_decode is CudagraphMode.FULL:
            sizes = for_decode_query_len(sizes, query_len)
        return cls(mode, sizes, config.max_num_seqs, query_len, config.enforce_eager)

    def record(self) -> dict[str, Any]:
        """What the state has of it: the sizes, and which of them each mode has a graph of."""
        return {
            "mode": str(self.mode),
            "uniform_decode_query_len": self.uniform_decode_query_len,
            "sizes": list(self.sizes),
            "keys": {str(mode): [list(key) for key in keys] for mode, keys in self.keys.items()},
        }

    def is_uniform_decode(self, query_lens: Sequence[int]) -> bool:
        """Whether each request has as many rows as a decode has.

        A prompt's chunk of that many rows counts as well. (`_is_uniform_decode` in
        `vllm/v1/worker/gpu_model_runner.py`.)
        """
        return set(query_lens) == {self.uniform_decode_query_len}

    def dispatch(self, query_lens: Sequence[int]) -> Dispatch:
        """How a batch with these many rows for each request runs."""
        uniform, num_tokens = self.is_uniform_decode(query_lens), sum(query_lens)
        mode, key = self.choose(num_tokens, uniform)
        return Dispatch(mode, num_tokens, key, self._why(query_lens, mode, uniform))

    def choose(
        self, num_tokens: int, uniform: bool
    ) -> tuple[CudagraphMode, BatchDescriptor | None]:
        """Mode and graph by these two alone. NotWholeRequests as in the constructor."""
        if not self.sizes or num_tokens > self.sizes[-1]:
            return CudagraphMode.NONE, None
        size = self.sizes[bisect_left(self.sizes, num_tokens)]
        full = self._key(size, uniform=uniform and self.mode.is_pair)
        for mode, key in (
            (CudagraphMode.FULL, full),
            (CudagraphMode.PIECEWISE, BatchDescriptor(size)),
        ):
            if key in self.keys[mode]:
                return mode, key
        return CudagraphMode.NONE, None

    def _key(self, size: int, uniform: bool) -> BatchDescriptor:
        """The key of a full graph."""
        query_len = self.uniform_decode_query_len if uniform else 1
        if size % query_len:
            raise NotWholeRequests(f"{size} tokens are no whole number of decodes of {query_len}")
        return BatchDescriptor(size, min(size // query_len, self._max_num_seqs), uniform)

    def _why(self, query_lens: Sequence[int], mode: CudagraphMode, uniform: bool) -> Reason:
        """What decided."""
        num_tokens = sum(query_lens)
        if self._enforce_eager:
            return EnforceEager()
        if self.mode is CudagraphMode.NONE:
            return ModeForAnyBatch(self.mode)
        if not self.sizes or num_tokens > self.sizes[-1]:
            return AboveLargestSize(num_tokens, max(self.sizes, default=0))
        if not self.mode.is_pair:
            return ModeForAnyBatch(self.mode)
        query_len = self.uniform_decode_query_len
        if not uniform:
            others = [length for length in query_lens if length != query_len]
            return NotUniformDecode(query_len, len(others), sum(others))
        if mode is CudagraphMode.FULL:
            return UniformDecode(len(query_lens), query_len)
        decode_sizes = [key.num_tokens for key in self.keys[CudagraphMode.FULL]]
        return AboveLargestDecodeSize(num_tokens, max(decode_sizes, default=0))
