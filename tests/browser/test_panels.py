"""The three view panels: true to the log, event by event, and usable without a mouse or eyes.

Each panel keeps what it shows apart from how it draws it (`model(store)`), so most of this compares
data: with the engine's own state, and with the events.
"""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from engine.events import (
    StepDispatched,
)
from engine.model_loader import LoadedModel
from engine.records import Patch
from engine.trace import fold
from tests.browser.panels import (
    all_events,
    events_of,
    last_of_step,
    memory_of,
    model_trace,
    models,
    sentence_of,
    show,
    state_of,
    text_of,
    workload_trace,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.mark.parametrize("name", ["04-mixed-budget", "21-random-a", "27-priority-victim-in-step"])
def test_timeline_cells_are_the_scheduled_shares(page: Page, name: str) -> None:
    trace = workload_trace(name)
    data = models(page, trace, len(trace.records) - 1)["lifecycle"]
    cells = {
        (row["id"], cell["step"]): cell["tokens"]
        for row in data["rows"]
        for cell in row["cells"]
        if cell.get("tokens") is not None and cell["kind"] != "taken-back"
    }
    wanted: dict[tuple[str, int], int] = {}
    for record in all_events(trace):
        if record.phase.value != "schedule":
            continue
        kind = type(record.facts).__name__
        if kind == "RequestScheduled":
            wanted[record.facts.request, record.step] = record.facts.num_tokens
        elif kind == "RequestPreempted":
            wanted.pop((record.facts.request, record.step), None)
    assert cells == wanted
    for batch in events_of(trace, "batch_scheduled"):
        bar = next(item for item in data["steps"] if item["step"] == batch.step)
        by_kind = {"prefill": 0, "decode": 0}
        for segment in bar["segments"]:
            by_kind[segment["kind"]] += segment["tokens"]
        assert by_kind == {
            "prefill": batch.facts.prefill_tokens,
            "decode": batch.facts.decode_tokens,
        }


@pytest.mark.parametrize("name", ["06-prefix-hits", "21-random-a", "29-duplicate-evicted"])
def test_pool_is_the_engines_state(page: Page, name: str) -> None:
    trace = workload_trace(name)
    for cursor in range(7, len(trace.records), 97):
        pool = models(page, trace, cursor)["blocks"]["pool"]
        state = state_of(page)
        given = state.get("given", {})
        owners: dict[int, list[str]] = {}
        fill: dict[int, int] = {}
        size = trace.header.config["block_size"]
        for key, request in state["requests"].items():
            for logical, block in request.get("block_table", {}).items():
                owners.setdefault(block, []).append(key)
                counted = request["num_computed_tokens"] + given.get(key, 0)
                held = max(0, min(size, counted - int(logical) * size))
                fill[block] = max(fill.get(block, 0), held)
        used = [int(k) for k, b in state["blocks"].items() if b["ref_cnt"] and k != "0"]
        assert pool["used"] == len(used)
        assert pool["free"] == state["queues"]["free"]["length"]
        assert pool["tokens"] == sum(fill[block] for block in used)
        for key, block in state["blocks"].items():
            assert pool["refs"][key] == block["ref_cnt"]
            assert bool(pool["hashed"][key]) == ("hash" in block)
            owner = pool["owner"][key]
            names = owners.get(int(key), [])
            assert (pool["owners"][owner] in names) if names else owner == -1


@pytest.mark.parametrize("budget", [24, 200, 4000])
def test_bars_are_as_high_as_their_share_of_the_budget(page: Page, budget: int) -> None:
    """However many requests share a bar, and however thin their parts are."""
    header, *lines = text_of(workload_trace("21-random-a")).splitlines()
    changed = json.loads(header)
    changed["config"]["max_num_batched_tokens"] = budget
    show(page, "lifecycle", "\n".join([json.dumps(changed), *lines]))
    bars = page.evaluate(
        """() => {
          const { timeline } = harness.panelOf();
          const { top, height } = harness.BARS;
          const { context, ratio } = timeline.bars.plane;
          const { model } = timeline;
          return model.steps.filter((bar) => bar.step < model.step).map((bar) => {
            const x = Math.floor((timeline.x(bar.step) + timeline.column / 2) * ratio);
            const { data } = context.getImageData(x, (top + 2) * ratio, 1, (height - 2) * ratio);
            let high = 0;
            for (let k = 3; k < data.length; k += 4) high += data[k] / 255;
            const given = bar.segments.reduce((sum, segment) => sum + segment.tokens, 0);
            return { step: bar.step, wanted: (given / model.budget) * height, high: high / ratio };
          });
        }"""
    )
    assert len(bars) > 5
    for bar in bars:
        # Two pixels at the top are the budget line's; each part leaves a hair's breadth above it.
        assert bar["wanted"] - 2 - 6 <= bar["high"] <= bar["wanted"] + 1, bar


def test_waste_is_the_formula_of_claim_2(page: Page) -> None:
    trace = workload_trace("04-mixed-budget")
    cursor = last_of_step(trace, 5)
    data = models(page, trace, cursor)["blocks"]
    waste, size = data["waste"], trace.header.config["block_size"]
    assert waste["blocks"] > 0
    room = waste["blocks"] * size
    assert waste["share"] == pytest.approx((room - waste["tokens"]) / room)
    show(page, "blocks", trace, cursor)
    shown = page.locator(".gbp-waste .gb-truth").first
    assert f"({waste['blocks']} × {size} − {waste['tokens']})" in (shown.text_content() or "")
    assert shown.get_attribute("data-truth") == "derived"


def test_who_runs_is_named_in_the_colours_of_the_pool_and_can_be_chosen(page: Page) -> None:
    from playwright.sync_api import expect

    trace = workload_trace("04-mixed-budget")
    cursor = last_of_step(trace, 5)
    running = memory_of(trace, cursor).running
    state = fold(trace.header.state, trace.records[: cursor + 1])
    show(page, "blocks", trace, cursor)
    chips = page.locator(".gbp-holder")
    blocks = [len(state["requests"][key]["block_table"]) for key in running]
    words = [f"{key}{n} block{'s' * (n > 1)}" for key, n in zip(running, blocks, strict=True)]
    assert chips.all_text_contents() == words and len(running) > 1
    for key, chip in zip(running, chips.all(), strict=True):
        chip.click()
        expect(chip).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".gbp-table h3")).to_contain_text(f"Block table of {key} ")
        colours = """([key, swatch]) => {
          const mark = document.createElement("i");
          mark.style.background = harness.colours.requestColour(key, "light");
          return [mark.style.background, swatch.style.background];
        }"""
        wanted, found = page.evaluate(colours, [key, chip.locator("i").element_handle()])
        assert wanted == found


def test_free_queue_is_in_the_engines_order(page: Page) -> None:
    trace = workload_trace("08-eviction-order")
    cursor = len(trace.records) - 1
    state = trace.state()
    order, block = [], state["queues"]["free"].get("head")
    while block is not None:
        order.append(block)
        block = state["blocks"][str(block)].get("next")
    queue = models(page, trace, cursor)["blocks"]["queue"]
    assert [item["block"] for item in queue["first"]] == order[:40]
    assert queue["length"] == len(order)


def test_graph_panel_shows_what_the_model_did(page: Page, tiny_model: LoadedModel) -> None:
    trace = model_trace(tiny_model)
    dispatch = events_of(trace, "step_dispatched")[1]
    cursor = last_of_step(trace, dispatch.step)
    events = {
        type(event.facts).__name__: event
        for event in all_events(trace)
        if event.step == dispatch.step
    }
    data = models(page, trace, cursor)["graph"]
    assert isinstance(dispatch.facts, StepDispatched)
    assert data["dispatch"]["mode"] == dispatch.facts.mode
    assert data["dispatch"]["tokens"] == dispatch.facts.num_tokens
    padding = dispatch.facts.num_padded_tokens - dispatch.facts.num_tokens
    assert data["dispatch"]["padding"] == padding
    prepared = events["InputsPrepared"].facts
    assert data["batch"]["slots"] == list(prepared.slot_mapping)
    assert [r["id"] for r in data["batch"]["requests"]] == list(prepared.requests)
    times = events["ModulesTimed"].facts
    assert [item["us"] for item in data["modules"]] == pytest.approx(times.durations_us, abs=0.1)
    read = [item.facts for item in events_of(trace, "pages_read") if item.step == dispatch.step]
    assert [(p["request"], p["pages"]) for p in data["pages"]["all"]] == [
        (facts.request, len(facts.blocks)) for facts in read
    ]
    assert data["heads"]["group"] == 2
    text = "".join(part["text"] for part in data["sentence"])
    assert "ran eagerly" in text and "measured on the CPU" in text and "(derived)" in text
    show(page, "graph", trace, cursor)
    assert page.locator(".gbp-tag").text_content() == "derived from the block table"
    decided = next(i for i, record in enumerate(trace.records) if record.seq == dispatch.seq)
    before = models(page, trace, decided)["graph"]["sentence"]
    assert "is to run eagerly" in before[0]["text"]  # it is decided, and has not run yet


def test_slots_of_rows_as_wide_are_written_alike(page: Page) -> None:
    """The word "block" fits beside 9 and not beside 14: neither has it, and a wider run has."""
    written = page.evaluate(
        """async () => {
          const { BatchStrip } = await import("/views/assets/panels/graph_batch.js");
          const written = [];
          const context = document.createElement("canvas").getContext("2d");
          context.fillText = (text) => written.push(text);
          context.measureText = () => ({ width: 6.3 });
          const strip = Object.assign(Object.create(BatchStrip.prototype), { cell: 71 });
          const requests = [["r0", 0, 1], ["r1", 1, 2], ["r2", 2, 4]];
          strip.drawSlots(context, {
            blockSize: 16,
            slots: [9 * 16 + 6, 14 * 16, 15 * 16, 15 * 16 + 1],
            requests: requests.map(([id, first, end]) => ({ id, first, end })),
          }, 0, { mono: "monospace", text: "#000", theme: "dark" });
          return written;
        }"""
    )
    assert written == ["9: 6", "14: 0", "block 15: 0–1"]


def test_graph_panel_lists_what_a_replay_ran(page: Page, tiny_model: LoadedModel) -> None:
    trace = model_trace(tiny_model)
    captures, replays = events_of(trace, "graph_captured"), events_of(trace, "graph_replayed")
    padded = next(e for e in replays if e.facts.num_tokens < e.facts.num_padded_tokens)
    cursor = last_of_step(trace, padded.step)
    taken = (padded.facts.mode, padded.facts.num_padded_tokens)
    capture = next(e.facts for e in captures if (e.facts.mode, e.facts.size) == taken)
    data = models(page, trace, cursor)["graph"]
    shown = data["graphs"]["shown"]
    assert (shown["mode"], shown["size"], shown["taken"]) == (*taken, True)
    listed = sum(
        len(row["operations"]) * (block["last"] - block["first"] + 1)
        for block in shown["blocks"]
        for row in block["rows"]
    )
    assert listed == capture.replayed == data["replay"]["operations"]
    replayed = [e for e in replays if (e.facts.mode, e.facts.num_padded_tokens) == taken]
    so_far = [e for e in replayed if e.seq <= cursor]
    assert shown["runs"] == len(so_far)
    assert shown["medianUs"] == pytest.approx(median(e.duration_us for e in so_far), abs=0.1)
    padding = padded.facts.num_padded_tokens - padded.facts.num_tokens
    took = {e.step: e.duration_us for e in captures if not e.facts.shared}
    shares = {item["step"]: item["captureUs"] for item in data["history"] if item["captureUs"]}
    assert shares == pytest.approx(took, abs=0.1)
    for event in [*captures, *replays]:  # what it has begun is no plan, although no forward is told
        at = next(i for i, record in enumerate(trace.records) if record.seq == event.seq)
        assert f" took the {event.facts.mode} graph of " in sentence_of(
            models(page, trace, at), "graph"
        )
    show(page, "graph", trace, cursor)
    label = page.locator(".gbp-batch").get_attribute("aria-label")
    assert label is not None and f"and {padding} row" in label and "of padding" in label
    assert (
        f"the {capture.mode} graph of {capture.size} taken"
        in page.locator(".gbp-dispatch").inner_text()
    )
    page.locator(".gbp-captured .gbp-fold > summary").click()
    table = page.locator("[aria-label='Captured graphs by size'] tbody tr")
    assert table.count() == len([e for e in captures if e.seq <= cursor])
    assert (
        f"{capture.mode} {capture.size}, taken now"
        in page.locator(".gbp-graphs tr.is-taken").inner_text()
    )
    sizes = page.locator(".gbp-captured .gbp-sizes")
    fell = f"{capture.size} = {padded.facts.num_tokens} + {padding} padding"
    assert sizes.locator(".gbp-size.is-taken").inner_text() == fell
    assert sizes.locator(".gbp-size.is-captured").count() == table.count()
    page.locator(".gbp-captured .gbp-oplist > summary").click()
    addresses = page.locator(".gbp-captured .gbp-oplist tbody tr td:last-child").all_inner_texts()
    assert addresses == list(capture.buffer_addresses)
    search = page.locator(".gbp-captured .gbp-ksearch")
    search.fill("layer 1 attention")
    status = page.locator(".gbp-captured .gbp-kfind [role=status]")
    assert status.inner_text() == f"{tiny_model.num_layers} of {capture.replayed} operations"
    search.fill("")
    blocks = page.locator(".gbp-opblock")
    assert blocks.count() == 3 and "paged_attention" in blocks.nth(1).inner_text()
    assert f"Layers 0 to {tiny_model.num_layers - 1}" in blocks.nth(1).inner_text()


def test_graph_panel_says_where_inductor_compiled(page: Page, tiny_model: LoadedModel) -> None:
    plain = text_of(model_trace(tiny_model))
    words = page.locator(".gbp-captured .gbp-fold > p")
    for text, compiled in (
        (plain, 0),
        (plain.replace("recorded list", "list compiled by inductor"), 1),
    ):
        show(page, "graph", text)
        assert (words.first.text_content() or "").count("Inductor has compiled") == compiled
        record = next(json.loads(line) for line in text.splitlines() if '"graph_captured"' in line)
        said = page.evaluate("record => harness.events.eventPhrase(record)", record)
        assert said.count("which inductor made") == compiled


def test_text_is_shown_as_it_came_and_never_as_markup(page: Page, tiny_model: LoadedModel) -> None:
    trace = model_trace(tiny_model)
    show(page, "lifecycle", trace)
    state = trace.state()["requests"]
    for key, request in state.items():
        card = page.locator(".gbp-card", has=page.locator(".gbp-id", has_text=key))
        spans = card.locator(".gbp-prompt .gbp-tok")
        assert spans.count() == request["num_prompt_tokens"]
        shown = "".join(spans.all_text_contents()).replace("\u200b", "")
        assert shown == "".join(request["prompt_pieces"])
        assert card.locator(".gbp-output .gbp-tok").count() == len(request["output_token_ids"])
    assert page.locator(".gbp-text b").count() == 0
    hit = events_of(trace, "blocks_hit")[0].facts.request
    marked = page.locator(".gbp-card", has=page.locator(".gbp-id", has_text=hit)).locator(".is-hit")
    assert marked.count() == state[hit]["hit_tokens"] > 0


def test_times_are_the_clients_and_say_when_they_hold_pauses(
    page: Page, tiny_model: LoadedModel
) -> None:
    """From the submission to the first text, and from text to text."""
    trace = model_trace(tiny_model)
    submitted = events_of(trace, "request_submitted")[0]
    texts = [e for e in events_of(trace, "text_emitted") if e.facts.request == "r0"]
    first, before, last = texts[0], texts[-2], texts[-1]
    cursor = len(trace.records) - 1
    streams = models(page, trace, cursor)["lifecycle"]["streams"]
    timing = next(stream["timing"] for stream in streams if stream["id"] == "r0")
    assert timing["first"]["us"] == first.t_us - submitted.t_us
    assert timing["last"]["us"] == last.t_us - before.t_us
    assert timing["mean"]["gaps"] == len(texts) - 1
    assert timing["mean"]["us"] == pytest.approx((last.t_us - first.t_us) / (len(texts) - 1))
    assert timing["first"]["paused"] is True  # this engine was stepped, never run
    phases = [r for r in trace.records if isinstance(r, Patch) and r.phase.value != "command"]
    inside = 0.0  # the phases between the two, of the last one what it had run by then
    for phase in phases:
        began = phase.t_us - (phase.duration_us or 0.0)
        if phase.seq > submitted.seq and began < first.t_us:
            inside += min(phase.t_us, first.t_us) - began
    assert inside < timing["first"]["us"] - 1
    assert timing["first"]["engineUs"] == pytest.approx(inside, abs=2)


def test_a_paced_engines_own_time_stands_beside_the_clocks(
    page: Page, tiny_model: LoadedModel
) -> None:
    """Between the steps of a paced engine nothing happens, and the card says how long that was."""
    header, *lines = text_of(model_trace(tiny_model)).splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        record["t_us"] += 500_000 * record["step"]  # two steps a second
    for paused, words in ((True, "with pauses; "), (False, "with waits between steps; ")):
        head = json.loads(header)
        head["state"].setdefault("engine", {})["mode"] = "paused" if paused else "running"
        show(page, "lifecycle", "\n".join([json.dumps(head), *map(json.dumps, records)]))
        card = page.locator(".gbp-card", has=page.locator(".gbp-id", has_text="r0"))
        first, between = card.locator(".gbp-times > div").all()
        assert words in between.inner_text() and "in steps" in between.inner_text()
        assert truths(first)[0] == "measured"
        assert truths(between) == ["derived", "derived"]  # a mean, and a sum of phases


def truths(element: Any) -> list[str | None]:
    return [label.get_attribute("data-truth") for label in element.locator(".gb-truth").all()]


def test_tokens_are_scheduled_until_the_forward_has_run(
    page: Page, tiny_model: LoadedModel
) -> None:
    """They are so once their request was given them; their KV comes with the forward."""
    trace = model_trace(tiny_model)
    share = next(e for e in events_of(trace, "request_scheduled") if e.facts.num_tokens > 1)
    forward = next(e for e in events_of(trace, "forward_run") if e.step == share.step)
    facts = share.facts
    for cursor in (share.seq, forward.seq - 1, forward.seq, last_of_step(trace, share.step)):
        data = models(page, trace, cursor)
        state = state_of(page)["requests"][facts.request]
        stream = next(s for s in data["lifecycle"]["streams"] if s["id"] == facts.request)
        ran = cursor >= forward.seq
        assert stream["done"] == facts.num_computed_tokens + (facts.num_tokens if ran else 0)
        assert stream["scheduled"] == (0 if ran else facts.num_tokens)
        pool, size = data["blocks"]["pool"], trace.header.config["block_size"]
        for logical, block in state.get("block_table", {}).items():
            filled = max(0, min(size, stream["done"] - int(logical) * size))
            assert pool["fill"][str(block)] == filled
            assert (pool["scheduled"][str(block)] > 0) == (not ran and filled < size)
    show(page, "blocks", trace, forward.seq - 1)
    page.evaluate("id => harness.store.select({ request: id })", facts.request)
    page.evaluate("harness.settle()")
    titles = page.locator(".gbp-logical td[title^=derived]")
    assert "more scheduled" in (titles.last.get_attribute("title") or "")
