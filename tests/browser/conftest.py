"""What the tests in a browser share: servers of the tiny model, a page of panels."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.panels import ROOT
from tests.browser.stage import watched, watching
from tests.browser.stage_server import StageServer, stage_server
from tests.servers import AppProcess, ready_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def server() -> Iterator[StageServer]:
    with stage_server(shared_enabled=True, max_engines=200) as server:
        yield server


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of documents of `tiny_app`."""
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="session")
def tiny_app(documents: Path) -> Iterator[tuple[AppProcess, str]]:
    """`python app.py` with the tiny model, one for all: torch alone takes seconds to import."""
    with ready_app("tiny-random", DOCUMENTS=str(documents), MAX_ENGINES="200") as started:
        yield started


@pytest.fixture(scope="module")
def server_url(tiny_app: tuple[AppProcess, str]) -> Iterator[str]:
    """Its address, for the whole page: what it writes does not matter."""
    app, url = tiny_app
    before = len(app.lines)
    yield url
    said = "".join(app.lines[before:])
    assert "Traceback" not in said, said


# --- the stage, without Streamlit around it -------------------------------------------------------


@pytest.fixture(scope="module")
def opened_once(browser: Browser, server: StageServer) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    with watched(page, server):
        pass
    yield page
    page.close()


@pytest.fixture
def same_page(opened_once: Page, server: StageServer) -> Iterator[Page]:
    """One page for those tests of a file that bring all that they look at, such as a trace."""
    with watching(opened_once, server):
        yield opened_once


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
