"""The three view panels: true to the log, event by event, and usable without a mouse or eyes.

Each panel keeps what it shows apart from how it draws it (`model(store)`), so most of this compares
data: with the engine's own state, with the events, and with a trace in which one event is missing.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import pytest

from engine.config import EngineConfig, SamplingParams
from engine.conformance import Conformance, driver_of, load_workload
from engine.core import EngineCore
from engine.events import (
    FACTS_BY_TYPE,
    PLACES,
    REASONS_BY_CODE,
    CacheLimitsLength,
    EngineFailed,
    Event,
    IntegrityChecked,
    KVCacheCompared,
    MemorySized,
    Patch,
    Phase,
    PromptTextTooLong,
    PromptTooLong,
    RequestPreempted,
    RequestRefused,
    RequestSubmitted,
    SpecDecodingLogged,
    StatsLogged,
    StepDispatched,
)
from engine.kv_cache import KVCacheSpec
from engine.memory_parts import ALL_WAYS, PAGED, Memory
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import by_name, dtype_name
from engine.model_runner import ModelRunner
from engine.output_processor import OutputProcessor, RequestStream
from engine.request import Request
from engine.trace import SCHEMA_VERSION, Trace, TraceHeader, fold, merge_patch
from engine.trace_header import model_facts
from tests.engine.workloads import SPEC_FOLDER, workload_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "tests" / "conformance" / "workloads"
PANELS = ("lifecycle", "blocks", "graph")
Json = dict[str, Any]


# --- traces ------------------------------------------------------------------------------------


@cache
def workload_trace(name: str, cache_uncomputed_blocks: bool = True) -> Trace:
    """What the engine logs of a recorded workload; no model runs."""
    workload, _ = load_workload(WORKLOADS / f"{name}.json")
    conformance = Conformance(workload, cache_uncomputed_blocks)
    for _ in conformance.steps():
        pass
    return conformance.trace


def drafting_trace(name: str) -> Trace:
    """The same of a workload with drafts."""
    driver = driver_of(load_workload(workload_path(name, SPEC_FOLDER))[0])
    list(driver.steps())
    return driver.trace


def text_of(trace: Trace) -> str:
    return "\n".join(trace.lines())


def model_trace(model: LoadedModel, max_tokens: int = 5, **settings: Any) -> Trace:
    """Three requests on a real model: a shared prefix, a chunked prompt, decodes together."""
    defaults = {"num_gpu_blocks": 24, "max_num_batched_tokens": 48, "max_num_seqs": 3}
    config = EngineConfig(**{**defaults, **settings}).resolve(model.max_model_len)
    shape = {
        "num_layers": model.num_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "device": "cpu",
    }
    header = TraceHeader(
        schema_version=SCHEMA_VERSION,
        trace_id="tiny",
        config=config.model_dump(mode="json"),
        model=shape,
        document="",
        versions={},
        started_at=0.0,
        state={},
    )
    trace = Trace(header)
    outputs = OutputProcessor(model.tokenizer, trace)
    core = EngineCore(config, ModelRunner(model, config, trace), trace, outputs)
    shared = "A block holds sixteen tokens, and"
    for number, text in enumerate((f"{shared} no more.", f"{shared} then?", "<b>bold</b> " * 5)):
        ids = list(model.tokenizer(text)["input_ids"])
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        request = Request(f"r{number}", ids, params, model.eos_token_ids)
        stream = RequestStream(request.request_id, text, request.all_token_ids[:])
        outputs.add_request(request, "page", stream)
        core.add_request(request, "page")
        core.step()
    while core.has_work():
        core.step()
    return trace


def all_events(trace: Trace) -> list[Any]:
    """The events, in order, their facts of whatever type."""
    return [record for record in trace.records if isinstance(record, Event)]


def events_of(trace: Trace, kind: str) -> list[Any]:
    """The events of one type, in order."""
    return [event for event in all_events(trace) if type(event.facts) is FACTS_BY_TYPE[kind]]


def last_of_step(trace: Trace, step: int) -> int:
    """The last record of a step, commands aside."""
    return max(
        i for i, r in enumerate(trace.records) if r.step == step and r.phase.value != "command"
    )


# --- the page ----------------------------------------------------------------------------------


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the repository's files and says nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def harness_url() -> Iterator[str]:
    handler = partial(QuietHandler, directory=str(ROOT))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/tests/browser/panels_harness.html"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def open_page(browser: Browser, harness_url: str) -> Iterator[Callable[..., Page]]:
    """Opens the harness; any error of the page fails the test that caused it."""
    pages: list[Page] = []
    errors: list[str] = []

    def open_one(theme: str = "light", width: int = 1300) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{harness_url}?theme={theme}")
        page.wait_for_function("window.harness")
        pages.append(page)
        return page

    yield open_one
    for page in pages:
        page.close()
    assert errors == []


@pytest.fixture(scope="module")
def shared_page(open_page: Callable[..., Page]) -> Page:
    return open_page()


@pytest.fixture
def page(shared_page: Page) -> Iterator[Page]:
    """One page for all tests, with any error of the page failing the test in which it came."""
    errors: list[str] = []
    shared_page.on("pageerror", lambda error: errors.append(str(error)))
    yield shared_page
    assert errors == []


def show(page: Page, panel: str, trace: Trace | str, cursor: int = -1) -> None:
    text = trace if isinstance(trace, str) else text_of(trace)
    page.evaluate("([name, text, at]) => harness.show(name, text, at)", [panel, text, cursor])


def models(page: Page, trace: Trace | str, cursor: int) -> Json:
    """The data of all panels with the cursor at a record."""
    text = trace if isinstance(trace, str) else text_of(trace)
    result: Json = page.evaluate(
        "([text, at]) => { harness.open(text).seek(at); return harness.all(); }", [text, cursor]
    )
    return result


# --- words -------------------------------------------------------------------------------------


def filled(cls: type[Any]) -> Json:
    """Facts or a reason with a number of its own in each field."""
    values: Json = {}
    for number, (name, kind) in enumerate(get_type_hints(cls).items()):
        if kind is int or kind is float:
            values[name] = 31 + 7 * number
        elif kind is bool:
            values[name] = True
        elif kind is str:
            values[name] = f"x{number}"
        elif kind is type(None):
            continue
        else:
            item = kind.__args__[0]
            values[name] = [f"y{number}", f"z{number}"] if item is str else [number + 3, number + 9]
    return {name: value for name, value in values.items() if name in cls._fields}


def test_every_reason_has_a_phrase_with_its_numbers(page: Page) -> None:
    codes = page.evaluate("Object.keys(harness.reasons.REASON_PHRASES)")
    assert set(codes) == set(REASONS_BY_CODE)
    for code, cls in REASONS_BY_CODE.items():
        numbers = filled(cls)
        reason = {"code": code, **numbers}
        text = page.evaluate("reason => harness.reasons.reasonPhrase(reason)", reason)
        assert "undefined" not in text and "NaN" not in text, text
        assert code not in text and len(text) > 10, text
        for name, value in numbers.items():
            assert str(value) in text, f"{code} does not tell its {name}: {text}"


def test_every_event_has_a_phrase_and_tells_its_reason(page: Page) -> None:
    types = page.evaluate("Object.keys(harness.events.EVENT_PHRASES)")
    assert set(types) == set(FACTS_BY_TYPE)
    for kind, cls in FACTS_BY_TYPE.items():
        event: Json = {"type": kind, "facts": filled(cls)}
        text = page.evaluate("event => harness.events.eventPhrase(event)", event)
        assert not any(word in text for word in ("undefined", "NaN", "[object", "null")), text
        assert "_" not in text and len(text) > 10, text
        if "request" in cls._fields:
            assert event["facts"]["request"] in text, text


def reasons_by_type() -> dict[str, set[str]]:
    """Which events come with a reason, as the recorded workloads have it."""
    found: dict[str, set[str]] = {}
    for path in sorted(WORKLOADS.glob("*.json")):
        for item in all_events(workload_trace(path.stem)):
            if item.reason is not None:
                kind = next(k for k, cls in FACTS_BY_TYPE.items() if cls is type(item.facts))
                found.setdefault(kind, set()).add(type(item.reason).__name__)
    return found


def test_an_event_that_comes_with_a_reason_says_it(page: Page) -> None:
    for kind in reasons_by_type():
        reason = {"code": "seats_full", "running": 61, "max_num_seqs": 67}
        facts = filled(FACTS_BY_TYPE[kind])
        event = {"type": kind, "facts": facts, "reason": reason}
        text = page.evaluate("event => harness.events.eventPhrase(event)", event)
        assert "61 of 67 seats" in text, f"{kind} keeps its reason to itself: {text}"


def test_sentences_name_who_got_what_and_who_waits(page: Page) -> None:
    trace = workload_trace("09-preempt-recompute")
    step = events_of(trace, "request_preempted")[0].step
    data = models(page, trace, last_of_step(trace, step))
    text = "".join(part["text"] for part in data["lifecycle"]["sentence"])
    assert text.startswith(f"Step {step} gave 2 of 32 tokens: decodes of r0 and r1")
    assert "r2 is preempted for r0, which needs 1 block with 0 free (the last of 3 running)" in text
    blocks = "".join(part["text"] for part in data["blocks"]["sentence"])
    assert "found no room for r0: it needs 1 block and 0 are free" in blocks


def sentence_of(data: Json, panel: str) -> str:
    return "".join(part["text"] for part in data[panel]["sentence"])


def test_a_pause_after_the_last_step_leaves_that_step_on_show(page: Page) -> None:
    trace = workload_trace("01-single")
    last = trace.records[-1].step
    before = models(page, trace, len(trace.records) - 1)
    trace.begin_phase(last + 1, Phase.COMMAND)
    trace.end_phase({"engine": {"mode": "paused"}})
    after = models(page, trace, len(trace.records) - 1)
    assert {data["lifecycle"]["step"] for data in (before, after)} == {last}
    for panel in PANELS:
        assert sentence_of(after, panel) == sentence_of(before, panel)


def test_submissions_one_after_the_other_are_told_together(page: Page) -> None:
    trace = Trace.parse(text_of(workload_trace("01-single")).splitlines())  # which is everybody's
    step = trace.records[-1].step + 1
    for i, tokens in enumerate((9, 12, 10, 11, 9, 9, 12)):
        trace.begin_phase(step, Phase.COMMAND)
        trace.event(RequestSubmitted(f"r{i + 10}", tokens, 16, "page"))
        trace.end_phase({"requests": {f"r{i + 10}": {"status": "submitted"}}})
    words = sentence_of(models(page, trace, len(trace.records) - 1), "lifecycle")
    assert "7 requests are submitted from the page (r10–r16; 9 to 12 prompt tokens" in words
    assert words.endswith("at most 16 to generate).")


def test_a_row_of_the_block_table_counts_what_is_in_the_block(page: Page) -> None:
    trace = workload_trace("04-mixed-budget")
    looked_at = 0
    for cursor in range(0, len(trace.records), 5):
        request = models(page, trace, cursor)["blocks"]["request"]
        for block in request["blocks"] if request else ():
            assert block["to"] - block["from"] == block["fill"] + block["scheduled"]
            looked_at += 1
    assert looked_at > 20


@pytest.mark.parametrize(
    "name", ["13-aborts", "14-stops", "20-reset-cache", "22-random-b", "27-priority-victim-in-step"]
)
def test_every_moment_of_a_trace_has_three_sentences(page: Page, name: str) -> None:
    odd = page.evaluate(
        """text => {
          const store = harness.open(text);
          const odd = [];
          for (let i = -1; i <= store.head; i += 1) {
            store.moveCursor(i);
            for (const { sentence } of Object.values(harness.models)) {
              const parts = sentence(store);
              const text = parts.map((part) => part.text).join("");
              const whole = /^[A-Z].*[.”]$/s.test(text);
              const repeated = text.split("at most 0 tokens may hit").length > 2;
              if (repeated) odd.push(text);
              if (!whole || /undefined|NaN|null|\\.\\.|: [;.]|  |; ;/.test(text)) odd.push(text);
            }
          }
          return odd;
        }""",
        text_of(workload_trace(name)),
    )
    assert odd == []


# --- true to the engine ------------------------------------------------------------------------


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
        state = fold(trace.header.state, trace.records[: cursor + 1])
        pool = models(page, trace, cursor)["blocks"]["pool"]
        owners: dict[int, list[str]] = {}
        fill: dict[int, int] = {}
        size = trace.header.config["block_size"]
        for key, request in state["requests"].items():
            for logical, block in request.get("block_table", {}).items():
                owners.setdefault(block, []).append(key)
                held = max(0, min(size, request["num_computed_tokens"] - int(logical) * size))
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
          const { context, ratio } = timeline.bars;
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


def beside(page: Page, trace: Trace, cursor: int = -1) -> None:
    """The panel of the KV cache with the old ways on show."""
    show(page, "blocks", trace, cursor)
    page.get_by_role("button", name="Beside the old ways").click()
    page.evaluate("harness.settle()")


@pytest.fixture
def blocks_again(page: Page) -> Iterator[None]:
    """The choice is the page's, and the page is every test's."""
    yield
    page.get_by_role("button", name="Blocks", exact=True).click()


def memory_of(trace: Trace, cursor: int) -> Memory:
    state = fold(trace.header.state, trace.records[: cursor + 1])
    return Memory(state, EngineConfig(**trace.header.config))


@pytest.mark.parametrize("name", ["06-prefix-hits", "09-preempt-recompute", "21-random-a"])
def test_the_old_ways_are_the_engines_at_every_moment(page: Page, name: str) -> None:
    trace = workload_trace(name)
    cursors = range(3, len(trace.records), 41)
    shown = page.evaluate(
        """([text, cursors]) => {
          const store = harness.open(text);
          return cursors.map((cursor) => {
            store.seek(cursor);
            return harness.memory.memoryAt(store.state, store.header.config).ways;
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
    page.wait_for_function(fits, arg=width, timeout=5_000)
    check_accessibility(page)


def beside_fp32(page: Page, trace: Trace) -> None:
    show(page, "blocks", trace)
    page.get_by_role("button", name="Beside fp32").click()
    page.evaluate("harness.settle()")


def compared_trace(model: LoadedModel, dtype: str, compared: KVCacheCompared | None) -> Trace:
    """A log of an engine with a pool of this dtype, whose last word is a comparison."""
    trace = command_trace(compared, aside=True) if compared else workload_trace("01-single")
    spec = KVCacheSpec.of(model, trace.header.config["block_size"], by_name(dtype))
    facts = model_facts(model) | {
        "kv_cache_dtype": dtype,
        "kv_bytes_per_token": spec.bytes_per_token,
    }
    parsed = Trace.parse(text_of(trace).splitlines())
    parsed.header = parsed.header.model_copy(update={"model": facts})
    return parsed


@pytest.mark.usefixtures("blocks_again")
@pytest.mark.parametrize("own", ["float32", "fp8_e4m3"])
def test_the_room_in_each_dtype_is_what_a_pool_of_it_takes(
    page: Page, tiny_model: LoadedModel, own: str
) -> None:
    trace = compared_trace(tiny_model, own, None)
    beside_fp32(page, trace)
    size, blocks = trace.header.config["block_size"], trace.header.config["num_gpu_blocks"]
    pool = KVCacheSpec.of(tiny_model, size, by_name(own)).bytes_per_block * blocks
    shown = page.locator(".gbp-rooms tbody tr").all()
    for row, name in zip(shown, kv_names(), strict=True):
        block = KVCacheSpec.of(tiny_model, size, by_name(name)).bytes_per_block
        tokens = (pool // block - 1) * size
        assert name in (row.locator("th").text_content() or "")
        assert row.locator("td").nth(1).text_content() == f"{tokens:,}"
        assert ("is-taken" in (row.get_attribute("class") or "")) == (name == own)
        kinds = [node.get_attribute("data-truth") for node in row.locator("td.gb-truth").all()]
        assert kinds == ["derived", "derived"]


def kv_names() -> list[str]:
    """The dtypes in the page's order: all that a setting can name, and fp32."""
    settings = get_args(EngineConfig.model_fields["kv_cache_dtype"].annotation)
    names = {dtype_name(by_name(name)) for name in settings if name != "auto"} | {"float32"}
    order = ["float32", "bfloat16", "float16", "int8_per_token_head", "fp8_e4m3", "fp8_e5m2"]
    assert names == set(order)
    return order


@pytest.mark.usefixtures("blocks_again")
def test_a_comparison_is_told_in_words_figures_bars_and_text(
    page: Page, tiny_model: LoadedModel
) -> None:
    beside_fp32(page, compared_trace(tiny_model, "fp8_e4m3", COMPARED))
    words = page.locator(".gbp-blockshead .gbp-beside-words:visible").text_content()
    assert words == (
        "In 17 tokens of r0, kept in fp8_e4m3, keys are off by 3.0 % and values by 4.3 %. "
        "Its text goes another way than in fp32 at token 2 of 3."
    )
    texts = page.locator(".gbp-fp32-text dd")
    assert texts.all_text_contents() == ["one <b>two</b> three", "one too many"]
    marked = page.locator(".gbp-fp32-text mark").all_text_contents()
    assert marked == [" <b>two</b> three", " too many"]
    heights = page.evaluate(
        """() => [...harness.box.querySelectorAll('.gbp-layers i')].map((bar) =>
          [bar, bar.firstChild].map((each) => each.getBoundingClientRect().height))"""
    )
    widths = page.locator(".gbp-layers i").evaluate_all(
        "bars => bars.map((bar) => bar.clientWidth)"
    )
    assert min(widths) >= 3
    tallest = heights[3][0]
    for (whole, rounding), error, part in zip(
        heights, (0.026, 0.027, 0.034, 0.06), (0.026, 0.027, 0.025, 0.026), strict=True
    ):
        assert whole / tallest == pytest.approx(error / 0.06, abs=0.02)
        assert rounding / tallest == pytest.approx(part / 0.06, abs=0.02)
    assert page.get_by_role("button", name="Compare r0 with fp32").is_disabled()  # a saved trace


@pytest.mark.usefixtures("blocks_again")
def test_a_comparison_without_a_difference_or_without_anything_says_so(
    page: Page, tiny_model: LoadedModel
) -> None:
    words = page.locator(".gbp-blockshead .gbp-beside-words:visible")
    same = COMPARED._replace(differs_at=-1, in_fp32=COMPARED.written, greedy=False)
    beside_fp32(page, compared_trace(tiny_model, "fp8_e4m3", same))
    assert (words.text_content() or "").endswith("Its 3 tokens of text are those that fp32 writes.")
    assert page.locator(".gbp-fp32-text mark").count() == 0
    nothing = COMPARED._replace(
        num_tokens=0, num_outputs=0, differs_at=-1, written=(), in_fp32=(), key_errors=(),
        value_errors=(), key_rounding=(), value_rounding=(),
    )  # fmt: skip
    beside_fp32(page, compared_trace(tiny_model, "fp8_e4m3", nothing))
    assert words.text_content() == (
        "The pool has no key or value of r0. It has written nothing yet."
    )
    assert page.locator(".gbp-layers").count() == page.locator(".gbp-fp32-text dd").count() == 0


def test_the_pool_says_in_what_it_keeps_a_token(page: Page, tiny_model: LoadedModel) -> None:
    show(page, "blocks", compared_trace(tiny_model, "int8_per_token_head", None))
    size = KVCacheSpec.of(tiny_model, 1, by_name("int8_per_token_head")).bytes_per_token
    assert page.locator(".gbp-dtype").text_content() == f"int8_per_token_head, {size} B a token"


@pytest.mark.parametrize("theme,width", [("light", 1240), ("dark", 370)])
def test_the_comparison_fits_and_axe_finds_no_fault(
    open_page: Callable[..., Page], tiny_model: LoadedModel, theme: str, width: int
) -> None:
    page = open_page(theme, width)
    beside_fp32(page, compared_trace(tiny_model, "fp8_e4m3", COMPARED))
    fits = "width => document.documentElement.scrollWidth <= width"
    page.wait_for_function(fits, arg=width, timeout=5_000)
    check_accessibility(page)


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
    """num_computed_tokens grows when a step is scheduled; its KV comes with its forward."""
    trace = model_trace(tiny_model)
    share = next(e for e in events_of(trace, "request_scheduled") if e.facts.num_tokens > 1)
    forward = next(e for e in events_of(trace, "forward_run") if e.step == share.step)
    facts = share.facts
    for cursor in (share.seq, forward.seq - 1, forward.seq, last_of_step(trace, share.step)):
        state = fold(trace.header.state, trace.records[: cursor + 1])["requests"][facts.request]
        data = models(page, trace, cursor)
        stream = next(s for s in data["lifecycle"]["streams"] if s["id"] == facts.request)
        ran = cursor >= forward.seq
        done = state["num_computed_tokens"] if ran else facts.num_computed_tokens
        assert stream["done"] == (done if state["num_computed_tokens"] else 0)
        assert stream["scheduled"] == state["num_computed_tokens"] - stream["done"]
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


# --- one event away: one thing changes ---------------------------------------------------------


def without(trace: Trace, seq: int) -> str:
    """The trace's text with one event taken out and the rest numbered on."""
    header, *lines = text_of(trace).splitlines()
    records = [json.loads(line) for line in lines]
    records = [record for record in records if record["seq"] != seq]
    for number, record in enumerate(records):
        record["seq"] = number
    return "\n".join([header, *map(json.dumps, records)])


def renumbered(data: Any, seq: int) -> Any:
    """The data of the shortened trace with the sequence numbers of the whole one."""
    if isinstance(data, list):
        return [renumbered(item, seq) for item in data]
    if not isinstance(data, dict):
        return data
    result = {}
    for key, value in data.items():
        if key in ("seq", "i") and isinstance(value, int):
            value = value + 1 if value >= seq else value
        elif key == "seqs":
            value = [item + 1 if item >= seq else item for item in value]
        else:
            value = renumbered(value, seq)
        result[key] = value
    return result


def said(part: Json) -> str:
    """A part's words without what joins it to the part before."""
    text: str = part["text"]
    for joint in ("; ", ", ", " and ", " "):
        text = text.removeprefix(joint)
    return text


def sentence_change(before: list[Json], after: list[Json], seq: int) -> tuple[set[str], set[str]]:
    """What was said of other events and is not any more, and what is said newly."""
    assert any(seq in part["seqs"] for part in before), "no part names the event it came from"
    others = {said(part) for part in before if part["seqs"] and seq not in part["seqs"]}
    now = {said(part) for part in after if part["seqs"]}
    return others - now, now - others


def cells_of(data: Json) -> dict[tuple[str, int], Json]:
    return {
        (row["id"], cell["step"]): cell
        for row in data["lifecycle"]["rows"]
        for cell in row["cells"]
    }


def both(page: Page, trace: Trace, event: Event, cursor: int | None = None) -> tuple[Json, Json]:
    at = last_of_step(trace, event.step) if cursor is None else cursor
    before = models(page, trace, at)
    after = renumbered(models(page, without(trace, event.seq), at - 1), event.seq)
    return before, after


class Effect(NamedTuple):
    """What deleting an event of a type changes, beside its packet and its part of a sentence."""

    always: set[str] = set()
    sometimes: set[str] = set()


TOUCHED = Effect({"blocks.touched"}, {"blocks.request"})
# By type, the fields of the panels' data. Types that are not here change none.
EFFECTS = {
    "request_submitted": Effect(set(), {"lifecycle.rows"}),
    "request_arrived": Effect(set(), {"lifecycle.rows"}),
    "blocks_hit": TOUCHED,
    "block_evicted": TOUCHED,
    "blocks_allocated": TOUCHED,
    "blocks_cached": TOUCHED,
    "blocks_uncached": Effect({"blocks.touched"}),
    "blocks_left_uncomputed": Effect({"blocks.touched"}),
    "blocks_freed": TOUCHED,
    "request_scheduled": Effect(
        {"lifecycle.rows"},
        {
            "lifecycle.steps",
            "lifecycle.streams",
            "graph.history",
            "blocks.pool",
            "blocks.request",
        },
    ),
    "request_passed_over": Effect({"lifecycle.rows"}),
    "request_preempted": Effect(
        {"lifecycle.rows"}, {"lifecycle.steps", "lifecycle.streams", "graph.history"}
    ),
    "admission_stopped": Effect({"lifecycle.rows"}, {"lifecycle.streams"}),
    "batch_scheduled": Effect(set(), {"graph.history", "graph.nothingRan"}),
    "inputs_prepared": Effect({"graph.batch"}),
    "step_dispatched": Effect({"graph.dispatch", "graph.dispatcher"}, {"graph.history"}),
    "graph_captured": Effect({"graph.captured"}, {"graph.history"}),
    "graph_replayed": Effect({"graph.replay", "graph.graphs"}),
    "forward_run": Effect({"graph.forward"}),
    "modules_timed": Effect({"graph.modules"}),
    "pages_read": Effect({"graph.pages"}),
    "heads_grouped": Effect({"graph.heads"}),
    "drafts_verified": Effect(
        {"graph.batch", "lifecycle.rows", "lifecycle.streams"},
        {"blocks.pool", "blocks.waste"},
    ),
    "drafts_proposed": Effect({"lifecycle.streams"}),
    "token_sampled": Effect({"graph.batch"}),
    "token_appended": Effect({"lifecycle.streams"}),
    "token_dropped": Effect({"lifecycle.rows"}),
    "request_finished": Effect({"lifecycle.rows"}, {"lifecycle.streams"}),
    "text_emitted": Effect({"lifecycle.streams"}),
}
# Which panels' sentences say something of a type, where they have room for it.
SAID_OF_STEP = {
    "lifecycle": {
        "batch_scheduled",
        "request_scheduled",
        "request_preempted",
        "request_passed_over",
        "admission_stopped",
        "request_aborted",
        "request_finished",
        "token_dropped",
        "text_emitted",
    },
    "blocks": {
        "prefix_cache_reset",
        "prefix_looked_up",
        "blocks_hit",
        "block_evicted",
        "blocks_allocated",
        "allocation_failed",
        "blocks_cached",
        "blocks_uncached",
        "blocks_left_uncomputed",
        "blocks_freed",
    },
    "graph": {
        "step_dispatched",
        "graph_captured",
        "graph_replayed",
        "forward_run",
        "modules_timed",
        "pages_read",
    },
}
TRACES_OF_EVENTS = (
    "06-prefix-hits",
    "08-eviction-order",
    "09-preempt-recompute",
    "11-priority-preempt",
    "13-aborts",
    "20-reset-cache",
    "27-priority-victim-in-step",
)


SIZED = MemorySized(
    set_by="num_gpu_blocks",
    device_bytes=10**9,
    budget_bytes=0,
    weight_bytes=10**6,
    activation_bytes=0,
    profiled_tokens=0,
    graph_bytes=0,
    graph_sizes=(),
    available_bytes=2**20,
    pool_bytes=2**20,
    bytes_per_block=2**14,
    num_blocks=64,
    block_size=16,
    max_model_len=1008,
)


COMPARED = KVCacheCompared(
    request="r0",
    dtype="fp8_e4m3",
    weights="float32",
    num_tokens=17,
    key_errors=(0.026, 0.034),
    value_errors=(0.027, 0.06),
    key_rounding=(0.026, 0.025),
    value_rounding=(0.027, 0.026),
    greedy=True,
    num_outputs=3,
    differs_at=1,
    shown_from=0,
    written=("one", " <b>two</b>", " three"),
    in_fp32=("one", " too", " many"),
)


def command_trace(facts: Any, reason: Any = None, aside: bool = False) -> Trace:
    """A trace whose last word is an event that no workload has.

    Its patch says something of the work as well, unless it is beside that: a command without any
    word of the work would not be on show once its event is deleted.
    """
    trace = Trace.parse(text_of(workload_trace("01-single")).splitlines())
    trace.begin_phase(99, Phase.COMMAND)
    trace.event(facts, reason)
    trace.end_phase({} if aside else {"command": {"number": 1}})
    return trace


def end_of_phase(trace: Trace, event: Event) -> int:
    """The patch that ends an event's phase."""
    return next(
        i for i in range(event.seq, len(trace.records)) if isinstance(trace.records[i], Patch)
    )


def changed_fields(before: Json, after: Json) -> set[str]:
    return {
        f"{panel}.{name}"
        for panel in PANELS
        for name in before[panel].keys() | after[panel].keys()
        if name != "sentence" and before[panel].get(name) != after[panel].get(name)
    }


def travelled(data: Json) -> dict[str, list[int]]:
    return {
        packet["connection"]: [event["seq"] for event in packet["events"]]
        for packet in data["packets"]
    }


def check_packets(before: Json, after: Json, event: Event) -> None:
    """Its packet is lighter by it, or gone; every other is what it was, its quantity included."""
    own = next((name for name, seqs in travelled(before).items() if event.seq in seqs), None)
    wanted = {name: [s for s in seqs if s != event.seq] for name, seqs in travelled(before).items()}
    assert travelled(after) == {name: seqs for name, seqs in wanted.items() if seqs}
    sizes = [
        {packet["connection"]: packet["quantity"] for packet in data["packets"]}
        for data in (before, after)
    ]
    for name in sizes[1].keys() - {own}:
        assert sizes[0][name] == sizes[1][name], name
    assert (own is None) == (PLACES[type(event.facts)].connection is None)


def check_sentence(before: list[Json], after: list[Json], seq: int, taken_back: set[int]) -> None:
    """Parts that come from other events stay to the letter; its own says no more of it.

    A preemption takes back its victim's share: without it the share is told again.
    """
    assert all(seq not in part["seqs"] for part in after)
    own = [part for part in before if seq in part["seqs"]]
    if not own:
        assert after == before
        return
    assert after != before
    lost, gained = sentence_change(before, after, seq)
    # What was counted ("3 more ...") may get words once there is room.
    counted = [part for part in before if "more" in part["text"]]
    groups = [set(part["seqs"]) for part in after]
    joined = [p for p in before if any(g - set(p["seqs"]) == taken_back & g for g in groups)]
    joined = joined if taken_back else []
    assert lost <= {said(part) for part in [*counted, *joined]}, lost
    known = {s for part in [*own, *counted, *joined] for s in part["seqs"]} | taken_back
    for part in after:
        if said(part) in gained and not part["text"].startswith(("Step ", "At step ")):
            assert set(part["seqs"]) <= known, part


def shares_of_victim(trace: Trace, event: Event) -> set[int]:
    """What a preemption takes back."""
    if not isinstance(event.facts, RequestPreempted):
        return set()
    return {
        share.seq
        for share in events_of(trace, "request_scheduled")
        if share.step == event.step and share.facts.request == event.facts.request
    }


def check_whose(before: Json, after: Json, event: Event) -> None:
    """Cells, cards and bars that changed are those of the event's request and step."""
    request = getattr(event.facts, "request", None)
    old, new = cells_of(before), cells_of(after)
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    assert {key for key, _ in changed} <= {request}
    kind = next(name for name, cls in FACTS_BY_TYPE.items() if cls is type(event.facts))
    if kind in ("request_scheduled", "admission_stopped", "request_passed_over"):
        assert changed == {(request, event.step)}
    streams = [{s["id"]: s for s in data["lifecycle"]["streams"]} for data in (before, after)]
    assert {name for name in streams[0] if streams[0][name] != streams[1].get(name)} <= {request}
    for panel, field in (("lifecycle", "steps"), ("graph", "history")):
        items = [{i["step"]: i for i in data[panel][field]} for data in (before, after)]
        steps = {step for step in items[0] if items[0][step] != items[1].get(step)}
        assert steps <= {event.step}


def traces_with(kind: str, model: LoadedModel) -> Iterator[Trace]:
    if kind == "request_refused":
        yield command_trace(RequestRefused("r9"), PromptTooLong(999, 100))
        yield command_trace(RequestRefused("r9"), PromptTextTooLong(99_999, 81, 100))
    elif kind == "memory_sized":
        yield command_trace(SIZED, CacheLimitsLength(1008, 2048))
    elif kind == "stats_logged":
        yield command_trace(StatsLogged(10.0, 3.2, 12.5, 2, 1, 0, 0.25, 0.5), aside=True)
    elif kind == "spec_decoding_logged":
        yield command_trace(SpecDecodingLogged(10.0, 4, 12, 5, (3, 2, 0)), aside=True)
    elif kind == "integrity_checked":
        found = IntegrityChecked(
            "execute", ("leaks", "log"), (63, 90), 1, ("leaks",), ("block 4",), (4,), ("",)
        )
        yield command_trace(found, aside=True)
    elif kind == "kv_cache_compared":
        yield command_trace(COMPARED, aside=True)
    elif kind == "engine_failed":
        yield command_trace(EngineFailed("the engine stopped in the phase `execute` (x)"))
    elif kind in ("drafts_proposed", "drafts_verified"):
        drafter = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
        yield model_trace(model, speculative_config=drafter)
    elif kind.startswith("drafts_"):
        for name in ("01-accept", "06-padding", "08-priority"):
            yield drafting_trace(name)
    elif kind == "blocks_uncached":
        yield workload_trace("27-priority-victim-in-step", cache_uncomputed_blocks=False)
    else:
        traces = [model_trace(model), *map(workload_trace, TRACES_OF_EVENTS)]
        yield from (trace for trace in traces if events_of(trace, kind))


@pytest.mark.parametrize("kind", sorted(FACTS_BY_TYPE))
def test_deleting_an_event_changes_what_it_says_and_nothing_else(
    page: Page, tiny_model: LoadedModel, kind: str
) -> None:
    """Its packet, its part of each sentence, its fields of each panel; at the end of its phase."""
    effect = EFFECTS.get(kind, Effect())
    seen: set[str] = set()
    mentioned: set[str] = set()
    looked_at = 0
    for trace in traces_with(kind, tiny_model):
        for event in events_of(trace, kind)[:4]:
            cursor = end_of_phase(trace, event)
            before, after = both(page, trace, event, cursor)
            check_packets(before, after, event)
            for panel in PANELS:
                check_sentence(
                    before[panel]["sentence"],
                    after[panel]["sentence"],
                    event.seq,
                    shares_of_victim(trace, event),
                )
                if any(event.seq in part["seqs"] for part in before[panel]["sentence"]):
                    mentioned.add(panel)
            check_whose(before, after, event)
            changed = changed_fields(before, after)
            assert effect.always <= changed <= effect.always | effect.sometimes, changed
            seen |= changed
            looked_at += 1
    assert looked_at > 0
    assert seen == effect.always | effect.sometimes, "a field of the table never changed"
    assert mentioned >= {panel for panel in PANELS if kind in SAID_OF_STEP[panel]}


@pytest.mark.parametrize(
    ("kind", "touched", "name"),
    [
        ("blocks_allocated", "allocated", "06-prefix-hits"),
        ("blocks_hit", "hit", "06-prefix-hits"),
        ("blocks_cached", "cached", "06-prefix-hits"),
        ("blocks_freed", "freed", "06-prefix-hits"),
        ("block_evicted", "evicted", "08-eviction-order"),
    ],
)
def test_deleting_a_block_event_changes_its_outlines_and_its_clause(
    page: Page, kind: str, touched: str, name: str
) -> None:
    trace = workload_trace(name)
    for event in events_of(trace, kind)[:3]:
        before, after = both(page, trace, event)
        blocks = list(getattr(event.facts, "blocks", ()) or (event.facts.block,))
        for what in before["blocks"]["touched"]:
            old, new = before["blocks"]["touched"][what], after["blocks"]["touched"][what]
            if what != touched:
                assert old == new
                continue
            rest = list(new)
            for block in blocks:
                assert old.count(block) == rest.count(block) + 1
                rest.append(block)
        assert before["blocks"]["pool"] == after["blocks"]["pool"]
        lost, gained = sentence_change(
            before["blocks"]["sentence"], after["blocks"]["sentence"], event.seq
        )
        assert len(lost) <= 1 and len(gained) <= 1  # "evicted ..." names all of a step at once
        assert before["blocks"]["sentence"] != after["blocks"]["sentence"]
        assert cells_of(before) == cells_of(after)


def swapped(trace: Trace, first: Event, second: Event) -> str:
    """The trace's text with two events in each other's place."""
    header, *lines = text_of(trace).splitlines()
    records = [json.loads(line) for line in lines]
    a, b = records[first.seq], records[second.seq]
    records[first.seq], records[second.seq] = {**b, "seq": first.seq}, {**a, "seq": second.seq}
    return "\n".join([header, *map(json.dumps, records)])


def neighbours(trace: Trace, kind: str) -> tuple[Any, Any]:
    """Two events of a type, one right after the other, of two requests."""
    return next((a, b) for a, b in pairwise(events_of(trace, kind)) if b.seq == a.seq + 1)


def words_of(parts: list[Json]) -> list[str]:
    return re.findall(r"\w+", "".join(part["text"] for part in parts))


def test_swapping_two_shares_swaps_them_and_nothing_else(page: Page) -> None:
    trace = workload_trace("04-mixed-budget")
    first, second = neighbours(trace, "request_scheduled")
    cursor = last_of_step(trace, first.step)
    before, after = models(page, trace, cursor), models(page, swapped(trace, first, second), cursor)
    old = next(s for s in before["lifecycle"]["steps"] if s["step"] == first.step)["segments"]
    new = next(s for s in after["lifecycle"]["steps"] if s["step"] == first.step)["segments"]
    assert old != new and sorted(map(json.dumps, old)) == sorted(map(json.dumps, new))
    differing = {
        key
        for key, cell in cells_of(before).items()
        if {**cell, "seq": 0} != {**cells_of(after)[key], "seq": 0}
    }
    assert differing == set()
    said_before, said_after = (words_of(d["lifecycle"]["sentence"]) for d in (before, after))
    assert said_before != said_after and sorted(said_before) == sorted(said_after)
    places = [said_after.index(event.facts.request) for event in (first, second)]
    assert [said_before.index(event.facts.request) for event in (second, first)] == places
    assert before["blocks"] == after["blocks"]
    assert before["graph"] == after["graph"]
    assert travelled(before) == travelled(after)


@pytest.mark.parametrize(
    ("kind", "panel", "name"),
    [
        ("request_arrived", "lifecycle", "04-mixed-budget"),
        ("request_finished", "lifecycle", "04-mixed-budget"),
    ],
)
def test_swapping_two_events_swaps_their_words(
    page: Page, kind: str, panel: str, name: str
) -> None:
    trace = workload_trace(name)
    first, second = neighbours(trace, kind) if kind != "request_finished" else two_ends(trace)
    cursor = end_of_phase(trace, first)
    before, after = models(page, trace, cursor), models(page, swapped(trace, first, second), cursor)
    old, new = words_of(before[panel]["sentence"]), words_of(after[panel]["sentence"])
    assert old != new and sorted(old) == sorted(new)
    for other in PANELS:
        if other != panel:
            assert words_of(before[other]["sentence"]) == words_of(after[other]["sentence"])
    assert {name: len(seqs) for name, seqs in travelled(before).items()} == {
        name: len(seqs) for name, seqs in travelled(after).items()
    }


def two_ends(trace: Trace) -> tuple[Any, Any]:
    """Two requests that end in the same step."""
    return next(
        (a, b) for a, b in pairwise(events_of(trace, "request_finished")) if a.step == b.step
    )


def test_the_cursor_decides_what_is_future(page: Page) -> None:
    trace = workload_trace("09-preempt-recompute")
    cursor = last_of_step(trace, 4)
    for (_, step), cell in cells_of(models(page, trace, cursor)).items():
        assert cell["future"] == (step > 4)
    event = events_of(trace, "request_scheduled")[4]
    cells = cells_of(models(page, trace, event.seq - 1))
    assert cells[event.facts.request, event.step]["future"]
    cells = cells_of(models(page, trace, event.seq))
    assert not cells[event.facts.request, event.step]["future"]


# --- hands and eyes ----------------------------------------------------------------------------


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
    rows = page.locator(".gb-sr tbody tr")
    assert 0 < rows.count() <= 60


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
    page.wait_for_function(fits, arg=width, timeout=5_000)


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


def check_accessibility(page: Page) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    # The page's own frame (its landmarks, its title's level) is the workspace's.
    results = Axe().run(page, context="#host", options={"runOnly": ["wcag2a", "wcag2aa"]})
    assert len(results.response["passes"]) > 5  # it has looked into the shadow root
    assert results.violations_count == 0, results.generate_report()


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
