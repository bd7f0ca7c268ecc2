"""The whole page for those who use a keyboard alone, or have it read to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from tests.browser.test_page import VIEWS, Tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def tab(browser: Browser, server_url: str) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Tab(context.new_page(), server_url).open()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_opens_from_the_header_has_no_serious_accessibility_fault(
    browser: Browser, server_url: str, scheme: Any
) -> None:
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    tab = Tab(context.new_page(), server_url).open()
    found = []
    for name in ("Sampling", "1 request", "Engine", "Connect", "Document"):
        tab.page.get_by_role("button", name=name, exact=True).first.click()
        body = tab.page.locator("[data-testid=stPopoverBody]")
        body.wait_for()
        tab.settle()
        for fault in Axe().run(tab.page).response["violations"]:
            if fault["impact"] in ("serious", "critical"):
                found.append((name, fault["id"], [node["target"] for node in fault["nodes"]]))
        tab.page.keyboard.press("Escape")
        body.wait_for(state="detached")
    context.close()
    assert not found, "\n".join(map(str, found))


DEEP = """() => {
  let node = document.activeElement;
  while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
  return Boolean(node && %s);
}"""


def tab_to(tab: Tab, condition: str) -> None:
    """Press Tab until `node`, which has the focus, is such a one."""
    for _ in range(150):
        tab.page.keyboard.press("Tab")
        if tab.page.evaluate(DEEP % condition):
            return
    raise AssertionError(f"no Tab leads to: {condition}")


def test_a_prompt_is_sent_stepped_and_looked_at_by_keyboard_alone(tab: Tab) -> None:
    keyboard = tab.page.keyboard
    tab_to(tab, "node.getAttribute('aria-label') === 'Prompt'")
    keyboard.type("n p [ ] 2 ?")  # typed, none of them a command
    keyboard.press("Control+Enter")
    tab.has(".gb-note", "sent.")
    tab.settle()
    assert tab.log().events("batch_scheduled") == []
    assert tab.store("s.view") == VIEWS[0]
    tab_to(tab, "node.matches('.gb-tab')")
    keyboard.press("ArrowRight")
    tab.wait_for("s.view", VIEWS[1])
    tab_to(tab, "node.dataset.act === 'save'")
    keyboard.press("Enter")
    tab.page.locator("[data-save=jsonl]").wait_for()
    keyboard.press("Escape")
    tab.page.locator("[data-save=jsonl]").wait_for(state="hidden")
    assert tab.page.evaluate(DEEP % "node.dataset.act === 'save'")
    tab_to(tab, "node.dataset.component === 'scheduler'")
    keyboard.press("Enter")
    keyboard.press("Enter")
    tab.wait_for("s.opened", "scheduler")
    tab.page.locator(".gb-room:not([hidden]) .gb-room-inside").wait_for()
    keyboard.press("Escape")
    tab.wait_for("s.opened", None)
    tab_to(tab, "node.dataset.act === 'stepOn'")
    keyboard.press("Enter")
    tab.wait_for("[s.headEngine.step, s.cursor === s.head]", [1, True])
    keyboard.press("b")
    tab.wait_for("s.bookmarks.list.length", 1)
    tab_to(tab, "node.getAttribute('aria-label') === 'Position in the log'")
    keyboard.press("Home")
    tab.wait_for("s.cursor", -1)
    tab_to(tab, "node.matches('canvas.gbp-pool')")
    keyboard.press("ArrowRight")
    tab.wait_for("s.selection.block !== null", True)
    tab.settle()
