"""From `python app.py` to a page that can be used, with the default model.

README.md, "start", says what is warm and what is not.
"""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_most, figure
from benchmarks.pages import visit
from tests.chromium import chromium
from tests.servers import running_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser

STARTS = 5
GOAL = at_most(10.0)


class Start(NamedTuple):
    """One start; seconds since the process began."""

    answers: float
    interactive: float


def measure(effort: Effort) -> list[Figure]:
    """Some starts, one after the other; the browser runs already."""
    with chromium() as browser:
        starts = [one_start(browser) for _ in range(effort.samples(STARTS))]
    return [
        figure("server answers", "s", [start.answers for start in starts]),
        figure(
            "Send enabled and map drawn", "s", [start.interactive for start in starts], goal=GOAL
        ),
    ]


def one_start(browser: Browser) -> Start:
    """Start the server, open the page as soon as it answers, and end both."""
    began = time.perf_counter()
    with running_app(model="") as (_, url):
        with urllib.request.urlopen(url, timeout=30):
            answers = time.perf_counter() - began
        with visit(browser, url):
            return Start(answers, time.perf_counter() - began)
