"""The stage: state and packets are those of the log, event by event."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from engine.records import FACTS_BY_TYPE
from engine.trace import fold
from tests.browser.stage import (
    Recorded,
    as_text,
    context,
    expected_packets,
    packets_at,
    page,
    recorded,
    records_of,
    settle,
    show,
)
from tests.browser.stage_server import StageServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["context", "page", "recorded"]  # fixtures


# --- state ---------------------------------------------------------------------------------------


def test_the_page_folds_as_the_engine_does_forwards_backwards_and_by_jumps(
    same_page: Page, recorded: Recorded
) -> None:
    show(same_page, recorded.text)
    records = recorded.trace.records
    count = len(records)
    path = [*range(-1, count), *range(count - 2, -2, -1)]
    path += random.Random(7).choices(range(-1, count), k=120)
    same_page.evaluate(
        """async () => {
            const { Timeline } = await import("/assets/core/state.js");
            const { header, records } = window.stage.store;
            window.line = new Timeline(header.state, records, 40);
        }"""
    )
    states = [fold(recorded.trace.header.state, records[:n]) for n in range(count + 1)]
    for start in range(0, len(path), 100):
        part = path[start : start + 100]
        found = same_page.evaluate(
            "part => part.map((index) => JSON.stringify(window.line.moveTo(index)))", part
        )
        for index, text in zip(part, found, strict=True):
            assert json.loads(text) == states[index + 1], f"at record {index}"


def test_ids_that_are_names_of_javascript_stay_ids(same_page: Page) -> None:
    patch = {"requests": {"__proto__": {"status": "running"}, "constructor": {"status": "waiting"}}}
    found = same_page.evaluate(
        """async (text) => {
            const { mergePatch } = await import("/assets/core/state.js");
            const state = Object.create(null);
            mergePatch(state, JSON.parse(text));
            return [JSON.stringify(state), ({}).status ?? null];
        }""",
        json.dumps(patch),
    )
    assert json.loads(found[0]) == patch
    assert found[1] is None


def test_the_table_of_facts_is_the_engines(same_page: Page) -> None:
    kinds = {"str": "s", "int": "n", "float": "n", "bool": "b"}

    def kind(hint: Any) -> str:
        inner = get_args(hint)
        return kinds[inner[0].__name__].upper() if inner else kinds[hint.__name__]

    expected = {
        name: {field: kind(hint) for field, hint in get_type_hints(cls).items()}
        for name, cls in FACTS_BY_TYPE.items()
    }
    assert (
        same_page.evaluate("import('/assets/core/trace_file.js').then((m) => m.FACTS)") == expected
    )


# --- packets -------------------------------------------------------------------------------------


def test_packets_are_the_connections_that_events_travelled(
    same_page: Page, recorded: Recorded
) -> None:
    show(same_page, recorded.text)
    records = records_of(recorded.text)
    seen = set()
    for index in range(0, len(records), 3):
        packets = packets_at(same_page, index)
        assert packets == expected_packets(records, index), f"at record {index}"
        seen |= set(packets)
    assert len(seen) >= 12  # of the map's 14 arrows: the test looks at more than a few


def test_deleting_an_event_removes_exactly_its_packet(same_page: Page, recorded: Recorded) -> None:
    header, records = recorded.text.splitlines()[0], records_of(recorded.text)
    gone = next(i for i, r in enumerate(records) if r.get("type") == "weights_read")
    end = next(i for i in range(gone, len(records)) if records[i]["kind"] == "patch")
    show(same_page, recorded.text)
    before = packets_at(same_page, end)
    show(same_page, as_text(header, records[:gone] + records[gone + 1 :]))
    after = packets_at(same_page, end - 1)
    # Numbers after the deleted event are one less in the second file.
    shifted = {
        name: [seq - (seq > records[gone]["seq"]) for seq in seqs]
        for name, seqs in before.items()
        if name != "runner-to-vram"
    }
    assert before["runner-to-vram"] == [records[gone]["seq"]]
    assert after == shifted


def test_swapping_two_events_swaps_their_packets(same_page: Page, recorded: Recorded) -> None:
    header, records = recorded.text.splitlines()[0], records_of(recorded.text)
    at = next(i for i, r in enumerate(records) if r.get("type") == "attention_run")
    first, second = records[at]["connection"], records[at + 1]["connection"]
    assert first != second
    show(same_page, recorded.text)
    before = [list(packets_at(same_page, i)) for i in (at - 1, at, at + 1)]
    assert before == [before[0], [*before[0], first], [*before[0], first, second]]
    records[at], records[at + 1] = records[at + 1], records[at]
    show(same_page, as_text(header, records))
    after = [list(packets_at(same_page, i)) for i in (at - 1, at, at + 1)]
    assert after == [before[0], [*before[0], second], [*before[0], second, first]]


def test_a_packet_says_how_much_travelled(same_page: Page, recorded: Recorded) -> None:
    show(same_page, recorded.text)
    records = records_of(recorded.text)
    at = next(i for i, r in enumerate(records) if r.get("type") == "batch_scheduled")
    facts = records[at]["facts"]
    packets_at(same_page, at)
    packet = same_page.locator(".gb-packet[data-connection=sched-to-runner]")
    tokens = facts["prefill_tokens"] + facts["decode_tokens"]
    assert packet.get_attribute("data-quantity") == f"{tokens} tok"
    assert same_page.locator(".gb-quantity", has_text=f"{tokens} tok").count() == 1


def test_with_reduced_motion_packets_stand_still_midway(
    page: Page, server: StageServer, recorded: Recorded
) -> None:
    page.emulate_media(reduced_motion="reduce")
    show(page, recorded.text)
    at = next(
        i for i, r in enumerate(records_of(recorded.text)) if r.get("type") == "batch_scheduled"
    )
    page.evaluate("index => window.stage.store.seek(index)", at - 1)
    settle(page)
    page.evaluate("index => window.stage.store.seek(index)", at)
    settle(page)
    assert page.locator(".gb-flight").count() == 0
    halfway = page.evaluate(
        """() => {
            const root = window.stage.root;
            const shaft = root.querySelector("[data-connection=sched-to-runner] .shaft");
            const { x } = shaft.getPointAtLength(shaft.getTotalLength() / 2);
            const packet = root.querySelector(".gb-packet[data-connection=sched-to-runner]");
            return Math.abs(x - packet.transform.baseVal[0].matrix.e);
        }"""
    )
    assert halfway < 2
