"""The tests' own browser: one test finds nothing of the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.stage_server import StageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

KEEP = """async () => {
  localStorage.setItem("a", "1");
  sessionStorage.setItem("a", "1");
  document.cookie = "a=1";
  await new Promise((done) => (indexedDB.open("a").onsuccess = done));
  addEventListener("pagehide", () => localStorage.setItem("late", "1"));
}"""
KEPT = """async () => [
  { ...localStorage }, { ...sessionStorage }, document.cookie, await indexedDB.databases(),
  (await navigator.permissions.query({ name: "clipboard-read" })).state,
  [innerWidth, innerHeight], matchMedia("(prefers-color-scheme: dark)").matches,
]"""


def test_a_context_that_is_used_again_is_empty(browser: Browser, server: StageServer) -> None:
    first = browser.new_context(viewport={"width": 500, "height": 400}, color_scheme="dark")
    page = first.new_page()
    page.goto(f"{server.url}/assets/workspace.js")
    empty = page.evaluate(KEPT)
    assert empty == [{}, {}, "", [], "prompt", [500, 400], True]
    page.evaluate(KEEP)
    first.grant_permissions(["clipboard-read"])
    first.close()
    first.close()  # once more changes nothing

    again, another = browser.new_context(), browser.new_context()
    assert again is first and another is not first
    page = again.new_page()
    page.goto(f"{server.url}/assets/workspace.js")
    assert page.evaluate(KEPT) == [{}, {}, "", [], empty[4], [1280, 720], False]
    again.close()
    another.close()
