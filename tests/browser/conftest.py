"""What the tests in a browser share: a server of the tiny model, one a file; a page of panels."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.panels import ROOT
from tests.browser.stage_server import StageServer, stage_server
from tests.servers import ready_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def server() -> Iterator[StageServer]:
    with stage_server(shared_enabled=True, max_engines=200) as server:
        yield server


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """`python app.py` with the tiny model, for the whole page: what it writes does not matter."""
    with ready_app(model="tiny-random") as (app, url):
        yield url
    assert "Traceback" not in "".join(app.lines), "".join(app.lines)


# --- the panels, without a server ---------------------------------------------------------------


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the repository's files and says nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def harness_url() -> Iterator[str]:
    handler = partial(QuietHandler, directory=str(ROOT))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/tests/browser/panels_harness.html"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def open_page(browser: Browser, harness_url: str) -> Iterator[Callable[..., Page]]:
    """Opens the harness; any error of the page fails the test that caused it."""
    pages: list[Page] = []
    errors: list[str] = []

    def open_one(theme: str = "light", width: int = 1300) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{harness_url}?theme={theme}")
        page.wait_for_function("window.harness")
        pages.append(page)
        return page

    yield open_one
    for page in pages:
        page.close()
    assert errors == []


@pytest.fixture(scope="module")
def shared_page(open_page: Callable[..., Page]) -> Page:
    return open_page()


@pytest.fixture
def page(shared_page: Page) -> Iterator[Page]:
    """One page for all tests, with any error of the page failing the test in which it came."""
    errors: list[str] = []
    shared_page.on("pageerror", lambda error: errors.append(str(error)))
    yield shared_page
    assert errors == []


@pytest.fixture
def blocks_again(page: Page) -> Iterator[None]:
    """The choice is the page's, and the page is every test's."""
    yield
    page.get_by_role("button", name="Blocks", exact=True).click()
