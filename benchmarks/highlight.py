"""From a click on a box of the map to its highlight on the screen.

README.md, "highlight", says which moments are meant.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_most, figure
from benchmarks.pages import PageError, VisitedPage, visit
from engine.model_loader.tiny import TINY_MODEL
from tests.chromium import chromium
from tests.servers import running_app

CLICKS = 60
BETWEEN_MS = 80.0
FRAME_MS = 1000 / 60
AFTER_MS = 500.0  # what a click sets off on the server would have been asked for by then
GOAL = at_most(16.0)
NOTHING = at_most(0.0)

# `timeStamp` is when the browser got the click. The listener on `document` hears it after the map
# has handled it; a message posted in the next frame's callback arrives when that frame is drawn.
WATCH = """() => {
  window.seenClicks = [];
  document.addEventListener("click", (event) => {
    const box = event.composedPath().find((node) => node.matches?.(".gb-box"));
    const marked = box?.classList.contains("is-selected") ?? false;
    const handled = performance.now() - event.timeStamp;
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        window.seenClicks.push([marked, handled, performance.now() - event.timeStamp]);
      };
      port2.postMessage(null);
    });
  });
}"""


class Click(NamedTuple):
    """One click on a box; milliseconds since the browser got it."""

    marked: bool  # the box was marked when the click had been handled
    handled: float
    drawn: float


def measure(effort: Effort) -> list[Figure]:
    """Click on one box after the other, with an engine at work on show."""
    with (
        running_app(TINY_MODEL) as (_, url),
        chromium() as browser,
        visit(browser, url) as visited,
    ):
        put_on_show(visited)
        before = len(visited.sent)
        clicks = click_boxes(visited, effort.samples(CLICKS))
        visited.page.wait_for_timeout(AFTER_MS)
        asked = visited.sent[before:]
    if not all(click.marked for click in clicks):
        raise PageError("a box that was clicked was not marked")
    return [
        figure("box marked", "ms", [click.handled for click in clicks]),
        figure("drawn", "ms", [click.drawn for click in clicks], GOAL),
        figure(
            "requests and websocket frames sent meanwhile",
            "",
            [len(asked)],
            NOTHING,
            note=", ".join(asked[:3]),
        ),
    ]


def put_on_show(visited: VisitedPage) -> None:
    """Some steps of the tab's own engine, so that boxes and inspector have something to tell."""
    visited.post("/api/engine/run", {})
    visited.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8})
    visited.post("/api/engine/pause", {})
    visited.page.wait_for_timeout(2000)  # the cursor walks to the head


def click_boxes(visited: VisitedPage, count: int) -> list[Click]:
    """Click on boxes by turns, each time on another one than before."""
    page = visited.page
    page.evaluate(WATCH)
    boxes = page.locator(".gb-map .gb-box").all()
    moments = Random(0)
    for number in range(count):
        boxes[number % len(boxes)].hover(position={"x": 12, "y": 12})
        # The browser answers a move as a frame begins. A hand clicks at any moment of a frame.
        page.wait_for_timeout(BETWEEN_MS + moments.uniform(0.0, FRAME_MS))
        page.mouse.down()
        page.mouse.up()
        page.wait_for_timeout(BETWEEN_MS)
    found = page.evaluate("window.seenClicks")
    if len(found) != count:
        raise PageError(f"{count} clicks were made and {len(found)} arrived")
    return [Click(*click) for click in found]
