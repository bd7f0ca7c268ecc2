"""One event away: where a log lacks an event, or has two swapped, one thing of a panel changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from engine.events import (
    PLACES,
    EngineFailed,
    IntegrityChecked,
    MemorySized,
    MomentRestored,
    RequestPreempted,
    RequestRefused,
    SpecDecodingLogged,
    StatsLogged,
)
from engine.model_loader import LoadedModel
from engine.reasons import CacheLimitsLength, PromptTextTooLong, PromptTooLong
from engine.records import FACTS_BY_TYPE, Event, Patch
from engine.trace import Trace
from tests.browser.panels import (
    COMPARED,
    PANELS,
    Json,
    command_trace,
    drafting_trace,
    events_of,
    last_of_step,
    model_trace,
    models,
    text_of,
    workload_trace,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page


def without(trace: Trace, seq: int) -> str:
    """The trace's text with one event taken out and the rest numbered on."""
    header, *lines = text_of(trace).splitlines()
    records = [json.loads(line) for line in lines]
    records = [record for record in records if record["seq"] != seq]
    for number, record in enumerate(records):
        record["seq"] = number
    return "\n".join([header, *map(json.dumps, records)])


def renumbered(data: Any, seq: int) -> Any:
    """The data of the shortened trace with the sequence numbers of the whole one."""
    if isinstance(data, list):
        return [renumbered(item, seq) for item in data]
    if not isinstance(data, dict):
        return data
    result = {}
    for key, value in data.items():
        if key in ("seq", "i") and isinstance(value, int):
            value = value + 1 if value >= seq else value
        elif key == "seqs":
            value = [item + 1 if item >= seq else item for item in value]
        else:
            value = renumbered(value, seq)
        result[key] = value
    return result


def said(part: Json) -> str:
    """A part's words without what joins it to the part before."""
    text: str = part["text"]
    for joint in ("; ", ", ", " and ", " "):
        text = text.removeprefix(joint)
    return text


def sentence_change(before: list[Json], after: list[Json], seq: int) -> tuple[set[str], set[str]]:
    """What was said of other events and is not any more, and what is said newly."""
    assert any(seq in part["seqs"] for part in before), "no part names the event it came from"
    others = {said(part) for part in before if part["seqs"] and seq not in part["seqs"]}
    now = {said(part) for part in after if part["seqs"]}
    return others - now, now - others


def cells_of(data: Json) -> dict[tuple[str, int], Json]:
    return {
        (row["id"], cell["step"]): cell
        for row in data["lifecycle"]["rows"]
        for cell in row["cells"]
    }


def both(page: Page, trace: Trace, event: Event, cursor: int | None = None) -> tuple[Json, Json]:
    at = last_of_step(trace, event.step) if cursor is None else cursor
    before = models(page, trace, at)
    after = renumbered(models(page, without(trace, event.seq), at - 1), event.seq)
    return before, after


class Effect(NamedTuple):
    """What deleting an event of a type changes, beside its packet and its part of a sentence."""

    always: set[str] = set()
    sometimes: set[str] = set()


TOUCHED = Effect({"blocks.touched"}, {"blocks.request"})
# By type, the fields of the panels' data. Types that are not here change none.
EFFECTS = {
    "request_submitted": Effect(set(), {"lifecycle.rows"}),
    "request_arrived": Effect(set(), {"lifecycle.rows"}),
    "blocks_hit": TOUCHED,
    "block_evicted": TOUCHED,
    "blocks_allocated": TOUCHED,
    "blocks_cached": TOUCHED,
    "blocks_uncached": Effect({"blocks.touched"}),
    "blocks_left_uncomputed": Effect({"blocks.touched"}),
    "blocks_freed": TOUCHED,
    "request_scheduled": Effect(
        {"lifecycle.rows"},
        {
            "lifecycle.steps",
            "lifecycle.streams",
            "graph.history",
            "blocks.pool",
            "blocks.request",
        },
    ),
    "request_passed_over": Effect({"lifecycle.rows"}),
    "request_preempted": Effect(
        {"lifecycle.rows"}, {"lifecycle.steps", "lifecycle.streams", "graph.history"}
    ),
    "admission_stopped": Effect({"lifecycle.rows"}, {"lifecycle.streams"}),
    "batch_scheduled": Effect(set(), {"graph.history", "graph.nothingRan"}),
    "inputs_prepared": Effect({"graph.batch"}),
    "step_dispatched": Effect({"graph.dispatch", "graph.dispatcher"}, {"graph.history"}),
    "graph_captured": Effect({"graph.captured"}, {"graph.history"}),
    "graph_replayed": Effect({"graph.replay", "graph.graphs"}),
    "forward_run": Effect({"graph.forward"}),
    "modules_timed": Effect({"graph.modules"}),
    "pages_read": Effect({"graph.pages"}),
    "heads_grouped": Effect({"graph.heads"}),
    "drafts_verified": Effect(
        {"graph.batch", "lifecycle.rows", "lifecycle.streams"},
        {"blocks.pool", "blocks.waste"},
    ),
    "drafts_proposed": Effect({"lifecycle.streams"}),
    "token_sampled": Effect({"graph.batch"}),
    "token_appended": Effect({"lifecycle.streams"}),
    "token_dropped": Effect({"lifecycle.rows"}),
    "request_finished": Effect({"lifecycle.rows"}, {"lifecycle.streams"}),
    "text_emitted": Effect({"lifecycle.streams"}),
}
# Which panels' sentences say something of a type, where they have room for it.
SAID_OF_STEP = {
    "lifecycle": {
        "batch_scheduled",
        "request_scheduled",
        "request_preempted",
        "request_passed_over",
        "admission_stopped",
        "request_aborted",
        "request_finished",
        "token_dropped",
        "text_emitted",
    },
    "blocks": {
        "prefix_cache_reset",
        "prefix_looked_up",
        "blocks_hit",
        "block_evicted",
        "blocks_allocated",
        "allocation_failed",
        "blocks_cached",
        "blocks_uncached",
        "blocks_left_uncomputed",
        "blocks_freed",
    },
    "graph": {
        "step_dispatched",
        "graph_captured",
        "graph_replayed",
        "forward_run",
        "modules_timed",
        "pages_read",
    },
}
TRACES_OF_EVENTS = (
    "06-prefix-hits",
    "08-eviction-order",
    "09-preempt-recompute",
    "11-priority-preempt",
    "13-aborts",
    "20-reset-cache",
    "27-priority-victim-in-step",
)


SIZED = MemorySized(
    set_by="num_gpu_blocks",
    device_bytes=10**9,
    budget_bytes=0,
    weight_bytes=10**6,
    activation_bytes=0,
    profiled_tokens=0,
    graph_bytes=0,
    graph_sizes=(),
    available_bytes=2**20,
    pool_bytes=2**20,
    bytes_per_block=2**14,
    num_blocks=64,
    block_size=16,
    max_model_len=1008,
)


def end_of_phase(trace: Trace, event: Event) -> int:
    """The patch that ends an event's phase."""
    return next(
        i for i in range(event.seq, len(trace.records)) if isinstance(trace.records[i], Patch)
    )


def changed_fields(before: Json, after: Json) -> set[str]:
    return {
        f"{panel}.{name}"
        for panel in PANELS
        for name in before[panel].keys() | after[panel].keys()
        if name != "sentence" and before[panel].get(name) != after[panel].get(name)
    }


def travelled(data: Json) -> dict[str, list[int]]:
    return {
        packet["connection"]: [event["seq"] for event in packet["events"]]
        for packet in data["packets"]
    }


def check_packets(before: Json, after: Json, event: Event) -> None:
    """Its packet is lighter by it, or gone; every other is what it was, its quantity included."""
    own = next((name for name, seqs in travelled(before).items() if event.seq in seqs), None)
    wanted = {name: [s for s in seqs if s != event.seq] for name, seqs in travelled(before).items()}
    assert travelled(after) == {name: seqs for name, seqs in wanted.items() if seqs}
    sizes = [
        {packet["connection"]: packet["quantity"] for packet in data["packets"]}
        for data in (before, after)
    ]
    for name in sizes[1].keys() - {own}:
        assert sizes[0][name] == sizes[1][name], name
    assert (own is None) == (PLACES[type(event.facts)].connection is None)


def check_sentence(before: list[Json], after: list[Json], seq: int, taken_back: set[int]) -> None:
    """Parts that come from other events stay to the letter; its own says no more of it.

    A preemption takes back its victim's share: without it the share is told again.
    """
    assert all(seq not in part["seqs"] for part in after)
    own = [part for part in before if seq in part["seqs"]]
    if not own:
        assert after == before
        return
    assert after != before
    lost, gained = sentence_change(before, after, seq)
    # What was counted ("3 more ...") may get words once there is room.
    counted = [part for part in before if "more" in part["text"]]
    groups = [set(part["seqs"]) for part in after]
    joined = [p for p in before if any(g - set(p["seqs"]) == taken_back & g for g in groups)]
    joined = joined if taken_back else []
    assert lost <= {said(part) for part in [*counted, *joined]}, lost
    known = {s for part in [*own, *counted, *joined] for s in part["seqs"]} | taken_back
    for part in after:
        if said(part) in gained and not part["text"].startswith(("Step ", "At step ")):
            assert set(part["seqs"]) <= known, part


def shares_of_victim(trace: Trace, event: Event) -> set[int]:
    """What a preemption takes back."""
    if not isinstance(event.facts, RequestPreempted):
        return set()
    return {
        share.seq
        for share in events_of(trace, "request_scheduled")
        if share.step == event.step and share.facts.request == event.facts.request
    }


def check_whose(before: Json, after: Json, event: Event) -> None:
    """Cells, cards and bars that changed are those of the event's request and step."""
    request = getattr(event.facts, "request", None)
    old, new = cells_of(before), cells_of(after)
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    assert {key for key, _ in changed} <= {request}
    kind = next(name for name, cls in FACTS_BY_TYPE.items() if cls is type(event.facts))
    if kind in ("request_scheduled", "admission_stopped", "request_passed_over"):
        assert changed == {(request, event.step)}
    streams = [{s["id"]: s for s in data["lifecycle"]["streams"]} for data in (before, after)]
    assert {name for name in streams[0] if streams[0][name] != streams[1].get(name)} <= {request}
    for panel, field in (("lifecycle", "steps"), ("graph", "history")):
        items = [{i["step"]: i for i in data[panel][field]} for data in (before, after)]
        steps = {step for step in items[0] if items[0][step] != items[1].get(step)}
        assert steps <= {event.step}


def traces_with(kind: str, model: LoadedModel) -> Iterator[Trace]:
    if kind == "request_refused":
        yield command_trace(RequestRefused("r9"), PromptTooLong(999, 100))
        yield command_trace(RequestRefused("r9"), PromptTextTooLong(99_999, 81, 100))
    elif kind == "memory_sized":
        yield command_trace(SIZED, CacheLimitsLength(1008, 2048))
    elif kind == "stats_logged":
        yield command_trace(StatsLogged(10.0, 3.2, 12.5, 2, 1, 0, 0.25, 0.5), aside=True)
    elif kind == "spec_decoding_logged":
        yield command_trace(SpecDecodingLogged(10.0, 4, 12, 5, (3, 2, 0)), aside=True)
    elif kind == "integrity_checked":
        found = IntegrityChecked(
            "execute", ("leaks", "log"), (63, 90), 1, ("leaks",), ("block 4",), (4,), ("",)
        )
        yield command_trace(found, aside=True)
    elif kind == "kv_cache_compared":
        yield command_trace(COMPARED, aside=True)
    elif kind == "moment_restored":
        yield command_trace(MomentRestored("ab12", 1.0, 3, 0, 9, 4096, ("torch 1, here 2",)))
    elif kind == "engine_failed":
        yield command_trace(EngineFailed("the engine stopped in the phase `execute` (x)"))
    elif kind in ("drafts_proposed", "drafts_verified"):
        drafter = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
        yield model_trace(model, speculative_config=drafter)
    elif kind.startswith("drafts_"):
        for name in ("01-accept", "06-padding", "08-priority"):
            yield drafting_trace(name)
    elif kind == "blocks_uncached":
        yield workload_trace("27-priority-victim-in-step", cache_uncomputed_blocks=False)
    else:
        traces = [model_trace(model), *map(workload_trace, TRACES_OF_EVENTS)]
        yield from (trace for trace in traces if events_of(trace, kind))


@pytest.mark.parametrize("kind", sorted(FACTS_BY_TYPE))
def test_deleting_an_event_changes_what_it_says_and_nothing_else(
    page: Page, tiny_model: LoadedModel, kind: str
) -> None:
    """Its packet, its part of each sentence, its fields of each panel; at the end of its phase."""
    effect = EFFECTS.get(kind, Effect())
    seen: set[str] = set()
    mentioned: set[str] = set()
    looked_at = 0
    for trace in traces_with(kind, tiny_model):
        for event in events_of(trace, kind)[:4]:
            cursor = end_of_phase(trace, event)
            before, after = both(page, trace, event, cursor)
            check_packets(before, after, event)
            for panel in PANELS:
                check_sentence(
                    before[panel]["sentence"],
                    after[panel]["sentence"],
                    event.seq,
                    shares_of_victim(trace, event),
                )
                if any(event.seq in part["seqs"] for part in before[panel]["sentence"]):
                    mentioned.add(panel)
            check_whose(before, after, event)
            changed = changed_fields(before, after)
            assert effect.always <= changed <= effect.always | effect.sometimes, changed
            seen |= changed
            looked_at += 1
    assert looked_at > 0
    assert seen == effect.always | effect.sometimes, "a field of the table never changed"
    assert mentioned >= {panel for panel in PANELS if kind in SAID_OF_STEP[panel]}


@pytest.mark.parametrize(
    ("kind", "touched", "name"),
    [
        ("blocks_allocated", "allocated", "06-prefix-hits"),
        ("blocks_hit", "hit", "06-prefix-hits"),
        ("blocks_cached", "cached", "06-prefix-hits"),
        ("blocks_freed", "freed", "06-prefix-hits"),
        ("block_evicted", "evicted", "08-eviction-order"),
    ],
)
def test_deleting_a_block_event_changes_its_outlines_and_its_clause(
    page: Page, kind: str, touched: str, name: str
) -> None:
    trace = workload_trace(name)
    for event in events_of(trace, kind)[:3]:
        before, after = both(page, trace, event)
        blocks = list(getattr(event.facts, "blocks", ()) or (event.facts.block,))
        for what in before["blocks"]["touched"]:
            old, new = before["blocks"]["touched"][what], after["blocks"]["touched"][what]
            if what != touched:
                assert old == new
                continue
            rest = list(new)
            for block in blocks:
                assert old.count(block) == rest.count(block) + 1
                rest.append(block)
        assert before["blocks"]["pool"] == after["blocks"]["pool"]
        lost, gained = sentence_change(
            before["blocks"]["sentence"], after["blocks"]["sentence"], event.seq
        )
        assert len(lost) <= 1 and len(gained) <= 1  # "evicted ..." names all of a step at once
        assert before["blocks"]["sentence"] != after["blocks"]["sentence"]
        assert cells_of(before) == cells_of(after)


def swapped(trace: Trace, first: Event, second: Event) -> str:
    """The trace's text with two events in each other's place."""
    header, *lines = text_of(trace).splitlines()
    records = [json.loads(line) for line in lines]
    a, b = records[first.seq], records[second.seq]
    records[first.seq], records[second.seq] = {**b, "seq": first.seq}, {**a, "seq": second.seq}
    return "\n".join([header, *map(json.dumps, records)])


def neighbours(trace: Trace, kind: str) -> tuple[Any, Any]:
    """Two events of a type, one right after the other, of two requests."""
    return next((a, b) for a, b in pairwise(events_of(trace, kind)) if b.seq == a.seq + 1)


def words_of(parts: list[Json]) -> list[str]:
    return re.findall(r"\w+", "".join(part["text"] for part in parts))


def test_swapping_two_shares_swaps_them_and_nothing_else(page: Page) -> None:
    trace = workload_trace("04-mixed-budget")
    first, second = neighbours(trace, "request_scheduled")
    cursor = last_of_step(trace, first.step)
    before, after = models(page, trace, cursor), models(page, swapped(trace, first, second), cursor)
    old = next(s for s in before["lifecycle"]["steps"] if s["step"] == first.step)["segments"]
    new = next(s for s in after["lifecycle"]["steps"] if s["step"] == first.step)["segments"]
    assert old != new and sorted(map(json.dumps, old)) == sorted(map(json.dumps, new))
    differing = {
        key
        for key, cell in cells_of(before).items()
        if {**cell, "seq": 0} != {**cells_of(after)[key], "seq": 0}
    }
    assert differing == set()
    said_before, said_after = (words_of(d["lifecycle"]["sentence"]) for d in (before, after))
    assert said_before != said_after and sorted(said_before) == sorted(said_after)
    places = [said_after.index(event.facts.request) for event in (first, second)]
    assert [said_before.index(event.facts.request) for event in (second, first)] == places
    assert before["blocks"] == after["blocks"]
    assert before["graph"] == after["graph"]
    assert travelled(before) == travelled(after)


@pytest.mark.parametrize(
    ("kind", "panel", "name"),
    [
        ("request_arrived", "lifecycle", "04-mixed-budget"),
        ("request_finished", "lifecycle", "04-mixed-budget"),
    ],
)
def test_swapping_two_events_swaps_their_words(
    page: Page, kind: str, panel: str, name: str
) -> None:
    trace = workload_trace(name)
    first, second = neighbours(trace, kind) if kind != "request_finished" else two_ends(trace)
    cursor = end_of_phase(trace, first)
    before, after = models(page, trace, cursor), models(page, swapped(trace, first, second), cursor)
    old, new = words_of(before[panel]["sentence"]), words_of(after[panel]["sentence"])
    assert old != new and sorted(old) == sorted(new)
    for other in PANELS:
        if other != panel:
            assert words_of(before[other]["sentence"]) == words_of(after[other]["sentence"])
    assert {name: len(seqs) for name, seqs in travelled(before).items()} == {
        name: len(seqs) for name, seqs in travelled(after).items()
    }


def two_ends(trace: Trace) -> tuple[Any, Any]:
    """Two requests that end in the same step."""
    return next(
        (a, b) for a, b in pairwise(events_of(trace, "request_finished")) if a.step == b.step
    )


def test_the_cursor_decides_what_is_future(page: Page) -> None:
    trace = workload_trace("09-preempt-recompute")
    cursor = last_of_step(trace, 4)
    for (_, step), cell in cells_of(models(page, trace, cursor)).items():
        assert cell["future"] == (step > 4)
    event = events_of(trace, "request_scheduled")[4]
    cells = cells_of(models(page, trace, event.seq - 1))
    assert cells[event.facts.request, event.step]["future"]
    cells = cells_of(models(page, trace, event.seq))
    assert not cells[event.facts.request, event.step]["future"]
