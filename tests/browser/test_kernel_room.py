"""The kernel room: the page asks for a trace, says what came, and plays it; the kernels as text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from engine.async_llm import AsyncLLM
from engine.config import SamplingParams
from tests.browser.stage import axe_faults, wait_until, watched
from tests.browser.stage_server import StageServer
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("triton")


@pytest.fixture
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    fresh = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    with watched(fresh, server) as page:
        page.evaluate("window.stage.store.setView('cuda-acceleration')")
        yield page
        page.close()


def at_work(page: Page, server: StageServer) -> AsyncLLM:
    """Two requests decode side by side, so that their blocks alternate."""
    engine = server.sessions.get(page.evaluate("window.stage.store.link.key"))
    assert engine is not None
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    for _ in range(2):
        engine.submit("Once upon a time there was a block", params)
        engine.step()
    for _ in range(20):
        engine.step()
    wait_until(page, "window.stage.store.atHead && window.stage.store.state.engine.step === 22")
    return engine


def ask(page: Page, request: str, layer: str, kv_head: str) -> None:
    for label, value in (("Request", request), ("Layer", layer), ("KV head", kv_head)):
        page.get_by_label(label, exact=True).select_option(value)
    page.get_by_role("button", name="Trace the kernel").click()
    expect(page.locator(".gbp-ksaid")).to_contain_text(f"for {request}")


def walk_told(page: Page) -> list[int]:
    """The blocks in the table beside the picture, in order."""
    cells = page.locator(".gbp-kscene .gb-sr tbody tr td:nth-child(3)")
    return [int(text) for text in cells.all_inner_texts()]


def test_it_says_why_there_is_nothing_to_trace_yet(page: Page) -> None:
    expect(page.get_by_role("button", name="Trace the kernel")).to_be_disabled()
    expect(page.locator(".gbp-kroom")).to_contain_text("Nobody has asked anything yet")
    expect(page.locator(".gbp-kscene")).to_be_hidden()


def test_a_trace_is_the_block_tables_walk_and_is_played_by_hand(
    page: Page, server: StageServer
) -> None:
    engine = at_work(page, server)
    table = engine.core.runner.known_requests()["r1"].block_ids
    ask(page, "r1", "2", "1")
    said = page.locator(".gbp-ksaid")
    expect(said).to_contain_text("One program of paged_decode_kernel attended for r1 (1 new token)")
    expect(said).to_contain_text(
        "in layer 2 of step 21: KV head 1, which query heads 2 and 3 share"
    )
    becomes(lambda: walk_told(page), list(table))  # it follows when the picture rests

    # Motion is not wanted, so all is shown at once; from there it is walked by hand.
    stand, slider = page.locator(".gbp-kstand"), page.get_by_label("Pages read", exact=True)
    number = len(table)
    expect(stand).to_contain_text(
        f"Read {number} of {number}: entry {number - 1} of the block table"
    )
    page.get_by_role("button", name="One page back").click()
    expect(stand).to_contain_text(f"is block {table[-2]}, 16 tokens")
    cursor = page.evaluate("window.stage.store.cursor")
    page.keyboard.press("ArrowLeft")  # the walk's key here, not the engine's
    expect(slider).to_have_value(str(number - 2))
    assert page.evaluate("window.stage.store.cursor") == cursor
    page.get_by_role("button", name="Play", exact=True).click()
    expect(stand).to_contain_text(f"Read {number} of {number}")


def test_bytes_are_measured_and_set_beside_other_numbers_of_heads(
    page: Page, server: StageServer
) -> None:
    at_work(page, server)
    ask(page, "r0", "0", "0")
    rows = page.locator(".gbp-kbytes li")
    expect(rows).to_have_count(4)
    kinds = [row.locator(".gb-truth").get_attribute("data-truth") for row in rows.all()]
    assert kinds == ["measured", "derived", "derived", "derived"]
    sizes = [float(row.locator(".gb-truth").inner_text().split()[0]) for row in rows.all()]
    traced, one, grouped, every = sizes
    assert traced == one and grouped == pytest.approx(2 * one, rel=0.01)
    assert every == pytest.approx(4 * one, rel=0.01)
    expect(rows.nth(2)).to_contain_text("GQA, 2 KV heads: this model")


def test_a_chunk_has_programs_to_choose_from(page: Page, server: StageServer) -> None:
    engine = server.sessions.get(page.evaluate("window.stage.store.link.key"))
    assert engine is not None
    engine.submit("A prompt that is long enough to be cut into several tiles of rows. " * 2)
    engine.step()
    wait_until(page, "window.stage.store.atHead && window.stage.store.state.engine.step === 1")
    ask(page, "r0", "1", "0")
    programs = page.get_by_label("Program", exact=True).locator("option").all_inner_texts()
    assert len(programs) > 1
    told = re.fullmatch(r"Program \(0, 0, 0\): positions 0 to (\d+), (\d+) pages", programs[0])
    assert told is not None and int(told[2]) == (int(told[1]) + 16) // 16
    page.get_by_label("Program", exact=True).select_option("0")
    expect(page.locator(".gbp-kstand")).to_contain_text(f"Read {told[2]} of {told[2]}")


def test_a_long_decode_has_shares_to_choose_from(page: Page, server: StageServer) -> None:
    engine = server.sessions.get(page.evaluate("window.stage.store.link.key"))
    assert engine is not None
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    engine.submit([5 + i % 200 for i in range(540)], params)
    for _ in range(10):  # 64 tokens of the prompt a step, then a decode
        engine.step()
    wait_until(page, "window.stage.store.atHead && window.stage.store.state.engine.step === 10")
    ask(page, "r0", "1", "0")
    said = page.locator(".gbp-ksaid").inner_text()
    assert said.startswith("2 programs of paged_decode_kernel attended for r0 (1 new token)")
    assert "1 decode × 2 KV heads are few programs for the 132 processors of a GPU (H100" in said
    assert sum(map(int, re.findall(r"(\d+) %", said))) in (99, 100, 101)
    programs = page.get_by_label("Program", exact=True).locator("option").all_inner_texts()
    assert programs == [
        *(f"Program (0, 0, {i}): share {i + 1} of 2, 17 pages" for i in range(2)),
        "reduce_splits_kernel: 2 shares become one softmax",
    ]
    page.get_by_label("Program", exact=True).select_option("0")
    expect(page.locator(".gbp-kstand")).to_contain_text("Read 17 of 17: entry 16 of the block")
    expect(page.locator(".gbp-kreduce")).to_be_hidden()
    check_reduction(page)


def check_reduction(page: Page) -> None:
    """What the shares left, and how one softmax is made of it, move by move and head by head."""
    page.get_by_label("Program", exact=True).select_option("2")
    stand, table = page.locator(".gbp-kstand"), page.locator(".gbp-kreduce table")
    expect(page.locator(".gbp-kwalk")).to_be_hidden()
    for head in range(2):
        page.get_by_role("button", name=f"query head {head}").click()
        expect(stand).to_contain_text("added and divided by that: the output, of norm")
        shares = [
            [float(text) for text in re.findall(r"-?\d+\.?\d*(?:e-\d+)?", " ".join(cells))]
            for cells in (row.locator("td").all_inner_texts() for row in table.locator("tr").all())
            if cells
        ]
        *parts, together = shares
        maxima, factors, sums, _, worth = zip(*parts, strict=True)
        assert together[:2] == pytest.approx([max(maxima), sum(sums)], rel=0.01)
        assert factors == pytest.approx([math.exp(m - max(maxima)) for m in maxima], rel=0.02)
        assert sum(worth) == pytest.approx(100, abs=1.1)
    page.get_by_role("button", name="One page back").click()
    expect(stand).to_contain_text("The sums, so shrunk, add up to")
    expect(table.locator("tr").nth(1).locator("td").last).to_have_text("")
    page.get_by_label("Pages read", exact=True).fill("0")
    expect(stand).to_contain_text("2 shares are in memory")
    expect(table.locator(".is-all td").first).to_have_text("")


def test_a_refusal_is_said_where_it_was_asked(page: Page, server: StageServer) -> None:
    at_work(page, server)
    page.evaluate(
        "() => { window.stage.store.link.command = async () => {"
        " throw new Error('block 3 has <b>gone</b>'); }; }"
    )
    page.get_by_role("button", name="Trace the kernel").click()
    expect(page.locator(".gbp-kroom")).to_contain_text("block 3 has <b>gone</b>")
    expect(page.get_by_role("button", name="Trace the kernel")).to_be_enabled()


def test_a_trace_goes_with_the_log_that_it_is_of(page: Page, server: StageServer) -> None:
    engine = at_work(page, server)
    ask(page, "r0", "0", "0")
    engine.step()
    expect(page.locator(".gbp-kroom")).to_contain_text("This is step 21; the cursor is in step 22.")
    engine.reset()
    expect(page.locator(".gbp-kscene")).to_be_hidden()


def test_the_source_is_read_and_searched(page: Page) -> None:
    page.get_by_text("The kernels as text").click()
    code = page.locator(".gbp-kcode")
    expect(code).to_contain_text("def paged_decode_kernel(")
    page.get_by_label("Search the text").fill("tl.load(")
    hits = code.locator(".is-hit")
    expect(hits.nth(5)).to_be_attached()
    expect(page.locator(".gbp-klisting .gbp-kfind")).to_contain_text(f"{hits.count()} lines")
    assert hits.count() > 5 and all("tl.load(" in text for text in hits.all_inner_texts())
    first = code.locator(".is-here").inner_text()
    page.get_by_label("Search the text").press("Enter")
    expect(code.locator(".is-here")).not_to_have_text(first)


def test_axe_finds_no_fault_in_either_theme(page: Page, server: StageServer) -> None:
    at_work(page, server)
    ask(page, "r1", "0", "1")
    page.get_by_text("The kernels as text").click()
    expect(page.locator(".gbp-kcode")).to_contain_text("def paged_decode_kernel(")
    for theme in ("", "dark"):
        assert axe_faults(page, theme, lambda target: "gb-panel" not in target) == []


def test_the_shared_engine_can_be_asked_too(page: Page, server: StageServer) -> None:
    engine = server.sessions.shared()
    assert engine is not None
    page.get_by_label("Engine", exact=True).select_option("shared")
    stream = engine.submit("hello", SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
    list(stream)
    read = "window.stage.store.records.findLastIndex((record) => record.type === 'pages_read')"
    wait_until(page, f"window.stage.store.engine === 'shared' && {read} >= 0")
    page.evaluate(f"window.stage.store.seek({read})")
    ask(page, stream.request_id, "1", "0")
