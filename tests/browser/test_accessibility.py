"""For those who do not see the page, do not point, or want no motion: heard, walked, and calm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from engine.conformance import driver_of, load_workload
from engine.records import Event
from engine.trace import Trace
from tests.browser.stage import FOOT, axe_faults, settle, show, wait_until, watched
from tests.browser.stage_server import StageServer
from tests.engine.workloads import workload_path
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SAID = "[data-says=moment]"
FOCUSED = "window.stage.root.activeElement"
THEMES = ("", "dark")  # "" is light


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Preemptions, hits, evictions; no model runs."""
    driver = driver_of(load_workload(workload_path("09-preempt-recompute"))[0])
    list(driver.steps())
    return driver.trace


@pytest.fixture
def page(browser: Browser, server: StageServer, trace: Trace) -> Iterator[Page]:
    fresh = browser.new_page(viewport={"width": 1280, "height": 900})
    with watched(fresh, server) as page:
        show(page, "\n".join(trace.lines()))
        yield page
        page.close()


def seek(page: Page, index: int) -> None:
    page.evaluate("index => window.stage.store.seek(index)", index)
    settle(page)


# --- heard ---------------------------------------------------------------------------------------


def test_only_the_last_of_quick_steps_is_told_and_none_while_it_plays(page: Page) -> None:
    told = page.evaluate(
        """async () => {
          const { Announcer } = await import("/assets/page/announcer.js");
          const due = new Map();
          const real = [window.setTimeout, window.clearTimeout];
          window.setTimeout = (act) => due.set(due.size + 1, act).size;
          window.clearTimeout = (id) => due.delete(id);
          const rest = () => { for (const act of due.values()) act(); due.clear(); };
          const header = { trace_id: "a" };
          const store = { header, view: "v", cursor: 0, moves: false, records: [] };
          const announcer = new Announcer(store, () => `at ${store.cursor}`);
          const told = [];
          const go = (cursor, moves = false) => {
            Object.assign(store, { cursor, moves });
            announcer.update();
          };
          go(0), rest(), told.push(announcer.element.textContent); // as the page opens
          go(1), go(2), go(3), rest(), told.push(announcer.element.textContent);
          go(4, true), go(5, true), rest(), told.push(announcer.element.textContent);
          go(5), rest(), told.push(announcer.element.textContent);
          [window.setTimeout, window.clearTimeout] = real;
          return told;
        }"""
    )
    assert told == ["", "at 3", "at 3", "at 5"]


def test_where_the_cursor_comes_to_rest_is_told(page: Page, trace: Trace) -> None:
    said = page.locator(SAID)
    expect(said).to_have_attribute("role", "status")
    at = next(
        i
        for i, record in enumerate(trace.records)
        if isinstance(record, Event) and type(record.facts).__name__ == "RequestPreempted"
    )
    seek(page, at)
    expect(said).to_have_text(re.compile(f"^Step {trace.records[at].step}, schedule: .+\\.$"))
    page.evaluate("window.stage.store.play(null)")
    wait_until(page, "!window.stage.store.clock.playing")
    settle(page)
    expect(said).to_have_text(page.locator(".gbp-sentence").text_content() or "")


# --- walked --------------------------------------------------------------------------------------


def test_the_list_of_keys_opens_by_its_key_and_gives_the_focus_back(page: Page) -> None:
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    box = page.locator(".gb-box[data-component=scheduler]")
    box.focus()
    page.keyboard.press("?")
    expect(keys).to_be_visible()
    expect(keys).to_be_focused()
    assert "run or pause" in keys.inner_text() and "choose a view" in keys.inner_text()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    expect(page.get_by_role("button", name="Keyboard shortcuts")).to_be_focused()


def test_letters_alone_can_be_turned_off_as_commands(page: Page) -> None:
    seek(page, 30)
    page.keyboard.press("?")
    switch = page.get_by_label("letters and signs alone are commands")
    switch.focus()
    page.keyboard.press("Space")  # the box's key, not the transport's
    expect(switch).not_to_be_checked()
    assert page.evaluate("window.stage.store.clock.playing") is False
    page.keyboard.press("Escape")
    expect(switch).to_be_hidden()
    page.evaluate("window.stage.root.activeElement?.blur()")
    for key in ("n", "]", " ", "2"):
        page.keyboard.press(key)
    assert page.evaluate("[window.stage.store.cursor, window.stage.store.clock.playing]") == [
        30,
        False,
    ]
    page.keyboard.press("ArrowRight")
    assert page.evaluate("window.stage.store.cursor") > 30


def test_a_ticked_box_keeps_its_key(page: Page) -> None:
    page.get_by_role("tab", name="Log").click()
    only = page.get_by_label("only what it prints by default")
    only.focus()
    page.keyboard.press("Space")
    expect(only).to_be_checked()
    assert page.evaluate("window.stage.store.clock.playing") is False


def test_the_tabs_beside_the_map_are_one_stop_that_the_arrows_walk(page: Page) -> None:
    bar = page.get_by_role("tablist", name="Beside the map")
    tabs = bar.get_by_role("tab")
    names = tabs.all_inner_texts()
    tabs.first.focus()
    for key, name in (
        ("ArrowRight", names[1]),
        ("End", names[-1]),
        ("ArrowRight", names[0]),
        ("ArrowLeft", names[-1]),
        ("Home", names[0]),
    ):
        page.keyboard.press(key)
        expect(bar.get_by_role("tab", name=name, exact=True)).to_be_focused()
        assert bar.locator("[tabindex='0']").all_inner_texts() == [name]
        assert bar.locator("[aria-selected=true]").all_inner_texts() == [name]


VISIBLE = """() => {
  let node = document.activeElement;
  while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
  if (!node || node === document.body) return null;
  const style = getComputedStyle(node);
  const ring = node.querySelector?.(".ring");
  const shown = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  const ringed = ring && getComputedStyle(ring).stroke !== "none";
  const name = node.getAttribute("aria-label") ?? node.title ?? "";
  const what = `${node.tagName} ${node.className?.baseVal ?? node.className}`;
  const { width, height } = node.getBoundingClientRect();
  return [`${what} ${name || node.textContent}`.slice(0, 60), Boolean(shown || ringed),
    width > 0 && height > 0];
}"""


@pytest.mark.parametrize("view", ["request-lifecycle", "block-allocation", "cuda-acceleration"])
def test_tab_goes_through_all_of_the_page_and_is_seen_everywhere(page: Page, view: str) -> None:
    page.evaluate("view => window.stage.store.setView(view)", view)
    page.evaluate("window.stage.store.select({ component: 'scheduler', request: 'r0' })")
    seek(page, 120)
    page.locator(".gb-panel-area canvas:visible").first.wait_for()
    page.locator(".gb-tab[tabindex='0']").focus()
    walked: list[str] = []
    for _ in range(160):  # more stops than the page has
        page.keyboard.press("Tab")
        found = page.evaluate(VISIBLE)
        if found is None:
            break
        what, marked, there = found
        assert marked, f"nothing shows that the focus is at {what}"
        assert there, f"the focus is at {what}, which nobody sees"
        walked.append(what)
    else:
        raise AssertionError(f"the focus never leaves: {walked[-12:]}")
    for part in ("gb-box", "gb-side-tab", "gb-run", "gbp-canvas"):
        assert any(part in each for each in walked), part


def test_a_room_is_walked_and_left_by_keyboard(page: Page) -> None:
    seek(page, 120)
    page.locator(".gb-box[data-component=block-manager]").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.wait_for_selector(".gb-room:not([hidden]) .gb-board")
    wait_until(page, f"{FOCUSED}?.className.includes('gb-room-back')")
    board = page.locator(".gb-room .gb-board")
    for _ in range(20):
        page.keyboard.press("Tab")
        if board.evaluate("node => node.getRootNode().activeElement === node"):
            break
    expect(board).to_be_focused()
    before = board.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    expect(board).not_to_have_attribute("aria-label", before or "")
    page.keyboard.press("Escape")
    expect(page.locator(".gb-room")).to_be_hidden()
    wait_until(page, f"{FOCUSED}?.dataset.component === 'block-manager'")


# --- in the system's own colours -----------------------------------------------------------------


def test_with_forced_colours_what_is_chosen_is_still_told_apart(page: Page) -> None:
    seek(page, 120)
    page.emulate_media(forced_colors="active")
    page.locator(".gb-panel-area canvas:visible").first.wait_for()
    ground = "node => getComputedStyle(node).backgroundColor"
    for chosen, other in (
        (".gb-tab[aria-selected=true]", ".gb-tab[aria-selected=false]"),
        (".gb-side-tab[aria-selected=true]", ".gb-side-tab[aria-selected=false]"),
        (".gb-phase.is-now", ".gb-phase:not(.is-now)"),
    ):
        marked = page.locator(chosen).evaluate(ground)
        assert marked != page.locator(other).first.evaluate(ground), chosen
    legend = page.locator(".gb-legend i").first
    assert legend.evaluate("node => getComputedStyle(node).forcedColorAdjust") == "none"


SPACED = (
    "* { letter-spacing: 0.12em !important; word-spacing: 0.16em !important; line-height: 1.5 }"
)


def test_spaced_letters_hide_nothing(page: Page) -> None:
    """WCAG 1.4.12: what readers set themselves costs no text."""
    page.evaluate(
        """css => {
          const style = document.createElement("style");
          style.textContent = css;
          window.stage.root.append(style);
        }""",
        SPACED,
    )
    becomes(lambda: page.evaluate(FOOT)[1], 0)  # boxes under the map's foot
    cut = page.locator(".gb-side-tab, .gb-tab, .gb-transport .gb-button").evaluate_all(
        """all => all.filter((node) => {
          const [own, room] = [node, node.parentElement].map((e) => e.getBoundingClientRect());
          return own.width > 0 && own.right > room.right + 1;
        }).map((node) => node.textContent)"""
    )
    assert cut == []


# --- without faults ------------------------------------------------------------------------------


def ours(target: str) -> bool:
    return "gb" in target


def test_no_room_has_a_fault_that_axe_finds(page: Page) -> None:
    seek(page, 120)
    boxes = page.evaluate("window.stage.store.document.components.map((c) => c.id)")
    for theme in THEMES:
        for box in boxes:
            page.evaluate("box => window.stage.store.openBox(box)", box)
            page.wait_for_selector(".gb-room:not([hidden]) .gb-room-inside")
            settle(page)
            assert axe_faults(page, theme, ours) == [], (box, theme)


def test_on_a_phone_no_view_and_no_tab_has_a_fault_that_axe_finds(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("window.stage.store.select({ component: 'scheduler', request: 'r0' })")
    seek(page, 120)
    tabs = page.get_by_role("tablist", name="Beside the map").get_by_role("tab")
    for theme in THEMES:
        tabs.first.click()
        for view in ("request-lifecycle", "block-allocation", "cuda-acceleration"):
            page.evaluate("view => window.stage.store.setView(view)", view)
            page.locator(".gb-panel-area canvas:visible").first.wait_for()
            assert axe_faults(page, theme, ours) == [], (view, theme)
        for tab in tabs.all():
            tab.click()
            settle(page)
            assert axe_faults(page, theme, ours) == [], (tab.inner_text(), theme)


@pytest.mark.parametrize("width", [1280, 390])
def test_what_opens_has_no_fault_that_axe_finds(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    seek(page, 120)
    page.keyboard.press("b")
    if width == 390:  # there the bookmarks are folded up
        page.locator("[data-act=more]").click()
    for theme in THEMES:
        for act in ("help", "save", "bookmarks"):
            page.locator(f"[data-act={act}]").click()
            popover = page.locator(".gb-popover:visible")
            expect(popover).to_have_count(1)
            assert axe_faults(page, theme, ours) == [], (act, theme)
            page.keyboard.press("Escape")
            expect(popover).to_have_count(0)


def test_another_document_has_no_fault_that_axe_finds(page: Page) -> None:
    page.evaluate(
        """async () =>
            window.stage.show(await (await fetch("/harness/document/foreign")).json())"""
    )
    for view in ("order", "night"):
        page.evaluate("view => window.stage.store.setView(view)", view)
        settle(page)
        for theme in THEMES:
            assert axe_faults(page, theme, ours) == [], (view, theme)
