"""The steps that the scheduler's benchmark times are what their names say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from benchmarks.scheduler import (
    EXACT_POOL,
    PRESSURE_POOL,
    PRESSURE_WARM_STEPS,
    PROMPT_TOKENS,
    PROMPTS,
    Modelless,
    some_prompts,
)
from engine.core import EngineCore
from engine.events import BlockEvicted, RequestPreempted, RequestScheduled
from engine.records import Event


def facts(core: EngineCore, kind: type[Any], since: int = 0) -> list[Any]:
    """Of the log's events of one kind."""
    events = [record for record in core.trace.records[since:] if isinstance(record, Event)]
    return [event.facts for event in events if isinstance(event.facts, kind)]


def tokens(core: EngineCore) -> list[list[int]]:
    """Of all requests, prompts included."""
    return [request.all_token_ids for request in core.scheduler.requests.values()]


def test_with_and_without_log_the_same_is_decided() -> None:
    logged, silent = Modelless(64), Modelless(64, logged=False)
    for engine in (logged, silent):
        engine.decode(4, 64, 100, steps=20)
        engine.step()
    assert tokens(logged.core) == tokens(silent.core)
    assert [len(ids) for ids in tokens(logged.core)] == [64 + 21] * 4
    assert logged.core.trace.state() == logged.core.state()
    assert silent.core.trace.records == []


@pytest.mark.parametrize(
    ("admit", "pool", "hit_tokens", "evicts"),
    [
        (Modelless.admit_to_empty, 2 * EXACT_POOL, 0, False),
        (Modelless.admit_known, 2 * EXACT_POOL, PROMPT_TOKENS - 16, False),
        (Modelless.admit_new, EXACT_POOL, 0, True),
    ],
)
def test_an_admission_is_one_step(admit: Any, pool: int, hit_tokens: int, evicts: bool) -> None:
    engine = Modelless(pool)
    admit(engine)
    before = len(engine.core.trace.records)
    admit(engine)
    scheduled = facts(engine.core, RequestScheduled, before)
    new = [item for item in scheduled if item.kind == "new"]
    assert [item.num_computed_tokens for item in new] == [hit_tokens] * PROMPTS
    assert {item.num_tokens for item in new} == {PROMPT_TOKENS - hit_tokens}
    evicted = facts(engine.core, BlockEvicted, before)
    assert len(evicted) > PROMPTS * 6 if evicts else not evicted


def test_the_pressure_evicts_and_preempts() -> None:
    engine = Modelless(PRESSURE_POOL)
    for _ in range(PRESSURE_WARM_STEPS):
        engine.step_under_pressure()
    for _ in range(30):
        before = len(engine.core.trace.records)
        engine.step_under_pressure()
        assert facts(engine.core, BlockEvicted, before)
    kinds = {item.kind for item in facts(engine.core, RequestScheduled)}
    assert kinds == {"new", "running", "resumed"}
    assert facts(engine.core, RequestPreempted)


def work_of(run: Callable[[], object]) -> int:
    """How many of Python's instructions it takes: the same on any machine, however busy."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def decoding(batch: int, num_gpu_blocks: int, waiting: int = 0) -> Modelless:
    """An engine in decode, none of whose requests wants a block in the next step."""
    engine = Modelless(num_gpu_blocks)
    engine.decode(batch, 8, 99, steps=3)
    if waiting:
        seats = {"max_num_seqs": batch}
        engine.core.scheduler.config = engine.core.config.model_copy(update=seats)
        engine.add(some_prompts(batch, waiting, 8), max_tokens=9)
        engine.core.step()
    return engine


def test_a_step_costs_as_much_more_as_it_has_more_requests() -> None:
    of_2, of_4, of_14 = (work_of(decoding(batch, 256).core.step) for batch in (2, 4, 14))
    assert of_4 > of_2 and of_14 - of_4 == 5 * (of_4 - of_2)


def test_a_step_costs_the_same_whatever_the_pool_and_however_many_wait() -> None:
    small, large = (work_of(decoding(4, blocks).core.step) for blocks in (64, 65_536))
    assert small == large
    few, many = (work_of(decoding(4, 256, waiting).core.step) for waiting in (1, 50))
    assert few == many
