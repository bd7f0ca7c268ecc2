"""The code beside the map: the function that an event came from, its line, its values.

Which line it is, is compared with the frames that really made the events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from engine.conformance import driver_of, load_workload
from engine.records import TYPE_OF_FACTS, Event
from engine.source_sites import source_version, sources
from engine.trace import Trace, fold
from tests.browser.stage import axe_faults, settle, show, wait_until, watched
from tests.browser.stage_server import StageServer
from tests.engine.made_at import Makers, watching
from tests.engine.workloads import ASYNC_FOLDER, FOLDER, RECORDED_ASYNC, SPEC_FOLDER, workload_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
CODE = ".gb-code-lines"
SPECULATIVE = sorted(path.stem for path in (SPEC_FOLDER / "workloads").glob("*.json"))
WORKLOADS = (
    ("09-preempt-recompute", FOLDER),
    ("13-aborts", FOLDER),
    ("14-stops", FOLDER),
    ("20-reset-cache", FOLDER),
    ("27-priority-victim-in-step", FOLDER),
    *((name, ASYNC_FOLDER) for name in RECORDED_ASYNC[:6]),
    *((name, SPEC_FOLDER) for name in SPECULATIVE[:3]),
)
RESOLVE = """async (truth) => {
  const { sitesOf } = await import("/assets/core/sites.js");
  const table = await (await fetch("/api/source")).json();
  const { store } = window.stage;
  const told = (site) => site && [site.path, site.line, site.end_line];
  return truth.map(([seq]) => {
    const found = sitesOf(table, store, store.records[seq]);
    return [told(found.event), told(found.reason)];
  });
}"""


@pytest.fixture
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    with watched(browser.new_page(viewport={"width": 1280, "height": 900}), server) as page:
        yield page
        page.close()


@cache
def made(name: str, folder: Path) -> tuple[Trace, Makers]:
    """The log of a workload, and where its events were made."""
    with watching() as makers:
        driver = driver_of(load_workload(workload_path(name, folder))[0])
        list(driver.steps())
    driver.trace.header.versions["glassbox"] = source_version()
    return driver.trace, makers


def text_of(trace: Trace) -> str:
    return "\n".join(trace.lines())


@pytest.mark.parametrize(("name", "folder"), WORKLOADS)
def test_the_line_is_the_one_that_made_the_event(same_page: Page, name: str, folder: Path) -> None:
    trace, makers = made(name, folder)
    truth = [
        (record.seq, makers.of(record.facts), makers.of(record.reason))
        for record in trace.records
        if isinstance(record, Event)
    ]
    show(same_page, text_of(trace))
    found = same_page.evaluate(RESOLVE, [[seq] for seq, *_ in truth])
    for (seq, *calls), places in zip(truth, found, strict=True):
        for call, place in zip(calls, places, strict=True):
            if call is not None:
                told = f"event {seq}: made by {call}, and the page says {place}"
                assert place is not None, told
                path, line, end_line = place
                assert path == call.path and line <= call.line <= end_line, told


def test_where_the_log_has_let_go_of_what_tells_the_line_none_is_shown(same_page: Page) -> None:
    trace, kinds = next(
        (trace, kinds)
        for name in SPECULATIVE
        for trace in [made(name, SPEC_FOLDER)[0]]
        for kinds in [[TYPE_OF_FACTS.get(type(getattr(r, "facts", None))) for r in trace.records]]
        if "token_dropped" in kinds
    )
    dropped = kinds.index("token_dropped")
    finished = max(i for i in range(dropped) if kinds[i] == "request_finished")
    for cut in (finished, finished + 1):
        kept = Trace.parse(list(trace.lines()))
        kept.header = kept.header.model_copy(
            update={"base_seq": cut, "state": fold(trace.header.state, trace.records[:cut])}
        )
        del kept.records[:cut]
        show(same_page, text_of(kept))
        ((event, _),) = same_page.evaluate(RESOLVE, [[dropped - cut]])
        assert event is None  # the phase began before the first record that is left
    show(same_page, text_of(trace))
    ((event, _),) = same_page.evaluate(RESOLVE, [[dropped]])
    assert event is not None


def seek(page: Page, trace: Trace, kind: str) -> Any:
    """Go to the first event of a type and return it."""
    event = next(
        r for r in trace.records if isinstance(r, Event) and TYPE_OF_FACTS[type(r.facts)] == kind
    )
    page.evaluate("seq => window.stage.store.seek(seq)", event.seq)
    settle(page)
    return event


def open_code(page: Page) -> None:
    page.get_by_role("tab", name="Code", exact=True).click()
    wait_until(page, "document.getElementById('host').shadowRoot.querySelector('.gb-code-pane')")
    settle(page)


def marked(page: Page) -> list[str]:
    expect(page.locator(f"{CODE} [data-mark]").first).to_be_visible()  # its file has come
    return [
        re.sub(r"\s+", " ", line.inner_text()).strip()
        for line in page.locator(f"{CODE} [data-mark]").all()
    ]


def test_a_decision_s_function_stands_there_with_its_values(page: Page) -> None:
    trace, _ = made("09-preempt-recompute", FOLDER)
    show(page, text_of(trace))
    open_code(page)
    event = seek(page, trace, "request_preempted")
    expect(page.locator(".gb-code-name")).to_have_text("Scheduler._choose_victim")
    running = event.reason.running
    line = f"return self.running.tail, LastRunning(len(self.running){running})"
    assert marked(page) == [line]
    policy = page.locator(f"{CODE} .gb-code-value").first
    expect(policy).to_have_text('"fcfs"')
    expect(policy).to_have_attribute(
        "title", "measured: config.scheduling_policy in the log's header"
    )
    page.get_by_role("button", name="Logged: preempt").click()
    expect(page.locator(".gb-code-name")).to_have_text("Scheduler.preempt")
    facts = event.facts
    assert (
        f'self.trace.event(RequestPreempted(key"{facts.request}", by"{facts.by}", '
        f"needs{facts.needs}, free{facts.free}, computed{facts.num_computed_tokens}, "
        f"ahead{facts.ahead}), reason)"
    ) in marked(page)
    # The parameter is the fact as well, and what is shown is the source without it.
    lines = sources()["engine/scheduler.py"].text.splitlines()
    for shown in page.locator(f"{CODE} .gb-code-line").all():
        plain = shown.evaluate(
            "line => [...line.childNodes].filter(n => !n.classList?.contains('gb-code-value'))"
            ".map(n => n.textContent).join('')"
        )
        number = int(shown.get_attribute("data-line") or 0)
        assert plain.rstrip("\n") == lines[number - 1][4:]


def test_it_follows_what_is_selected_and_the_cursor(page: Page) -> None:
    trace, _ = made("09-preempt-recompute", FOLDER)
    show(page, text_of(trace))
    open_code(page)
    page.evaluate("window.stage.store.seek(window.stage.store.head)")
    for selection, kinds in (
        ({"component": "block-manager", "request": None}, "blocks_|block_|prefix_|allocation_"),
        ({"component": None, "request": "r1"}, "request_|token_|blocks_|prefix_"),
    ):
        page.evaluate("part => window.stage.store.select(part)", selection)
        settle(page)
        shown = page.evaluate(
            "import('/assets/page/inspector_code.js').then(m => m.eventOf(window.stage.store))"
        )
        assert re.match(kinds, shown["type"])
        if selection["request"]:
            assert shown["facts"]["request"] == "r1"
        later = [
            r
            for r in page.evaluate("window.stage.store.records")[shown["seq"] + 1 :]
            if r["kind"] == "event"
            and (r["component"] == "block-manager" or selection["component"] is None)
            and (r["facts"].get("request") == "r1" or selection["request"] is None)
        ]
        assert later == []
    expect(page.get_by_role("tab", name="Code", exact=True)).to_have_attribute(
        "aria-selected", "true"
    )
    page.evaluate(
        "window.stage.store.select({component: null, request: null, block: null}),"
        "window.stage.store.seek(-1)"
    )
    settle(page)
    expect(page.locator(".gb-code-pane")).to_contain_text("No event yet")
    assert page.locator(CODE).is_hidden()


def test_the_whole_file_opens_at_the_line_and_the_keyboard_scrolls_it(page: Page) -> None:
    trace, _ = made("09-preempt-recompute", FOLDER)
    show(page, text_of(trace))
    open_code(page)
    seek(page, trace, "request_preempted")
    page.get_by_role("button", name="Open file").click()
    length = len(sources()["engine/scheduler.py"].text.splitlines())
    expect(page.locator(f"{CODE} .gb-code-line")).to_have_count(length)
    code = page.locator(CODE)
    wait_until(
        page,
        "document.getElementById('host').shadowRoot.querySelector('.gb-code-lines').scrollTop > 0",
    )
    settle(page)
    top = code.evaluate("node => node.scrollTop")
    line, area = page.locator(f"{CODE} [data-mark]").first.bounding_box(), code.bounding_box()
    assert line and area and area["y"] <= line["y"] <= area["y"] + area["height"]
    code.focus()
    page.keyboard.press("PageDown")
    wait_until(
        page,
        "document.getElementById('host').shadowRoot.querySelector('.gb-code-lines').scrollTop"
        " > argument",
        top,
    )
    page.get_by_role("button", name="Function only").click()
    expect(page.locator(f"{CODE} .gb-code-line").nth(19)).to_have_count(0)


def test_the_inspector_leads_to_the_code(page: Page) -> None:
    trace, _ = made("09-preempt-recompute", FOLDER)
    show(page, text_of(trace))
    for part in ({"component": "scheduler"}, {"request": "r1"}, {"block": 2}):
        page.evaluate("part => window.stage.store.select(part)", part)
        page.get_by_role("tab", name="Inspector").click()
        settle(page)
        page.get_by_role("button", name="The code of the latest event here").click()
        expect(page.get_by_role("tab", name="Code", exact=True)).to_be_focused()
        expect(page.locator(f"{CODE} [data-mark]").first).to_be_visible()


@pytest.mark.parametrize("version", ["", "0123456789abcdef"])
def test_another_version_s_log_shows_no_line(page: Page, version: str) -> None:
    trace = Trace.parse(text_of(made("09-preempt-recompute", FOLDER)[0]).splitlines())
    trace.header.versions["glassbox"] = version
    show(page, text_of(trace))
    open_code(page)
    note = page.locator(".gb-code-pane .gb-note-small")
    expect(note).to_contain_text("Which line it was cannot be told, and none is shown.")
    expect(note).to_contain_text(version or "does not say which source")
    assert page.locator(CODE).is_hidden()
    seek(page, trace, "request_preempted")
    link = page.locator(".gb-code-next a")
    expect(link).to_have_text("Scheduler.schedule")
    assert (link.get_attribute("href") or "").endswith("sched/scheduler.py#L425-L1191")


def test_what_to_read_next_was_looked_up(same_page: Page) -> None:
    """All symbols that are named are those of the verified sources, or of the decisions."""
    verified = json.loads((ROOT / "architecture.sources.json").read_text())["components"]
    known = {
        (each["path"], each.get("symbol"), each["first"], each["last"])
        for sources in verified.values()
        for each in sources
    }
    done, decided = same_page.evaluate(
        "import('/assets/words/vllm_symbols.js').then(m => [m.DONE_BY, m.DECIDED_BY]"
        ".map(table => Object.entries(table)))"
    )
    decisions = {tuple(symbol.values()) for _, symbol in decided}
    for kind, symbol in done:
        assert kind in TYPE_OF_FACTS.values()
        assert tuple(symbol.values()) in known | decisions, symbol


def test_values_and_lines_are_text_whatever_they_hold(page: Page) -> None:
    trace = Trace.parse(text_of(made("09-preempt-recompute", FOLDER)[0]).splitlines())
    hostile = "<img src=x onerror=alert(1)>"
    show(page, text_of(trace).replace('"r1"', json.dumps(hostile)))
    open_code(page)
    page.evaluate("id => window.stage.store.select({request: id})", hostile)
    settle(page)
    assert page.locator(f"{CODE} img").count() == 0
    expect(page.locator(".gb-code-pane")).to_contain_text("<img src=x")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_code_has_no_fault_that_axe_finds(page: Page, width: int) -> None:
    trace, _ = made("09-preempt-recompute", FOLDER)
    page.set_viewport_size({"width": width, "height": 844})
    show(page, text_of(trace))
    open_code(page)
    seek(page, trace, "blocks_cached")
    for theme in ("", "dark"):
        assert (
            axe_faults(page, theme, lambda target: "gb-code" in target or "gb-side" in target) == []
        )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
