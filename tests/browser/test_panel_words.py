"""The words of the panels: each event and reason has its phrase, each moment its sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from engine.events import (
    RequestSubmitted,
)
from engine.records import FACTS_BY_TYPE, REASONS_BY_CODE, Phase
from engine.trace import Trace
from lessons.reason_words import reason_words
from tests.browser.panels import (
    PANELS,
    WORKLOADS,
    Json,
    all_events,
    events_of,
    last_of_step,
    models,
    sentence_of,
    text_of,
    workload_trace,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page


def filled(cls: type[Any]) -> Json:
    """Facts or a reason with a number of its own in each field."""
    values: Json = {}
    for number, (name, kind) in enumerate(get_type_hints(cls).items()):
        if kind is int or kind is float:
            values[name] = 31 + 7 * number
        elif kind is bool:
            values[name] = True
        elif kind is str:
            values[name] = f"x{number}"
        elif kind is type(None):
            continue
        else:
            item = kind.__args__[0]
            values[name] = [f"y{number}", f"z{number}"] if item is str else [number + 3, number + 9]
    return {name: value for name, value in values.items() if name in cls._fields}


def test_every_reason_has_a_phrase_with_its_numbers(page: Page) -> None:
    codes = page.evaluate("Object.keys(harness.reasons.REASON_PHRASES)")
    assert set(codes) == set(REASONS_BY_CODE)
    for code, cls in REASONS_BY_CODE.items():
        numbers = filled(cls)
        reason = {"code": code, **numbers}
        text = page.evaluate("reason => harness.reasons.reasonPhrase(reason)", reason)
        assert "undefined" not in text and "NaN" not in text, text
        assert code not in text and len(text) > 10, text
        for name, value in numbers.items():
            assert str(value) in text, f"{code} does not tell its {name}: {text}"


def test_lessons_say_a_reason_as_the_page_does(page: Page) -> None:
    said = 0
    for code, cls in REASONS_BY_CODE.items():
        filled_in = filled(cls)
        ones = {name: 1 if isinstance(value, int) else value for name, value in filled_in.items()}
        for facts in (filled_in, ones):
            words = reason_words(cls(**facts))
            if words == code.replace("_", " "):
                continue  # no lesson speaks of it
            reason = {"code": code, **facts}
            assert words == page.evaluate("one => harness.reasons.reasonPhrase(one)", reason)
            said += 1
    assert said > 20


def test_every_event_has_a_phrase_and_tells_its_reason(page: Page) -> None:
    types = page.evaluate("Object.keys(harness.events.EVENT_PHRASES)")
    assert set(types) == set(FACTS_BY_TYPE)
    for kind, cls in FACTS_BY_TYPE.items():
        event: Json = {"type": kind, "facts": filled(cls)}
        text = page.evaluate("event => harness.events.eventPhrase(event)", event)
        assert not any(word in text for word in ("undefined", "NaN", "[object", "null")), text
        assert "_" not in text and len(text) > 10, text
        if "request" in cls._fields:
            assert event["facts"]["request"] in text, text


def reasons_by_type() -> dict[str, set[str]]:
    """Which events come with a reason, as the recorded workloads have it."""
    found: dict[str, set[str]] = {}
    for path in sorted(WORKLOADS.glob("*.json")):
        for item in all_events(workload_trace(path.stem)):
            if item.reason is not None:
                kind = next(k for k, cls in FACTS_BY_TYPE.items() if cls is type(item.facts))
                found.setdefault(kind, set()).add(type(item.reason).__name__)
    return found


def test_an_event_that_comes_with_a_reason_says_it(page: Page) -> None:
    for kind in reasons_by_type():
        reason = {"code": "seats_full", "running": 61, "max_num_seqs": 67}
        facts = filled(FACTS_BY_TYPE[kind])
        event = {"type": kind, "facts": facts, "reason": reason}
        text = page.evaluate("event => harness.events.eventPhrase(event)", event)
        assert "61 of 67 seats" in text, f"{kind} keeps its reason to itself: {text}"


def test_sentences_name_who_got_what_and_who_waits(page: Page) -> None:
    trace = workload_trace("09-preempt-recompute")
    step = events_of(trace, "request_preempted")[0].step
    data = models(page, trace, last_of_step(trace, step))
    text = "".join(part["text"] for part in data["lifecycle"]["sentence"])
    assert text.startswith(f"Step {step} gave 2 of 32 tokens: decodes of r0 and r1")
    assert "r2 is preempted for r0, which needs 1 block with 0 free (the last of 3 running)" in text
    blocks = "".join(part["text"] for part in data["blocks"]["sentence"])
    assert "found no room for r0: it needs 1 block and 0 are free" in blocks


def test_a_pause_after_the_last_step_leaves_that_step_on_show(page: Page) -> None:
    trace = workload_trace("01-single")
    last = trace.records[-1].step
    before = models(page, trace, len(trace.records) - 1)
    trace.begin_phase(last + 1, Phase.COMMAND)
    trace.end_phase({"engine": {"mode": "paused"}})
    after = models(page, trace, len(trace.records) - 1)
    assert {data["lifecycle"]["step"] for data in (before, after)} == {last}
    for panel in PANELS:
        assert sentence_of(after, panel) == sentence_of(before, panel)


def test_submissions_one_after_the_other_are_told_together(page: Page) -> None:
    trace = Trace.parse(text_of(workload_trace("01-single")).splitlines())  # which is everybody's
    step = trace.records[-1].step + 1
    for i, tokens in enumerate((9, 12, 10, 11, 9, 9, 12)):
        trace.begin_phase(step, Phase.COMMAND)
        trace.event(RequestSubmitted(f"r{i + 10}", tokens, 16, "page"))
        trace.end_phase({"requests": {f"r{i + 10}": {"status": "submitted"}}})
    words = sentence_of(models(page, trace, len(trace.records) - 1), "lifecycle")
    assert "7 requests are submitted from the page (r10–r16; 9 to 12 prompt tokens" in words
    assert words.endswith("at most 16 to generate).")


def test_a_row_of_the_block_table_counts_what_is_in_the_block(page: Page) -> None:
    trace = workload_trace("04-mixed-budget")
    looked_at = 0
    for cursor in range(0, len(trace.records), 5):
        request = models(page, trace, cursor)["blocks"]["request"]
        for block in request["blocks"] if request else ():
            assert block["to"] - block["from"] == block["fill"] + block["scheduled"]
            looked_at += 1
    assert looked_at > 20


@pytest.mark.parametrize(
    "name", ["13-aborts", "14-stops", "20-reset-cache", "22-random-b", "27-priority-victim-in-step"]
)
def test_every_moment_of_a_trace_has_three_sentences(page: Page, name: str) -> None:
    odd = page.evaluate(
        """text => {
          const store = harness.open(text);
          const odd = [];
          for (let i = -1; i <= store.head; i += 1) {
            store.moveCursor(i);
            for (const { sentence } of Object.values(harness.models)) {
              const parts = sentence(store);
              const text = parts.map((part) => part.text).join("");
              const whole = /^[A-Z].*[.”]$/s.test(text);
              const repeated = text.split("at most 0 tokens may hit").length > 2;
              if (repeated) odd.push(text);
              if (!whole || /undefined|NaN|null|\\.\\.|: [;.]|  |; ;/.test(text)) odd.push(text);
            }
          }
          return odd;
        }""",
        text_of(workload_trace(name)),
    )
    assert odd == []
