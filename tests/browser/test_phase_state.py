"""The state inside a phase: event by event it comes to what the engine's patch says at the end.

`phase_oracle.js` has the page's own code go through whole logs: recorded workloads, generated ones,
and an engine that overlaps its steps.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from engine.conformance import Workload, driver_of, load_workload
from engine.model_loader import LoadedModel, load_model
from engine.records import Patch
from engine.trace import Trace, fold
from tests.browser.async_traces import async_trace
from tests.browser.panels import model_trace, text_of, workload_trace
from tests.engine.workloads import (
    ASYNC_FOLDER,
    FOLDER,
    RECORDED,
    RECORDED_ASYNC,
    RECORDED_SPEC,
    SPEC_FOLDER,
    drafted_workloads,
    workload_path,
    workloads,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

ORACLE = "/tests/browser/phase_oracle.js"
Found = dict[str, Any]


def found(page: Page, text: str, without: str | None = None) -> Found:
    """What the oracle says of a log; `without` the effect of events of one type."""
    result: Found = page.evaluate(
        f"([text, kind]) => import('{ORACLE}').then((oracle) => oracle.check(text, kind))",
        [text, without],
    )
    return result


def trace_of(workload: Workload) -> Trace:
    driver = driver_of(workload)
    list(driver.steps())
    return driver.trace


RECORDINGS = [
    *((FOLDER, name) for name in RECORDED),
    *((ASYNC_FOLDER, name) for name in RECORDED_ASYNC),
    *((SPEC_FOLDER, name) for name in RECORDED_SPEC),
]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model("tiny-random")


@pytest.fixture(scope="module")
def texts(model: LoadedModel) -> list[str]:
    """Logs in which each kind of effect happens."""
    recorded = [trace_of(load_workload(workload_path(n, f))[0]) for f, n in RECORDINGS]
    uncached = workload_trace("27-priority-victim-in-step", cache_uncomputed_blocks=False)
    traces = [*recorded, uncached, model_trace(model)]
    return [*map(text_of, traces), async_trace(model, by_hand=True), async_trace(model, False)]


def test_the_effects_of_a_phase_come_to_its_patch_and_each_of_them_counts(
    page: Page, texts: list[str]
) -> None:
    using: dict[str, list[str]] = {}  # shortest first
    for text in sorted(texts, key=len):
        result = found(page, text)
        assert result["phases"] > 5
        assert result["wrong"] == []
        for kind in result["seen"]:
            using.setdefault(kind, []).append(text)
    names = "import('/views/assets/core/effects.js').then((m) => Object.keys(m.EFFECTS))"
    assert set(using) == set(page.evaluate(names))
    for kind in using:
        missed = (found(page, text, kind)["wrong"] for text in using[kind])
        assert any(missed), f"nothing misses the effect of {kind}"


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(workload=workloads() | drafted_workloads())
def test_the_effects_of_a_phase_come_to_its_patch_whatever_is_asked(
    page: Page, workload: Workload
) -> None:
    assert found(page, text_of(trace_of(workload)))["wrong"] == []


def test_no_way_to_a_moment_changes_what_is_there(page: Page, texts: list[str]) -> None:
    """By events forwards and backwards, and by jumps; where a phase ends, as the engine folds."""
    for text in (texts[-1], texts[-3], text_of(workload_trace("09-preempt-recompute"))):
        trace = Trace.parse(text.strip().split("\n"))
        count = min(600, len(trace.records))
        there = list(range(-1, count))
        jumps = random.Random(7).choices(there, k=200)
        path = [*there, *reversed(there), *jumps]
        moments: list[tuple[str, int]] = page.evaluate(
            f"([text, path]) => import('{ORACLE}').then((m) => m.statesOn(text, path))",
            [text, path],
        )
        first = dict(zip(there, moments, strict=False))
        assert [first[index] for index in path] == moments
        for index in there:
            state, changed = first[index]
            assert changed <= index and first[changed][0] == state
        if trace.header.config["async_scheduling"]:
            continue  # a patch of one thread may stand in a phase of the other
        for index in there:
            if index < 0 or isinstance(trace.records[index], Patch):
                folded = fold(trace.header.state, trace.records[: index + 1])
                assert json.loads(first[index][0]) == folded
