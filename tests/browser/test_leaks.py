"""What the page holds does not grow with how long somebody looks around in it.

Views, rooms, selections, tabs, tables and menus are opened and left, over and over. When garbage is
collected, the browser's own counts of nodes and of listeners are what they were before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.browser.stage import show, watched
from tests.browser.stage_server import StageServer
from tests.browser.test_rooms import under_pressure
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

ROUNDS = 2  # that are counted; one more comes first, in which all is made once
# A tip or a table's rows of the last thing looked at; anything lost a round is far above it.
NODES_APART, LISTENERS_APART = 60, 6

LOOK_AROUND = """async (rounds) => {
  const { store, root, frame } = stage;
  const parts = (selector) => Array.from(root.querySelectorAll(selector));
  const live = store.document.components.filter((box) => box.live).map((box) => box.id);
  const cursor = store.cursor;
  for (let round = 0; round < rounds; round += 1) {
    for (const { id } of store.document.views) {
      store.setView(id);
      await frame();
      for (const choice of parts(".gbp-choice")) {
        choice.click();
        await frame();
      }
      parts(".gbp-choice")[0]?.click();
      store.seek(Math.floor(store.head / 2));
      for (const canvas of parts(".gb-panel-area canvas")) {
        const at = { clientX: 300, clientY: 500, bubbles: true };
        canvas.dispatchEvent(new MouseEvent("mousemove", at));
        canvas.dispatchEvent(new MouseEvent("mouseleave"));
      }
      await frame();
      store.seek(cursor);
    }
    for (const id of live) {
      store.openBox(id);
      await frame();
      store.select({ component: id, request: null, block: null });
      await frame();
    }
    store.openBox(null);
    const request = Object.keys(store.state.requests)[round % 2];
    store.select({ component: null, request, block: null });
    await frame();
    store.select({ component: null, request: null, block: 1 + (round % 3) });
    await frame();
    store.select({ component: null, request: null, block: null });
    for (const tab of parts(".gb-side-tab")) {
      tab.click();
      await frame();
    }
    parts(".gb-side-tab")[0].click();
    for (const button of parts(".gb-map-upper .gb-moved-toggle, .gb-head [aria-expanded]")) {
      button.click();
      await frame();
      button.click();
    }
    await frame();
  }
}"""


class Held(NamedTuple):
    """What the browser counts of the whole page."""

    nodes: int
    listeners: int


@pytest.fixture
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    with watched(context.new_page(), server) as page:
        show(page, under_pressure(server).text)
        yield page
    context.close()


def held(counters: CDPSession) -> Held:
    """What is left when garbage has been collected."""
    counters.send("HeapProfiler.collectGarbage")
    found = counters.send("Memory.getDOMCounters")
    return Held(found["nodes"], found["jsEventListeners"])


def test_looking_around_leaves_nothing_behind(page: Page) -> None:
    counters = page.context.new_cdp_session(page)
    page.evaluate(LOOK_AROUND, 1)
    page.evaluate(LOOK_AROUND, ROUNDS)
    first = held(counters)
    page.evaluate(LOOK_AROUND, ROUNDS)
    # A browser may need more than one collection for what refers to each other.
    wait_until(no_more_than(counters, first))


def no_more_than(counters: CDPSession, first: Held) -> Callable[[], bool]:
    def holds() -> bool:
        nodes, listeners = held(counters)
        return nodes <= first.nodes + NODES_APART and listeners <= first.listeners + LISTENERS_APART

    return holds
