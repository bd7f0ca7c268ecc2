"""The map: what it draws, how it is walked, and the documents that it draws."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from engine.records import Patch
from engine.trace import fold
from tests.browser.stage import (
    FOOT,
    Recorded,
    context,
    open_stage,
    packets_at,
    page,
    recorded,
    selected,
    settle,
    show,
)
from tests.browser.stage_server import StageServer
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["context", "page", "recorded"]  # fixtures


def test_a_click_selects_at_once_and_asks_no_server(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(60)")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    at_once = page.evaluate(  # before any frame; how long it takes is benchmarks/highlight.py's
        """() => ["scheduler", "block-manager", "gpu-runner", "paged-attn"].map((id) => {
            const box = window.stage.root.querySelector(`.gb-box[data-component=${id}]`);
            box.querySelector(".card").dispatchEvent(new MouseEvent("click", { bubbles: true }));
            return box.classList.contains("is-selected");
        })"""
    )
    assert at_once == [True] * 4
    page.locator(".gb-box[data-component=scheduler]").click()
    settle(page)
    assert page.locator(".gb-inspector h2:visible").inner_text() == "Chunked Scheduler"
    assert asked == []


def test_boxes_are_reached_and_selected_by_keyboard(page: Page) -> None:
    page.locator(".gb-box[data-component=scheduler]").focus()
    page.keyboard.press("Enter")
    settle(page)
    assert selected(page) == ["scheduler"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press(" ")
    settle(page)
    assert selected(page) == ["block-manager"]
    page.keyboard.press("Escape")
    settle(page)
    assert selected(page) == []


def test_tab_walks_the_map_as_a_request_does(page: Page) -> None:
    path = page.evaluate("window.stage.store.document.request_path")
    everything = page.evaluate("window.stage.store.document.components.map((c) => c.id)")
    order = [*path, *(name for name in everything if name not in path)]
    assert len(path) > 5
    page.locator(f".gb-box[data-component={order[0]}]").focus()
    walked: list[str | None] = []
    claims = page.locator(".gb-map .gb-claim-flag").count()  # each stands after its box
    for _ in range(len(order) + claims):
        walked.append(
            page.evaluate("window.stage.root.activeElement?.getAttribute('data-component')")
        )
        page.keyboard.press("Tab")
    assert [box for box in walked if box is not None] == order


def test_a_view_dims_what_is_not_in_its_focus(page: Page) -> None:
    tabs = page.get_by_role("tablist", name="Views").get_by_role("tab")
    assert tabs.count() == 3
    for number in range(3):
        page.keyboard.press(str(number + 1))
        settle(page)
        assert tabs.nth(number).get_attribute("aria-selected") == "true"
        focus = page.evaluate("window.stage.store.currentView.focus")
        dim = [box.get_attribute("data-component") for box in page.locator(".gb-box.is-dim").all()]
        everything = page.evaluate("window.stage.store.document.components.map((c) => c.id)")
        assert sorted([*dim, *focus]) == sorted(everything)
    tabs.nth(2).focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert tabs.nth(0).get_attribute("aria-selected") == "true"


def test_no_letter_on_the_map_is_smaller_than_eleven_pixels(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(40)")
    settle(page)
    sizes = page.evaluate(
        """() => {
            const stage = window.stage.root.querySelector(".gb-stage");
            const scale = stage.getScreenCTM().a;
            const size = (node) => parseFloat(getComputedStyle(node).fontSize) * scale;
            return Array.from(stage.querySelectorAll("text"))
                .filter((node) => node.textContent)
                .map((node) => [node.textContent, size(node)]);
        }"""
    )
    assert len(sizes) > 30
    assert [text for text, size in sizes if size < 11] == []


def test_live_lines_are_the_state_at_the_cursor(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    records = recorded.trace.records
    for index in range(10, len(records), 37):
        packets_at(page, index)
        queues = page.evaluate("() => window.stage.store.state.queues")
        if isinstance(records[index], Patch):
            assert queues == fold(recorded.trace.header.state, records[: index + 1])["queues"]
        free = queues["free"]["length"]
        assert live_line(page, "block-manager") == f"{free} free · {19 - free} used"
        assert re.findall(r"\d+", live_line(page, "scheduler")) == [
            str(queues["running"]["length"]),
            str(queues["waiting"]["length"]),
        ]


def live_line(page: Page, component: str) -> str:
    return page.locator(f".gb-box[data-component={component}] .live").text_content() or ""


def test_somebody_elses_document_is_static_and_says_so(
    page: Page, server: StageServer, recorded: Recorded
) -> None:
    open_stage(page, server, "?document=foreign")
    show(page, recorded.text)
    assert page.locator(".gb-box.is-static").count() == 3
    assert {live_line(page, name) for name in ("web", "orders", "store")} == {"static"}
    assert packets_at(page, 40) == {}
    page.locator(".gb-box[data-component=web]").click()
    settle(page)
    assert "no live counterpart" in page.locator(".gb-inspector").inner_text()
    assert page.locator(".gb-inspector h2:visible").inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator("img").count() == 0
    page.keyboard.press("2")
    settle(page)
    assert page.locator(".gb-box.is-dim").get_attribute("data-component") == "web"


def test_without_a_live_box_there_is_no_panel_and_a_way_back(
    page: Page, server: StageServer, recorded: Recorded
) -> None:
    open_stage(page, server, "?document=foreign")
    show(page, recorded.text)
    area = page.locator(".gb-panel-area")
    assert "No box of this document is a part of the engine" in area.inner_text()
    assert area.locator("canvas").count() == 0
    area.get_by_role("button", name="Back to the engine's own map").click()
    assert page.evaluate("window.stage.told.wishes.at(-1).what") == "home"


def test_a_view_of_another_document_shows_the_panel_of_most_of_its_boxes(
    page: Page, recorded: Recorded
) -> None:
    show(page, recorded.text)
    found = page.evaluate(
        """async () => {
            const { panelOf } = await import("/assets/page/view_panel.js");
            const page = window.stage.store.document;
            const of = (id, focus) => panelOf(page, { id, focus, label: id });
            return [
              of("memory", ["block-manager", "physical-vram", "scheduler"]),
              of("run", ["gpu-runner", "paged-attn", "scheduler"]),
              of("cuda-acceleration", ["scheduler"]),
              of("none", []),
              of("__proto__", ["client-req"]),
              panelOf(page, null),
            ];
        }"""
    )
    shown = ["blocks", "graph", "graph", "", "lifecycle", "graph"]  # most boxes are the runner's
    assert found == [f"../panels/{name}.js" if name else "" for name in shown]


def test_the_map_changes_with_its_document_and_comes_back(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    own = page.evaluate("structuredClone(window.stage.store.document)")
    page.evaluate(
        """async () => {
            window.stage.store.select({ component: "scheduler" });
            const other = await (await fetch("/harness/document/foreign")).json();
            window.stage.show(other);
            await window.stage.frame();
        }"""
    )
    assert page.locator(".gb-box").count() == 3
    assert page.locator(".gb-tab").all_inner_texts() == ["An order", "At night"]
    assert page.evaluate("window.stage.store.selection.component") is None
    page.evaluate("own => window.stage.show(own)", own)
    settle(page)
    page.locator(".gb-panel-area canvas:visible").first.wait_for()
    assert page.locator(".gb-box:not(.is-static)").count() == 9


def test_notes_for_the_author_stand_at_their_box(page: Page) -> None:
    page.evaluate(
        """async () => {
            const own = structuredClone(window.stage.store.document);
            const note = { code: "lint/unbound", path: "$.components[2]", message: "<b>odd</b>",
              fix: "Mend it." };
            own.components[2].notes = [note];
            window.stage.show(own);
            window.stage.store.select({ component: own.components[2].id });
            await window.stage.frame();
        }"""
    )
    notes = page.locator(".gb-inspector details")
    notes.locator("summary").click()
    assert "<b>odd</b>" in notes.inner_text() and "To mend it: Mend it." in notes.inner_text()


def test_the_map_zooms_pans_and_fits(page: Page) -> None:
    viewport = page.locator(".gb-viewport")
    assert viewport.get_attribute("transform") == "translate(0 0) scale(1)"
    page.get_by_label("Zoom in").click()
    page.get_by_label("Zoom in").click()
    zoomed = viewport.get_attribute("transform")
    assert "scale(1.69" in (zoomed or "")
    box = page.locator(".gb-stage").bounding_box()
    assert box
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 60, steps=4)
    page.mouse.up()
    assert viewport.get_attribute("transform") != zoomed
    # What flies over the map is a picture of its own, and lies on its lines wherever it was moved.
    apart = page.evaluate(
        """() => {
          const [map, sky] = ["viewport", "sky > g"].map((name) =>
            window.stage.root.querySelector(`.gb-${name}`).getScreenCTM());
          return ["a", "b", "c", "d", "e", "f"].map((each) => map[each] - sky[each]);
        }"""
    )
    assert max(map(abs, apart)) < 0.01
    page.get_by_label("Fit the map").click()
    assert viewport.get_attribute("transform") == "translate(0 0) scale(1)"


@pytest.mark.parametrize(
    ("query", "width", "inside"),
    [("", 1280, True), ("", 390, False), ("?document=foreign", 1280, None)],
)
def test_what_stands_on_the_map_hides_nothing_of_it(
    page: Page, server: StageServer, query: str, width: int, inside: bool | None
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_stage(page, server, query)
    settle(page)
    if inside is not None:
        becomes(lambda: page.evaluate(FOOT)[0], inside)
    assert page.evaluate(FOOT)[1] == 0
