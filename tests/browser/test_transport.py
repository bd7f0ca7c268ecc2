"""The transport: one cursor for the whole page, moved by hand or by playing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.stage import (
    Recorded,
    as_text,
    context,
    cursor,
    page,
    recorded,
    records_of,
    settle,
    show,
    wait_until,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["context", "page", "recorded"]  # fixtures


def test_scrubbing_keys_and_buttons_move_the_one_cursor(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    records = records_of(recorded.text)
    slider = page.get_by_label("Position in the log")
    slider.fill("50")
    assert cursor(page) == 50
    page.keyboard.press("Escape")
    page.locator(".gb-map").click(position={"x": 5, "y": 5})
    page.evaluate("document.activeElement?.blur?.(); window.stage.root.activeElement?.blur()")
    page.keyboard.press("Home")
    assert cursor(page) == -1
    page.keyboard.press("ArrowRight")
    assert cursor(page) == 0
    page.keyboard.press("ArrowRight")
    assert cursor(page) == 2  # the next event: a patch is none
    page.keyboard.press("]")
    end = cursor(page)
    assert records[end]["kind"] == "patch"
    page.keyboard.press("]")
    assert records[cursor(page)]["phase"] == "output"
    page.keyboard.press("Shift+ArrowLeft")
    assert (records[cursor(page)]["phase"], records[cursor(page)]["kind"]) == ("update", "patch")
    page.keyboard.press("[")
    assert cursor(page) == end
    page.keyboard.press("End")
    assert cursor(page) == len(records) - 1


def test_keys_typed_into_a_field_are_not_commands(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(30)")
    page.evaluate("document.body.append(document.createElement('textarea'))")
    page.locator("textarea").focus()
    page.keyboard.type("n p [ ] 123")
    page.keyboard.press("Home")
    assert cursor(page) == 30
    assert page.evaluate("window.stage.store.clock.playing") is False


def test_a_recording_plays_to_its_end_and_stops(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.get_by_label("Speed").select_option("free")
    page.evaluate("window.stage.store.seek(10)")
    page.locator("[data-act=run]").click()
    wait_until(page, "window.stage.store.cursor === window.stage.store.head")
    wait_until(page, "!window.stage.store.clock.playing")
    expect(page.locator("[data-act=run]")).to_have_text("Run")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lines: lines[1:], "line 1: a trace begins with its header (kind: header)"),
        (lambda lines: [*lines[:4], '{"kind": "eve'], "line 5: not JSON"),
        (lambda lines: [*lines[:4], "[1]"], "line 5: a JSON object is expected"),
        (lambda lines: [*lines[:3], *lines[4:]], "line 4: sequence number 3, expected 2"),
        (
            lambda lines: [*lines[:2], lines[2].replace('"kind":"patch"', '"kind":"poem"')],
            'line 3: not a record of a trace (kind is "poem")',
        ),
        (
            lambda lines: [*lines[:3], re.sub(r'"num_prompt_tokens":\d+', '"x":1', lines[3])],
            "line 4: request_submitted: num_prompt_tokens must be a number",
        ),
        (
            lambda lines: [re.sub(r'"schema_version":\d+', '"schema_version":9', lines[0])],
            "line 1: schema version 9; this page reads 6",
        ),
    ],
)
def test_a_broken_trace_is_named_by_line_and_changes_nothing(
    same_page: Page, recorded: Recorded, spoil: Any, message: str
) -> None:
    text = "\n".join(spoil(recorded.text.splitlines()))
    same_page.get_by_label("Open a saved trace").set_input_files(
        {"name": "broken.jsonl", "mimeType": "text/plain", "buffer": text.encode()}
    )
    banner = same_page.locator(".gb-banner")
    banner.wait_for()
    said = banner.locator("p").inner_text()
    assert said.startswith(f"broken.jsonl cannot be opened: {message}. What was shown stays.")
    assert same_page.evaluate("window.stage.store.live") is True
    banner.get_by_role("button", name="Close").click()
    banner.wait_for(state="detached")


def test_a_failed_engine_is_said_with_its_reason(page: Page, recorded: Recorded) -> None:
    header, records = recorded.text.splitlines()[0], records_of(recorded.text)
    last = records[-1]
    failed = {
        "kind": "event",
        "seq": 0,
        "step": last["step"],
        "phase": "execute",
        "type": "engine_failed",
        "component": "async-engine",
        "connection": None,
        "facts": {"message": "the <b>forward</b> raised."},
        "t_us": last["t_us"] + 1,
    }
    show(page, as_text(header, [*records, failed]))
    banner = page.locator(".gb-banner[data-kind=bad]")
    assert "The engine failed: the <b>forward</b> raised." in banner.inner_text()
    page.evaluate("window.stage.store.seek(3)")
    settle(page)
    assert banner.count() == 0
