"""The old ways beside paging: true to the engine's own count, to scale, and told in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from engine.memory_parts import ALL_WAYS, PAGED
from engine.trace import Trace
from tests.browser.panels import check_accessibility, memory_of, show, text_of, workload_trace

if TYPE_CHECKING:
    from playwright.sync_api import Page


def beside(page: Page, trace: Trace, cursor: int = -1) -> None:
    """The panel of the KV cache with the old ways on show."""
    show(page, "blocks", trace, cursor)
    page.get_by_role("button", name="Beside the old ways").click()
    page.evaluate("harness.settle()")


@pytest.mark.parametrize("name", ["06-prefix-hits", "09-preempt-recompute", "21-random-a"])
def test_the_old_ways_are_the_engines_at_every_moment(page: Page, name: str) -> None:
    trace = workload_trace(name)
    cursors = range(3, len(trace.records), 41)
    shown = page.evaluate(
        """([text, cursors]) => {
          const store = harness.open(text);
          return cursors.map((cursor) => {
            store.seek(cursor);
            const { config } = store.header;
            return store.atPhaseEnd((state) => harness.memory.memoryAt(state, config)).ways;
          });
        }""",
        [text_of(trace), list(cursors)],
    )
    for cursor, ways in zip(cursors, shown, strict=True):
        memory = memory_of(trace, cursor)
        assert [way["name"] for way in ways] == list(ALL_WAYS)
        for way in ways:
            assert way["parts"] == memory.parts(way["name"])._asdict()
            assert len(way["room"]) == memory.has_room(way["name"])
            assert way["batch"] == memory.largest_batch(way["name"])


def short_of_memory() -> tuple[Trace, int]:
    """A moment at which some way lacks room for somebody; an old one."""
    trace = workload_trace("21-random-a")
    for cursor in range(0, len(trace.records), 7):
        memory = memory_of(trace, cursor)
        if 0 < memory.has_room("max") < memory.has_room(PAGED) and memory.parts("pow2").external:
            return trace, cursor
    raise AssertionError("no such moment")


@pytest.mark.usefixtures("blocks_again")
def test_the_old_ways_are_shown_in_numbers_and_words(page: Page) -> None:
    trace, cursor = short_of_memory()
    memory = memory_of(trace, cursor)
    beside(page, trace, cursor)
    assert page.locator(".gbp-columns").is_hidden() and page.locator(".gbp-below").is_hidden()
    rows = page.locator(".gbp-ways tbody tr")
    running = len(memory.running)
    for row, way in zip(rows.all(), ALL_WAYS, strict=True):
        numbers = row.locator("td.is-part .gb-truth").all_text_contents()
        shares = [part / memory.size * 100 for part in memory.parts(way)]
        assert [float(text.rstrip(" %")) for text in numbers] == pytest.approx(shares, abs=0.51)
        assert row.locator("td.is-room").text_content() == f"{memory.has_room(way)} of {running}"
        assert row.locator("td.is-batch").text_content() == str(memory.largest_batch(way))
    words = page.locator(".gbp-beside-words:visible").text_content() or ""
    assert f"would hold {memory.has_room('max')} of these {running} requests" in words
    assert f"paged holds all {running}." in words
    page.get_by_role("button", name="Blocks", exact=True).click()
    assert page.locator(".gbp-ways").is_hidden() and page.locator(".gbp-columns").is_visible()


@pytest.mark.usefixtures("blocks_again")
def test_strips_are_to_scale(page: Page) -> None:
    """Of each strip's pixels, as many have a piece's full colour as its slots have tokens."""
    trace, cursor = short_of_memory()
    beside(page, trace, cursor)
    memory = memory_of(trace, cursor)
    drawn = page.evaluate(
        """() => {
          const { rows } = harness.panelOf().ways;
          const hues = new Set(Object.keys(harness.store.state.requests).map((id) => {
            const rgb = harness.colours.requestColour(id, "light").match(/[0-9a-f]{2}/g);
            return rgb.map((part) => parseInt(part, 16)).join();
          }));
          return rows.map(({ plane }) => {
            const { data, width } = plane.context.getImageData(0, 8, plane.canvas.width, 1);
            let solid = 0;
            for (let k = 0; k < data.length; k += 4)
              if (hues.has(data.slice(k, k + 3).join())) solid += 1;
            return solid / width;
          });
        }"""
    )
    for share, way in zip(drawn, ALL_WAYS, strict=True):
        pieces = memory.has_room(way) if way != PAGED else memory.size // memory.block_size
        slack = 2 * pieces / 500 + 0.01  # the edges of pieces are mixed pixels
        assert share == pytest.approx(memory.parts(way).tokens / memory.size, abs=slack)


@pytest.mark.usefixtures("blocks_again")
def test_a_piece_is_told_and_selects_its_request(page: Page) -> None:
    trace, cursor = short_of_memory()
    memory = memory_of(trace, cursor)
    beside(page, trace, cursor)
    strip = page.locator(".gbp-ways tr.is-max canvas")
    strip.hover(position={"x": 3, "y": 10})
    told = page.locator(".gbp-tip:not([hidden])").text_content() or ""
    first = next(key for key in memory.running if memory.pieces["max"][key].get("start") == 0)
    assert told.startswith(f"{first}: slots 0 to {memory.pieces['max'][first]['length'] - 1}")
    strip.click(position={"x": 3, "y": 10})
    assert page.evaluate("harness.store.selection.request") == first


@pytest.mark.usefixtures("blocks_again")
def test_the_claim_stands_beside_what_the_paper_measured(page: Page) -> None:
    beside(page, *short_of_memory())
    page.locator(".gbp-paper summary").click()
    figures = page.locator(".gbp-paper .gb-truth")
    assert len(figures.all()) == 12
    assert {node.get_attribute("data-truth") for node in figures.all()} == {"illustrative"}
    assert "2309.06180" in (page.locator(".gbp-paper a").get_attribute("href") or "")


@pytest.mark.parametrize("theme,width", [("light", 1240), ("dark", 370)])
def test_the_old_ways_fit_and_axe_finds_no_fault(
    open_page: Callable[..., Page], theme: str, width: int
) -> None:
    page = open_page(theme, width)
    beside(page, *short_of_memory())
    page.locator(".gbp-paper summary").click()
    fits = "width => document.documentElement.scrollWidth <= width"
    page.wait_for_function(fits, arg=width)
    check_accessibility(page)
