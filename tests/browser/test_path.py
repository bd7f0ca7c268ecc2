"""The map of a narrow page: one box below the other, in the order of the view, for a finger.

What is drawn is measured on the page: where boxes, lines, labels and packets stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.stage import (
    Recorded,
    expected_packets,
    packets_at,
    recorded,
    records_of,
    settle,
    show,
    wait_until,
    watched,
)
from tests.browser.stage_server import StageServer
from views.architecture import load_document

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["recorded"]  # a fixture

ROOT = Path(__file__).parents[2]
PHONE = {"width": 390, "height": 844}

# Boxes, lines and texts as they stand on the page, in pixels of the window.
DRAWN = """() => {
  const root = window.stage.root;
  const area = (node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const whole = (a, b) => [
    Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[2], b[2]), Math.max(a[3], b[3])];
  const boxes = Array.from(root.querySelectorAll(".gb-stage .gb-box"), (node) => [
    node.getAttribute("data-component"),
    whole(area(node.querySelector(".card")), area(node.querySelector(".drawer"))),
  ]);
  const lines = Array.from(root.querySelectorAll(".gb-stage .gb-line"), (node) => {
    const shaft = node.querySelector(".shaft");
    const screen = shaft.getScreenCTM();
    const length = shaft.getTotalLength();
    const at = (part) => {
      const { x, y } = shaft.getPointAtLength(part).matrixTransform(screen);
      return [x, y];
    };
    const points = [];
    for (let part = 0; part < length; part += 3) points.push(at(part));
    return [node.getAttribute("data-connection"), [...points, at(length)]];
  });
  const texts = Array.from(root.querySelectorAll(".gb-stage .gb-name"), (node) => [
    node.textContent, area(node)]).filter(([text]) => text);
  const packets = Array.from(root.querySelectorAll(".gb-packet"), (node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return [node.getAttribute("data-connection"), [(left + right) / 2, (top + bottom) / 2]];
  });
  const order = boxes.map(([id]) => id);
  return { boxes: Object.fromEntries(boxes), order, lines, texts, packets };
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    with watched(context.new_page(), server) as page:
        yield page
    context.close()


def mount(page: Page, document: dict[str, Any]) -> dict[str, Any]:
    """Show a document and return it as the page has it."""
    drawn = load_document(json.dumps(document)).to_page()
    page.evaluate("document => window.stage.show(document)", drawn)
    wait_until(
        page,
        "argument.every((id) => window.stage.root.querySelector("
        '`.gb-box[data-component="${id}"]`))',
        [item["id"] for item in drawn["components"]],
    )
    settle(page)
    return dict(drawn)


def shipped(name: str) -> dict[str, Any]:
    document = json.loads((ROOT / name).read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def box(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": "backend", "label": name.title(), **fields}


# Boundaries that the flow leaves and enters again, a line to its own box, two lines between the
# same boxes, a line over everything, words that are too long, and a view that reads backwards.
KNOTTED = {
    "schema_version": 1,
    "diagram_type": "architecture",
    "meta": {
        "title": "Knots",
        "views": [
            {"id": "back", "label": "Backwards", "focus": ["delta", "beta", "alpha"]},
            {"id": "some", "label": "Some", "focus": ["gamma"]},
        ],
    },
    "components": [
        box("alpha", type="external"),
        *(box(name) for name in ("beta", "gamma", "delta", "omega")),
        box("loose", label="A box that nothing leads to, with a name that is longer than a phone"),
    ],
    "boundaries": [
        {
            "kind": "region",
            "label": "All but the first and a longer name",
            "wraps": ["beta", "gamma", "delta", "omega"],
        },
        {"kind": "security-group", "label": "Two apart", "wraps": ["beta", "omega"]},
    ],
    "connections": [
        {"id": "a", "from": "alpha", "to": "beta", "label": "one"},
        {"id": "b", "from": "alpha", "to": "beta", "label": "another one"},
        {"id": "c", "from": "beta", "to": "gamma", "label": "words that are far too long for it"},
        {"id": "d", "from": "gamma", "to": "gamma", "label": "again"},
        {"id": "e", "from": "gamma", "to": "delta"},
        {"id": "f", "from": "delta", "to": "omega", "label": "on"},
        {"id": "g", "from": "omega", "to": "alpha", "label": "all the way back"},
        {"id": "h", "from": "alpha", "to": "omega", "label": "over all"},
        {"id": "i", "from": "delta", "to": "beta", "label": "back"},
    ],
}

DOCUMENTS = [
    pytest.param(shipped("architecture.json"), id="own"),
    pytest.param(shipped("docs/process-topology.architecture.json"), id="processes"),
    pytest.param(KNOTTED, id="knotted"),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_view_is_read_from_top_to_bottom(page: Page, document: dict[str, Any]) -> None:
    views = mount(page, document)["views"]
    assert views
    for view in views:
        page.evaluate("id => window.stage.store.setView(id)", view["id"])
        settle(page)
        drawn = page.evaluate(DRAWN)
        boxes = drawn["boxes"]
        downwards = sorted(boxes, key=lambda name: boxes[name][1])
        assert [name for name in downwards if name in view["focus"]] == view["focus"]
        assert drawn["order"] == downwards  # the keyboard and those who listen go the same way
        for upper, lower in zip(downwards, downwards[1:], strict=False):
            assert boxes[upper][3] < boxes[lower][1], f"{upper} and {lower} overlap"
            assert boxes[upper][0] == boxes[lower][0], "one below the other"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_line_leads_from_its_box_to_its_box_and_through_no_other(
    page: Page, document: dict[str, Any]
) -> None:
    given = mount(page, document)
    ends = {item["id"]: (item["from"], item["to"]) for item in given["connections"]}
    for view in given["views"]:
        page.evaluate("id => window.stage.store.setView(id)", view["id"])
        settle(page)
        drawn = page.evaluate(DRAWN)
        assert {name for name, _ in drawn["lines"]} == set(ends)
        for name, points in drawn["lines"]:
            start, end = (drawn["boxes"][each] for each in ends[name])
            assert gap(points[0], start) < 1.5, f"{name} does not begin at its box"
            assert gap(points[-1], end) < 4.5, f"{name} does not end at its box"  # before its tip
            for other, area in drawn["boxes"].items():
                crossed = [point for point in points[1:-1] if gap(point, area) < -1.5]
                assert not crossed, f"{name} runs through {other}"


def gap(point: list[float], area: list[float]) -> float:
    """How far a point is from a rectangle's edge; below 0 inside of it."""
    x, y = point
    left, top, right, bottom = area
    dx, dy = max(left - x, x - right), max(top - y, y - bottom)
    return max(dx, dy) if min(dx, dy) <= 0 else (dx**2 + dy**2) ** 0.5


@pytest.mark.parametrize("document", DOCUMENTS)
def test_labels_stand_on_no_box_and_on_no_other_label(page: Page, document: dict[str, Any]) -> None:
    given = mount(page, document)
    for view in given["views"]:
        page.evaluate("id => window.stage.store.setView(id)", view["id"])
        settle(page)
        drawn = page.evaluate(DRAWN)
        texts, boxes = drawn["texts"], drawn["boxes"].values()
        assert len(texts) == sum(1 for item in given["connections"] if item["label"])
        for place, (text, area) in enumerate(texts):
            assert area[0] >= 0 and area[2] <= PHONE["width"], f"{text} leaves the page"
            assert not any(overlap(area, each) for each in boxes), f"{text} is on a box"
            for other, its in texts[place + 1 :]:
                assert not overlap(area, its), f"{text} is on {other}"


def overlap(a: list[float], b: list[float]) -> bool:
    """Whether two rectangles share more than the air around letters."""
    return a[0] < b[2] and b[0] < a[2] and a[1] + 2 < b[3] - 2 and b[1] + 2 < a[3] - 2


def test_packets_travel_the_lines_that_the_log_names(page: Page, recorded: Recorded) -> None:
    mount(page, shipped("architecture.json"))
    show(page, recorded.text)
    page.evaluate("window.stage.store.setView('request-lifecycle')")
    records = records_of(recorded.text)
    seen = set()
    for index in range(0, len(records), 5):
        assert packets_at(page, index) == expected_packets(records, index), f"at record {index}"
        drawn = page.evaluate(DRAWN)
        lines = dict(drawn["lines"])
        for name, (x, y) in drawn["packets"]:
            near = min(abs(x - px) + abs(y - py) for px, py in lines[name])
            assert near < 5, f"the packet of {name} is {near} px beside its line at {index}"
            seen.add(name)
    assert len(seen) >= 12


def test_letters_can_be_read_and_fingers_hit(page: Page, recorded: Recorded) -> None:
    mount(page, shipped("architecture.json"))
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(40)")
    settle(page)
    small, low, narrow = page.evaluate(
        """() => {
            const stage = window.stage.root.querySelector(".gb-stage");
            const scale = stage.getScreenCTM().a;
            const letters = Array.from(stage.querySelectorAll("text"), (node) => [
                node.textContent, parseFloat(getComputedStyle(node).fontSize) * scale]);
            const size = (node) => {
                const { width, height } = node.getBoundingClientRect();
                return [node.getAttribute("class"), Math.min(width, height)];
            };
            const wide = stage.querySelectorAll(".gb-box, .gb-open");
            const other = stage.querySelectorAll(".gb-claim-flag");
            return [
                letters.filter(([text, size]) => text && size < 12),
                Array.from(wide, size).filter(([, size]) => size < 44),
                Array.from(other, size).filter(([, size]) => size < 24),
            ];
        }"""
    )
    assert (small, low, narrow) == ([], [], [])


def test_a_tap_selects_a_box_and_a_tap_on_its_sign_opens_it(page: Page, recorded: Recorded) -> None:
    mount(page, shipped("architecture.json"))
    show(page, recorded.text)
    page.locator(".gb-box[data-component=scheduler] .title").tap()
    assert page.evaluate("window.stage.store.selection.component") == "scheduler"
    page.locator(".gb-open[data-open=block-manager]").tap()
    page.locator(".gb-room").wait_for()
    assert page.evaluate("window.stage.store.opened") == "block-manager"
    page.keyboard.press("Escape")
    page.locator(".gb-box[data-component=scheduler]").wait_for()
    page.evaluate("window.stage.store.select({ component: null })")
    settle(page)


def test_a_page_that_becomes_wide_has_the_document_s_places_again(
    page: Page, recorded: Recorded
) -> None:
    given = mount(page, shipped("architecture.json"))
    show(page, recorded.text)
    page.evaluate("window.stage.store.setView('block-allocation')")
    page.set_viewport_size({"width": 1280, "height": 900})
    wait_until(page, "!window.stage.root.querySelector('.gb-map').matches('.is-path')")
    settle(page)
    boxes = page.evaluate(DRAWN)["boxes"]
    placed = {item["id"]: item for item in given["components"]}
    for first, second in (("client-req", "async-engine"), ("scheduler", "gpu-runner")):
        assert boxes[first][2] < boxes[second][0] and placed[first]["y"] == placed[second]["y"]
        assert abs(boxes[first][1] - boxes[second][1]) < 1
    page.set_viewport_size(PHONE)
    wait_until(page, "window.stage.root.querySelector('.gb-map').matches('.is-path')")
    settle(page)
    boxes = page.evaluate(DRAWN)["boxes"]
    assert len({area[0] for area in boxes.values()}) == 1
