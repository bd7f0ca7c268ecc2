"""Drafts on the page: where they wait, what became of them, and what they leave in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.events import (
    DraftsProposed,
    DraftsVerified,
    ForwardRun,
    InputsPrepared,
    RequestFinished,
    RequestPreempted,
)
from engine.model_loader import load_model
from engine.records import Event
from engine.trace import Patch, Trace, fold
from tests.browser.panels import all_events, events_of, model_trace, models

if TYPE_CHECKING:
    from playwright.sync_api import Page

DRAFTER = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A random model's text, among whose drafts some are right."""
    return model_trace(load_model("tiny-random"), max_tokens=18, speculative_config=DRAFTER)


def stale_slots(trace: Trace, cursor: int) -> dict[str, int]:
    """Slots of each request into which a draft was written that was rejected, and nothing since."""
    stale: dict[str, set[int]] = {}
    batch: InputsPrepared | None = None
    for event in all_events(trace):
        if event.seq > cursor:
            break
        facts = event.facts
        if isinstance(facts, InputsPrepared):
            batch = facts
        elif isinstance(facts, ForwardRun):
            assert batch is not None
            for i, request in enumerate(batch.requests):
                rows = slice(batch.query_start_loc[i], batch.query_start_loc[i + 1])
                stale.setdefault(request, set()).difference_update(batch.positions[rows])
        elif isinstance(facts, DraftsVerified):
            end = facts.position + len(facts.drafts)
            stale[facts.request].update(range(facts.position + facts.num_accepted, end))
        elif isinstance(facts, RequestPreempted | RequestFinished):
            stale.pop(facts.request, None)
    return {request: len(slots) for request, slots in stale.items() if slots}


def test_slots_of_rejected_drafts_are_stale_until_they_are_overwritten(
    page: Page,
    trace: Trace,
) -> None:
    ends = [i for i, r in enumerate(trace.records) if isinstance(r, Patch)]
    ends = [i for i in ends if trace.records[i].phase in ("sample", "output")]
    assert any(stale_slots(trace, i) for i in ends)
    some_stay = False  # a step without drafts overwrites one slot only
    for cursor in ends[:36]:
        data = models(page, trace, cursor)["blocks"]["pool"]
        found: dict[str, int] = {}
        for block, slots in data["stale"].items():
            if slots:
                owner = data["owners"][data["owner"][block]]
                found[owner] = found.get(owner, 0) + slots
        assert found == stale_slots(trace, cursor), trace.records[cursor]
        some_stay |= bool(found) and trace.records[cursor].phase == "output"
    assert some_stay


def test_drafts_wait_behind_the_text_and_are_judged_there(
    page: Page,
    trace: Trace,
) -> None:
    """Those proposed wait until they are verified; then each says what became of it."""
    proposed = {f.facts.request: f for f in events_of(trace, "drafts_proposed")[:6]}
    for request, event in proposed.items():
        facts: DraftsProposed = event.facts
        drafts = drafts_of(page, trace, event.seq, request)
        pending = [(d["id"], d["text"]) for d in drafts if d["verdict"] == "pending"]
        assert pending == list(zip(facts.drafts, facts.texts, strict=True))
    for event in events_of(trace, "drafts_verified")[:8]:
        verdict: DraftsVerified = event.facts
        kept, all_ = verdict.num_accepted, len(verdict.drafts)
        expected = ["accepted"] * kept + (["rejected"] + ["unjudged"] * all_)[: all_ - kept]
        drafts = drafts_of(page, trace, event.seq, verdict.request)
        assert [draft["verdict"] for draft in drafts] == expected
        assert [draft["position"] for draft in drafts] == [
            verdict.position + place for place in range(all_)
        ]


def drafts_of(page: Page, trace: Trace, cursor: int, request: str) -> list[dict[str, object]]:
    streams = models(page, trace, cursor)["lifecycle"]["streams"]
    drafts: list[dict[str, object]] = next(s["drafts"] for s in streams if s["id"] == request)
    return drafts


def test_the_batch_tells_drafts_from_tokens_and_what_each_row_brought(
    page: Page,
    trace: Trace,
) -> None:
    for event in events_of(trace, "drafts_verified")[:6]:
        verdict: DraftsVerified = event.facts
        prepared = next(
            e.facts for e in reversed(events_before(trace, event.seq)) if is_batch(e, event.step)
        )
        place = prepared.requests.index(verdict.request)
        end = prepared.query_start_loc[place + 1]
        batch = models(page, trace, last_sample(trace, event))["graph"]["batch"]["requests"][place]
        assert [row["row"] for row in batch["drafts"]] == list(
            range(end - len(verdict.drafts), end)
        )
        first = end - len(verdict.drafts) - 1
        assert [row["row"] for row in batch["sampled"]] == [
            first + k for k in range(verdict.num_accepted + 1)
        ]


def events_before(trace: Trace, seq: int) -> list[Event]:
    return [event for event in all_events(trace) if event.seq < seq]


def is_batch(event: Event, step: int) -> bool:
    return event.step == step and isinstance(event.facts, InputsPrepared)


def last_sample(trace: Trace, event: Event) -> int:
    """The end of an event's phase."""
    return next(
        i for i in range(event.seq, len(trace.records)) if isinstance(trace.records[i], Patch)
    )


def test_a_requests_rate_is_that_of_the_engines_counters(
    page: Page,
    trace: Trace,
) -> None:
    cursor = len(trace.records) - 1
    tallies = [s["tally"] for s in models(page, trace, cursor)["lifecycle"]["streams"]]
    counters = fold(trace.header.state, trace.records)["counters"]
    assert sum(tally["accepted"] for tally in tallies) == counters["num_accepted_tokens"] > 0
    assert sum(tally["drafted"] for tally in tallies) == counters["num_draft_tokens"]
    assert sum(tally["steps"] for tally in tallies) == counters["num_drafts"]
