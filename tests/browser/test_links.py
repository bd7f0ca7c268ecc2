"""Links: what the page shows stands in its address, and such an address shows it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.stage import context, page, settle, show, wait_until
from tests.browser.stage_server import StageServer
from tests.browser.test_moments import log_of, pressure, text_of
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LOG = "09-preempt-recompute"  # the id of its log
WHERE = """() => {
    const { store } = window.stage;
    return { log: store.header?.trace_id, cursor: store.cursor, view: store.view,
             room: store.opened, ...store.selection };
}"""

__all__ = ["context", "page"]  # fixtures


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACES", str(tmp_path))
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "pressure.jsonl").write_text(text_of(pressure()))
    return tmp_path


def fragment(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


def go(page: Page, server: StageServer, **parts: Any) -> None:
    """Open a link in this tab as a page of its own."""
    page.goto("about:blank")
    page.goto(f"{server.url}/#{urlencode(parts)}")
    page.wait_for_selector(".gb-stage .gb-box")
    wait_until(page, "window.stage?.store.header")


def banners(page: Page) -> str:
    settle(page)
    return "\n".join(page.locator(".gb-banner p").all_inner_texts())


def open_file(page: Page, text: str) -> None:
    page.get_by_label("Open a saved trace").set_input_files(
        {"name": "theirs.jsonl", "mimeType": "text/plain", "buffer": text.encode()}
    )
    wait_until(page, "!window.stage.store.live")
    settle(page)


def test_a_copied_link_shows_the_same_moment_of_the_file(page: Page, server: StageServer) -> None:
    show(page, text_of(pressure()))
    page.get_by_role("tab").nth(1).click()
    page.evaluate("window.stage.store.select({ component: 'scheduler', request: 'r1' })")
    page.evaluate("window.stage.at(117)")
    before = page.evaluate(WHERE)
    page.get_by_label("Copy a link to this moment").click()
    read = "navigator.clipboard.readText()"
    becomes(lambda: page.evaluate(read).startswith(server.url), True)
    link = page.evaluate(read)
    key = page.evaluate("window.stage.store.link.key")
    assert key and key not in link and "gb-" not in link
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    page.goto(link)
    wait_until(page, "window.stage?.store.header")
    leads = f"leads into the saved trace test.jsonl (log {LOG})"
    expect(page.locator(".gb-banner p", has_text=leads)).to_have_count(1)
    open_file(page, text_of(log_of("13-aborts")))  # another one: the link waits on
    assert "leads into the saved trace test.jsonl" in banners(page)
    open_file(page, text_of(pressure()))
    wait_until(page, "window.stage.store.cursor === 117")
    assert page.evaluate(WHERE) == before
    assert "leads into" not in banners(page)


def test_the_address_follows(page: Page) -> None:
    show(page, text_of(pressure()))
    for cursor in (30, 60, 90):
        page.evaluate("cursor => window.stage.at(cursor)", cursor)
    page.evaluate("window.stage.store.openBox('scheduler')")
    wait_until(page, "/seq=90/.test(location.hash) && /room=/.test(location.hash)")
    found = fragment(page)
    assert (found["trace"], found["seq"], found["file"]) == (LOG, "90", "test.jsonl")
    assert found["room"] == found["box"] == "scheduler"
    record = pressure().records[90]
    assert (found["step"], found["phase"]) == (str(record.step), str(record.phase))
    page.evaluate("window.stage.store.backToLive()")
    wait_until(page, "window.stage.store.connection === 'open' && window.stage.store.header")
    wait_until(page, "!/trace=|seq=/.test(location.hash)")


def test_a_step_and_a_phase_are_enough(page: Page, server: StageServer, folder: Path) -> None:
    go(page, server, saved="class/pressure.jsonl", step=5, phase="schedule")
    wait_until(page, "!window.stage.store.live && window.stage.store.cursor < 400")
    here = pressure().records[page.evaluate("window.stage.store.cursor")]
    assert (here.step, str(here.phase)) == (5, "schedule")
    expect(page.locator(".gb-banner p")).to_have_count(1)
    expect(page.locator(".gb-banner p")).to_contain_text("class/pressure.jsonl")
    wait_until(page, "location.hash.includes('seq=')")
    assert fragment(page)["saved"] == "class/pressure.jsonl"
    page.reload()
    wait_until(page, "window.stage?.store.header && !window.stage.store.live")
    assert pressure().records[page.evaluate("window.stage.store.cursor")] == here


def test_what_a_link_cannot_show_is_said_and_left_out(
    page: Page, server: StageServer, folder: Path
) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    go(
        page,
        server,
        saved="class/pressure.jsonl",
        view="__proto__",
        box=hostile,
        room="constructor",
        request="r1000",
        block=99_999,
        step="1e9",
        constructor="x",
    )
    wait_until(page, "!window.stage.store.live")
    wait_until(page, "window.stage.root.textContent.includes('and 3 more')")
    said = banners(page)
    for part in ("“step=1e9”", "“constructor=x”", "no view “__proto__”", "and 3 more"):
        assert part in said
    assert page.evaluate(WHERE)["log"] == LOG
    close = page.locator(".gb-banner", has_text="left out").get_by_role("button", name="Close")
    close.dispatch_event("click")  # banners lie over the page's header, which this page has not
    assert "left out" not in banners(page)
    go(page, server, saved="class/pressure.jsonl", seq=10**9)
    wait_until(page, "!window.stage.store.live")
    wait_until(page, "window.stage.root.textContent.includes('does not have that moment')")
    page.evaluate("location.hash = '#gb-odd'; location.hash = '#a-heading'")
    page.evaluate("n => (location.hash = '#view=' + 'x'.repeat(n))", 5_000)
    wait_until(page, "window.stage.root.textContent.includes('for its length')")


def test_files_that_the_server_does_not_offer_are_said_to_be_missing(
    browser: Browser, server: StageServer, folder: Path
) -> None:
    page = browser.new_page()  # its console has the server's 404 as an error
    for path in ("../secret.jsonl", "class/none.jsonl"):
        go(page, server, saved=path, seq=3)
        wait_until(page, "window.stage.root.textContent.includes('cannot be shown')")
        assert page.evaluate("window.stage.store.live")
    page.close()


def test_a_saved_trace_that_is_too_large_is_refused_before_it_is_fetched(page: Page) -> None:
    said = page.evaluate(
        """async () => {
          const usual = window.fetch;
          let read = false, cancelled = false;
          const body = new ReadableStream({
            pull(controller) { read = true; controller.close(); },
            cancel() { cancelled = true; },
          }, { highWaterMark: 0 });
          const headers = { "Content-Length": "200000001" };
          window.fetch = async () => new Response(body, { headers });
          try {
            await window.stage.store.link.savedTrace("huge.jsonl");
          } catch (error) {
            return [error.message, read, cancelled];
          } finally {
            window.fetch = usual;
          }
        }"""
    )
    assert said == ["the file is larger than the 200 MB that this page takes", False, True]


def test_a_request_of_another_log_is_not_selected(page: Page) -> None:
    show(page, text_of(pressure()))
    page.evaluate("window.stage.store.select({ component: 'scheduler', request: 'r1' })")
    again = json.loads(next(pressure().lines()))
    other = "\n".join([json.dumps({**again, "trace_id": "other"}), *list(pressure().lines())[1:]])
    show(page, other)
    assert page.evaluate(WHERE)["request"] is None
    assert page.evaluate(WHERE)["component"] == "scheduler"
    page.evaluate("window.stage.store.select({ request: 'r1' })")
    show(page, other)
    assert page.evaluate(WHERE)["request"] == "r1"
