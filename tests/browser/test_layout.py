"""The page's layout at the widths that people have: nothing runs out, nothing jumps, and what one
acts with stays at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from engine.config import SamplingParams
from tests.browser.stage import (
    Recorded,
    context,
    open_stage,
    own_engine,
    page,
    recorded,
    settle,
    show,
    wait_until,
    watched,
)
from tests.browser.stage_server import StageServer
from tests.browser.test_page import Tab
from tests.browser.test_path import DRAWN, mount, overlap, shipped
from tests.browser.test_rooms import under_pressure

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["context", "page", "recorded"]  # fixtures

PHONE = {"width": 390, "height": 844}
ROOMS = ("scheduler", "block-manager", "gpu-runner", "cuda-graph", "physical-vram")

# What stands out of the page at its right, and is not scrolled or cut inside of it.
TOO_WIDE = """() => {
  const root = window.stage.root;
  const cuts = (node) => node && node !== root.host
    && (getComputedStyle(node).overflowX !== "visible" || cuts(node.parentElement));
  const over = [...root.querySelectorAll(".gb *")].filter((node) => {
    const { right, width } = node.getBoundingClientRect();
    return width && right > innerWidth + 0.5 && !cuts(node.parentElement)
      && !node.closest("svg.gb-stage, .gb-hidden");
  });
  const scrolls = document.scrollingElement.scrollWidth > innerWidth ? ["the page scrolls"] : [];
  return [...scrolls, ...over.slice(0, 5).map((node) => node.className?.baseVal ?? node.className)];
}"""


@pytest.mark.parametrize("width", [390, 768, 1280, 1920, 2560])
def test_nothing_runs_out_of_the_page(same_page: Page, recorded: Recorded, width: int) -> None:
    same_page.set_viewport_size({"width": width, "height": 900})
    show(same_page, recorded.text)
    same_page.evaluate("window.stage.store.openBox(null)")
    same_page.get_by_role("tab", name="Inspector").click()
    same_page.evaluate("window.stage.store.seek(60)")
    settle(same_page)
    for view in same_page.evaluate("window.stage.store.document.views.map((view) => view.id)"):
        same_page.evaluate("id => window.stage.store.setView(id)", view)
        wait_until(same_page, "window.stage.root.querySelector('.gb-panel')?.children.length")
        settle(same_page)
        assert same_page.evaluate(TOO_WIDE) == [], view
    for tab in ("inspector", "code", "log", "rules", "claims"):
        same_page.evaluate(
            "id => window.stage.root.querySelector(`#gb-side-tab-${id}`).click()", tab
        )
        settle(same_page)
        assert same_page.evaluate(TOO_WIDE) == [], tab
    for room in ROOMS:
        same_page.evaluate("id => window.stage.store.openBox(id)", room)
        same_page.locator(".gb-room .gb-room-inside").first.wait_for()
        settle(same_page)
        assert same_page.evaluate(TOO_WIDE) == [], room


def area(page: Page, selector: str) -> dict[str, float]:
    box = page.locator(selector).bounding_box()
    assert box is not None
    return dict(box)


def test_a_banner_has_a_line_of_its_own_and_can_be_closed(page: Page, recorded: Recorded) -> None:
    page.get_by_label("Open a saved trace").set_input_files(
        {"name": "mine.jsonl", "mimeType": "text/plain", "buffer": recorded.text.encode()}
    )
    banner = page.locator(".gb-banner")
    expect(banner).to_contain_text("Saved trace mine.jsonl")
    settle(page)
    stands = area(page, ".gb-banner")
    assert stands["y"] >= 0 and stands["y"] + stands["height"] <= area(page, ".gb-head")["y"]
    assert page.locator(".gb-banners[aria-live=polite]").count() == 1
    page.get_by_label("Close this message").click()
    expect(banner).to_have_count(0)
    # Another file is something else to say; and there is a way back without the banner.
    page.get_by_label("Open a saved trace").set_input_files(
        {"name": "other.jsonl", "mimeType": "text/plain", "buffer": recorded.text.encode()}
    )
    expect(banner).to_contain_text("Saved trace other.jsonl")
    page.get_by_label("Close this message").click()
    page.locator("[data-act=live]").click()
    wait_until(page, "window.stage.store.live && window.stage.store.connection === 'open'")


def test_the_column_beside_the_map_is_made_wider_for_each_tab(
    page: Page, recorded: Recorded
) -> None:
    show(page, recorded.text)
    narrow = area(page, ".gb-inspector")["width"]
    page.get_by_role("tab", name="Claims").click()
    page.get_by_role("button", name="Wider").click()
    settle(page)
    wide = area(page, ".gb-inspector")["width"]
    assert wide > 1.5 * narrow
    page.get_by_role("tab", name="Log").click()
    settle(page)
    assert area(page, ".gb-inspector")["width"] == narrow
    page.get_by_role("tab", name="Claims").click()
    settle(page)
    assert area(page, ".gb-inspector")["width"] == wide
    assert page.locator(".gb-map.is-path").count() == 0  # it is smaller, not another picture


# Each title of the map, and how high its letters are on the screen.
LETTERS = """() => Array.from(
  window.stage.root.querySelectorAll(".gb-stage .gb-box .title"),
  (node) => [node.textContent, node.getAttribute("font-size") * node.getScreenCTM().a],
).filter(([text]) => text)"""


def test_the_maps_letters_can_be_read_where_it_is_small(page: Page, recorded: Recorded) -> None:
    """Beside wide code, and larger in front of a room; no title is cut for it."""
    page.set_viewport_size({"width": 1280, "height": 800})
    show(page, recorded.text)
    page.get_by_role("tab", name="Code", exact=True).click()
    settle(page)
    beside_code = page.evaluate(LETTERS)
    assert len(beside_code) == 9
    assert [each for each in beside_code if each[1] < 10 or "…" in each[0]] == []
    page.evaluate("window.stage.root.querySelector('.gb').toggleAttribute('data-tour', true)")
    wait_until(page, "window.stage.root.querySelector('.gb-map').clientWidth > 1000")
    settle(page)
    presented = page.evaluate(LETTERS)
    assert [each for each in presented if each[1] < 12 or "…" in each[0]] == []


SIDES_OF_FRAMES = """() => {
  const frames = [...window.stage.root.querySelectorAll(".gb-frame rect")];
  return frames.flatMap((node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return [[left, top, left, bottom], [right, top, right, bottom]];
  });
}"""


@pytest.mark.parametrize("width", [1100, 1280, 1440, 1920])
def test_the_names_of_lines_touch_no_box_and_no_border(same_page: Page, width: int) -> None:
    same_page.evaluate("window.stage.store.openBox(null)")
    same_page.set_viewport_size({"width": width, "height": 900})
    for name in ("docs/process-topology.architecture.json", "architecture.json"):
        mount(same_page, shipped(name))
        drawn = same_page.evaluate(DRAWN)
        sides = same_page.evaluate(SIDES_OF_FRAMES)
        assert len(drawn["texts"]) > 5 and sides
        for text, place in drawn["texts"]:
            assert not any(overlap(place, box) for box in drawn["boxes"].values()), text
            # The second document's frames stand too close for a name between them.
            on_border = any(overlap(place, side) for side in sides)
            assert name.startswith("docs/") or not on_border, text
            others = [area for other, area in drawn["texts"] if other != text]
            assert not any(overlap(place, other) for other in others), text


def test_few_requests_stand_below_the_timeline_and_more_beside_it(
    page: Page, recorded: Recorded
) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.setView('request-lifecycle')")
    wait_until(page, "window.stage.root.querySelector('.gbp-card')")
    settle(page)
    timeline, cards = area(page, ".gbp-scroll"), area(page, ".gbp-cards")
    assert page.locator(".gbp-card").count() == 4
    assert timeline["y"] + timeline["height"] < cards["y"]
    assert abs(timeline["width"] - cards["width"]) < 2
    beside = page.locator(".gbp-columns").evaluate(
        """node => {
          node.classList.remove("has-few"); // the next drawing sets it again
          const left = (name) => node.querySelector(name).getBoundingClientRect().left;
          return left(".gbp-cards") - left(".gbp-scroll");
        }"""
    )
    assert beside > 400


def test_map_and_panel_stand_beside_each_other_on_a_wide_screen(
    page: Page, recorded: Recorded
) -> None:
    page.set_viewport_size({"width": 2560, "height": 1440})
    show(page, recorded.text)
    map_, panel = area(page, ".gb-map"), area(page, ".gb-panel-area")
    assert map_["y"] == panel["y"] and map_["x"] + map_["width"] < panel["x"]


def test_on_a_phone_the_transport_stays_at_hand(
    browser: Browser, server: StageServer, recorded: Recorded
) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    with watched(context.new_page(), server) as page:
        show(page, recorded.text)
        for part in (".gb-map", ".gb-panel-area"):
            page.locator(part).evaluate("node => node.scrollIntoView({ block: 'start' })")
            bar = area(page, ".gb-transport")
            assert abs(bar["y"] + bar["height"] - PHONE["height"]) < 2, part
        for act in ("stepBack", "eventBack", "run", "eventOn", "phaseOn", "stepOn", "more"):
            button = area(page, f"[data-act={act}]")
            assert button["height"] >= 44 and button["width"] >= 44, act
        page.evaluate("window.stage.store.seek(20)")
        page.locator("[data-act=stepOn]").tap()
        wait_until(page, "window.stage.store.cursor > 20")
        expect(page.get_by_label("Speed")).to_be_hidden()
        page.locator("[data-act=more]").tap()
        expect(page.get_by_label("Speed")).to_be_visible()
    context.close()


def test_on_a_phone_what_happened_stands_below_the_buttons(
    browser: Browser, server: StageServer, recorded: Recorded
) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    with watched(context.new_page(), server) as page:
        show(page, recorded.text)
        hint = page.locator(".gb-hint")
        at = page.evaluate(
            "window.stage.store.records.findIndex(({ type }) => type === 'request_scheduled')"
        )
        page.evaluate("at => window.stage.store.seek(at)", at)
        expect(hint).to_contain_text("from position 0 of")
        assert area(page, ".gb-hint")["y"] + area(page, ".gb-hint")["height"] <= PHONE["height"]
        page.set_viewport_size({"width": 1280, "height": 800})
        expect(hint).to_contain_text("Inside schedule")
    context.close()


# How far the page moved under the finger between the two.
TWO_TAPS = """(box) => {
  const top = () => window.stage.root.querySelector(".gb-inspector").getBoundingClientRect().top;
  const tap = (detail) => box.dispatchEvent(
    new MouseEvent("click", { bubbles: true, composed: true, detail }));
  const before = top();
  tap(1);
  const moved = top() - before;
  tap(2);
  return moved;
}"""


def test_two_quick_taps_open_a_box_and_one_leads_to_what_it_says(
    browser: Browser, server: StageServer, recorded: Recorded
) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    with watched(context.new_page(), server) as page:
        show(page, recorded.text)
        box = page.locator(".gb-box[data-component=gpu-runner] .title")
        # Both taps at once: on a busy machine two real ones may come too late to be a double tap.
        assert box.evaluate(TWO_TAPS) == 0
        page.locator(".gb-room").wait_for()
        assert page.evaluate("window.stage.store.opened") == "gpu-runner"
        page.keyboard.press("Escape")
        page.evaluate("window.stage.store.select({ component: null })")
        settle(page)
        box.tap()
        in_sight = "window.stage.root.querySelector('.gb-inspector').getBoundingClientRect().top"
        wait_until(page, f"{in_sight} < {PHONE['height'] / 2}")
    context.close()


def test_a_paused_engine_says_that_clients_wait(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    hint = page.locator(".gb-hint")
    params = SamplingParams(temperature=0.0, max_tokens=4)
    engine.submit("Once upon a time", params)
    expect(hint).to_have_text("1 request waits for the next step: press Step or Run.")
    engine.submit("The capital of France is", params, source="http")
    expect(hint).to_contain_text("1 HTTP client waits for an answer.")
    engine.step()
    expect(hint).to_contain_text("Paused after step 0: press Phase, Step or Run. 1 HTTP client")
    while engine.num_unfinished:
        engine.step()
    expect(hint).not_to_contain_text("HTTP client")


# --- with Streamlit around it --------------------------------------------------------------------


@pytest.fixture
def tab(browser: Browser, server_url: str) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield Tab(context.new_page(), server_url).open()
    context.close()


@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, PHONE])
def test_what_the_page_says_covers_nothing(
    browser: Browser, server_url: str, recorded: Recorded, size: Any
) -> None:
    """Two banners at once, which is as many as a link to another's file brings."""
    context = browser.new_context(viewport=size)
    tab = Tab(context.new_page(), f"{server_url}/#view=request-lifecycle&nonsense=1").open()
    page = tab.page
    page.get_by_label("Open a saved trace", exact=True).set_input_files(
        {"name": "mine.jsonl", "mimeType": "text/plain", "buffer": recorded.text.encode()}
    )
    banners = page.locator(".gb-banner")
    expect(banners).to_have_count(2)
    expect(page.locator(".gb-note")).to_be_hidden()  # the hint, in whose place they stand
    composer, head = area(page, ".st-key-gb-composer"), area(page, ".gb-head")
    first, second = (banners.nth(i).bounding_box() for i in range(2))
    assert first is not None and second is not None
    assert composer["y"] + composer["height"] <= first["y"]
    assert first["y"] + first["height"] <= second["y"]
    assert second["y"] + second["height"] <= head["y"]
    for left in (1, 0):
        banners.first.get_by_role("button", name="Close").click()
        expect(banners).to_have_count(left)
    expect(page.locator(".gb-note")).to_be_visible()
    context.close()


@pytest.mark.parametrize("touch", [True, False])
def test_on_a_phone_the_tools_stand_in_one_row(
    browser: Browser, server_url: str, touch: bool
) -> None:
    """With the way back to a saved engine as well, and under a mouse with the list of keys."""
    context = browser.new_context(viewport=PHONE, has_touch=touch, is_mobile=touch)
    page = Tab(context.new_page(), server_url).open().page
    page.locator("[data-act=restore]").evaluate("node => (node.disabled = false)")
    expect(page.locator("[data-act=help]")).to_be_visible(visible=not touch)
    tools = page.locator(".gb-tools .gb-button:visible").all()
    boxes = [tool.bounding_box() for tool in tools]
    assert len(boxes) == 5 + (not touch)
    assert len({round(box["y"]) for box in boxes if box}) == 1
    context.close()


def test_the_map_is_never_old_while_the_page_runs(tab: Tab) -> None:
    """Streamlit fades what a run has not drawn yet; a lesson's step may take seconds."""
    found = tab.page.locator(".st-key-workspace").evaluate(
        "node => { node.style.opacity = '0.33'; return getComputedStyle(node).opacity; }"
    )
    assert found == "1"


def test_on_a_phone_the_map_begins_in_the_upper_half(browser: Browser, server_url: str) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    tab = Tab(context.new_page(), server_url).open()
    page = tab.page
    expect(page.locator(".gb-note")).to_be_visible()
    assert area(page, ".gb-map")["y"] <= PHONE["height"] / 2
    small = [
        button.get_attribute("data-act")
        for button in page.locator(".gb-head button:visible, .gb-transport button:visible").all()
        if (box := button.bounding_box()) and min(box["width"], box["height"]) < 44
    ]
    assert small == []
    context.close()


def test_one_look_tells_of_a_preemption(tab: Tab, server: StageServer) -> None:
    page = tab.page
    recording = under_pressure(server)
    page.get_by_label("Open a saved trace", exact=True).set_input_files(
        {"name": "mine.jsonl", "mimeType": "text/plain", "buffer": recording.text.encode()}
    )
    expect(page.locator(".gb-banner")).to_contain_text("Saved trace mine.jsonl")
    tab.store("s.seek(s.records.findIndex(({ type }) => type === 'request_preempted'))")
    for number in range(3):
        tab.view(number)
        opening = page.locator(".gbp-opening")
        expect(opening).to_contain_text("preempted")
        assert opening.evaluate("node => node.getBoundingClientRect().bottom <= innerHeight")
        decision = page.locator(".gb-why [aria-current=true]")
        expect(decision).to_contain_text("is preempted for")
        expect(decision).to_be_in_viewport()
        inspector = area(page, ".gb-inspector")
        line = decision.bounding_box()
        assert line is not None
        assert inspector["y"] <= line["y"]
        assert line["y"] + line["height"] <= inspector["y"] + inspector["height"]


def in_sight(page: Page, name: str) -> bool:
    box = page.get_by_role("button", name=name).bounding_box()
    size: Any = page.viewport_size
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, PHONE])
def test_apply_and_what_has_changed_stay_in_sight(tab: Tab, size: Any) -> None:
    page = tab.page
    page.set_viewport_size(size)
    page.get_by_role("button", name="Engine", exact=True).click()
    said = page.locator(".gb-settings-said")
    expect(said).to_contain_text("Nothing is changed.")
    assert in_sight(page, "Apply and reset the engine")
    field = page.get_by_label("block_size: tokens")
    field.fill("8")
    field.press("Enter")
    expect(said).to_contain_text("1 changed: block_size 8.")
    page.get_by_label("seed: ", exact=False).last.scroll_into_view_if_needed()
    assert in_sight(page, "Apply and reset the engine")
    page.get_by_role("button", name="Apply and reset the engine").click()
    expect(page.get_by_text("The engine was reset with block_size 8.")).to_be_visible()
    expect(said).to_contain_text("Nothing is changed.")


def test_what_was_sent_is_said_no_longer_when_its_engine_is_gone(tab: Tab) -> None:
    tab.send()
    expect(tab.page.locator(".gb-note")).to_contain_text("1 request sent.")
    tab.page.locator("[data-act=reset]").click()
    expect(tab.page.locator(".gb-note")).to_contain_text("Send a prompt")


def test_on_a_phone_nothing_of_the_page_runs_out(browser: Browser, server_url: str) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    tab = Tab(context.new_page(), server_url).open()
    page = tab.page
    wide = (
        "[document.scrollingElement, document.querySelector('.stMain')]"
        ".map((node) => node.scrollWidth - node.clientWidth)"
    )
    assert page.evaluate(wide) == [0, 0]
    head = page.locator(".st-key-gb-header").bounding_box()
    assert head is not None and head["height"] <= 100  # two rows
    page.get_by_role("button", name="Compare").tap()
    page.locator(".st-key-gb-compare").wait_for()
    tab.settle()
    assert page.evaluate(wide) == [0, 0]
    context.close()


def test_the_stage_opens_at_any_width(page: Page, server: StageServer) -> None:
    """A map that was built while nothing was on show is built for the width that it gets."""
    page.set_viewport_size(PHONE)
    open_stage(page, server)
    assert page.locator(".gb-map.is-path").count() == 1
