"""Script and drawing time a frame while a recording of 50 requests plays, in views and rooms.

README.md, "playback", says what is in the recording and what belongs to a frame.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.even_frames import EVEN_FRAMES
from benchmarks.frames import CATEGORIES, Frame, frames_of
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_most, figure, high_figure
from benchmarks.pages import PageError, VisitedPage, visit
from benchmarks.recording import LARGE, recorded_trace
from engine.model_loader.tiny import TINY_MODEL
from tests.chromium import chromium
from tests.servers import running_app

STEPS = 300
BEFORE = 450  # steps, after which every block has held something
STEPS_A_SECOND = 30
WINDOW_HEIGHT = 1400  # map and panel in sight: what is out of sight is not painted
VIEWS = ("request-lifecycle", "block-allocation", "cuda-acceleration")
ROOMS = ("scheduler", "block-manager", "gpu-runner")  # open in the map's place, in the last view
MEDIAN_GOAL, HIGH_GOAL = at_most(8.0), at_most(16.0)
REAL_SHARE = 3  # of the recording, this part is played by the wall clock

SHOW = "s.openTrace(argument, 'recorded'); s.seek(-1);"
# Plays from the start to a record; while it does, time is as `even` says.
PLAY = """
  s.seek(-1);
  window.evenFrames(argument.even);
  s.play(argument.rate);
  await new Promise((done) => {
    const look = () => {
      if (s.cursor >= argument.until || !s.clock.playing) done();
      else requestAnimationFrame(look);
    };
    look();
  });
  s.stopPlaying();
  window.evenFrames(false);
  return s.cursor >= argument.until;
"""


def measure(effort: Effort) -> list[Figure]:
    """Record once, then play the recording in one view after the other."""
    recorded = recorded_trace(LARGE, effort.samples(STEPS), before=BEFORE)
    figures = []
    with (
        running_app(TINY_MODEL) as (_, url),
        chromium() as browser,
        visit(browser, url, WINDOW_HEIGHT) as visited,
    ):
        visited.page.evaluate(EVEN_FRAMES)
        visited.store(SHOW, recorded)
        for view in VIEWS:
            visited.store("s.setView(argument); s.seek(-1);", view)
            visited.page.wait_for_timeout(1000)  # the panel is there and has been drawn
            figures += played(visited, view)
        for room in ROOMS:
            visited.store("s.openBox(argument); s.seek(-1);", room)
            visited.page.wait_for_selector(".gb-room:not([hidden])")
            figures += played(visited, f"room {room}")
    return figures


def played(visited: VisitedPage, name: str) -> list[Figure]:
    """What the frames of one view, or one room, cost; and how many of them there are a second."""
    frames, _ = play(visited, name, even=True)
    real, seconds = play(visited, name, even=False)
    drawn = [frame for frame in frames if frame.committed]
    cpu = [frame.cpu for frame in drawn]
    shown = [frame.wall for frame in real if frame.committed]
    return [
        figure(f"{name}, script and drawing", "ms", cpu, MEDIAN_GOAL),
        high_figure(f"{name}, 95 in 100 frames", "ms", cpu, HIGH_GOAL),
        figure(f"{name}, of it script", "ms", [frame.script for frame in drawn]),
        figure(f"{name}, of it style and layout", "ms", [frame.layout for frame in drawn]),
        figure(f"{name}, of it painting", "ms", [frame.drawing for frame in drawn]),
        figure(f"{name}, by the wall clock", "ms", shown),
        figure(f"{name}, frames a second", "1/s", [len(shown) / seconds]),
    ]


def play(visited: VisitedPage, name: str, even: bool) -> tuple[list[Frame], float]:
    """Play while the browser writes its trace: the frames, and how long it took in seconds."""
    browser = visited.page.context.browser
    assert browser is not None
    head = int(visited.store("return s.head"))
    until = head if even else head // REAL_SHARE
    wanted: dict[str, Any] = {"even": even, "rate": STEPS_A_SECOND, "until": until}
    browser.start_tracing(page=visited.page, categories=list(CATEGORIES))
    began = time.perf_counter()
    ended = visited.store(PLAY, wanted)
    seconds = time.perf_counter() - began
    frames = frames_of(browser.stop_tracing())
    if not ended or not frames:
        raise PageError(f"the recording did not play to its end: {name}")
    return frames, seconds
