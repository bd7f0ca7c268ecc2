"""What a page's first load moves over the network, besides what is Streamlit's own.

README.md, "page_load", says what counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_most, figure
from benchmarks.pages import START_MS, TWO_FRAMES
from engine.model_loader.tiny import TINY_MODEL
from tests.chromium import chromium
from tests.servers import running_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

MB = 1e6
GOAL = at_most(1.5)
STREAMLITS = ("/static/", "/_stcore/", "/vendor/")


class Moved:
    """The bytes of each answer, headers included, as they came over the network."""

    def __init__(self, page: Page):
        self.paths: dict[str, str] = {}
        self.bytes: dict[str, float] = {}
        self.cached: set[str] = set()
        network = page.context.new_cdp_session(page)
        network.on("Network.requestWillBeSent", self._asked)
        network.on("Network.dataReceived", self._came)
        network.on("Network.loadingFinished", self._finished)
        network.send("Network.enable")

    def _asked(self, event: dict[str, Any]) -> None:
        self.paths[event["requestId"]] = urlsplit(event["request"]["url"]).path

    def _came(self, event: dict[str, Any]) -> None:
        """A stream never finishes: what has come of it counts."""
        self.bytes.setdefault(event["requestId"], 0.0)
        self.bytes[event["requestId"]] += event["encodedDataLength"]

    def _finished(self, event: dict[str, Any]) -> None:
        self.bytes[event["requestId"]] = event["encodedDataLength"]

    def ours(self) -> dict[str, float]:
        """By request, what is not Streamlit's: modules, styles, fonts, the API and the log."""
        return {
            request: size
            for request, size in self.bytes.items()
            if not self.paths[request].startswith(STREAMLITS) and self.paths[request] != "/"
        }


def measure(effort: Effort) -> list[Figure]:
    """A new visitor."""
    del effort  # a load moves the same bytes each time
    with running_app(TINY_MODEL) as (_, url), chromium() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        first = loaded(context.new_page(), url)
        context.close()
    return [
        figure("first load", "MB", [sum(first.values()) / MB], GOAL),
        figure("first load, answers", "", [len(first)]),
    ]


def loaded(page: Page, url: str) -> dict[str, float]:
    """Load the page until it can be used, and see what that moved."""
    moved = Moved(page)
    page.goto(url)
    page.wait_for_selector(".st-key-gb-send button:not([disabled])", timeout=START_MS)
    page.wait_for_selector(".gb-map .gb-box", timeout=START_MS)
    page.wait_for_selector(".gb-panel .gbp", timeout=START_MS)
    page.evaluate(TWO_FRAMES)
    return moved.ours()
