"""The page in a browser, as a visitor has it."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

START_MS = 120_000.0
CLIENTS, MAX_TOKENS = 8, 100  # of an engine that is kept busy
# One module for the whole page, so this is the store that is drawn.
STORE = "async (argument) => { const s = (await import('/assets/workspace.js')).store(); %s }"
TWO_FRAMES = (
    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
)


class PageError(RuntimeError):
    """The page is not as a benchmark needs it."""


class VisitedPage:
    """A tab of its own, with what it asked of the server since it was opened."""

    def __init__(self, page: Page, url: str):
        self.page = page
        self.url = url
        self.sent: list[str] = []  # requests and websocket frames, in order
        page.on("request", lambda request: self.sent.append(f"request {request.url}"))
        page.on("websocket", self._follow)
        self.page.goto(url)
        self.page.wait_for_selector(".st-key-gb-send button:not([disabled])", timeout=START_MS)
        self.page.wait_for_selector(".gb-map .gb-box", timeout=START_MS)
        self.page.evaluate(TWO_FRAMES)  # what is in the document now has been drawn

    def _follow(self, socket: Any) -> None:
        socket.on("framesent", lambda _: self.sent.append(f"frame to {socket.url}"))

    @property
    def key(self) -> str:
        """Of the tab's session."""
        return str(self.page.evaluate("sessionStorage.getItem('glassbox.session')"))

    def store(self, statements: str, argument: Any = None) -> Any:
        """Run JavaScript with the page's store as `s`."""
        return self.page.evaluate(STORE % statements, argument)

    def post(self, path: str, body: dict[str, Any], key: str = "") -> dict[str, Any]:
        """Ask the tab's own engine over HTTP; returns the answer. Another thread brings the key
        along, for it may not ask the page."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {key or self.key}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


@contextmanager
def visit(browser: Browser, url: str, height: int = 900) -> Iterator[VisitedPage]:
    """Open the page in a new window and wait until it can be used."""
    context = browser.new_context(viewport={"width": 1280, "height": height})
    try:
        yield VisitedPage(context.new_page(), url)
    finally:
        context.close()


@contextmanager
def busy(visited: VisitedPage, rate: int) -> Iterator[None]:
    """The tab's engine runs, so many steps a second, and has requests as long as this lasts."""
    key, ended = visited.key, threading.Event()

    def ask(number: int) -> None:
        body = {"prompt": f"{number} " * 8, "max_tokens": MAX_TOKENS, "ignore_eos": True}
        while not ended.is_set():
            visited.post("/v1/completions", body, key)

    visited.post("/api/engine/run", {"rate": rate})
    clients = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        ended.set()
        for client in clients:
            client.join()
