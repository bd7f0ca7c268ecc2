"""Every backend against dense attention written out: shapes, dtypes, mixed batches, options."""

from __future__ import annotations

import importlib.util
import random
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kv_cache import LayerKVCache
from engine.paged_attention import (
    AttentionOptions,
    PagedAttentionMetadata,
    make_backend,
    numba_backend,
)

CPU = torch.device("cpu")
needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed"
)
BACKENDS = ["torch", pytest.param("numba", marks=needs_numba)]


class Shapes(NamedTuple):
    """What a case has, beside its random numbers."""

    num_kv_heads: int = 2
    group: int = 3
    dim: int = 32
    block_size: int = 4
    requests: tuple[tuple[int, int], ...] = ((5, 1), (37, 1), (30, 9), (70, 40), (8, 8))  # len, new
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    padding: int = 0  # rows
    cache_dtype: torch.dtype = torch.float32
    dtype: torch.dtype = torch.float32


class Case:
    """A batch over a pool of shuffled blocks."""

    def __init__(self, shapes: Shapes, seed: int = 0):
        self.shapes, draw = shapes, random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        widths = [-(-length // shapes.block_size) for length, _ in shapes.requests]
        blocks = list(range(1, sum(widths) + 2))
        draw.shuffle(blocks)
        self.tables = [tuple(blocks.pop() for _ in range(width)) for width in widths]
        starts, slots = [0], list[int]()
        for (length, new), table in zip(shapes.requests, self.tables, strict=True):
            starts.append(starts[-1] + new)
            size = shapes.block_size
            slots += [table[p // size] * size + p % size for p in range(length - new, length)]
        self.metadata = PagedAttentionMetadata(
            query_start_loc=tuple(starts),
            seq_lens=tuple(length for length, _ in shapes.requests),
            block_tables=tuple(self.tables),
            slot_mapping=torch.tensor(slots),
            block_size=shapes.block_size,
        )
        rows = starts[-1] + shapes.padding
        if shapes.padding:
            self.metadata = self.metadata.padded_to(rows)
        kv_heads, heads = shapes.num_kv_heads, shapes.num_kv_heads * shapes.group
        # Scores well beyond 1, so that caps, windows and single keys matter.
        self.query, self.key, self.value = (
            (torch.randn(rows, n, shapes.dim, generator=generator) * 1.5)
            .to(shapes.dtype)
            .transpose(0, 1)
            for n in (heads, kv_heads, kv_heads)
        )
        self.options = AttentionOptions(
            scaling=shapes.dim**-0.5 * 2,
            sliding_window=shapes.window,
            softcap=shapes.softcap,
            sinks=torch.randn(heads, generator=generator) if shapes.sinks else None,
        )
        size = (2, sum(widths) + 2, shapes.block_size, kv_heads, shapes.dim)
        self.data = torch.full(size, 50.0)  # what earlier owners left must not matter
        for (length, new), table in zip(shapes.requests, self.tables, strict=True):
            for p in range(length - new):
                block, offset = table[p // shapes.block_size], p % shapes.block_size
                self.data[:, block, offset] = torch.randn(
                    2, kv_heads, shapes.dim, generator=generator
                )

    def layer(self) -> LayerKVCache:
        """The pool as it is before the step, in the dtype that it is kept in."""
        if self.shapes.cache_dtype == torch.int8:
            scales = self.data.abs().amax(-1) / 127
            whole = (self.data / scales[..., None]).round().to(torch.int8)
            return LayerKVCache(whole, scales)
        return LayerKVCache(self.data.to(self.shapes.cache_dtype))

    def run(self, backend: str, metadata: PagedAttentionMetadata | None = None) -> Tensor:
        """[rows, heads, dim], in fp32."""
        made = make_backend(backend, metadata or self.metadata, CPU)
        with torch.inference_mode():
            found = made.forward(self.layer(), self.query, self.key, self.value, self.options)
        return found.float()

    def expected(self) -> Tensor:
        """The same, a row and a head at a time, in fp64, over what the pool really holds."""
        layer = self.layer()
        layer.write(self.metadata.slot_mapping, self.key, self.value)
        shapes, output = self.shapes, torch.zeros(self.query.transpose(0, 1).shape).double()
        for i, ((length, new), table) in enumerate(zip(shapes.requests, self.tables, strict=True)):
            keys, values = layer.read(torch.tensor(table))[:, :length].double()
            for p in range(length - new, length):
                row = self.metadata.query_start_loc[i] + p - (length - new)
                first = 0 if shapes.window is None else max(0, p - shapes.window + 1)
                for head in range(shapes.num_kv_heads * shapes.group):
                    kv = head // shapes.group
                    seen_keys, seen_values = keys[first : p + 1, kv], values[first : p + 1, kv]
                    scores = seen_keys @ self.query[head, row].double() * self.options.scaling
                    if shapes.softcap is not None:
                        scores = torch.tanh(scores / shapes.softcap) * shapes.softcap
                    if self.options.sinks is not None:
                        scores = torch.cat([scores, self.options.sinks[head].double()[None]])
                    weights = torch.softmax(scores, 0)[: p + 1 - first]
                    output[row, head] = weights @ seen_values
        return output.float()

    def error(self, backend: str) -> float:
        return float((self.run(backend) - self.expected()).abs().max())


FP32 = 1e-5
OPTIONS = {
    "plain": {},
    "window": {"window": 7},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": True},
    "all": {"window": 13, "softcap": 3.0, "sinks": True, "padding": 3},
}


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=15)
@given(
    seed=st.integers(0, 9),
    num_kv_heads=st.sampled_from([1, 2, 3]),
    group=st.sampled_from([1, 2, 3, 4]),
    dim=st.sampled_from([32, 64, 80, 128, 256]),
    block_size=st.sampled_from([1, 2, 3, 16, 128]),
    requests=st.lists(
        st.tuples(st.integers(1, 90), st.integers(1, 90)).map(lambda x: (max(x), min(x))),
        min_size=1,
        max_size=3,
    ),
    window=st.none() | st.integers(1, 40),
    softcap=st.none() | st.sampled_from([2.0, 30.0]),
    sinks=st.booleans(),
    padding=st.integers(0, 2),
)
def test_random_shapes(backend: str, seed: int, requests: list[tuple[int, int]], **drawn) -> None:  # type: ignore[no-untyped-def]
    shortened = tuple((length, min(new, 24)) for length, new in requests)
    case = Case(Shapes(requests=shortened, **drawn), seed)
    assert case.error(backend) < FP32


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_mixed_batch(backend: str, options: str) -> None:
    assert Case(Shapes(**OPTIONS[options])).error(backend) < FP32  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "cache",
    [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8],
)
def test_a_pool_of_another_dtype(backend: str, cache: torch.dtype) -> None:
    """What is read is what the pool holds, rounded as it is; fp32 computes on."""
    requests = ((37, 1), (30, 9), (60, 20))
    assert Case(Shapes(cache_dtype=cache, requests=requests)).error(backend) < FP32
    assert Case(Shapes(cache_dtype=cache, dtype=torch.bfloat16)).error(backend) < 0.03


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_wrong_block_a_forgotten_option_and_another_head_are_found(backend: str) -> None:
    case = Case(Shapes(window=9, softcap=2.0, sinks=True))
    expected, options = case.expected(), case.options

    def error(metadata: PagedAttentionMetadata | None = None) -> float:
        return float((case.run(backend, metadata) - expected).abs().max())

    assert error() < FP32
    tables = list(case.metadata.block_tables)
    tables[1] = (*tables[1][:-2], tables[0][0], tables[1][-1])
    assert error(case.metadata._replace(block_tables=tuple(tables))) > 0.01
    for wrong in ({"sliding_window": 10}, {"softcap": None}, {"sinks": None}, {"scaling": 0.3}):
        case.options = options._replace(**wrong)
        assert error() > 0.01
    case.options, case.query = options, case.query.roll(1, dims=0)
    assert error() > 0.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_s_result_does_not_depend_on_the_others(backend: str) -> None:
    """To the bit for numba; torch's library sums up by the shape of the batch."""
    alone = Case(Shapes(requests=((61, 1),)))
    for others in (((300, 1),), ((9, 1), (2000, 1)), ((40, 20), (5, 5))):
        both = Case(Shapes(requests=((61, 1), *others), block_size=4))
        size = len(alone.tables[0])
        both.data[:, list(both.tables[0][:size])] = alone.data[:, list(alone.tables[0])]
        for name in ("query", "key", "value"):
            getattr(both, name)[:, 0] = getattr(alone, name)[:, 0]
        one, other = alone.run(backend)[0], both.run(backend)[0]
        assert torch.equal(one, other) or (backend == "torch" and (one - other).abs().max() < FP32)


@needs_numba
@pytest.mark.parametrize("options", OPTIONS)
def test_two_threads_compute_what_one_does(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(Shapes(**OPTIONS[options]))  # type: ignore[arg-type]
    monkeypatch.setattr(numba_backend, "threads", lambda: 1)
    alone = case.run("numba")
    monkeypatch.setattr(numba_backend, "threads", lambda: 2)
    monkeypatch.setattr(numba_backend, "PARALLEL_FROM", 0)
    assert torch.equal(case.run("numba"), alone)
