"""The trace of a kernel: the walk of the block table, over the pages that the engine has."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.engine_thread import EngineThread
from engine.events import InputsPrepared, PagesRead
from engine.kernel_trace import tracer
from engine.kernel_trace.errors import KernelTraceError
from engine.kernel_trace.interpret import check_noted
from engine.kernel_trace.recorder import Visit
from engine.kernel_trace.rows import find_rows
from engine.kernel_trace.tracer import KernelTracer, Question, look, task_of
from engine.model_loader import LoadedModel, load_model
from engine.model_runner import ModelRunner
from engine.paged_attention.triton import process
from engine.records import Event, Patch, Phase
from engine.trace import Record
from tests.engine.tiny_configs import tiny

Json = dict[str, Any]
BLOCK_SIZE = 4
PROMPT = "A block was not where it was said to be"  # 40 tokens or so, a byte each


def greedy(max_tokens: int = 12) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


@pytest.fixture(scope="module")
def engine() -> Iterator[AsyncLLM]:
    """Two requests side by side, so that their blocks alternate, each with some tokens."""
    pytest.importorskip("triton")
    thread = EngineThread()
    config = EngineConfig(block_size=BLOCK_SIZE, max_num_batched_tokens=24, num_gpu_blocks=64)
    engine = AsyncLLM(load_model("tiny-random"), config, thread)
    engine.submit(PROMPT, greedy())
    engine.submit(PROMPT[::-1], greedy())
    for _ in range(9):
        engine.step()
    yield engine
    thread.stop()


def trace(engine: AsyncLLM, *question: Any) -> Json:
    return asyncio.run(KernelTracer().trace(engine, Question(*question)))


def pages_read(engine: AsyncLLM, request: str, step: int) -> PagesRead:
    return next(
        record.facts
        for record in engine.trace.records
        if isinstance(record, Event)
        and isinstance(record.facts, PagesRead)
        and (record.facts.request, record.step) == (request, step)
    )


def walk(program: Json) -> list[int]:
    return [visit["block"] for visit in program["visits"]]


def test_a_decodes_walk_is_its_block_table_and_the_output_is_the_engines(engine: AsyncLLM) -> None:
    found = trace(engine, "r1", 2, 1)
    read = pages_read(engine, "r1", found["step"])
    assert found["step"] == 8 and found["num_rows"] == 1
    assert sorted(read.blocks) != list(range(read.blocks[0], read.blocks[0] + len(read.blocks)))
    (program,) = found["programs"]
    assert walk(program) == list(read.blocks) == found["blocks"]
    assert found["difference"] < 1e-5 and found["kv_difference"] < 1e-5

    # What was loaded is what there is: the last page no further than its tokens.
    token_bytes = 16 * 4  # head_dim of float32
    last = read.num_tokens - (len(read.blocks) - 1) * BLOCK_SIZE
    sizes = [BLOCK_SIZE * token_bytes] * (len(read.blocks) - 1) + [last * token_bytes]
    assert [visit["key_bytes"] for visit in program["visits"]] == sizes
    assert [visit["value_bytes"] for visit in program["visits"]] == sizes


def test_the_state_is_that_of_the_softmax_page_by_page(engine: AsyncLLM) -> None:
    inputs = asyncio.run(engine.look_async(lambda core: look(Question("r0", 1, 0), core)))
    (program,) = trace(engine, "r0", 1, 0)["programs"]
    keys, values = inputs.pages.data.flatten(1, 2)[:, : inputs.rows.seq_len, 0].double()
    scores = inputs.query[:, 0].double() @ keys.T * inputs.options.scaling
    for page, visit in enumerate(program["visits"], start=1):
        seen = scores[:, : page * BLOCK_SIZE]
        maximum = seen.max(1).values
        total = (seen - maximum[:, None]).exp().sum(1)
        norm = (seen.softmax(1) @ values[: page * BLOCK_SIZE]).norm(dim=1)
        for name, exact in (("maximum", maximum), ("total", total), ("norm", norm)):
            assert visit[name] == pytest.approx(exact.tolist(), rel=1e-4, abs=1e-4), name


def test_a_chunks_programs_read_no_further_than_their_last_row_sees(engine: AsyncLLM) -> None:
    found = trace(engine, "r0", 3, 1, 1)
    assert found["num_rows"] > 1 and found["first_position"] > 0
    assert sum(program["num_rows"] for program in found["programs"]) == found["num_rows"]
    for program in found["programs"]:
        end = found["first_position"] + program["first_row"] + program["num_rows"]
        assert walk(program) == found["blocks"][: -(-end // BLOCK_SIZE)]
    assert found["difference"] < 1e-5


def test_a_long_decode_is_split_as_on_a_gpu_and_its_shares_make_one_softmax() -> None:
    pytest.importorskip("triton")
    thread = EngineThread()
    config = EngineConfig(num_gpu_blocks=64, max_num_batched_tokens=1024)
    long = AsyncLLM(load_model("tiny-random"), config, thread)
    try:
        long.submit([5 + i % 200 for i in range(600)], greedy())
        for _ in range(2):
            long.step()
        found = trace(long, "r0", 1, 0)
    finally:
        thread.stop()
    # 132 processors want 264 programs for each of 2 walks; 608 tokens are two shares of 256.
    assert (found["splits"], found["num_decodes"], found["processors"]) == (2, 1, 132)
    assert [program["grid"] for program in found["programs"]] == [[0, 0, 0], [0, 0, 1]]
    first, second = map(walk, found["programs"])
    assert first + second == found["blocks"] and len(first) == 19 == len(second)
    assert found["difference"] < 1e-5
    check_reduction(found)


def check_reduction(found: Json) -> None:
    """What the shares left is what their walks ended with, and together they are one softmax."""
    reduction, shares = found["reduction"], found["reduction"]["shares"]
    assert len(shares) == found["splits"]
    for share, program in zip(shares, found["programs"], strict=True):
        last = program["visits"][-1]
        for measure in ("maximum", "total", "norm"):
            assert share[measure] == pytest.approx(last[measure], rel=1e-4), measure
    for head in range(len(found["query_heads"])):
        largest = max(share["maximum"][head] for share in shares)
        assert reduction["maximum"][head] == pytest.approx(largest)
        parts = [s["total"][head] * math.exp(s["maximum"][head] - largest) for s in shares]
        assert reduction["total"][head] == pytest.approx(sum(parts), rel=1e-4)
        assert [s["shrink"][head] * s["total"][head] for s in shares] == pytest.approx(parts, 1e-4)
        assert 0 < reduction["norm"][head] <= max(s["norm"][head] for s in shares) + 1e-6


def test_a_reduction_that_stores_another_output_is_caught() -> None:
    pytest.importorskip("triton")
    from engine.kernel_trace.interpret import reduction_record
    from engine.paged_attention.triton.launch import Partials

    generator = torch.Generator().manual_seed(0)
    sums, maxima = torch.rand(1, 3, 2, 4, generator=generator), torch.rand(1, 3, 2)
    partials = Partials(sums, maxima, torch.ones(1, 3, 2))
    weights = torch.exp2(maxima[0] - maxima[0].amax(0))
    output = (sums[0] * weights[..., None]).sum(0) / weights.sum(0)[:, None]
    assert len(reduction_record(partials, output)["shares"]) == 3
    with pytest.raises(RuntimeError, match="stored another output"):
        reduction_record(partials, output + 0.01)


@pytest.mark.parametrize(
    ("walks", "tokens", "processors", "splits"),
    [(2, 511, 132, 1), (2, 1024, 132, 4), (6, 64 * 1024, 132, 64), (600, 8192, 132, 1)],
)
def test_a_walk_is_split_as_far_as_there_are_processors_and_tokens(
    walks: int, tokens: int, processors: int, splits: int
) -> None:
    pytest.importorskip("triton")
    from engine.paged_attention.triton.backend import splits_of

    assert splits_of(walks, tokens, processors) == splits


def test_a_kernel_that_skips_a_block_leaves_it_out_of_the_trace(engine: AsyncLLM) -> None:
    from engine.paged_attention.triton.process import interpreter

    inputs = asyncio.run(engine.look_async(lambda core: look(Question("r1", 2, 1), core)))
    task = task_of(inputs)
    faulty = interpreter().run("tests.engine.skipping_kernel:interpret_skipping", task)
    (program,) = faulty["programs"]
    assert walk(program) == list(inputs.rows.blocks)[1:]
    assert faulty["difference"] > 1e-4
    whole = interpreter().run("engine.kernel_trace.interpret:interpret", task)
    assert walk(whole["programs"][0]) == list(inputs.rows.blocks) and whole["difference"] < 1e-5


def test_a_kernel_that_notes_another_block_than_it_loads_is_caught() -> None:
    with pytest.raises(RuntimeError, match=r"says that it read blocks \[4\], and loaded \[5\]"):
        check_noted([Visit(5)], torch.tensor([4, -1]))


def test_looking_changes_nothing(engine: AsyncLLM) -> None:
    runner = engine.core.runner
    assert isinstance(runner, ModelRunner)
    before = [layer.data[:, 1:].clone() for layer in runner.kv_cache.layers]  # 0 is nobody's
    seq = engine.trace.next_seq
    trace(engine, "r0", 3, 0)
    assert engine.trace.next_seq == seq
    for layer, data in zip(runner.kv_cache.layers, before, strict=True):
        assert torch.equal(layer.data[:, 1:], data)


def test_an_earlier_step_can_be_traced_while_its_pages_stand(engine: AsyncLLM) -> None:
    now, before = trace(engine, "r0", 1, 0), trace(engine, "r0", 1, 0, 5)
    assert before["step"] == 5 and before["seq_len"] == now["seq_len"] - 3
    assert walk(before["programs"][0]) == before["blocks"] == now["blocks"][: len(before["blocks"])]


def test_of_a_long_chunk_the_last_rows_are_traced(
    engine: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trace(engine, "r0", 0, 0, 1)
    monkeypatch.setattr(tracer, "MOST_READS", 3 * len(whole["blocks"]))
    few = trace(engine, "r0", 0, 0, 1)
    assert (few["num_rows"], few["num_scheduled"]) == (3, whole["num_rows"])
    assert few["first_position"] == whole["first_position"] + whole["num_rows"] - 3
    assert few["difference"] < 1e-5


@contextmanager
def decoding(model: LoadedModel, prompt: str | list[int], **settings: Any) -> Iterator[AsyncLLM]:
    """An engine whose request has some tokens of its own."""
    thread = EngineThread()
    config = EngineConfig(block_size=BLOCK_SIZE, num_gpu_blocks=64, **settings)
    engine = AsyncLLM(model, config, thread)
    try:
        engine.submit(prompt, greedy())
        for _ in range(4):
            engine.step()
        yield engine
    finally:
        thread.stop()


def test_pages_outside_of_a_sliding_window_are_not_read() -> None:
    pytest.importorskip("triton")
    with decoding(tiny("mistral"), list(range(5, 30))) as engine:
        found = trace(engine, "r0", 1, 0)
    first = (found["seq_len"] - found["sliding_window"]) // BLOCK_SIZE
    assert first > 0 and walk(found["programs"][0]) == found["blocks"][first:]
    assert found["difference"] < 1e-5


def test_integers_are_read_with_their_scales(tiny_model: LoadedModel) -> None:
    pytest.importorskip("triton")
    with decoding(tiny_model, PROMPT, kv_cache_dtype="int8_per_token_head") as engine:
        found = trace(engine, "r0", 1, 0)
    visits = found["programs"][0]["visits"]
    assert sum(visit["key_bytes"] for visit in visits) == found["seq_len"] * (16 * 1 + 4)
    assert [visit["key_bytes"] for visit in visits] == [visit["value_bytes"] for visit in visits]
    assert found["difference"] < 1e-5


def test_without_triton_the_refusal_says_how_to_get_it(
    engine: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "triton_is_installed", lambda: False)
    with pytest.raises(KernelTraceError, match="Triton is not installed.*pip install") as caught:
        trace(engine, "r0", 0, 0)
    assert caught.value.cause == "no_kernel"


@pytest.mark.parametrize(
    ("question", "cause", "message"),
    [
        (("r9", 0, 0), "not_found", "no forward in the log has computed anything of 'r9'"),
        (("r0", 4, 0), "not_found", "layer: there is no 4; this model has 0 to 3"),
        (("r0", 0, 2), "not_found", "kv_head: there is no 2; this model has 0 to 1"),
        (("r0", 0, -1), "not_found", "kv_head: there is no -1; this model has 0 to 1"),
        (("r0", 0, 0, 99), "not_found", "the log has no forward of step 99"),
        (("r1", 0, 0, 0), "not_found", "r1 was not in the batch of step 0; in it: r0"),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    engine: AsyncLLM, question: tuple[Any, ...], cause: str, message: str
) -> None:
    with pytest.raises(KernelTraceError, match="^" + message) as caught:
        trace(engine, *question)
    assert caught.value.cause == cause


# --- which rows, from the log alone --------------------------------------------------------------


def step_events(step: int, request: str, tokens: range, blocks: tuple[int, ...]) -> list[Record]:
    """What a step logs that computes these tokens of a request alone."""
    slots = tuple(blocks[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in tokens)
    rows = InputsPrepared(
        (request,), (0, len(tokens)), (tokens.stop,), (7,) * len(tokens), tuple(tokens), slots
    )
    read = PagesRead(request, blocks, tokens.stop, 0)
    return [
        Event(0, step, Phase.PREPARE, rows, None, None, 0),
        Event(0, step, Phase.EXECUTE, read, None, None, 0),
        Patch(0, step, Phase.EXECUTE, {}, 0.0, 0),
    ]


def test_a_page_that_was_written_again_is_told_with_its_step() -> None:
    log = step_events(0, "r0", range(6), (5, 3)) + step_events(1, "r0", range(6, 7), (5, 3))
    assert find_rows(log, BLOCK_SIZE, "r0", 0).blocks == (5, 3)
    # A slot of the second page that nobody had read does no harm; one that was read does.
    log += step_events(2, "r1", range(3, 4), (3,))
    assert find_rows(log, BLOCK_SIZE, "r0").seq_len == 7
    log += step_events(3, "r1", range(2, 3), (3,))
    assert find_rows(log, BLOCK_SIZE, "r0", 0).seq_len == 6
    with pytest.raises(KernelTraceError, match="step 1 have changed.* block 3 .* in step 3"):
        find_rows(log, BLOCK_SIZE, "r0")


def test_a_step_that_has_not_run_is_not_taken_for_one() -> None:
    prepared = step_events(0, "r0", range(6), (5, 3))[:1]
    with pytest.raises(KernelTraceError, match="no forward has run yet"):
        find_rows(prepared, BLOCK_SIZE, "r0")
    log = step_events(0, "r0", range(6), (5, 3)) + step_events(1, "r0", range(6, 7), (5, 3))[:1]
    assert find_rows(log, BLOCK_SIZE, "r0").step == 0
