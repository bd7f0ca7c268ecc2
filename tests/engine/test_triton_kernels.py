"""The Triton kernels, interpreted, equal plain attention; broken ones are found out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.events import AttentionRun, GraphReplayed, RequestPreempted
from engine.kv_cache import KVCacheSpec, LayerKVCache
from engine.kv_quantization import has_scales
from engine.paged_attention import AttentionOptions, PagedAttentionMetadata
from engine.paged_attention.choice import Asked
from engine.paged_attention.triton import interpret, support
from engine.paged_attention.triton.interpret import InterpretedPagedAttention
from engine.paged_attention.triton.process import interpreter
from engine.paged_attention.triton.support import refuse_interpreted, refuse_triton
from tests.engine.test_model_runner import Engine
from tests.engine.test_paged_attention import PagedSequences
from tests.engine.tiny_configs import tiny

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
TOLERANCE = {FP32: 1e-5, BF16: 1e-2, FP16: 1e-3}  # of outputs of about 1


@dataclass
class Case:
    """A batch over a pool that holds what an engine's would, and NaN where nobody has written."""

    heads: int = 4
    kv_heads: int = 2
    dim: int = 32
    block_size: int = 4
    chunks: tuple[tuple[int, int], ...] = ((1, 9), (1, 14))  # rows and tokens of each request
    dtype: torch.dtype = FP32
    cache: torch.dtype | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    splits: int | None = None
    padding: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        pick = random.Random(self.seed)
        torch.manual_seed(self.seed)
        widths = [-(-tokens // self.block_size) for _, tokens in self.chunks]
        blocks = pick.sample(range(1, sum(widths) + 3), sum(widths))
        self.tables = [tuple(blocks.pop() for _ in range(width)) for width in widths]
        rows = sum(count for count, _ in self.chunks)
        starts, slots = [0], list[int]()
        for (count, tokens), table in zip(self.chunks, self.tables, strict=True):
            starts.append(starts[-1] + count)
            slots += self.slots(table, range(tokens - count, tokens))
        self.batch = PagedAttentionMetadata(
            query_start_loc=tuple(starts),
            seq_lens=tuple(tokens for _, tokens in self.chunks),
            block_tables=tuple(self.tables),
            slot_mapping=torch.tensor(slots + [0] * self.padding),
            block_size=self.block_size,
        )
        rows += self.padding
        self.query = torch.randn(rows, self.heads, self.dim).to(self.dtype).transpose(0, 1)
        self.key, self.value = (
            torch.randn(rows, self.kv_heads, self.dim).to(self.dtype).transpose(0, 1)
            for _ in range(2)
        )
        self.layer = self.pool(sum(widths) + 3)
        self.options = AttentionOptions(
            self.dim**-0.5,
            self.window,
            self.softcap,
            torch.randn(self.heads) if self.sinks else None,
        )

    def slots(self, table: tuple[int, ...], positions: range) -> list[int]:
        return [
            table[p // self.block_size] * self.block_size + p % self.block_size for p in positions
        ]

    def pool(self, num_blocks: int) -> LayerKVCache:
        dtype = self.cache or self.dtype
        shape = (2, num_blocks, self.block_size, self.kv_heads, self.dim)
        layer = LayerKVCache(
            torch.full(shape, 127 if dtype is torch.int8 else float("nan")).to(dtype),
            torch.full(shape[:-1], float("nan")) if has_scales(dtype) else None,
        )
        for (count, tokens), table in zip(self.chunks, self.tables, strict=True):
            before = torch.tensor(self.slots(table, range(tokens - count)), dtype=torch.int64)
            states = [torch.randn(self.kv_heads, len(before), self.dim) for _ in range(2)]
            layer.write(before, *states)
        return layer

    def run(self) -> Tensor:
        """By the kernels."""
        backend = InterpretedPagedAttention(self.batch, self.splits)
        return backend.forward(self.layer, self.query, self.key, self.value, self.options)

    def plain(self) -> Tensor:
        """One softmax for each row and head, over what the pool holds now."""
        rows = list[Tensor]()
        for (count, tokens), table in zip(self.chunks, self.tables, strict=True):
            keys, values = self.layer.read(torch.tensor(table))[:, :tokens].double()
            for position in range(tokens - count, tokens):
                first = 0 if self.window is None else max(0, position - self.window + 1)
                seen = slice(first, position + 1)
                query = self.query[:, len(rows)].double()
                rows.append(
                    torch.stack(
                        [
                            self.head(query[head], keys[seen, group], values[seen, group], head)
                            for head in range(self.heads)
                            for group in [head * self.kv_heads // self.heads]
                        ]
                    )
                )
        return torch.stack(rows + [torch.zeros_like(rows[0])] * self.padding)

    def head(self, query: Tensor, keys: Tensor, values: Tensor, head: int) -> Tensor:
        scores = keys @ query * self.options.scaling
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if self.options.sinks is not None:
            scores = torch.cat([scores, self.options.sinks[head : head + 1].double()])
        return scores.softmax(0)[: len(keys)] @ values

    def error(self) -> float:
        """The largest, after the kernels have run. NaN is no small one."""
        return float((self.run().double() - self.plain()).abs().nan_to_num(float("inf")).max())


MIXED = ((1, 9), (5, 14), (7, 7), (1, 1))
CASES = {
    "decode": Case(),
    "gqa": Case(heads=6, kv_heads=2, chunks=MIXED),
    "mha": Case(heads=3, kv_heads=3, chunks=MIXED),
    "mqa": Case(heads=5, kv_heads=1, chunks=MIXED),
    "head_dim 80": Case(dim=80, chunks=MIXED),
    "head_dim 96": Case(dim=96),
    "head_dim 256": Case(dim=256, heads=2, kv_heads=1, chunks=MIXED),
    "block_size 1": Case(block_size=1, chunks=MIXED),
    "block_size 7": Case(block_size=7, chunks=MIXED),
    "block_size 128, in parts": Case(
        block_size=128, dim=256, heads=2, kv_heads=1, chunks=((1, 200), (3, 130))
    ),
    "several tiles": Case(heads=4, kv_heads=1, block_size=16, chunks=((40, 50),)),
    "window": Case(window=5, chunks=MIXED),
    "window of a long request": Case(window=5, block_size=16, chunks=((40, 100), (1, 90))),
    "softcap": Case(softcap=0.7, chunks=MIXED),
    "sinks": Case(sinks=True, chunks=MIXED),
    "split": Case(splits=2),
    "more splits than blocks": Case(splits=7, window=9, sinks=True, softcap=1.5),
    "padding": Case(chunks=MIXED, padding=3),
    "bf16": Case(dtype=BF16, chunks=MIXED, splits=2),
    "fp16": Case(dtype=FP16, chunks=MIXED, splits=2),
    "fp32 in bf16": Case(cache=BF16, chunks=MIXED),
    "fp32 in e4m3": Case(cache=torch.float8_e4m3fn, chunks=MIXED),
    "fp32 in e5m2": Case(cache=torch.float8_e5m2, chunks=MIXED),
    "fp32 in int8": Case(cache=torch.int8, chunks=MIXED, splits=2),
    "bf16 in int8": Case(dtype=BF16, cache=torch.int8, chunks=MIXED),
}


@pytest.mark.parametrize("name", CASES)
def test_interpreted_kernels_equal_plain_attention(name: str) -> None:
    case = CASES[name]
    assert case.error() < TOLERANCE[case.dtype]


@pytest.mark.parametrize("seed", range(5))
def test_random_shapes(seed: int) -> None:
    pick = random.Random(seed)
    kv_heads = pick.choice([1, 2, 3])
    totals = [pick.randint(1, 40) for _ in range(pick.randint(1, 3))]
    case = Case(
        heads=kv_heads * pick.randint(1, 5),
        kv_heads=kv_heads,
        dim=pick.choice([32, 40, 64, 100]),
        block_size=pick.randint(1, 20),
        chunks=tuple((pick.choice([1, pick.randint(1, n)]), n) for n in totals),
        window=pick.choice([None, pick.randint(1, 30)]),
        softcap=pick.choice([None, 1.0]),
        sinks=pick.random() < 0.3,
        splits=pick.choice([None, 1, 3]),
        seed=seed,
    )
    assert case.error() < TOLERANCE[FP32]


@pytest.mark.parametrize("cache", [FP32, BF16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
def test_k_and_v_are_written_to_their_slots_and_nowhere_else(cache: torch.dtype) -> None:
    case = Case(chunks=((5, 14), (1, 9), (3, 3)), cache=cache, padding=2)
    case.key[0, 0, :3] = torch.tensor([1e6, -1e6, 0.0])  # more than 8 bits can hold
    case.value[1, 2] = 0.0
    expected = LayerKVCache(*(None if part is None else part.clone() for part in case.layer))  # type: ignore[arg-type]
    expected.write(case.batch.slot_mapping, case.key, case.value)
    case.run()
    for part, (got, wanted) in enumerate(zip(case.layer, expected, strict=True)):
        if got is None or wanted is None:
            assert part == 1 and not has_scales(cache)
            continue
        got, wanted = got.float()[:, 1:], wanted.float()[:, 1:]  # padding rows race for block 0
        assert torch.equal(got.isnan(), wanted.isnan())
        assert torch.equal(got.nan_to_num(0), wanted.nan_to_num(0))


def test_a_share_of_the_pages_for_each_program_gives_the_same() -> None:
    case = Case(chunks=((1, 25), (1, 3)), window=22)
    case.splits = 1
    whole = case.run()
    for splits in (3, 8):
        case.splits = splits
        assert (case.run() - whole).abs().max() < 1e-6


MUTANTS = {
    "a block is skipped": (
        "range(first * PARTS, end * PARTS)",
        "range(first * PARTS + 1, end * PARTS)",
        Case(),
    ),
    "the last block is skipped": (
        "range(first * PARTS, end * PARTS)",
        "range(first * PARTS, end * PARTS - 1)",
        Case(chunks=((5, 14),)),
    ),
    "a block is read from beside its place": (
        "tl.load(block_table + index)",
        "tl.load(block_table + index // 2)",
        Case(),
    ),
    "a row sees one token after it": (
        "tokens[None, :] <= positions[:, None]",
        "tokens[None, :] <= positions[:, None] + 1",
        Case(chunks=((5, 14),)),
    ),
    "what lies behind the end is read": (
        "(offsets < BLOCK_SIZE) & (tokens < seq_len)",
        "(offsets < BLOCK_SIZE)",
        Case(),
    ),
    "a padded tile reads the next block": (
        "(offsets < BLOCK_SIZE) & (tokens < seq_len)",
        "(tokens < seq_len)",
        Case(),
    ),
    "the window is one too long": (
        "positions[:, None] - WINDOW",
        "positions[:, None] - WINDOW - 1",
        Case(window=5),
    ),
    "the walk begins after the window does": (
        "tl.maximum(position - WINDOW + 1, 0)",
        "tl.maximum(position - WINDOW + 5, 0)",
        Case(window=5),
    ),
    "the first query head of a group stands for all": (
        "heads = kv_head * GROUP + rows\n",
        "heads = kv_head * GROUP + rows * 0\n",
        Case(),
    ),
    "another KV head is read": (
        "* KV_HEADS + kv_head\n        keys",
        "* KV_HEADS + (kv_head + 1) % KV_HEADS\n        keys",
        Case(),
    ),
    "what was added up does not shrink": (
        "output * shrink[:, None]",
        "output",
        Case(),
    ),
    "the cap is forgotten": ("if SOFTCAP:", "if False:", Case(softcap=0.7)),
    "the sink is forgotten": ("if SINKS:", "if False:", Case(sinks=True)),
    "each share has the sink": (
        "tl.where(split == 0, GROUP, 0)",
        "tl.where(split >= 0, GROUP, 0)",
        Case(sinks=True, splits=2),
    ),
    "shares are added up as they are": (
        "tl.sum(outputs * shrink[:, None], 0)",
        "tl.sum(outputs, 0)",
        Case(splits=2),
    ),
    "V is taken for what it is a step count of": (
        "if value_scales is not None:",
        "if False:",
        Case(cache=torch.int8),
    ),
    "the second tile of a chunk stands where the first does": (
        "tokens = tile_start + rows // GROUP",
        "tokens = rows // GROUP",
        Case(kv_heads=1, block_size=16, chunks=((40, 50),)),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, case = MUTANTS[name]

    class Breaking:
        def run(self, function: str, task: dict[str, Any]) -> dict[str, Any]:
            task = {"task": task, "old": old, "new": new}
            return interpreter().run("tests.engine.triton_tasks:attend_broken", task)

    monkeypatch.setattr(interpret, "interpreter", Breaking)
    assert case.error() > 1e-3


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss"])
def test_models_through_interpreted_kernels_equal_plain_transformers(name: str) -> None:
    sequences = PagedSequences(tiny(name), [17, 2])
    sequences.cache.attention_backend = "triton-interpret"
    assert sequences.largest_error() < 3e-5  # the torch backend itself comes to 1e-5


def test_an_engine_with_interpreted_kernels_writes_the_same_text() -> None:
    """Prefill chunks, decodes, preemption, and replays of a graph with a row to spare."""
    texts = {}
    for backend in ("torch", "triton-interpret"):
        engine = Engine(
            tiny("llama"),
            block_size=4,
            num_gpu_blocks=7,
            max_num_batched_tokens=8,
            attention_backend=backend,
        )
        for i in range(3):
            engine.add(f"r{i}", [5 + i, 6, 7, 8 + i, 9], max_tokens=5)
        texts[backend] = engine.run()
        assert {facts.backend for facts in engine.facts(AttentionRun)} == {backend}
        assert engine.facts(RequestPreempted) and engine.facts(GraphReplayed)
    assert texts["triton-interpret"] == texts["torch"]


CPU = torch.device("cpu")
SPEC = KVCacheSpec(num_layers=1, num_kv_heads=1, head_dim=64, dtype=FP32, block_size=16)
ASKED = Asked(device=CPU, dtype=FP32, spec=SPEC, softcap=False, sinks=False)


def test_what_the_kernels_cannot_do_is_refused_with_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert refuse_interpreted(ASKED) is None
    assert "set it to auto, or to triton-interpret" in str(refuse_triton(ASKED))
    on_gpu = ASKED._replace(device=torch.device("cuda"))
    assert refuse_triton(on_gpu) is None
    assert "set it to triton" in str(refuse_interpreted(on_gpu))
    wide = ASKED._replace(spec=SPEC._replace(head_dim=512))
    assert "heads of 256 at most, not of 512" in str(refuse_interpreted(wide))
    assert "no kernel for torch.float64" in str(
        refuse_interpreted(ASKED._replace(dtype=torch.float64))
    )
    monkeypatch.setattr(support, "triton_is_installed", lambda: False)
    assert "needs Triton, which is not installed: install it" in str(refuse_interpreted(ASKED))
