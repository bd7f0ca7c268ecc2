"""The browser that tests and benchmarks look through."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.setup import find_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextlib.contextmanager
def chromium(windowless: bool = False) -> Iterator[Browser]:
    """An installed Chromium or Chrome, or Playwright's own where there is none.

    Benchmarks measure the whole browser, which people use; tests ask for one without windows.
    """
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox refuses to run as root, as which containers and CI machines run.
    as_root = sys.platform == "linux" and os.geteuid() == 0
    flags = [*FLAGS, *(["--no-sandbox"] if as_root else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(windowless), args=flags)
        yield browser
        browser.close()
