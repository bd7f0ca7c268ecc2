"""A live engine saved as a file by the page, gone on from, and come back to by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from engine.async_llm import AsyncLLM
from engine.config import SamplingParams
from engine.moment import read_moment
from tests.browser.stage import context, page, settle, wait_until, watched
from tests.browser.stage_server import StageServer

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

__all__ = ["context", "page"]  # fixtures

LONG = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)


def engine_of(page: Page, server: StageServer) -> AsyncLLM:
    engine = server.sessions.get(page.evaluate("window.stage.store.link.key"))
    assert engine is not None
    return engine


def seen(page: Page, engine: AsyncLLM) -> None:
    """The page has the whole log."""
    last = engine.trace.next_seq - 1
    wait_until(page, "window.stage.store.records.at(-1)?.seq === argument", last)
    settle(page)


def save(page: Page, button: str = "[data-save=engine]") -> Path:
    with page.expect_download() as download:
        if button.startswith("[data-save"):
            page.locator("[data-act=save]").click()
        page.locator(button).click()
    assert download.value.suggested_filename.endswith(".moment.safetensors")
    path: Any = download.value.path()
    return path


def test_an_engine_is_saved_and_gone_on_from_and_a_key_comes_back(
    page: Page, server: StageServer
) -> None:
    engine = engine_of(page, server)
    back = page.locator("[data-act=restore]")
    assert back.is_disabled() and "No engine is saved" in (back.get_attribute("title") or "")
    engine.submit("once upon a time", LONG)
    for _ in range(3):
        engine.step()
    seen(page, engine)
    path = save(page)
    moment = read_moment(path)
    assert moment.state.step == 3 and len(moment.state.requests) == 1
    wait_until(page, "window.stage.store.moment?.step === 3")
    settle(page)
    assert back.is_enabled() and "before step 3 (R)" in (back.get_attribute("title") or "")
    text = page.evaluate("window.stage.store.state.requests.r0.output_pieces")
    for _ in range(3):
        engine.step()
    first = engine.trace
    page.locator("body").press("r")
    wait_until(page, "window.stage.store.header.trace_id !== argument", first.header.trace_id)
    seen(page, engine)
    assert page.evaluate("window.stage.store.state.requests.r0.output_pieces") == text
    banner = page.locator(".gb-banner", has_text="goes on from a saved one, before step 3")
    expect(banner).to_contain_text("1 request")
    expect(page.locator(".gb-transport")).to_contain_text("before step 3")
    engine.step()
    engine.step()
    seen(page, engine)
    expect(page.locator(".gb-banner", has_text="saved one")).to_have_count(0)
    now = page.evaluate("window.stage.store.state.requests.r0.output_token_ids")
    assert {**now} == {
        key: value
        for key, value in first.state()["requests"]["r0"]["output_token_ids"].items()
        if int(key) < len(now)
    }
    page.reload()
    wait_until(page, "window.stage?.store.moment?.step === 3")  # the server has it still

    # Another tab's engine goes on from the file.
    with watched(page.context.browser.new_context().new_page(), server) as other:  # type: ignore[union-attr]
        theirs = engine_of(other, server)
        other.get_by_label("Open a saved trace").set_input_files(
            {
                "name": "x.moment.safetensors",
                "mimeType": "application/octet-stream",
                "buffer": path.read_bytes(),
            }
        )
        wait_until(other, "window.stage.store.moment?.step === 3")
        seen(other, theirs)
        assert theirs.status.step == 3 and theirs.num_unfinished == 1
        other.context.close()


def test_in_the_middle_of_a_step_the_page_offers_to_finish_it(
    page: Page, server: StageServer
) -> None:
    engine = engine_of(page, server)
    engine.submit("once upon a time", LONG)
    engine.step()
    engine.step_phase()
    engine.step_phase()
    seen(page, engine)
    page.locator("[data-act=save]").click()
    page.locator("[data-save=engine]").click()
    said = "Step 1 is under way, prepare comes next"
    expect(page.locator(".gb-banner", has_text=said)).to_have_count(1)
    path = save(page, "text=Finish the step and save")
    assert read_moment(path).state.step == 2
    seen(page, engine)
    expect(page.locator(".gb-banner", has_text="under way")).to_have_count(0)


def test_what_cannot_be_restored_is_said_and_nothing_is_lost(
    browser: Browser, server: StageServer
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(server.url)
    wait_until(page, "window.stage?.store.connection === 'open' && window.stage.store.header")
    engine = engine_of(page, server)
    trace = engine.trace
    page.locator("body").press("r")
    wait_until(page, "window.stage.store.notice?.text.startsWith('No engine is saved')")
    page.get_by_label("Open a saved trace").set_input_files(
        {
            "name": "<b>a</b>.safetensors",
            "mimeType": "application/octet-stream",
            "buffer": b"{}" * 50,
        }
    )
    said = "<b>a</b>.safetensors is not restored: this is no moment"
    expect(page.locator(".gb-banner", has_text=said)).to_contain_text("The engine is as it was")
    assert engine.trace is trace and problems == []
    context.close()


def test_an_engine_that_was_put_to_rest_wakes_with_its_past(
    page: Page, server: StageServer
) -> None:
    """The page comes back by itself; what it showed before is still there to go back to."""
    engine = engine_of(page, server)
    engine.submit("once upon a time", LONG)
    for _ in range(3):
        engine.step()
    seen(page, engine)
    key = page.evaluate("window.stage.store.link.key")
    session = server.sessions._sessions[key]
    session.last_seen = -server.sessions.idle_seconds - 1e9
    server.sessions.sweep()
    wait_until(page, "window.stage.store.notice?.text.includes('and so does its log')")
    woken = engine_of(page, server)
    assert woken is not engine and engine.closed
    seen(page, woken)
    expect(page.locator(".gb-transport")).to_contain_text("It goes on from where it stood, paused")
    woken.step()
    seen(page, woken)
    assert page.evaluate("window.stage.store.header.trace_id") == engine.trace.header.trace_id
    assert page.evaluate("window.stage.store.records[0].seq") == 0
    page.locator("body").press("Home")
    settle(page)
    assert page.evaluate("Object.keys(window.stage.store.state.requests)") == []
    page.locator("body").press("End")
    settle(page)
    assert page.evaluate("window.stage.store.state") == woken.trace.state()
