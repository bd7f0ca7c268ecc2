"""The browser's way back: places are entries, steps are not, and Back touches no engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.browser.stage import context, page, settle, show, wait_until
from tests.browser.stage_server import StageServer
from tests.browser.test_moments import log_of, pressure, text_of
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["context", "page"]  # fixtures

STORE = "async () => { const s = (await import('/assets/workspace.js')).store(); return %s; }"
PLACE = "({ log: s.header?.trace_id, cursor: s.cursor, view: s.view, room: s.opened, live: s.live, \
...s.selection })"
SIDE = """() => {
    const { root } = window.stage;
    const text = selector => root.querySelector(selector)?.textContent ?? '';
    return [text('.gb-side-tab[aria-selected=true]'), text('.gb-claims-acts button:not([hidden])')];
}"""


def place(page: Page) -> Any:
    return page.evaluate(STORE % PLACE)


def entries(page: Page) -> int:
    return int(page.evaluate("history.length"))


def at_rest(page: Page, cursor: int) -> None:
    """Wait until the address has followed."""
    wait_until(page, "new URLSearchParams(location.hash.slice(1)).get('seq') === argument", cursor)


# --- the map alone --------------------------------------------------------------------------------


def test_places_are_entries_and_steps_are_not(page: Page) -> None:
    show(page, text_of(pressure()))
    page.evaluate("window.stage.at(30)")
    at_rest(page, "30")
    before = entries(page)
    for cursor in (31, 40, 50):
        page.evaluate("cursor => window.stage.at(cursor)", cursor)
    page.keyboard.press("ArrowRight")
    cursor = page.evaluate("window.stage.store.cursor")
    at_rest(page, str(cursor))
    page.evaluate("window.stage.store.select({ component: 'scheduler', request: 'r1' })")
    wait_until(page, "location.hash.includes('request=r1')")
    assert entries(page) == before
    left = place(page)
    # A gesture that moves several things is one entry, and what it left is exact.
    page.evaluate("""() => {
        const { store } = window.stage;
        store.seek(60);
        store.setView('block-allocation');
        store.openBox('block-manager');
        store.jump(70);
    }""")
    wait_until(page, "location.hash.includes('room=block-manager')")
    assert entries(page) == before + 1
    at_rest(page, "70")
    page.go_back()
    wait_until(page, "window.stage.store.opened === null")
    assert place(page) == {**left, "cursor": 60}
    page.go_forward()
    wait_until(page, "window.stage.store.cursor === 70")
    there = place(page)
    assert (there["room"], there["view"]) == ("block-manager", "block-allocation")
    assert entries(page) == before + 1


def test_each_jump_is_an_entry_and_a_key_held_down_is_none(page: Page) -> None:
    show(page, text_of(pressure()))
    page.evaluate("window.stage.at(0)")
    at_rest(page, "0")
    before = entries(page)
    page.keyboard.press("j")
    wait_until(page, "history.length === argument", before + 1)
    first = page.evaluate("window.stage.store.cursor")
    page.evaluate("""() => {
        const held = { key: 'j', bubbles: true, repeat: true };
        for (let i = 0; i < 5; i += 1) document.dispatchEvent(new KeyboardEvent('keydown', held));
    }""")
    later = page.evaluate("window.stage.store.cursor")
    assert later > first > 0
    at_rest(page, str(later))
    assert entries(page) == before + 1
    page.go_back()
    wait_until(page, "window.stage.store.cursor === 0")


def test_a_file_that_was_opened_is_there_again(page: Page) -> None:
    own = page.evaluate("window.stage.store.header.trace_id")
    for name, log in (("one.jsonl", pressure()), ("two.jsonl", log_of("13-aborts"))):
        page.get_by_label("Open a saved trace").set_input_files(
            {"name": name, "mimeType": "text/plain", "buffer": text_of(log).encode()}
        )
        wait_until(page, "window.stage.store.traceName === argument", name)
        page.evaluate("window.stage.at(12)")
        at_rest(page, "12")
    page.go_back()
    wait_until(page, "window.stage.store.traceName === 'one.jsonl'")
    wait_until(page, "window.stage.store.cursor === 12")
    page.go_back()
    wait_until(
        page,
        "window.stage.store.live && window.stage.store.header && !location.hash.\
includes('trace=')",
    )
    assert place(page)["log"] == own
    page.go_forward()
    page.go_forward()
    wait_until(page, "window.stage.store.traceName === 'two.jsonl'")
    wait_until(page, "window.stage.store.cursor === 12")


def test_any_place_comes_back_by_its_link(
    page: Page, server: StageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACES", str(tmp_path))
    log = pressure()
    (tmp_path / "log.jsonl").write_text(text_of(log))
    chance = random.Random(7)
    views = page.evaluate("window.stage.store.document.views.map(view => view.id)")
    boxes = page.evaluate(
        "window.stage.store.document.components.filter(item => item.live).map(item => item.id)"
    )
    for _ in range(8):
        parts: dict[str, Any] = {
            "view": chance.choice(views),
            "box": chance.choice([*boxes, None]),
            "request": chance.choice(["r0", "r1", None]),
            "saved": "log.jsonl",
            "trace": log.header.trace_id,
            "seq": chance.randrange(60, len(log.records)),
            "side": chance.choice(["code", "log", "rules", None]),
        }
        if chance.random() < 0.4:
            parts["room"] = parts["box"] = chance.choice(boxes)
        if chance.random() < 0.4:
            parts |= {"side": "claims", "claim": chance.choice(["5", "12,3", "3"])}
        asked = {name: str(value) for name, value in parts.items() if value is not None}
        link, shown = opened(page, f"{server.url}/#{urlencode(asked)}", parts["seq"])
        named = {name: values[0] for name, values in parse_qs(urlsplit(link).fragment).items()}
        assert {name: named.get(name) for name in asked} == asked
        assert opened(page, link, parts["seq"]) == (link, shown)


def opened(page: Page, link: str, seq: int) -> tuple[str, Any]:
    """What a link shows in this tab as a page of its own, and the link to that."""
    page.goto("about:blank")
    page.goto(link)
    wait_until(page, "window.stage?.store.header && !window.stage.store.live")
    wait_until(page, "window.stage.store.cursor === argument && history.state?.glassbox", seq)
    settle(page)
    return page.url, (place(page), page.evaluate(SIDE))


def test_parts_that_say_nothing_are_named(page: Page) -> None:
    page.evaluate(
        "location.hash = '#side=__proto__&claim=1;2&engine=mine&lesson_step=x' + "
        "'&view=block-allocation'"
    )
    wait_until(page, "window.stage.root.textContent.includes('Part of the link was left out')")
    wait_until(page, "window.stage.store.view === 'block-allocation'")
    said = page.evaluate("window.stage.root.querySelector('.gb-banners').textContent")
    for part in ("“side=__proto__”", "“claim=1;2”", "“engine=mine”", "“lesson_step=x”"):
        assert part in said
    page.evaluate("location.hash = '#claim=999'")
    wait_until(page, "window.stage.root.textContent.includes('There is no claim of that number')")


# --- the whole page -------------------------------------------------------------------------------


def open_page(browser: Browser, url: str) -> Page:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(url)
    page.wait_for_selector(".st-key-gb-send button:not([disabled])", timeout=PATIENCE_S * 1000)
    page.wait_for_selector(".gb-box")
    page.evaluate("window.loadedOnce = true")
    return page


def waits(page: Page, what: str) -> None:
    """Until the fragment and the query name this, and the page has written it so."""
    wait_until(page, "location.href.includes(argument) && history.state?.glassbox", what)


def test_back_leads_through_the_page_and_resets_nothing(browser: Browser, server_url: str) -> None:
    from playwright.sync_api import expect

    page = open_page(browser, server_url)
    waits(page, "view=request-lifecycle")
    before = entries(page)
    page.get_by_role("tab", name="Virtual KV").click()
    waits(page, "view=block-allocation")
    page.locator(".st-key-gb-compare-toggle button").click()
    waits(page, "compare=shared-prefix&setting=max_num_batched_tokens")
    page.locator(".st-key-gb-lessons button").click()
    page.locator(".st-key-gb-start-one-request button").click()
    waits(page, "lesson=one-request#view=request-lifecycle&lesson_step=1")
    page.locator(".st-key-gb-lesson-next button").click()
    waits(page, "lesson_step=2")
    assert entries(page) == before + 4
    log = place(page)["log"]
    lesson, compare = page.locator(".st-key-gb-lesson-top"), page.locator(".st-key-gb-compare")

    page.go_back()
    expect(page.get_by_text("Step 1 of")).to_be_visible(timeout=PATIENCE_S * 1000)
    page.go_back()
    expect(lesson).to_have_count(0, timeout=PATIENCE_S * 1000)
    expect(compare).to_have_count(1, timeout=PATIENCE_S * 1000)
    waits(page, "view=block-allocation")
    assert "lesson" not in page.url and place(page)["view"] == "block-allocation"
    page.go_back()
    expect(compare).to_have_count(0, timeout=PATIENCE_S * 1000)
    assert "compare" not in page.url and place(page)["view"] == "block-allocation"
    page.go_back()
    waits(page, "view=request-lifecycle")
    page.go_forward()
    waits(page, "view=block-allocation")
    page.go_forward()
    expect(compare).to_have_count(1, timeout=PATIENCE_S * 1000)
    page.go_forward()
    # The lesson is offered: to go on with it may reset the engine, which nobody has asked for.
    go_on = page.locator(".st-key-gb-go-on-one-request button")
    expect(go_on).to_contain_text("Go on at step 1", timeout=PATIENCE_S * 1000)
    assert entries(page) == before + 4
    assert place(page)["log"] == log and page.evaluate("window.loadedOnce")
    page.context.close()


def test_a_link_opens_the_comparison_and_offers_the_step(browser: Browser, server_url: str) -> None:
    from playwright.sync_api import expect

    parts = {
        "compare": "more-than-seats",
        "setting": "max_num_seqs",
        "a": 3,
        "b": 5,
        "side": "rules",
    }
    fragment = urlencode({**parts, "lesson_step": 3})
    page = open_page(browser, f"{server_url}/?lesson=one-request#{fragment}")
    expect(page.get_by_label("A: max_num_seqs")).to_have_value("3", timeout=PATIENCE_S * 1000)
    expect(page.get_by_label("B: max_num_seqs")).to_have_value("5", timeout=PATIENCE_S * 1000)
    expect(page.locator(".gb-side-tab[aria-selected=true]")).to_have_text(
        "Rules", timeout=PATIENCE_S * 1000
    )
    waits(page, "lesson_step=3")
    for name, value in parts.items():
        waits(page, f"{name}={value}")
    page.locator(".st-key-gb-start-at-one-request button").click()
    expect(page.get_by_text("Step 3 of")).to_be_visible(timeout=PATIENCE_S * 1000)
    page.context.close()


def test_what_such_a_link_names_wrongly_is_said(browser: Browser, server_url: str) -> None:
    page = open_page(
        browser,
        f"{server_url}/#compare=%3Cimg%3E&setting=__class__&a=1&lesson_step=3&side=log",
    )
    banner = page.locator(".gb-banner", has_text="Part of the link was left out")
    banner.wait_for(timeout=PATIENCE_S * 1000)
    said = banner.inner_text()
    assert "no requests “<img>”" in said and "no setting “__class__”" in said
    assert "no lesson is open" in said
    assert page.locator(".st-key-gb-compare").count() == 1
    page.context.close()
