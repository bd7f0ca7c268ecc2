"""A live engine on the stage: commanded, reset, left and found again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from engine.config import SamplingParams
from engine.trace import Trace
from tests.browser.stage import (
    HOSTILE,
    Recorded,
    context,
    cursor,
    open_stage,
    own_engine,
    page,
    recorded,
    selected,
    settle,
    show,
    wait_head,
    wait_live,
    wait_until,
)
from tests.browser.stage_server import StageServer, stage_server
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

__all__ = ["context", "page", "recorded"]  # fixtures


def test_the_page_commands_its_engine_phase_by_phase(page: Page, server: StageServer) -> None:
    assert page.evaluate("window.stage.told.session").startswith("gb-")
    hint = page.locator(".gb-hint")
    expect(hint).to_have_text("The engine has nothing to do. Send a prompt.")
    engine = own_engine(page, server)
    engine.submit(HOSTILE, SamplingParams(temperature=0.0, max_tokens=4))
    wait_until(page, "window.stage.store.head === 3")
    settle(page)
    expect(hint).to_have_text("1 request waits for the next step: press Step or Run.")
    page.locator("[data-act=phaseOn]").click()
    wait_head(page, "s.headEngine.next_phase === 'schedule' && s.cursor === s.head")
    # By event: the engine does its next phase, and the page shows the first event of it.
    page.locator("[data-act=eventOn]").click()
    wait_head(page, "s.headEngine.next_phase === 'prepare'")
    wait_head(page, "s.cursor === 6 && !s.following")
    page.locator("[data-act=phaseOn]").click()
    wait_head(page, "s.following && s.cursor === s.head")
    page.locator("[data-act=stepOn]").click()
    wait_head(page, "s.headEngine.next_phase === 'arrive' && s.cursor === s.head")
    becomes(lambda: engine.status.step == 1, True)
    page.get_by_label("Speed").select_option("16")
    page.locator("[data-act=run]").click()
    wait_head(page, "s.state.requests && Object.values(s.state.requests)[0].status === 'finished'")
    page.keyboard.press("Escape")
    page.locator("[data-act=run]").click()
    wait_head(page, "s.headEngine.mode === 'paused'")
    assert page.evaluate("window.stage.store.records.every((r, i) => r.seq === i)")


def test_after_a_reload_the_tab_is_where_it_was(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=4))
    engine.step()
    wait_until(page, "window.stage.store.headEngine.step === 1")
    page.evaluate(
        "const s = window.stage.store; s.seek(12); s.setView('block-allocation');"
        "s.select({ component: 'scheduler' })"
    )
    key = page.evaluate("sessionStorage.getItem('glassbox.session')")
    page.reload()
    wait_live(page)
    wait_until(page, "window.stage.store.cursor === 12")
    settle(page)
    assert page.evaluate("sessionStorage.getItem('glassbox.session')") == key
    assert page.evaluate("window.stage.store.view") == "block-allocation"
    assert selected(page) == ["scheduler"]
    # A new step does not pull the page out of the past.
    engine.step()
    wait_until(page, "window.stage.store.headEngine.step === 2")
    assert cursor(page) == 12
    page.locator("[data-act=live]").click()
    assert page.evaluate("window.stage.store.cursor === window.stage.store.head")


def test_a_tab_that_the_server_knows_no_more_says_that_its_engine_is_gone(
    browser: Browser, server: StageServer
) -> None:
    context = browser.new_context()
    page = context.new_page()
    open_stage(page, server)
    page.evaluate("window.stage.store.link.key = 'of-before'; window.stage.store.link.open()")
    wait_until(page, "window.stage.store.connection === 'open' && window.stage.store.forgotten")
    banner = page.locator(".gb-banner", has_text="knows this tab no more")
    settle(page)
    assert "its engine is gone" in banner.inner_text()
    banner.locator("button").first.click()
    settle(page)
    assert banner.count() == 0
    context.close()


def test_a_reset_begins_another_log_on_the_same_stream(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=4))
    wait_until(page, "window.stage.store.head > 1")
    before = page.evaluate("window.stage.store.header.trace_id")
    page.locator("[data-act=reset]").click()
    wait_until(page, "window.stage.store.header.trace_id !== argument", before)
    assert page.evaluate("Object.keys(window.stage.store.state.requests ?? {})") == []


def test_a_request_can_be_taken_back_from_the_inspector(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    stream = engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=4))
    wait_until(page, "window.stage.store.head > 1")
    page.evaluate("id => window.stage.store.select({ request: id })", stream.request_id)
    page.get_by_role("button", name="Abort this request").click()
    page.locator(".gb-chip", has_text="finished: abort").wait_for()
    becomes(lambda: engine.num_unfinished == 0, True)


def test_the_shared_engine_is_watched_and_not_commanded(page: Page) -> None:
    page.get_by_label("Engine", exact=True).select_option("shared")
    wait_live(page, "shared")
    for act in ("run", "phaseOn", "stepOn", "reset"):
        button = page.locator(f"[data-act={act}]")
        assert button.is_disabled()
        assert "shared engine" in (button.get_attribute("title") or "")
    page.get_by_label("Engine", exact=True).select_option("own")
    wait_live(page)
    assert page.locator("[data-act=run]").is_enabled()


def test_a_shared_engine_that_is_turned_off_is_not_offered(context: BrowserContext) -> None:
    with stage_server(shared_enabled=False) as alone:
        page = context.new_page()
        page.add_init_script("sessionStorage.setItem('glassbox.engine', 'shared')")
        open_stage(page, alone)
        assert page.get_by_label("Engine", exact=True).is_hidden()
        assert page.evaluate("window.stage.store.engine") == "own"
        settle(page)
        assert page.locator("[data-act=run]").is_enabled()
        page.close()


def test_from_a_saved_trace_there_is_a_way_back_to_live(
    page: Page, server: StageServer, recorded: Recorded
) -> None:
    live = page.evaluate("window.stage.store.header.trace_id")
    page.get_by_label("Open a saved trace").set_input_files(
        {"name": "mine.jsonl", "mimeType": "text/plain", "buffer": recorded.text.encode()}
    )
    banner = page.locator(".gb-banner")
    expect(banner).to_contain_text("Saved trace mine.jsonl: no engine stands behind it.")
    expect(page.locator("[data-act=reset]")).to_be_disabled()
    page.get_by_role("button", name="Back to live").click()
    wait_until(page, "window.stage.store.header?.trace_id === argument", live)
    settle(page)
    assert banner.count() == 0


def test_a_saved_trace_is_what_the_engine_wrote(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=2))
    engine.step()
    wait_until(page, "window.stage.store.headEngine.step === 1")
    with page.expect_download() as download:
        page.locator("[data-act=save]").click()
        page.locator("[data-save=jsonl]").click()
    trace = Trace.load(download.value.path())
    assert list(trace.lines()) == list(engine.trace.lines())
    assert len(trace.records) > 20


def test_the_theme_follows_the_page(page: Page) -> None:
    workspace = page.locator(".gb")
    assert workspace.get_attribute("data-theme") == "light"
    page.evaluate("document.getElementById('app').classList.add('dark')")
    wait_until(page, "window.stage.root.querySelector('.gb').dataset.theme === 'dark'")


def test_mounting_again_with_new_data_keeps_everything(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(33)")
    page.evaluate("window.node = window.stage.root.querySelector('.gb')")
    page.evaluate("window.stage.show(structuredClone(window.stage.store.document))")
    settle(page)
    assert page.evaluate("window.node === window.stage.root.querySelector('.gb')")
    assert page.locator(".gb").count() == 1
    assert cursor(page) == 33


def test_a_long_log_forgets_its_beginning_and_nothing_else(page: Page, recorded: Recorded) -> None:
    found = page.evaluate(
        """async (text) => {
            const { Store } = await import("/assets/core/store.js");
            const { parseTrace } = await import("/assets/core/trace_file.js");
            const { header, records } = parseTrace(text);
            const store = new Store();
            store.maxRecords = 120;
            store.begin(header);
            for (let i = 0; i < records.length; i += 50) store.append(records.slice(i, i + 50));
            store.seek(store.head);
            const dense = store.records.every((r, i) => r.seq === store.header.base_seq + i);
            const first = store.steps[0];
            const kept = [store.records.length, first.first, dense, store.stepAt(store.head).step];
            return [kept, JSON.stringify(store.state), store.header.base_seq];
        }""",
        recorded.text,
    )
    (length, first, dense, step), state, base = found
    records = recorded.trace.records
    assert 60 <= length <= 120 and base + length == len(records)
    assert (first, dense, step) == (0, True, records[-1].step)
    assert json.loads(state) == recorded.trace.state()


def test_the_page_is_told_the_key_again_where_it_has_lost_it(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const { store, told, show } = window.stage;
          const page = await (await fetch("/harness/document/own")).json();
          store.link.key = "gb-mine";
          const heard = [];
          for (const known of [null, "gb-mine", "gb-other"]) {
            delete told.session;
            show(page, known);
            heard.push(told.session ?? null);
          }
          return heard;
        }"""
    )
    assert told == ["gb-mine", None, "gb-mine"]
