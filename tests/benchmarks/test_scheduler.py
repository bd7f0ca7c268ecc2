"""The steps that the scheduler's benchmark times are what their names say."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scheduler import (
    EXACT_POOL,
    PRESSURE_POOL,
    PRESSURE_WARM_STEPS,
    PROMPT_TOKENS,
    PROMPTS,
    Modelless,
)
from engine.core import EngineCore
from engine.events import BlockEvicted, Event, RequestPreempted, RequestScheduled


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
