"""Script and drawing time a frame while 500 recorded steps play, in each of the three views.

README.md, "playback", says what belongs to a frame.
"""

from __future__ import annotations

import time

from benchmarks.frames import CATEGORIES, Frame, frames_of
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_most, figure
from benchmarks.pages import PageError, VisitedPage, visit
from benchmarks.recording import recorded_trace
from engine.model_loader.tiny import TINY_MODEL
from tests.chromium import chromium
from tests.servers import running_app

STEPS = 500
STEPS_A_SECOND = 30
WINDOW_HEIGHT = 1400  # map and panel in sight: what is out of sight is not painted
VIEWS = ("request-lifecycle", "block-allocation", "cuda-acceleration")
GOAL = at_most(8.0)

SHOW = "s.openTrace(argument, 'recorded'); s.seek(-1);"
PLAY = """
  s.seek(-1);
  s.play(argument);
  await new Promise((done) => {
    const look = () => (s.clock.playing ? setTimeout(look, 100) : done());
    look();
  });
  return s.cursor === s.head;
"""


def measure(effort: Effort) -> list[Figure]:
    """Record once, then play the recording in one view after the other."""
    recorded = recorded_trace(effort.samples(STEPS))
    figures = []
    with (
        running_app(TINY_MODEL) as (_, url),
        chromium() as browser,
        visit(browser, url, WINDOW_HEIGHT) as visited,
    ):
        visited.store(SHOW, recorded)
        for view in VIEWS:
            visited.store("s.setView(argument); s.seek(-1);", view)
            visited.page.wait_for_timeout(1000)  # the panel is there and has been drawn
            figures += play(visited, view)
    return figures


def play(visited: VisitedPage, view: str) -> list[Figure]:
    """Play to the end while the browser writes its trace."""
    browser = visited.page.context.browser
    assert browser is not None
    browser.start_tracing(page=visited.page, categories=list(CATEGORIES))
    began = time.perf_counter()
    ended = visited.store(PLAY, STEPS_A_SECOND)
    seconds = time.perf_counter() - began
    frames = frames_of(browser.stop_tracing())
    if not ended or not frames:
        raise PageError(f"the recording did not play to its end in the view {view}")
    return figures_of(view, frames, seconds)


def figures_of(view: str, frames: list[Frame], seconds: float) -> list[Figure]:
    """What the frames of one view cost."""
    drawn = [frame for frame in frames if frame.committed]
    return [
        figure(f"{view}, script and drawing", "ms", [frame.cpu for frame in drawn], GOAL),
        figure(f"{view}, of it script", "ms", [frame.script for frame in drawn]),
        figure(f"{view}, of it style and layout", "ms", [frame.layout for frame in drawn]),
        figure(f"{view}, of it painting", "ms", [frame.drawing for frame in drawn]),
        figure(f"{view}, by the wall clock", "ms", [frame.wall for frame in drawn]),
        figure(f"{view}, frames a second", "1/s", [len(drawn) / seconds]),
    ]
