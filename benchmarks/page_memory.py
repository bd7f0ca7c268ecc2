"""The memory of a page that follows a running engine for ten minutes.

README.md, "page_memory", says what is counted, and when.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, Goal, at_most, figure
from benchmarks.pages import MAX_TOKENS, PageError, VisitedPage, busy, visit
from engine.model_loader.tiny import TINY_MODEL
from engine.state import MAX_FINISHED_REQUESTS
from tests.chromium import chromium
from tests.servers import running_app

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession

STEPS_A_SECOND = 40
MINUTES = 10
EVERY_S = 5
# So many records the page keeps here, not 240,000: it folds the oldest all the time.
KEPT_RECORDS = 20_000
# Of requests that have ended, the state keeps the latest: as many are run before the count.
AT_ONCE, SHOWN_WITHIN_S = 64, 60
MB = 1e6
HEAP_GOAL, COUNT_GOAL = at_most(5.0), at_most(2.0)


class Held(NamedTuple):
    """What the page holds after its garbage was collected."""

    heap: float  # bytes of JavaScript's objects
    nodes: float
    listeners: float
    records: float


def measure(effort: Effort) -> list[Figure]:
    """Follow the engine; look every five seconds."""
    looks = max(10, MINUTES * 60 // EVERY_S // (10 if effort.quick else 1))
    with (
        running_app(TINY_MODEL) as (_, url),
        chromium() as browser,
        visit(browser, url) as visited,
    ):
        fill(visited)
        counters = visited.page.context.new_cdp_session(visited.page)
        held = []
        filled = int(visited.store("return s.header.base_seq"))
        with busy(visited, STEPS_A_SECOND):
            for _ in range(looks):
                visited.page.wait_for_timeout(EVERY_S * 1000)
                held.append(look(visited, counters))
        folded = int(visited.store("return s.header.base_seq")) - filled
    if folded < KEPT_RECORDS:
        raise PageError(f"only {folded} records were folded: the engine hardly ran")
    return [
        figure("records folded away", "", [folded]),
        figure("records kept", "", [each.records for each in held], at_most(KEPT_RECORDS)),
        *grown("JavaScript heap", "MB", [each.heap / MB for each in held], HEAP_GOAL),
        *grown("DOM nodes", "", [each.nodes for each in held], COUNT_GOAL),
        *grown("event listeners", "", [each.listeners for each in held], COUNT_GOAL),
    ]


def fill(visited: VisitedPage) -> None:
    """Let the page come to the most records and ended requests that it keeps: until then it grows.

    The requests are like those of `busy`, many at once and as fast as the engine can.
    """
    visited.store("s.maxRecords = argument", KEPT_RECORDS)
    visited.post("/api/engine/run", {})
    for begun in range(0, MAX_FINISHED_REQUESTS, AT_ONCE):
        prompts = [f"{begun + number} " * 8 for number in range(AT_ONCE)]
        body = {"prompt": prompts, "max_tokens": MAX_TOKENS, "ignore_eos": True}
        visited.post("/v1/completions", body)
    for _ in range(SHOWN_WITHIN_S):
        base, requests = visited.store(
            "return [s.header.base_seq, Object.keys(s.state.requests).length]"
        )
        if base > 0 and requests >= MAX_FINISHED_REQUESTS:
            return
        visited.page.wait_for_timeout(1000)
    raise PageError(f"the page has {requests} requests, and folded {base} records")


def look(visited: VisitedPage, counters: CDPSession) -> Held:
    """Collect garbage, and count what is left."""
    counters.send("HeapProfiler.collectGarbage")
    heap = counters.send("Runtime.getHeapUsage")["usedSize"]
    found = counters.send("Memory.getDOMCounters")
    records = visited.store("return s.records.length")
    return Held(heap, found["nodes"], found["jsEventListeners"], records)


def grown(name: str, unit: str, samples: list[float], goal: Goal) -> list[Figure]:
    """How much, and by how many percent its last third is above its first."""
    third = max(1, len(samples) // 3)
    first, last = statistics.median(samples[:third]), statistics.median(samples[-third:])
    growth = (last - first) / first * 100
    return [
        figure(name, unit, samples),
        figure(f"{name}, last third above the first", "%", [growth], goal),
    ]
