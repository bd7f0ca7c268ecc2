"""A browser that waits for slow pages, and that can be made slow to find who does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

# GLASSBOX_TEST_SLOW=8 makes the processor of every page 8 times slower, which is how a test that
# reads the page before it has drawn is found.
SLOWNESS = float(os.environ.get("GLASSBOX_TEST_SLOW") or 1)


def patient(browser: Browser) -> Browser:
    """The browser, whose pages wait this long, and are as slow as asked for.

    Playwright's own bounds are 30 s for an action and 5 s for `expect`.
    """
    from playwright.sync_api import expect

    expect.set_options(timeout=1000 * PATIENCE_S)
    make_context = browser.new_context

    def new_context(**options: Any) -> BrowserContext:
        context = make_context(**options)
        context.set_default_timeout(1000 * PATIENCE_S)
        make_page = context.new_page

        def new_page() -> Page:
            page = make_page()
            if SLOWNESS != 1:
                session = context.new_cdp_session(page)
                session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWNESS})
            return page

        context.new_page = new_page  # type: ignore[method-assign]
        return context

    def new_page(**options: Any) -> Page:
        page = browser.new_context(**options).new_page()
        page.close = page.context.close  # type: ignore[method-assign]  # it has it to itself
        return page

    browser.new_context = new_context  # type: ignore[method-assign, assignment]
    browser.new_page = new_page  # type: ignore[method-assign, assignment]
    return browser
