"""While the engine is at something long the page says what it is, and buttons say why they wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from engine.cuda_graph.captured import CapturedGraphs
from engine.doing import doing, tell
from tests.browser.stage import context, own_engine, page
from tests.browser.stage_server import StageServer
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["context", "page"]  # fixtures


def test_a_capture_is_told_of_while_the_step_waits_for_it(
    page: Page, server: StageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    capture = CapturedGraphs.capture

    def capture_slowly(graphs: CapturedGraphs, *given: Any) -> Any:
        with doing("capturing the graph FULL 4"):
            tell("compiling with inductor", 3, 12, "operations")
            assert go_on.wait(PATIENCE_S)
            return capture(graphs, *given)

    monkeypatch.setattr(CapturedGraphs, "capture", capture_slowly)
    engine = own_engine(page, server)
    graphs = engine.core.runner.graphs  # type: ignore[attr-defined]
    monkeypatch.setattr(graphs, "by_key", {})  # as in a process that has captured none
    engine.submit("Once upon a time")
    hint, step = page.locator(".gb-hint"), page.locator("[data-act=stepOn]")
    expect(hint).to_contain_text("waits for the next step")
    try:
        step.click()
        said = "compiling with inductor (3 of 12 operations). It goes on by itself."
        expect(hint).to_have_text(f"The engine is capturing the graph FULL 4: {said}")
        expect(hint).to_have_attribute("role", "status")
        expect(step).to_be_disabled()
        expect(step).to_have_attribute("title", f"The engine is capturing the graph FULL 4: {said}")
    finally:
        go_on.set()
    expect(hint).to_contain_text("Paused after step 0")
    expect(step).to_be_enabled()


def test_a_step_that_waits_for_another_engine_says_so(page: Page, server: StageServer) -> None:
    go_on = threading.Event()

    def held() -> None:
        with doing("capturing the graph FULL 4"):
            assert go_on.wait(PATIENCE_S)

    own_engine(page, server)
    server.sessions.thread.post(held)
    try:
        page.locator("[data-act=stepOn]").click()
        expect(page.locator(".gb-hint")).to_have_text(
            "The engine is waiting for another engine, which is capturing the graph FULL 4. It "
            "goes on by itself."
        )
    finally:
        go_on.set()
    expect(page.locator(".gb-hint")).to_contain_text("Paused after step 0")
