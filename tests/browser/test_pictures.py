"""Pictures, light and dark, kept in `test-results/`: each room, each view of both documents, each
view at the widths from a phone's on.

The second document draws the same engine: each box of it that is live opens the same room, with the
same in it, and each that is not says what stands in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.stage import set_theme, settle, show, watched
from tests.browser.stage_server import StageServer
from tests.browser.test_path import mount, shipped
from tests.browser.test_rooms import (
    come_to_rest,
    ends,
    enter,
    indexes,
    spots,
    under_pressure,
)
from tests.servers import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SHOTS = ROOT / "test-results"
TOPOLOGY = "docs/process-topology.architecture.json"
VIEWS = ("request-lifecycle", "block-allocation", "cuda-acceleration")
WIDTHS = {390: 844, 1920: 1080, 2560: 1440}  # 1280 is the others'
NOT_HERE = {
    "engine-core": "the loop is engine/core.py",
    "executor": "calls its model runner itself",
    "worker": "calls the runner without one",
    "sampler": "a part of the model runner",
    "dp-coordinator": "without data parallelism",
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_room_is_pictured_and_the_same_from_either_document(
    browser: Browser, server: StageServer, theme: str
) -> None:
    SHOTS.mkdir(exist_ok=True)
    recording = under_pressure(server)
    samples = ends(recording.trace, "sample")
    index = samples[len(samples) // 2]
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    with watched(context.new_page(), server) as page:
        set_theme(page, theme)
        show(page, recording.text)
        rooms = {}
        for name, box in boxes(page).items():
            rooms[name] = inside(page, box, index)
            assert rooms[name]["text"].strip() or rooms[name]["spots"], f"{name} is empty"
            page.locator(".gb-room").screenshot(path=SHOTS / f"room-{name}-{theme}.png")
        assert len(rooms) == 9

        page.evaluate("window.stage.store.openBox(null)")
        views = mount(page, shipped(TOPOLOGY))["views"]
        for name, box in boxes(page).items():
            assert inside(page, box, index) == rooms[name], name
        page.evaluate("window.stage.store.openBox(null)")
        for view in views:
            page.evaluate("id => window.stage.store.setView(id)", view["id"])
            settle(page)
            come_to_rest(page)
            page.screenshot(path=SHOTS / f"process-topology-{view['id']}-{theme}.png")
        for box, words in NOT_HERE.items():
            page.evaluate("box => window.stage.store.openBox(box)", box)
            assert page.evaluate("window.stage.store.opened") is None
            page.evaluate("component => window.stage.store.select({ component })", box)
            settle(page)
            assert words in page.locator(".gb-inspector").inner_text()
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_view_is_pictured_at_each_width(
    browser: Browser, server: StageServer, theme: str
) -> None:
    SHOTS.mkdir(exist_ok=True)
    recording = under_pressure(server)
    index = indexes(recording.trace, "RequestPreempted")[0]
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    with watched(context.new_page(), server) as page:
        set_theme(page, theme)
        show(page, recording.text)
        page.evaluate("index => window.stage.store.seek(index)", index)
        for width, height in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": height})
            for view in VIEWS:
                page.evaluate("id => window.stage.store.setView(id)", view)
                come_to_rest(page)
                assert page.locator(".gb-panel").inner_text().strip(), f"{view} is empty"
                page.screenshot(path=SHOTS / f"{view}-{width}-{theme}.png", full_page=True)
    context.close()


def boxes(page: Page) -> dict[str, str]:
    """The live boxes of the document on show: the engine's name of each, and the document's."""
    found: dict[str, str] = page.evaluate(
        """() => Object.fromEntries(window.stage.store.document.components
             .filter(({ live }) => live !== null).map(({ live, id }) => [live, id]))"""
    )
    return found


def inside(page: Page, box: str, index: int) -> dict[str, Any]:
    """What is drawn in the room of a box at a record."""
    enter(page, box, index)
    come_to_rest(page)
    has_board = page.locator(".gb-room .gb-board").count() > 0
    drawn = [(s["kind"], s["key"], s["of"]) for s in spots(page)] if has_board else []
    # The table beside a canvas follows when that rests, and is left out.
    text = page.evaluate(
        """() => {
          const copy = window.stage.root.querySelector(".gb-room-inside").cloneNode(true);
          for (const twin of copy.querySelectorAll(".gb-sr")) twin.remove();
          return copy.textContent;
        }"""
    )
    return {"text": text, "spots": drawn}
