"""From a jump to its picture: to any of 5,000 steps, to another view, into a room and out of it.

README.md, "seek", says what is in the recording and when a picture is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_most, figure, high_figure
from benchmarks.pages import VisitedPage, visit
from benchmarks.recording import LONG, recorded_trace
from engine.model_loader.tiny import TINY_MODEL
from tests.chromium import chromium
from tests.servers import running_app

STEPS = 5_000
SEEKS = 100
SWITCHES = 30
VIEWS = {
    "request-lifecycle": ".gbp-lifecycle",
    "block-allocation": ".gbp-blocks",
    "cuda-acceleration": ".gbp-graph",
}
ROOMS = ("scheduler", "block-manager", "gpu-runner")
SEEK_GOAL, SWITCH_GOAL = at_most(50.0), at_most(100.0)
SETTLE_MS = 700.0  # words for those who listen, drawn when nothing has changed for a while

REST_MS = 200  # in which what one act shows comes to rest
# What is to be right in one and the same frame. Each part draws its words where it draws its
# pictures, so that words that are right stand beside pictures that are.
WORDS = (
    ".gb-where, .gb-hint, .gb-box, .gb-inspector, .gbp-opening, .gbp-stats, .gbp-logical,"
    " .gbp-dispatch, .gbp-clocks, .gbp-pages"
)

# Acts, waits for frames until what was asked for is there, and then until that frame is finished
# on the page's main thread; in milliseconds.
DRAWN = """
  const frame = () => new Promise((done) => requestAnimationFrame(() => done()));
  const hosts = Array.from(document.querySelectorAll("*"), (node) => node.shadowRoot);
  const root = hosts.find((each) => each?.querySelector(".gb"));
  const text = (selector) => root.querySelector(selector)?.textContent ?? "";
  const finished = () => new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => done();
    port2.postMessage(null);
  });
  const drawn = async (act, there) => {
    const began = performance.now();
    act();
    do {
      await frame();
      if (performance.now() - began > 30_000) throw new Error(`not drawn in 30 s: ${there}`);
    } while (!there());
    await finished();
    return performance.now() - began;
  };
"""
# The same of the first frame that says all that is there when the page has come to rest.
RIGHT = f"""
  {DRAWN}
  const words = () => [
    ...Array.from(root.querySelectorAll("{WORDS}"), (node) => node.textContent),
    ...Array.from(root.querySelectorAll(".gbp-canvas"), (node) => node.getAttribute("aria-label")),
  ].join("\\n");
  const right = async (act, there) => {{
    const frames = [];
    let taken = 0, since = 0;
    const began = performance.now();
    act();
    do {{
      await frame();
      const says = words();
      await finished();
      taken = performance.now() - began;
      if (taken > 30_000) throw new Error(`not drawn in 30 s: ${{there}}`);
      const rests = there() && says === frames[frames.length - 1]?.says;
      if (!rests) since = taken;
      frames.push({{ says, taken }});
    }} while (taken - since < {REST_MS} || frames.length < 4);
    const last = frames[frames.length - 1].says;
    return frames[frames.findLastIndex(({{ says }}) => says !== last) + 1].taken;
  }};
"""


def measure(effort: Effort) -> list[Figure]:
    """Record once; jump about in it, then switch, as a visitor does who has stopped."""
    recorded = recorded_trace(LONG, effort.samples(STEPS))
    with (
        running_app(TINY_MODEL) as (_, url),
        chromium() as browser,
        visit(browser, url) as visited,
    ):
        visited.store("s.openTrace(argument, 'recorded');", recorded)
        visited.page.wait_for_timeout(SETTLE_MS)
        return [
            *switches(visited, effort.samples(SWITCHES)),
            *rooms(visited, effort.samples(SWITCHES)),
            *seeks(visited, effort.samples(SEEKS)),
        ]


def seeks(visited: VisitedPage, count: int) -> Iterator[Figure]:
    """To the ends of steps drawn by chance, in each view."""
    chance = Random(0)
    for view in VIEWS:
        visited.store("s.setView(argument)", view)
        visited.page.wait_for_timeout(SETTLE_MS)
        taken = []
        for _ in range(count):
            taken.append(visited.store(SEEK, chance.random()))
            visited.page.wait_for_timeout(20)
        yield figure(f"seek, {view}", "ms", taken, SEEK_GOAL)
        yield high_figure(f"seek, {view}, 95 in 100", "ms", taken)


SEEK = f"""
  {RIGHT}
  const steps = s.steps.filter((each) => !each.command);
  const entry = steps[Math.floor(argument * steps.length)];
  return right(
    () => s.seek(entry.last),
    () => text(".gb-where").startsWith(`step ${{entry.step}} /`),
  );
"""


def switches(visited: VisitedPage, count: int) -> Iterator[Figure]:
    """From view to view. The first time, the browser fetches what the view is drawn with."""
    views = list(VIEWS)
    visited.store("s.seek(Math.floor(s.head / 2)); s.setView(argument)", views[-1])
    visited.page.wait_for_timeout(SETTLE_MS)
    taken: dict[str, list[float]] = {view: [] for view in views}
    for number in range(count * len(views)):
        view = views[number % len(views)]
        taken[view].append(visited.store(SWITCH, [view, VIEWS[view]]))
        visited.page.wait_for_timeout(100)
    for view, all_of_view in taken.items():
        yield figure(f"to view {view}, the first time", "ms", all_of_view[:1], SWITCH_GOAL)
        yield figure(f"to view {view}, again", "ms", all_of_view[1:], SWITCH_GOAL)


SWITCH = f"""
  {RIGHT}
  const [view, panel] = argument;
  return right(() => s.setView(view), () => text(`${{panel}} .gbp-sentence`) !== "");
"""


def rooms(visited: VisitedPage, count: int) -> Iterator[Figure]:
    """Into a room and back to the map."""
    for room in ROOMS:
        there, back = [], []
        for _ in range(count):
            there.append(visited.store(ENTER, room))
            visited.page.wait_for_timeout(300)  # it has grown out of its box
            back.append(visited.store(LEAVE))
            visited.page.wait_for_timeout(100)
        yield figure(f"into room {room}", "ms", there, SWITCH_GOAL)
        yield figure(f"out of room {room}", "ms", back, SWITCH_GOAL)


ENTER = f"""
  {DRAWN}
  const label = s.document.components.find((each) => each.id === argument).label;
  return drawn(
    () => s.openBox(argument),
    () => text(".gb-room:not([hidden]) h2") === label && root.querySelector(".gb-room-inside *"),
  );
"""
LEAVE = f"""
  {DRAWN}
  return drawn(() => s.openBox(null), () => root.querySelector(".gb-room[hidden]"));
"""
