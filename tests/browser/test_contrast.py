"""What axe does not see: texts on canvases, dimmed parts, and what tells graphics apart.

WCAG 2.2 AA: 4.5 to 1 for text, 3 to 1 for graphics that mean something.
"""

# ruff: noqa: F401, F811 (a fixture comes by import)

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.stage import Recorded, set_theme, settle, show, wait_until, watched
from tests.browser.stage_server import StageServer
from tests.browser.test_rooms import indexes, pressed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROBE = Path(__file__).with_name("canvas_contrast.js")
TEXT, GRAPHIC = 4.5, 3.0
VIEWS = ("request-lifecycle", "block-allocation", "cuda-acceleration")
ROOMS = ("block-manager", "paged-attn", "gpu-runner")


@pytest.fixture(params=["", "dark"])
def page(
    request: pytest.FixtureRequest, browser: Browser, server: StageServer, pressed: Recorded
) -> Iterator[Page]:
    fresh = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    fresh.add_init_script(path=PROBE)
    with watched(fresh, server) as page:
        show(page, pressed.text)
        set_theme(page, request.param)
        yield page
        page.close()


def moments(pressed: Recorded) -> list[int]:
    """The end, and the middle of some kinds of events: what comes later is drawn pale."""
    found = [len(pressed.trace.records) - 1]
    for kind in ("RequestPreempted", "BlockEvicted", "TokenSampled", "PagesRead", "BlocksHit"):
        places = indexes(pressed.trace, kind)
        found.append(places[len(places) // 2])
    return found


def test_every_text_on_a_canvas_can_be_read(page: Page, pressed: Recorded) -> None:
    for view in VIEWS:
        page.evaluate("view => window.stage.store.setView(view)", view)
        for index in moments(pressed):
            page.evaluate("index => window.stage.at(index)", index)
        page.evaluate("index => window.stage.at(index)", len(pressed.trace.records) - 1)
        page.locator(".gb-panel-area canvas:visible").first.wait_for()
    for room in ROOMS:
        page.evaluate("room => window.stage.store.openBox(room)", room)
        page.wait_for_selector(".gb-room:not([hidden]) .gb-room-inside")
        for index in moments(pressed):
            page.evaluate("index => window.stage.at(index)", index)
    found = page.evaluate("window.canvasTexts()")
    assert len(found) > 30
    assert [(what, text, least) for what, text, least in found if least < TEXT] == []


def test_dimmed_boxes_and_lines_can_still_be_read(page: Page) -> None:
    page.evaluate("window.stage.store.setView('cuda-acceleration')")
    settle(page)
    assert page.locator(".gb-box.is-dim").count() > 1
    found = page.evaluate(
        """() => {
          const { root } = window.stage;
          const panel = getComputedStyle(root.querySelector(".gb-map")).backgroundColor;
          const texts = [...root.querySelectorAll(
            ".gb-box.is-dim :is(.tag, .title, .sub, .live), .gb-name.is-dim")];
          const lines = [...root.querySelectorAll(".gb-line.is-dim .shaft")];
          return [
            texts.map((node) => {
              const card = node.closest(".gb-box")?.querySelector(".card");
              const below = card ? getComputedStyle(card).fill : panel;
              return window.contrast(getComputedStyle(node).fill, below);
            }),
            lines.map((node) => window.contrast(getComputedStyle(node).stroke, panel)),
          ];
        }"""
    )
    texts, lines = found
    assert len(texts) > 6 and min(texts) >= TEXT
    assert len(lines) > 3 and min(lines) >= GRAPHIC


def test_colours_that_mean_something_stand_out(page: Page) -> None:
    """By the theme's own variables; requests' colours too, and pale as after the cursor."""
    found: dict[str, Any] = page.evaluate(
        """async () => {
          const { requestColour } = await import("/assets/words/colours.js");
          const { FUTURE } = await import("/assets/panels/lifecycle_cells.js");
          const gb = window.stage.root.querySelector(".gb");
          const value = (name) => getComputedStyle(gb).getPropertyValue(`--gb-${name}`).trim();
          const grounds = ["bg", "panel", "panel-2"].map(value);
          const least = (colour) => Math.min(...grounds.map((g) => window.contrast(colour, g)));
          const texts = ["text", "muted", "faint", "accent", "event", "ok", "warn", "bad"];
          const kinds = ["external", "backend", "database", "cloud", "region", "security",
            "frontend", "messagebus"];
          const pale = Math.round(FUTURE * 255).toString(16);
          const hues = [...Array(10).keys()].map((i) => requestColour(i, gb.dataset.theme));
          return {
            texts: texts.map((name) => [name, least(value(name))]),
            graphics: [
              ...kinds.map((name) => [name, least(value(name))]),
              ...hues.map((hue) => [`${hue} after the cursor`,
                window.contrast(`${hue}${pale}`, value("panel"))]),
            ],
          };
        }"""
    )
    assert [each for each in found["texts"] if each[1] < TEXT] == []
    assert [each for each in found["graphics"] if each[1] < GRAPHIC] == []
