"""A browser that waits for slow pages, and that can be made slow to find who does not.

Its contexts serve one test after the other, each empty, with the cache of those before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

# GLASSBOX_TEST_SLOW=8 makes the processor of every page 8 times slower, which is how a test that
# reads the page before it has drawn is found.
SLOWNESS = float(os.environ.get("GLASSBOX_TEST_SLOW") or 1)
# What a page is asked to be, so that pages of one context may differ in it.
OF_A_PAGE = ("viewport", "color_scheme", "reduced_motion")
VIEWPORT: ViewportSize = {"width": 1280, "height": 720}  # Playwright's own, where none is asked for
EVERYTHING = {"origin": "*", "storageTypes": "local_storage,indexeddb,cache_storage"}


def patient(browser: Browser) -> Browser:
    """The browser, whose pages wait this long, and are as slow as asked for.

    Playwright's own bounds are 30 s for an action and 5 s for `expect`.
    """
    from playwright.sync_api import expect

    expect.set_options(timeout=1000 * PATIENCE_S)
    make_context = browser.new_context
    idle: dict[str, list[Kept]] = {}

    def new_context(**options: Any) -> BrowserContext:
        of_a_page = {name: options.pop(name) for name in OF_A_PAGE if name in options}
        kept = idle.setdefault(repr(sorted(options.items())), [])
        context = kept.pop() if kept else Kept(make_context(**options), kept)
        return context.lent(**of_a_page)

    def new_page(**options: Any) -> Page:
        context = browser.new_context(**options)
        page = context.new_page()
        page.close = context.close  # type: ignore[method-assign]  # it has it to itself
        return page

    browser.new_context = new_context  # type: ignore[method-assign, assignment]
    browser.new_page = new_page  # type: ignore[method-assign, assignment]
    return browser


class Kept:
    """A context that serves one test after the other, and is empty for each.

    All that stays is the cache: the page's files, and what V8 made of them, are half of a start.
    """

    def __init__(self, context: BrowserContext, idle: list[Kept]):
        self.context, self.idle = context, idle
        self.is_lent = False
        self.make_page = context.new_page
        context.set_default_timeout(1000 * PATIENCE_S)
        context.close = self.give_back  # type: ignore[method-assign]

    def lent(self, viewport: ViewportSize | None = None, **media: Any) -> BrowserContext:
        """The context, whose next pages are of this size and for these tastes."""

        def new_page() -> Page:
            page = self.make_page()
            page.set_viewport_size(viewport or VIEWPORT)
            if media:
                page.emulate_media(**media)
            if SLOWNESS != 1:
                session = self.context.new_cdp_session(page)
                session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWNESS})
            return page

        self.is_lent = True
        self.context.new_page = new_page  # type: ignore[method-assign]
        return self.context

    def give_back(self) -> None:
        """Close its pages and forget what they kept."""
        from playwright.sync_api import Page

        if not self.is_lent:
            return
        self.is_lent = False
        page, *others = self.context.pages or [self.make_page()]
        for other in others:
            Page.close(other)
        page.goto("about:blank")  # its last words are said
        self.context.new_cdp_session(page).send("Storage.clearDataForOrigin", EVERYTHING)
        Page.close(page)
        self.context.clear_cookies()
        self.context.clear_permissions()
        self.idle.append(self)
