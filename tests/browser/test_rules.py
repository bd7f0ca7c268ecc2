"""The monitor beside the map: what the engine's check of itself found, at the cursor.

How it looks in red is seen with faults planted into a running engine: it has none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from engine.async_llm import AsyncLLM
from engine.config import SamplingParams
from engine.events import BlocksLeftUncomputed, IntegrityChecked
from engine.integrity import RULES
from engine.records import Event
from engine.trace import fold
from tests.browser.panels import text_of, workload_trace
from tests.browser.stage import settle, wait_until, watched
from tests.browser.stage_server import StageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    with watched(browser.new_page(viewport={"width": 1280, "height": 900}), server) as page:
        page.get_by_role("tab", name="Rules").click()
        yield page
        page.close()


def engine_of(page: Page, server: StageServer) -> AsyncLLM:
    engine = server.sessions.get(page.evaluate("window.stage.store.link.key"))
    assert engine is not None
    return engine


def at_work(page: Page, server: StageServer) -> AsyncLLM:
    """Two requests share a prefix and decode."""
    engine = engine_of(page, server)
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    for _ in range(2):
        engine.submit("Once upon a time there was a block", params)
        engine.step()
    wait_until(page, "window.stage.store.atHead && window.stage.store.state.engine.step === 2")
    return engine


def check(page: Page) -> None:
    before = page.evaluate("window.stage.store.head")
    page.get_by_role("button", name="Check now").click()
    wait_until(page, "window.stage.store.head > argument && window.stage.store.atHead", before)
    settle(page)


def test_the_words_are_the_engines_rules(page: Page) -> None:
    words = page.evaluate(
        "import('/assets/words/rules.js').then(({ RULES }) => Object.entries(RULES)"
        ".map(([rule, words]) => [rule, words.sentence, Boolean(words.means && words.unit)]))"
    )
    assert words == [[rule, sentence, True] for rule, sentence in RULES.items()]


def test_it_is_not_checked_then_green_and_says_what_was_looked_at(
    page: Page, server: StageServer
) -> None:
    engine = at_work(page, server)
    tab, verdict = page.get_by_role("tab", name="Rules"), page.locator(".gb-rules-verdict")
    expect(verdict).to_have_text("Not checked yet")
    expect(tab).to_have_attribute("data-state", "none")
    check(page)
    expect(verdict).to_have_text(f"All {len(RULES)} rules hold")
    expect(tab).to_have_attribute("data-state", "ok")
    (event,) = [e for e in engine.trace.records if isinstance(e, Event)][-1:]
    assert isinstance(event.facts, IntegrityChecked) and event.duration_us
    checked = dict(zip(event.facts.rules, event.facts.checked, strict=True))
    row = page.locator("[data-rule=one_place]")
    expect(row.locator("small")).to_have_text(f"{checked['one_place']} blocks")
    expect(row.locator("small")).to_have_attribute("data-truth", "measured")
    expect(page.locator("[data-rule=tables] small")).to_have_text("2 tables")
    expect(page.get_by_text("Checked before arrive of step 2, in ")).to_be_visible()
    # The step before stays on show, and what happens next is not covered.
    assert page.evaluate("window.stage.store.entryOnShow().step") == 1
    expect(page.get_by_text("The engine has gone on since.")).to_be_hidden()
    engine.step()
    expect(page.get_by_text("The engine has gone on since.")).to_be_visible()
    # Before the check nobody had looked.
    page.evaluate("window.stage.store.seek(3)")
    expect(verdict).to_have_text("Not checked yet")


def test_a_planted_fault_is_red_with_its_rule_and_its_places(
    page: Page, server: StageServer
) -> None:
    engine = at_work(page, server)

    def damage() -> None:
        (block, *_) = engine.core.scheduler.kv_cache_manager.req_to_blocks["r1"][-1:]
        block.ref_cnt += 1
        engine.core.runner.requests["r0"].token_ids.pop()

    held = engine.core.scheduler.kv_cache_manager.req_to_blocks["r1"][-1].block_id
    engine.thread.call(damage)
    check(page)
    verdict = page.locator(".gb-rules-verdict")
    expect(verdict).to_have_text(f"3 of {len(RULES)} rules are broken, in 3 places")
    expect(page.get_by_role("tab", name="Rules")).to_have_attribute("data-state", "broken")
    first = page.locator(".gb-rules > li").first
    expect(first).to_contain_text("A block's reference count is the number of block tables")
    expect(first).to_contain_text("one too high never frees it")
    expect(first).to_contain_text(f"block {held} counts 2 holders; tables that hold it: 1")
    expect(page.locator("[data-rule=runner]")).to_contain_text("r0 has other tokens in the runner")
    expect(page.locator("[data-rule=log]")).to_contain_text("differs between the log and")
    first.get_by_role("button", name=f"block {held}").click()
    assert page.evaluate("window.stage.store.selection.block") == held
    expect(page.locator(".gb-inspector h2").first).to_have_text(f"Block {held}")
    page.get_by_role("tab", name="Rules").click()
    page.locator("[data-rule=runner]").get_by_role("button", name="r0").click()
    assert page.evaluate("window.stage.store.selection.request") == "r0"


PLACE = """async () => (await import("/assets/panels/cursor.js"))
    .atCursor(window.stage.store).share"""


def test_with_the_switch_on_each_phase_that_is_stepped_is_checked(
    page: Page, server: StageServer
) -> None:
    engine = at_work(page, server)

    def checks() -> list[str]:
        records = engine.trace.records
        return [
            record.facts.before
            for record in records
            if isinstance(record, Event) and isinstance(record.facts, IntegrityChecked)
        ]

    transport = page.locator(".gb-transport")
    transport.get_by_role("button", name="Forward one phase").click()
    wait_until(page, "window.stage.store.headEngine.next_phase === 'schedule'")
    assert checks() == []
    page.get_by_label("after every phase while I step").check()
    transport.get_by_role("button", name="Forward one phase").click()
    expect(page.get_by_text("Checked before prepare of step 2")).to_be_visible()
    assert checks() == ["prepare"]
    # The check leaves on show what it has checked: phase, sentence, arrows, place in the step.
    expect(page.locator(".gb-phase.is-now")).to_have_text("schedule")
    assert "sched-to-runner" in dict(page.evaluate("window.stage.packets()"))
    assert page.evaluate(PLACE) == pytest.approx(2 / 7)
    transport.get_by_role("button", name="Forward one step").click()
    expect(page.get_by_text("Checked before arrive of step 3")).to_be_visible()
    assert checks() == ["prepare", "execute", "sample", "update", "output", "arrive"]


def test_a_saved_trace_keeps_its_checks_and_cannot_be_checked(
    page: Page, server: StageServer
) -> None:
    engine = at_work(page, server)
    engine.check_integrity()
    engine.step()
    text = "\n".join(engine.trace.lines())
    page.evaluate("text => window.stage.store.openTrace(text, 'checked.jsonl')", text)
    expect(page.locator(".gb-rules-verdict")).to_have_text(f"All {len(RULES)} rules hold")
    expect(page.get_by_role("button", name="Check now")).to_be_disabled()


def test_a_check_from_the_past_leaves_the_past_on_show(page: Page, server: StageServer) -> None:
    at_work(page, server)
    page.evaluate("window.stage.store.seek(20)")
    head = page.evaluate("window.stage.store.head")
    page.get_by_role("button", name="Check now").click()
    wait_until(page, "window.stage.store.head > argument", head)
    settle(page)
    rules = page.locator("#gb-side-rules")
    assert page.evaluate("window.stage.store.cursor") == 20
    expect(rules).to_contain_text(f"All {len(RULES)} rules hold")
    expect(rules).to_contain_text("That is the engine as it is now")
    page.evaluate("window.stage.store.seek(21)")
    settle(page)
    expect(rules).to_contain_text("Not checked yet")
    page.evaluate("window.stage.store.seek(20)")
    settle(page)
    rules.get_by_role("button", name="Go there").click()
    settle(page)
    expect(rules).not_to_contain_text("That is the engine as it is now")
    at = page.evaluate("window.stage.store.records[window.stage.store.cursor].type")
    assert at == "integrity_checked"


def test_blocks_that_nobody_computed_are_told_of_as_no_rule_is_about_them(page: Page) -> None:
    trace = workload_trace("27-priority-victim-in-step")
    left = next(
        i
        for i, record in enumerate(trace.records)
        if isinstance(record, Event) and isinstance(record.facts, BlocksLeftUncomputed)
    )
    page.evaluate("text => window.stage.store.openTrace(text, 'left.jsonl')", text_of(trace))
    for index in (0, left + 12, len(trace.records) - 1):
        state = fold(trace.header.state, trace.records[: index + 1])
        blocks = [key for key, block in state["blocks"].items() if block.get("uncomputed")]
        page.evaluate("index => window.stage.store.seek(index)", index)
        settle(page)
        said = f"such now: {blocks[0]}" if len(blocks) == 1 else "None is such now"
        if len(blocks) > 1:
            said = f"{len(blocks)} blocks are such now: blocks {' and '.join(blocks)}"
        expect(page.locator("#gb-side-rules")).to_contain_text(said)
    without = text_of(workload_trace("27-priority-victim-in-step", cache_uncomputed_blocks=False))
    page.evaluate("text => window.stage.store.openTrace(text, 'without.jsonl')", without)
    settle(page)
    expect(page.get_by_text("No rule asks whether")).to_be_hidden()
