"""Attention backends by turns: the same pages, queries and plans of a step, without a model.

README.md, "attention", says what the cases are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_least, figure, not_measured
from benchmarks.harness.pairs import by_turns
from engine.kv_cache import LayerKVCache
from engine.layers.numba_threads import numba_is_installed
from engine.paged_attention import AttentionOptions, PagedAttentionMetadata, make_backend
from engine.paged_attention.numba_backend import compile_for

CPU = torch.device("cpu")
LAYERS, HEADS, KV_HEADS, DIM, BLOCK_SIZE = 30, 9, 3, 64, 16  # the default model's
SAMPLES = 20


class Case(NamedTuple):
    """A step: requests of one length, each with so many rows."""

    name: str
    num_requests: int
    seq_len: int
    num_rows: int
    window: int | None = None


CASES = (
    Case("decode, batch 1, context 257", 1, 257, 1),
    Case("decode, batch 8, context 257", 8, 257, 1),
    Case("decode, batch 32, context 257", 32, 257, 1),
    Case("decode, batch 1, context 4096", 1, 4096, 1),
    Case("decode, batch 2, context 4096, window 512", 2, 4096, 1, 512),
    Case("verify 4 drafts, batch 8, context 257", 8, 257, 5),
    Case("prefill 512", 1, 512, 512),
    Case("chunk of 256 after 768", 1, 1024, 256),
    Case("chunk of 16 after 1008", 1, 1024, 16),
)


def measure(effort: Effort) -> list[Figure]:
    """Each case with both backends."""
    if not numba_is_installed():
        return [not_measured("torch / numba", "x", "numba is not installed: pip install numba")]
    compile_for(torch.float32)
    return [f for case in CASES for f in compare(case, effort.samples(SAMPLES))]


def compare(case: Case, count: int) -> list[Figure]:
    """Milliseconds of all layers, and their ratio."""
    step = step_of(case)
    pairs = by_turns(lambda: timed(step, "torch"), lambda: timed(step, "numba"), count)
    goal = at_least(1.0) if case.num_rows == 1 else None
    return [
        figure(f"{case.name}, torch", "ms", [a for a, _ in pairs]),
        figure(f"{case.name}, numba", "ms", [b for _, b in pairs]),
        figure(f"{case.name}, torch / numba", "x", [a / b for a, b in pairs], goal),
    ]


def step_of(case: Case) -> Callable[[str], None]:
    """What runs the case by a backend, its plan included, over shuffled pages of its own."""
    width = -(-case.seq_len // BLOCK_SIZE)
    blocks = (torch.randperm(case.num_requests * width) + 1).tolist()
    tables = [tuple(blocks[i * width : (i + 1) * width]) for i in range(case.num_requests)]
    new = range(case.seq_len - case.num_rows, case.seq_len)
    slots = [t[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for t in tables for p in new]
    metadata = PagedAttentionMetadata(
        query_start_loc=tuple(range(0, len(slots) + 1, case.num_rows)),
        seq_lens=(case.seq_len,) * case.num_requests,
        block_tables=tuple(tables),
        slot_mapping=torch.tensor(slots),
        block_size=BLOCK_SIZE,
    )
    size = (2, len(blocks) + 1, BLOCK_SIZE, KV_HEADS, DIM)
    layers = [LayerKVCache(torch.randn(size)) for _ in range(LAYERS)]
    query, key, value = (
        torch.randn(len(slots), n, DIM).transpose(0, 1) for n in (HEADS, KV_HEADS, KV_HEADS)
    )
    options = AttentionOptions(DIM**-0.5, case.window)

    def run(backend: str) -> None:
        with torch.inference_mode():
            made = make_backend(backend, metadata, CPU)
            for layer in layers:
                made.forward(layer, query, key, value, options)

    return run


def timed(step: Callable[[str], None], backend: str) -> float:
    """Milliseconds of one step's attention."""
    began = time.perf_counter()
    step(backend)
    return (time.perf_counter() - began) * 1e3
