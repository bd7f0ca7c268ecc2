"""The panels by hand, by key and by ear: what can be chosen, what is told, what is drawn anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from engine.model_loader import LoadedModel
from engine.trace import fold, merge_patch
from tests.browser.panels import (
    PANELS,
    Json,
    check_accessibility,
    events_of,
    last_of_step,
    model_trace,
    models,
    show,
    text_of,
    workload_trace,
)
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Page


def click_cell(page: Page, request: str, step: int) -> None:
    """Click the middle of a timeline cell, where the panel itself says it is."""
    box = page.locator("canvas.gbp-rows").bounding_box()
    assert box is not None
    where = page.evaluate(
        """([request, step]) => {
          const { timeline } = harness.panelOf();
          const row = timeline.model.rows.findIndex((item) => item.id === request);
          return [timeline.x(step) + timeline.column / 2, row * 24 + 14];
        }""",
        [request, step],
    )
    page.mouse.click(box["x"] + where[0], box["y"] + where[1])
    page.evaluate("harness.settle()")


def test_a_click_on_a_cell_selects_its_request_and_goes_to_its_step(page: Page) -> None:
    trace = workload_trace("09-preempt-recompute")
    show(page, "lifecycle", trace)
    click_cell(page, "r1", 3)
    assert page.evaluate("harness.store.selection.request") == "r1"
    assert page.evaluate("harness.store.cursor") == last_of_step(trace, 3)
    page.mouse.move(5, 5)


def test_arrow_keys_move_through_steps_and_requests(page: Page) -> None:
    trace = workload_trace("09-preempt-recompute")
    show(page, "lifecycle", trace, last_of_step(trace, 5))
    page.locator("canvas.gbp-rows").focus()
    page.keyboard.press("ArrowLeft")
    page.evaluate("harness.settle()")
    assert page.evaluate("harness.store.cursor") == last_of_step(trace, 4)
    page.keyboard.press("ArrowDown")
    page.evaluate("harness.settle()")
    assert page.evaluate("harness.store.selection.request") == "r0"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("harness.store.selection.request") == "r1"


def test_a_block_is_chosen_by_key_and_told_in_words(page: Page) -> None:
    trace = workload_trace("06-prefix-hits")
    show(page, "blocks", trace, last_of_step(trace, 0))
    page.locator("canvas.gbp-pool").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.evaluate("harness.settle()")
    assert page.evaluate("harness.store.selection.block") == 2
    detail = page.locator(".gbp-detail").inner_text()
    state = fold(trace.header.state, trace.records[: last_of_step(trace, 0) + 1])
    assert "Block 2" in detail and state["blocks"]["2"]["hash"] in detail
    assert "cold L1" in detail
    page.locator(".gbp-detail .gbp-link").click()
    record: Any = trace.records[page.evaluate("harness.store.cursor")]
    assert 2 in record.facts.blocks


def test_a_part_of_the_sentence_leads_to_its_event(page: Page) -> None:
    trace = workload_trace("09-preempt-recompute")
    event = events_of(trace, "request_preempted")[0]
    show(page, "lifecycle", trace, last_of_step(trace, event.step))
    page.locator(f'.gbp-said[data-seqs="{event.seq}"]').click()
    assert page.evaluate("harness.store.cursor") == event.seq


@pytest.mark.parametrize("panel", PANELS)
def test_numbers_say_where_they_come_from(page: Page, tiny_model: LoadedModel, panel: str) -> None:
    show(page, panel, model_trace(tiny_model), 150)
    labels = page.locator(".gbp .gb-truth")
    assert labels.count() >= 4
    for kind, title in labels.evaluate_all("all => all.map((e) => [e.dataset.truth, e.title])"):
        assert kind in ("measured", "derived", "illustrative")
        assert title.startswith(f"{kind}: ") and len(title) > 15, title


@pytest.mark.parametrize("panel", PANELS)
def test_canvases_have_names_and_a_table_for_those_who_do_not_see_them(
    page: Page, panel: str
) -> None:
    show(page, panel, workload_trace("04-mixed-budget"), 120)
    page.wait_for_function("() => harness.box.querySelectorAll('.gb-sr tbody tr').length > 0")
    for canvas in page.locator(".gbp canvas:not([role=presentation])").all():
        assert canvas.get_attribute("role") == "img"
        assert len(canvas.get_attribute("aria-label") or "") > 3
    for table in page.locator(".gb-sr:not([hidden]) table").all():
        assert 0 < table.locator("tbody tr").count() <= 60


def twin(page: Page, caption: str) -> list[list[str]]:
    """The table beside a canvas, row by row."""
    rows: list[list[str]] = page.evaluate(
        """caption => [...harness.box.querySelectorAll(".gb-sr table")]
          .filter((table) => table.caption.textContent === caption)
          .flatMap((table) => [...table.tBodies[0].rows])
          .map((row) => [...row.cells].map((cell) => cell.textContent))""",
        caption,
    )
    return rows


def test_the_bars_table_has_each_step_s_tokens(page: Page) -> None:
    trace = workload_trace("04-mixed-budget")
    cursor = last_of_step(trace, 6)
    show(page, "lifecycle", trace, cursor)
    budget = trace.header.config["max_num_batched_tokens"]
    given = [
        [str(e.step), f"{e.facts.prefill_tokens + e.facts.decode_tokens} of {budget}"]
        for e in events_of(trace, "batch_scheduled")
        if e.seq <= cursor and e.facts.num_requests
    ]
    caption = "Tokens of each step against the budget"
    becomes(lambda: [row[:2] for row in twin(page, caption)], given)
    shares = [e for e in events_of(trace, "request_scheduled") if e.step == int(given[-1][0])]
    told = twin(page, caption)[-1][2].split("; ")
    assert [text.split(":")[0] for text in told] == [e.facts.request for e in shares]


def test_the_batch_s_table_has_each_row(page: Page, tiny_model: LoadedModel) -> None:
    trace = model_trace(tiny_model)
    event = events_of(trace, "inputs_prepared")[2]
    show(page, "graph", trace, last_of_step(trace, event.step))
    facts = event.facts
    size = trace.header.config["block_size"]
    expected = [
        [str(row), str(token), str(position), f"block {slot // size}, slot {slot % size}"]
        for row, (token, position, slot) in enumerate(
            zip(facts.input_ids, facts.positions, facts.slot_mapping, strict=True)
        )
    ]
    becomes(
        lambda: [[row[0], *row[2:5]] for row in twin(page, "The flattened batch")], expected[:60]
    )
    owners = [row[1] for row in twin(page, "The flattened batch")]
    for place, request in enumerate(facts.requests):
        rows = slice(facts.query_start_loc[place], facts.query_start_loc[place + 1])
        assert {owner.split(",")[0] for owner in owners[rows]} <= {request}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_request_colours_are_legible(open_page: Callable[..., Page], theme: str) -> None:
    page = open_page(theme)
    colours = page.evaluate(
        """theme => {
          const { requestColour, onRequestColour } = harness.colours;
          const style = getComputedStyle(harness.box);
          const probe = document.createElement("i");
          harness.box.append(probe);
          const rgb = (colour) => {
            probe.style.color = colour;
            return getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
          };
          return {
            hues: Array.from({ length: 10 }, (_, i) => rgb(requestColour(i, theme))),
            on: rgb(onRequestColour(theme)),
            panels: ["--gb-panel", "--gb-panel-2"].map((name) => rgb(style.getPropertyValue(name))),
          };
        }""",
        theme,
    )
    assert len({tuple(hue) for hue in colours["hues"]}) == 10
    for hue in colours["hues"]:
        for under in [*colours["panels"], colours["on"]]:
            assert contrast(hue, under) >= 4.5, (theme, hue, under)


def test_the_eleventh_request_s_blocks_are_told_apart_by_more_than_their_colour(page: Page) -> None:
    laps, same = page.evaluate(
        """async () => {
          const { registerRequests, requestColour, requestLap } = harness.colours;
          const { drawUsed } = await import("/views/assets/panels/blocks_cell.js");
          registerRequests(Array.from({ length: 21 }, (_, i) => `r${i}`), true);
          const owners = ["r0", "r10", "r20"];
          const pool = { sharers: new Map(), owner: [0, 1, 2], owners, fill: [16, 16, 16],
            blockSize: 16, scheduled: [0, 0, 0], stale: [0, 0, 0], hashed: [0, 0, 0],
            refs: [1, 1, 1] };
          const hues = owners.map((id) => requestColour(id, "light"));
          const colours = { theme: "light", panel: "#ffffff", text: "#000000", mono: "monospace" };
          const drawn = owners.map((_, id) => {
            const c = new OffscreenCanvas(16, 16).getContext("2d");
            drawUsed(c, pool, id, 0, 0, 16, hues, colours);
            return c.getImageData(0, 0, 16, 16).data.join();
          });
          return [owners.map(requestLap), [new Set(hues).size, new Set(drawn).size]];
        }"""
    )
    assert laps == [0, 1, 2]
    assert same == [1, 3]  # one colour, three pictures


def contrast(one: list[float], other: list[float]) -> float:
    def luminance(rgb: list[float]) -> float:
        parts = [c / 255 for c in rgb]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("width", [370, 1240])
@pytest.mark.parametrize("panel", PANELS)
def test_nothing_runs_out_of_the_panel(
    open_page: Callable[..., Page], tiny_model: LoadedModel, panel: str, width: int
) -> None:
    page = open_page("dark", width)
    show(page, panel, model_trace(tiny_model), 150)
    # A canvas follows the scroll bar that its own height brought about one frame later.
    fits = "width => document.documentElement.scrollWidth <= width"
    page.wait_for_function(fits, arg=width)


@pytest.mark.parametrize("panel", PANELS)
def test_an_update_without_a_change_draws_nothing(page: Page, panel: str) -> None:
    show(page, panel, workload_trace("21-random-a"), 600)
    drawn = page.evaluate(
        """async () => {
          await harness.settle();
          const real = CanvasRenderingContext2D.prototype.clearRect;
          let drawn = 0;
          CanvasRenderingContext2D.prototype.clearRect = function (...box) {
            drawn += 1;
            return real.apply(this, box);
          };
          for (let k = 0; k < 5; k += 1) harness.panel.update();
          const still = drawn;
          harness.store.seek(601);
          harness.panel.update();
          CanvasRenderingContext2D.prototype.clearRect = real;
          return [still, drawn];
        }"""
    )
    assert drawn[0] == 0 and drawn[1] > 0


def test_the_index_reads_each_record_once(page: Page) -> None:
    """A growing log costs its new records, not all of them again."""
    reads = page.evaluate(
        """text => {
          const store = harness.open(text);
          let reads = 0;
          const all = store.records;
          const counted = (n) => new Proxy(all.slice(0, n), {
            get(target, name) {
              if (typeof name === "string" && /^\\d+$/.test(name)) reads += 1;
              return Reflect.get(target, name);
            },
          });
          const view = { header: store.header, records: counted(500) };
          const index = harness.index.traceIndex(view);
          const first = reads;
          reads = 0;
          view.records = counted(510);
          const same = harness.index.traceIndex(view) === index;
          return { first, more: reads, same };
        }""",
        text_of(workload_trace("21-random-a")),
    )
    assert reads["same"] and reads["first"] >= 500 and reads["more"] <= 15


def test_lists_numbers_and_words_read_well(page: Page) -> None:
    got = page.evaluate(
        """() => {
          const f = harness.format;
          return [f.plural(1, "query"), f.plural(2, "query"), f.plural(1200, "hash"), f.bytes(999),
            f.bytes(46080), f.bytes(538060032), f.micros(61234), f.micros(7.25), f.micros(1.5e6),
            f.ranges([4, 5, 6, 9]), f.ranges([9, 8, 7]), f.ranges([1, 2]), f.list(["a", "b", "c"]),
            f.percent(0.0367)];
        }"""
    )
    assert got == [
        "1 query", "2 queries", "1,200 hashes", "999 B", "46.1 kB", "538 MB", "61.2 ms", "7.3 µs",
        "1.50 s", "4–6 and 9", "9–7", "1 and 2", "a, b and c", "3.7 %",
    ]  # fmt: skip


def test_a_patch_of_the_state_alone_never_moves_an_outline(page: Page) -> None:
    """Outlines are events: a trace of patches without its block events has none."""
    trace = workload_trace("06-prefix-hits")
    header, *lines = text_of(trace).splitlines()
    kinds = {"blocks_allocated", "blocks_hit", "blocks_cached", "block_evicted", "blocks_freed"}
    records = [r for r in map(json.loads, lines) if r.get("type") not in kinds]
    for number, record in enumerate(records):
        record["seq"] = number
    text = "\n".join([header, *map(json.dumps, records)])
    for cursor in range(0, len(records), 40):
        state: Json = json.loads(header)["state"]
        for record in records[: cursor + 1]:
            if record["kind"] == "patch":
                merge_patch(state, record["changes"])
        data = models(page, text, cursor)["blocks"]
        assert all(blocks == [] for blocks in data["touched"].values())
        assert data["pool"]["used"] == sum(
            1 for key, block in state["blocks"].items() if block["ref_cnt"] and key != "0"
        )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("panel", PANELS)
def test_axe_finds_no_fault(
    open_page: Callable[..., Page], tiny_model: LoadedModel, panel: str, theme: str
) -> None:
    page = open_page(theme)
    show(page, panel, model_trace(tiny_model), 150)
    page.evaluate("harness.store.select({ block: 3, request: 'r1' })")
    page.wait_for_function("() => harness.box.querySelectorAll('.gb-sr tbody tr').length > 0")
    check_accessibility(page)
