"""A page that follows a live engine at 40 steps a second: whether it falls behind, and by how much.

README.md, "following", says how what is behind is found without a common clock.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_least, at_most, figure, high_figure
from benchmarks.pages import PageError, busy, visit
from engine.model_loader.tiny import TINY_MODEL
from tests.chromium import chromium
from tests.servers import running_app

STEPS_A_SECOND = 40
SECONDS = 60
EVERY_MS = 100
FASTEST_GOAL = at_least(0.98)
GROWTH_GOAL = at_most(50.0)

# The page's time, the engine's time and step of the record on show, and of the newest that came.
LOOK = """
  const [shown, newest] = [s.records[s.cursor], s.records[s.head]];
  return [performance.now(), shown.t_us / 1000, shown.step, newest.t_us / 1000, newest.step];
"""


class Look(NamedTuple):
    """What the page shows at a moment; milliseconds of the page's clock and of the engine's."""

    now: float
    shown: float
    shown_step: int
    newest: float
    newest_step: int


def measure(effort: Effort) -> list[Figure]:
    """Requests that go on and on, an engine at its pace, and a look every tenth of a second."""
    looks = effort.samples(SECONDS * 1000 // EVERY_MS)
    with (
        running_app(TINY_MODEL) as (_, url),
        chromium() as browser,
        visit(browser, url) as visited,
        busy(visited, STEPS_A_SECOND),
    ):
        visited.page.wait_for_timeout(3_000)
        found = []
        for _ in range(looks):
            found.append(Look(*visited.store(LOOK)))
            visited.page.wait_for_timeout(EVERY_MS)
    if found[-1].newest_step - found[0].newest_step < looks * EVERY_MS / 1000:
        raise PageError("the engine did not run: fewer than one step a second came")
    return figures_of(found)


def figures_of(found: list[Look]) -> list[Figure]:
    """How fast it went on both sides, and how far the one is behind the other."""
    first, last = found[0], found[-1]
    seconds = (last.now - first.now) / 1000
    engine = (last.newest_step - first.newest_step) / ((last.newest - first.newest) / 1000)
    page = (last.shown_step - first.shown_step) / seconds
    # Both clocks run at one pace: what is above the least is how much later a record is on show.
    offsets = [look.now - look.shown for look in found]
    behind = [offset - min(offsets) for offset in offsets]
    part = max(1, len(behind) // 4)
    growth = statistics.median(behind[-part:]) - statistics.median(behind[:part])
    waiting = [look.newest_step - look.shown_step for look in found]
    return [
        figure("the engine's pace, by its log", "1/s", [engine]),
        figure("the page's pace", "1/s", [page]),
        figure("page / engine", "x", [page / engine], FASTEST_GOAL),
        figure("on show later than at best", "ms", behind),
        high_figure("on show later than at best, 95 in 100", "ms", behind),
        figure("the same, last quarter - first quarter", "ms", [growth], GROWTH_GOAL),
        figure("steps that have come and are not on show", "", waiting),
    ]
