"""The stage in a real browser, with the real API and a real engine of the tiny model behind it.

Every test ends with two checks of its own: nothing was written to the console as an error, and
no request left for anywhere but the test's server.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import pytest
from playwright.sync_api import expect

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.events import FACTS_BY_TYPE
from engine.trace import Trace, fold
from tests.browser.stage_server import StageServer, stage_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

HOSTILE = "<img src=x onerror=alert(1)> the capital of France, and \u202e __proto__ "


class Recorded(NamedTuple):
    """A trace as text and as the engine reads it."""

    text: str
    trace: Trace


@pytest.fixture(scope="module")
def recorded(server: StageServer) -> Recorded:
    """A small engine under pressure: chunks, hits, an abort, and texts that are markup."""
    config = EngineConfig(
        num_gpu_blocks=20, block_size=8, max_num_batched_tokens=32, max_num_seqs=4
    )
    llm = AsyncLLM(server.sessions.wait_for_model(), config, server.sessions.thread)
    params = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)
    streams = [llm.submit(HOSTILE, params), llm.submit("Once upon a time", params)]
    for _ in range(4):
        llm.step()
    streams += [llm.submit(HOSTILE + "again", params) for _ in range(2)]
    for _ in range(3):
        llm.step()
    llm.abort(streams[1].request_id)
    while llm.num_unfinished:
        llm.step()
    text = "\n".join(llm.trace.lines()) + "\n"
    llm.close()
    return Recorded(text, Trace.parse(text.splitlines()))


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, server: StageServer) -> Iterator[Page]:
    with watched(context.new_page(), server) as page:
        yield page


@contextmanager
def watched(page: Page, server: StageServer) -> Iterator[Page]:
    """Open the stage. At the end nothing may have gone to the console as an error, or elsewhere."""
    problems: list[str] = []
    foreign: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda r: None if is_own(r.url, server.url) else foreign.append(r.url))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    open_stage(page, server)
    yield page
    assert problems == []
    assert foreign == []


def is_own(url: str, own: str) -> bool:
    return url.startswith((own, "blob:", "data:"))


def open_stage(page: Page, server: StageServer, query: str = "") -> None:
    page.goto(f"{server.url}/{query}")
    page.wait_for_selector(".gb-stage .gb-box")
    wait_until(page, "window.stage.store.connection === 'open' && window.stage.store.header")


def show(page: Page, text: str) -> None:
    page.evaluate("text => window.stage.store.openTrace(text, 'test.jsonl')", text)
    settle(page)


def wait_until(page: Page, condition: str, argument: Any = None) -> None:
    """Poll from here: the page's own policy forbids the evaluation that Playwright would do."""
    until = time.monotonic() + 15
    while not page.evaluate(f"argument => Boolean({condition})", argument):
        assert time.monotonic() < until, f"never came true: {condition}"
        page.wait_for_timeout(20)


def settle(page: Page) -> None:
    page.evaluate("window.stage.frame()")


def axe_faults(page: Page, theme: str, is_meant: Callable[[str], bool]) -> list[Any]:
    """What axe finds in a theme ("" is light), of elements whose selector is meant."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    page.evaluate("name => (document.getElementById('app').className = `stApp ${name}`)", theme)
    page.wait_for_timeout(1200)  # colours change slowly
    return [
        (item["id"], node["target"], node["failureSummary"])
        for item in Axe().run(page, context=".stApp").response["violations"]
        for node in item["nodes"]
        if is_meant(str(node["target"]))
    ]


def packets_at(page: Page, index: int) -> dict[str, list[int]]:
    return dict(page.evaluate("index => window.stage.at(index)", index))


def expected_packets(records: list[dict[str, Any]], index: int) -> dict[str, list[int]]:
    """By connection, the events of the phase at `index` that travelled it up to there."""
    first = index
    here = records[index]["step"], records[index]["phase"]
    while first > 0:
        before = records[first - 1]
        if before["kind"] == "patch" or (before["step"], before["phase"]) != here:
            break
        first -= 1
    packets: dict[str, list[int]] = {}
    for record in records[first : index + 1]:
        if record["kind"] == "event" and record["connection"] is not None:
            packets.setdefault(record["connection"], []).append(record["seq"])
    return packets


def records_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()[1:]]


def as_text(header: str, records: list[dict[str, Any]]) -> str:
    """A trace file of these records, numbered anew."""
    base = json.loads(header)["base_seq"]
    lines = [json.dumps({**record, "seq": base + i}) for i, record in enumerate(records)]
    return "\n".join([header, *lines])


# --- state ---------------------------------------------------------------------------------------


def test_the_page_folds_as_the_engine_does_forwards_backwards_and_by_jumps(
    page: Page, recorded: Recorded
) -> None:
    show(page, recorded.text)
    records = recorded.trace.records
    count = len(records)
    path = [*range(-1, count), *range(count - 2, -2, -1)]
    path += random.Random(7).choices(range(-1, count), k=120)
    page.evaluate(
        """async () => {
            const { Timeline } = await import("/assets/core/state.js");
            const { header, records } = window.stage.store;
            window.line = new Timeline(header.state, records, { every: 40, copyCost: 5 });
        }"""
    )
    states = [fold(recorded.trace.header.state, records[:n]) for n in range(count + 1)]
    for start in range(0, len(path), 100):
        part = path[start : start + 100]
        found = page.evaluate(
            "part => part.map((index) => JSON.stringify(window.line.moveTo(index)))", part
        )
        for index, text in zip(part, found, strict=True):
            assert json.loads(text) == states[index + 1], f"at record {index}"


def test_ids_that_are_names_of_javascript_stay_ids(page: Page) -> None:
    patch = {"requests": {"__proto__": {"status": "running"}, "constructor": {"status": "waiting"}}}
    found = page.evaluate(
        """async (text) => {
            const { mergePatch } = await import("/assets/core/state.js");
            const state = Object.create(null);
            const inverse = mergePatch(state, JSON.parse(text));
            const after = JSON.stringify(state);
            mergePatch(state, inverse);
            return [after, JSON.stringify(state), ({}).status ?? null];
        }""",
        json.dumps(patch),
    )
    assert json.loads(found[0]) == patch
    assert found[1:] == ["{}", None]


def test_the_table_of_facts_is_the_engines(page: Page) -> None:
    kinds = {"str": "s", "int": "n", "float": "n", "bool": "b"}

    def kind(hint: Any) -> str:
        inner = get_args(hint)
        return kinds[inner[0].__name__].upper() if inner else kinds[hint.__name__]

    expected = {
        name: {field: kind(hint) for field, hint in get_type_hints(cls).items()}
        for name, cls in FACTS_BY_TYPE.items()
    }
    assert page.evaluate("import('/assets/core/trace_file.js').then((m) => m.FACTS)") == expected


# --- packets -------------------------------------------------------------------------------------


def test_packets_are_the_connections_that_events_travelled(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    records = records_of(recorded.text)
    seen = set()
    for index in range(0, len(records), 3):
        packets = packets_at(page, index)
        assert packets == expected_packets(records, index), f"at record {index}"
        seen |= set(packets)
    assert len(seen) >= 12  # of the map's 14 arrows: the test looks at more than a few


def test_deleting_an_event_removes_exactly_its_packet(page: Page, recorded: Recorded) -> None:
    header, records = recorded.text.splitlines()[0], records_of(recorded.text)
    gone = next(i for i, r in enumerate(records) if r.get("type") == "weights_read")
    end = next(i for i in range(gone, len(records)) if records[i]["kind"] == "patch")
    show(page, recorded.text)
    before = packets_at(page, end)
    show(page, as_text(header, records[:gone] + records[gone + 1 :]))
    after = packets_at(page, end - 1)
    # Numbers after the deleted event are one less in the second file.
    shifted = {
        name: [seq - (seq > records[gone]["seq"]) for seq in seqs]
        for name, seqs in before.items()
        if name != "runner-to-vram"
    }
    assert before["runner-to-vram"] == [records[gone]["seq"]]
    assert after == shifted


def test_swapping_two_events_swaps_their_packets(page: Page, recorded: Recorded) -> None:
    header, records = recorded.text.splitlines()[0], records_of(recorded.text)
    at = next(i for i, r in enumerate(records) if r.get("type") == "attention_run")
    first, second = records[at]["connection"], records[at + 1]["connection"]
    assert first != second
    show(page, recorded.text)
    before = [list(packets_at(page, i)) for i in (at - 1, at, at + 1)]
    assert before == [before[0], [*before[0], first], [*before[0], first, second]]
    records[at], records[at + 1] = records[at + 1], records[at]
    show(page, as_text(header, records))
    after = [list(packets_at(page, i)) for i in (at - 1, at, at + 1)]
    assert after == [before[0], [*before[0], second], [*before[0], second, first]]


def test_a_packet_says_how_much_travelled(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    records = records_of(recorded.text)
    at = next(i for i, r in enumerate(records) if r.get("type") == "batch_scheduled")
    facts = records[at]["facts"]
    packets_at(page, at)
    packet = page.locator(".gb-packet[data-connection=sched-to-runner]")
    tokens = facts["prefill_tokens"] + facts["decode_tokens"]
    assert packet.get_attribute("data-quantity") == f"{tokens} tok"
    assert page.locator(".gb-quantity", has_text=f"{tokens} tok").count() == 1


def test_with_reduced_motion_packets_stand_still_midway(
    page: Page, server: StageServer, recorded: Recorded
) -> None:
    page.emulate_media(reduced_motion="reduce")
    show(page, recorded.text)
    at = next(
        i for i, r in enumerate(records_of(recorded.text)) if r.get("type") == "batch_scheduled"
    )
    page.evaluate("index => window.stage.store.seek(index)", at - 1)
    settle(page)
    page.evaluate("index => window.stage.store.seek(index)", at)
    settle(page)
    assert page.locator(".gb-flight").count() == 0
    halfway = page.evaluate(
        """() => {
            const root = window.stage.root;
            const shaft = root.querySelector("[data-connection=sched-to-runner] .shaft");
            const { x } = shaft.getPointAtLength(shaft.getTotalLength() / 2);
            const packet = root.querySelector(".gb-packet[data-connection=sched-to-runner]");
            return Math.abs(x - packet.transform.baseVal[0].matrix.e);
        }"""
    )
    assert halfway < 2


# --- the map -------------------------------------------------------------------------------------


def test_a_click_selects_at_once_and_asks_no_server(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(60)")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    took = page.evaluate(
        """() => ["scheduler", "block-manager", "gpu-runner", "paged-attn"].map((id) => {
            const box = window.stage.root.querySelector(`.gb-box[data-component=${id}]`);
            const began = performance.now();
            box.querySelector(".card").dispatchEvent(new MouseEvent("click", { bubbles: true }));
            const shown = box.classList.contains("is-selected");
            box.getBoundingClientRect();
            return shown ? performance.now() - began : Infinity;
        })"""
    )
    assert max(took) <= 16
    page.locator(".gb-box[data-component=scheduler]").click()
    settle(page)
    assert page.locator(".gb-inspector h2:visible").inner_text() == "Chunked Scheduler"
    assert asked == []


def test_boxes_are_reached_and_selected_by_keyboard(page: Page) -> None:
    page.locator(".gb-box[data-component=scheduler]").focus()
    page.keyboard.press("Enter")
    settle(page)
    assert selected(page) == ["scheduler"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press(" ")
    settle(page)
    assert selected(page) == ["block-manager"]
    page.keyboard.press("Escape")
    settle(page)
    assert selected(page) == []


def test_tab_walks_the_map_as_a_request_does(page: Page) -> None:
    path = page.evaluate("window.stage.store.document.request_path")
    everything = page.evaluate("window.stage.store.document.components.map((c) => c.id)")
    order = [*path, *(name for name in everything if name not in path)]
    assert len(path) > 5
    page.locator(f".gb-box[data-component={order[0]}]").focus()
    walked = []
    for _ in order:
        walked.append(
            page.evaluate("window.stage.root.activeElement?.getAttribute('data-component')")
        )
        page.keyboard.press("Tab")
    assert walked == order


def selected(page: Page) -> list[str | None]:
    boxes = page.locator(".gb-box[aria-pressed=true]").all()
    return [box.get_attribute("data-component") for box in boxes]


def test_a_view_dims_what_is_not_in_its_focus(page: Page) -> None:
    tabs = page.get_by_role("tablist", name="Views").get_by_role("tab")
    assert tabs.count() == 3
    for number in range(3):
        page.keyboard.press(str(number + 1))
        settle(page)
        assert tabs.nth(number).get_attribute("aria-selected") == "true"
        focus = page.evaluate("window.stage.store.currentView.focus")
        dim = [box.get_attribute("data-component") for box in page.locator(".gb-box.is-dim").all()]
        everything = page.evaluate("window.stage.store.document.components.map((c) => c.id)")
        assert sorted([*dim, *focus]) == sorted(everything)
    tabs.nth(2).focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert tabs.nth(0).get_attribute("aria-selected") == "true"


def test_no_letter_on_the_map_is_smaller_than_eleven_pixels(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(40)")
    settle(page)
    sizes = page.evaluate(
        """() => {
            const stage = window.stage.root.querySelector(".gb-stage");
            const scale = stage.getScreenCTM().a;
            const size = (node) => parseFloat(getComputedStyle(node).fontSize) * scale;
            return Array.from(stage.querySelectorAll("text"))
                .filter((node) => node.textContent)
                .map((node) => [node.textContent, size(node)]);
        }"""
    )
    assert len(sizes) > 30
    assert [text for text, size in sizes if size < 11] == []


def test_live_lines_are_the_state_at_the_cursor(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    records = recorded.trace.records
    for index in range(10, len(records), 37):
        packets_at(page, index)
        state = fold(recorded.trace.header.state, records[: index + 1])
        queues = state["queues"]
        free = queues["free"]["length"]
        assert live_line(page, "block-manager") == f"{free} free · {19 - free} used"
        assert re.findall(r"\d+", live_line(page, "scheduler")) == [
            str(queues["running"]["length"]),
            str(queues["waiting"]["length"]),
        ]


def live_line(page: Page, component: str) -> str:
    return page.locator(f".gb-box[data-component={component}] .live").text_content() or ""


def test_somebody_elses_document_is_static_and_says_so(
    page: Page, server: StageServer, recorded: Recorded
) -> None:
    open_stage(page, server, "?document=foreign")
    show(page, recorded.text)
    assert page.locator(".gb-box.is-static").count() == 3
    assert {live_line(page, name) for name in ("web", "orders", "store")} == {"static"}
    assert packets_at(page, 40) == {}
    page.locator(".gb-box[data-component=web]").click()
    settle(page)
    assert "no live counterpart" in page.locator(".gb-inspector").inner_text()
    assert page.locator(".gb-inspector h2:visible").inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator("img").count() == 0
    page.keyboard.press("2")
    settle(page)
    assert page.locator(".gb-box.is-dim").get_attribute("data-component") == "web"


def test_without_a_live_box_there_is_no_panel_and_a_way_back(
    page: Page, server: StageServer, recorded: Recorded
) -> None:
    open_stage(page, server, "?document=foreign")
    show(page, recorded.text)
    area = page.locator(".gb-panel-area")
    assert "No box of this document is a part of the engine" in area.inner_text()
    assert area.locator("canvas").count() == 0
    area.get_by_role("button", name="Back to the engine's own map").click()
    assert page.evaluate("window.stage.told.home") is True


def test_a_view_of_another_document_shows_the_panel_of_most_of_its_boxes(
    page: Page, recorded: Recorded
) -> None:
    show(page, recorded.text)
    found = page.evaluate(
        """async () => {
            const { panelOf } = await import("/assets/page/view_panel.js");
            const page = window.stage.store.document;
            const of = (id, focus) => panelOf(page, { id, focus, label: id });
            return [
              of("memory", ["block-manager", "physical-vram", "scheduler"]),
              of("run", ["gpu-runner", "paged-attn", "scheduler"]),
              of("cuda-acceleration", ["scheduler"]),
              of("none", []),
              of("__proto__", ["client-req"]),
              panelOf(page, null),
            ];
        }"""
    )
    shown = ["blocks", "graph", "graph", "", "lifecycle", "graph"]  # most boxes are the runner's
    assert found == [f"./panels/{name}.js" if name else "" for name in shown]


def test_the_map_changes_with_its_document_and_comes_back(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    own = page.evaluate("structuredClone(window.stage.store.document)")
    page.evaluate(
        """async () => {
            window.stage.store.select({ component: "scheduler" });
            const other = await (await fetch("/harness/document/foreign")).json();
            window.stage.show(other);
            await window.stage.frame();
        }"""
    )
    assert page.locator(".gb-box").count() == 3
    assert page.locator(".gb-tab").all_inner_texts() == ["An order", "At night"]
    assert page.evaluate("window.stage.store.selection.component") is None
    page.evaluate("own => window.stage.show(own)", own)
    settle(page)
    page.locator(".gb-panel-area canvas").first.wait_for()
    assert page.locator(".gb-box:not(.is-static)").count() == 9


def test_notes_for_the_author_stand_at_their_box(page: Page) -> None:
    page.evaluate(
        """async () => {
            const own = structuredClone(window.stage.store.document);
            const note = { code: "lint/unbound", path: "$.components[2]", message: "<b>odd</b>",
              fix: "Mend it." };
            own.components[2].notes = [note];
            window.stage.show(own);
            window.stage.store.select({ component: own.components[2].id });
            await window.stage.frame();
        }"""
    )
    notes = page.locator(".gb-inspector details")
    notes.locator("summary").click()
    assert "<b>odd</b>" in notes.inner_text() and "To mend it: Mend it." in notes.inner_text()


def test_the_map_zooms_pans_and_fits(page: Page) -> None:
    viewport = page.locator(".gb-viewport")
    assert viewport.get_attribute("transform") == "translate(0 0) scale(1)"
    page.get_by_label("Zoom in").click()
    page.get_by_label("Zoom in").click()
    zoomed = viewport.get_attribute("transform")
    assert "scale(1.69" in (zoomed or "")
    box = page.locator(".gb-stage").bounding_box()
    assert box
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 60, steps=4)
    page.mouse.up()
    assert viewport.get_attribute("transform") != zoomed
    page.get_by_label("Fit the map").click()
    assert viewport.get_attribute("transform") == "translate(0 0) scale(1)"


FOOT = """() => {
  const foot = window.stage.root.querySelector(".gb-map-foot");
  const own = foot.getBoundingClientRect();
  const hidden = [...window.stage.root.querySelectorAll(
    ".gb-stage :is(.card, .drawer, .shaft, .gb-name, .gb-frame rect)")].filter((node) => {
      const box = node.getBoundingClientRect();
      return box.left < own.right && own.left < box.right && box.top < own.bottom
        && own.top < box.bottom;
    });
  return [foot.classList.contains("is-inside"), hidden.length];
}"""


@pytest.mark.parametrize(
    ("query", "width", "inside"),
    [("", 1280, True), ("", 390, False), ("?document=foreign", 1280, None)],
)
def test_what_stands_on_the_map_hides_nothing_of_it(
    page: Page, server: StageServer, query: str, width: int, inside: bool | None
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_stage(page, server, query)
    settle(page)
    is_inside, hidden = page.evaluate(FOOT)
    assert hidden == 0
    assert inside is None or is_inside is inside


# --- inspector -----------------------------------------------------------------------------------


def test_every_live_number_says_where_it_comes_from(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(120)")
    for component in page.evaluate("window.stage.store.document.components.map((c) => c.id)"):
        page.evaluate("id => window.stage.store.select({ component: id })", component)
        settle(page)
        values = page.locator(".gb-inspector dd").all()
        assert values, component
        for value in values:
            label = value.locator("[data-truth]")
            kind = label.get_attribute("data-truth")
            assert (label.get_attribute("title") or "").startswith(f"{kind}: "), component


def test_figures_of_the_document_say_that_they_are_not_the_engines(page: Page) -> None:
    page.evaluate("window.stage.store.select({ component: null })")
    settle(page)
    cards = page.evaluate("window.stage.store.document.cards.flatMap((card) => card.items)")
    shown = page.locator(".gb-note-card li").all_inner_texts()
    assert shown == cards
    figures = page.locator(".gb-note-card [data-truth]")
    texts = figures.all_inner_texts()
    assert {"16", "128", "96.3 %"} <= set(texts)
    for card in cards:
        for number in re.findall(r"(?<![\w.-])\d+(?:\.\d+)?(?!\w)", card):
            assert any(number in text for text in texts), (number, texts)
    for kind, title in figures.evaluate_all("all => all.map((e) => [e.dataset.truth, e.title])"):
        assert (kind, title) == (
            "illustrative",
            "illustrative: from the document, not from this engine",
        )


def test_a_prompt_stays_text_and_a_click_on_its_history_seeks(
    page: Page, recorded: Recorded
) -> None:
    show(page, recorded.text)
    request = records_of(recorded.text)[2]["facts"]["request"]  # after the engine's start
    page.evaluate("id => window.stage.store.select({ request: id })", request)
    settle(page)
    inspector = page.locator(".gb-inspector")
    assert page.locator(".gb-inspector [aria-label=Prompt]").inner_text() == HOSTILE
    assert inspector.locator("img").count() == 0
    first = inspector.locator(".gb-event-button").last
    seq = int(first.get_attribute("data-seq") or "-1")
    first.click()
    assert page.evaluate("window.stage.store.cursor") == seq
    assert records_of(recorded.text)[seq]["facts"]["request"] == request


# --- the candidates of a token -------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn(server: StageServer) -> Recorded:
    """Two sequences drawn from a few tokens, and a greedy request that a bias leads elsewhere."""
    llm = AsyncLLM(server.sessions.wait_for_model(), None, server.sessions.thread)
    common = {"max_tokens": 3, "ignore_eos": True}
    params = SamplingParams(temperature=0.9, top_k=2, seed=4, n=2, **common)  # type: ignore[arg-type]
    llm.submit("Once", params)
    biased = SamplingParams(temperature=0.0, logit_bias={3 + ord("~"): 100.0}, **common)  # type: ignore[arg-type]
    llm.submit("upon", biased)
    while llm.num_unfinished:
        llm.step()
    text = "\n".join(llm.trace.lines()) + "\n"
    llm.close()
    return Recorded(text, Trace.parse(text.splitlines()))


def candidate_rows(page: Page) -> list[list[str]]:
    """What each row says, with its title on the token's cell left out."""
    rows = page.locator(".gb-inspector .gb-candidates tbody tr")
    return [
        row.locator("th .gb-code, th small, td:visible").all_inner_texts() for row in rows.all()
    ]


def share(text: str) -> float:
    return float(text.removeprefix("<").removesuffix("%")) / 100


def test_the_inspector_has_the_candidates_of_the_token_at_the_cursor(
    page: Page, drawn: Recorded
) -> None:
    show(page, drawn.text)
    part = page.locator(".gb-inspector [aria-label='Candidates of the latest token']")
    page.evaluate("window.stage.store.select({ request: '1_r0' })")
    page.evaluate("window.stage.store.seek(5)")
    settle(page)
    assert part.is_hidden()
    for record in records_of(drawn.text):
        if record.get("type") != "token_sampled":
            continue
        facts = record["facts"]
        page.evaluate("id => window.stage.store.select({ request: id })", facts["request"])
        page.evaluate("seq => window.stage.store.seek(seq)", record["seq"])
        settle(page)
        rows = candidate_rows(page)
        assert [int(row[1]) for row in rows] == facts["candidates"]
        columns = [facts["probabilities"]] + [facts["drawn_from"]] * (not facts["greedy"])
        for column, expected in enumerate(columns, start=2):
            assert [share(row[column]) for row in rows] == pytest.approx(expected, abs=0.006)
        assert {len(row) for row in rows} == {2 + len(columns)}
        chosen = part.locator("[data-chosen]")
        assert chosen.locator("small").inner_text() == str(facts["token"])
        assert chosen.locator("b").inner_text() == "chosen"
        said = part.locator("p").inner_text()
        assert ("drawn at random" in said) == (not facts["greedy"])
        assert ("after bias" in said) == (facts["request"] == "r1")
        # The box that the sampler stands in shows the same.
        page.evaluate("window.stage.store.select({ request: null, component: 'gpu-runner' })")
        settle(page)
        assert candidate_rows(page) == rows
    forbidden = part.locator("td[data-bar=drawn] [title*='could not be drawn']")
    page.evaluate("window.stage.store.select({ request: '0_r0', component: null })")
    settle(page)
    assert forbidden.count() == len(candidate_rows(page)) - 2
    assert page.locator(".gb-inspector .gb-chip", has_text="sequence 0 of r0").count() == 1


def test_a_token_s_text_stays_text_and_is_seen(page: Page, drawn: Recorded) -> None:
    header, records = drawn.text.splitlines()[0], records_of(drawn.text)
    texts = [HOSTILE, " the", "\n\t", "", "\u200b\u202e"]
    for record in records:
        if record.get("type") == "token_sampled":
            facts = record["facts"]
            facts["texts"] = texts + [""] * (len(facts["candidates"]) - len(texts))
    show(page, as_text(header, records))
    page.evaluate("window.stage.store.select({ request: '0_r0' })")
    page.evaluate("window.stage.store.seek(window.stage.store.head)")
    settle(page)
    assert page.locator(".gb-inspector img").count() == 0
    shown = [row[0] for row in candidate_rows(page)][:5]
    assert shown[0].startswith("<img␣src=x␣onerror=alert(1)>␣the␣capital")
    assert "⟨U+202E⟩" in shown[0]
    assert shown[1:] == ["␣the", "⏎⇥", "(no text)", "⟨U+200B⟩⟨U+202E⟩"]


# --- transport -----------------------------------------------------------------------------------


def test_scrubbing_keys_and_buttons_move_the_one_cursor(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    records = records_of(recorded.text)
    slider = page.get_by_label("Position in the log")
    slider.fill("50")
    assert cursor(page) == 50
    page.keyboard.press("Escape")
    page.locator(".gb-map").click(position={"x": 5, "y": 5})
    page.evaluate("document.activeElement?.blur?.(); window.stage.root.activeElement?.blur()")
    page.keyboard.press("Home")
    assert cursor(page) == -1
    page.keyboard.press("ArrowRight")
    assert cursor(page) == 0
    page.keyboard.press("ArrowRight")
    assert cursor(page) == 2  # the next event: a patch is none
    page.keyboard.press("]")
    end = cursor(page)
    assert records[end]["kind"] == "patch"
    page.keyboard.press("]")
    assert records[cursor(page)]["phase"] == "output"
    page.keyboard.press("Shift+ArrowLeft")
    assert (records[cursor(page)]["phase"], records[cursor(page)]["kind"]) == ("update", "patch")
    page.keyboard.press("[")
    assert cursor(page) == end
    page.keyboard.press("End")
    assert cursor(page) == len(records) - 1


def test_keys_typed_into_a_field_are_not_commands(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(30)")
    page.evaluate("document.body.append(document.createElement('textarea'))")
    page.locator("textarea").focus()
    page.keyboard.type("n p [ ] 123")
    page.keyboard.press("Home")
    assert cursor(page) == 30
    assert page.evaluate("window.stage.store.clock.playing") is False


def test_a_recording_plays_to_its_end_and_stops(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.get_by_label("Speed").select_option("free")
    page.evaluate("window.stage.store.seek(10)")
    page.locator("[data-act=run]").click()
    wait_until(page, "window.stage.store.cursor === window.stage.store.head")
    wait_until(page, "!window.stage.store.clock.playing")
    settle(page)
    assert page.locator("[data-act=run]").inner_text() == "Run"


def cursor(page: Page) -> int:
    return int(page.evaluate("window.stage.store.cursor"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lines: [], "line 1: the file is empty; a trace begins with its header"),
        (lambda lines: lines[1:], "line 1: a trace begins with its header (kind: header)"),
        (lambda lines: [*lines[:4], '{"kind": "eve'], "line 5: not JSON"),
        (lambda lines: [*lines[:4], "[1]"], "line 5: a JSON object is expected"),
        (lambda lines: [*lines[:3], *lines[4:]], "line 4: sequence number 3, expected 2"),
        (
            lambda lines: [*lines[:2], lines[2].replace('"kind":"patch"', '"kind":"poem"')],
            'line 3: not a record of a trace (kind is "poem")',
        ),
        (
            lambda lines: [*lines[:3], re.sub(r'"num_prompt_tokens":\d+', '"x":1', lines[3])],
            "line 4: request_submitted: num_prompt_tokens must be a number",
        ),
        (
            lambda lines: [lines[0].replace('"schema_version":4', '"schema_version":9')],
            "line 1: schema version 9; this page reads 4",
        ),
    ],
)
def test_a_broken_trace_is_named_by_line_and_changes_nothing(
    page: Page, recorded: Recorded, spoil: Any, message: str
) -> None:
    text = "\n".join(spoil(recorded.text.splitlines()))
    page.get_by_label("Open a saved trace").set_input_files(
        {"name": "broken.jsonl", "mimeType": "text/plain", "buffer": text.encode()}
    )
    banner = page.locator(".gb-banner")
    banner.wait_for()
    said = banner.locator("p").inner_text()
    assert said.startswith(f"broken.jsonl cannot be opened: {message}. What was shown stays.")
    assert page.evaluate("window.stage.store.live") is True


def test_a_failed_engine_is_said_with_its_reason(page: Page, recorded: Recorded) -> None:
    header, records = recorded.text.splitlines()[0], records_of(recorded.text)
    last = records[-1]
    failed = {
        "kind": "event",
        "seq": 0,
        "step": last["step"],
        "phase": "execute",
        "type": "engine_failed",
        "component": "async-engine",
        "connection": None,
        "facts": {"message": "the <b>forward</b> raised."},
        "t_us": last["t_us"] + 1,
    }
    show(page, as_text(header, [*records, failed]))
    banner = page.locator(".gb-banner[data-kind=bad]")
    assert "The engine failed: the <b>forward</b> raised." in banner.inner_text()
    page.evaluate("window.stage.store.seek(3)")
    settle(page)
    assert banner.count() == 0


# --- a live engine -------------------------------------------------------------------------------


def own_engine(page: Page, server: StageServer) -> AsyncLLM:
    engine = server.sessions.get(page.evaluate("sessionStorage.getItem('glassbox.session')"))
    assert engine is not None
    return engine


def wait_head(page: Page, condition: str) -> None:
    wait_until(page, f"((s) => {condition})(window.stage.store)")


def test_the_page_commands_its_engine_phase_by_phase(page: Page, server: StageServer) -> None:
    assert page.evaluate("window.stage.told.session").startswith("gb-")
    hint = page.locator(".gb-hint")
    expect(hint).to_have_text("The engine has nothing to do. Send a prompt.")
    engine = own_engine(page, server)
    engine.submit(HOSTILE, SamplingParams(temperature=0.0, max_tokens=4))
    wait_until(page, "window.stage.store.head === 3")
    settle(page)
    expect(hint).to_have_text("1 request waits for the next step: press Step or Run.")
    page.locator("[data-act=phaseOn]").click()
    wait_head(page, "s.headEngine.next_phase === 'schedule' && s.cursor === s.head")
    # By event: the engine does its next phase, and the page shows the first event of it.
    page.locator("[data-act=eventOn]").click()
    wait_head(page, "s.headEngine.next_phase === 'prepare'")
    settle(page)
    state = page.evaluate("[window.stage.store.cursor, window.stage.store.following]")
    assert state == [6, False]
    page.locator("[data-act=phaseOn]").click()
    wait_head(page, "s.following && s.cursor === s.head")
    page.locator("[data-act=stepOn]").click()
    wait_head(page, "s.headEngine.next_phase === 'arrive' && s.cursor === s.head")
    assert engine.status.step == 1
    page.get_by_label("Speed").select_option("16")
    page.locator("[data-act=run]").click()
    wait_head(page, "s.state.requests && Object.values(s.state.requests)[0].status === 'finished'")
    page.keyboard.press("Escape")
    page.locator("[data-act=run]").click()
    wait_head(page, "s.headEngine.mode === 'paused'")
    assert page.evaluate("window.stage.store.records.every((r, i) => r.seq === i)")


def test_after_a_reload_the_tab_is_where_it_was(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=4))
    engine.step()
    wait_until(page, "window.stage.store.headEngine.step === 1")
    page.evaluate(
        "const s = window.stage.store; s.seek(12); s.setView('block-allocation');"
        "s.select({ component: 'scheduler' })"
    )
    key = page.evaluate("sessionStorage.getItem('glassbox.session')")
    page.reload()
    wait_until(page, "window.stage?.store.cursor === 12")
    settle(page)
    assert page.evaluate("sessionStorage.getItem('glassbox.session')") == key
    assert page.evaluate("window.stage.store.view") == "block-allocation"
    assert selected(page) == ["scheduler"]
    # A new step does not pull the page out of the past.
    engine.step()
    wait_until(page, "window.stage.store.headEngine.step === 2")
    assert cursor(page) == 12
    page.locator("[data-act=live]").click()
    assert page.evaluate("window.stage.store.cursor === window.stage.store.head")


def test_a_reset_begins_another_log_on_the_same_stream(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=4))
    wait_until(page, "window.stage.store.head > 1")
    before = page.evaluate("window.stage.store.header.trace_id")
    page.locator("[data-act=reset]").click()
    wait_until(page, "window.stage.store.header.trace_id !== argument", before)
    assert page.evaluate("Object.keys(window.stage.store.state.requests ?? {})") == []


def test_a_request_can_be_taken_back_from_the_inspector(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    stream = engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=4))
    wait_until(page, "window.stage.store.head > 1")
    page.evaluate("id => window.stage.store.select({ request: id })", stream.request_id)
    page.get_by_role("button", name="Abort this request").click()
    page.locator(".gb-chip", has_text="finished: abort").wait_for()
    assert engine.num_unfinished == 0


def test_the_shared_engine_is_watched_and_not_commanded(page: Page) -> None:
    page.get_by_label("Engine", exact=True).select_option("shared")
    wait_until(page, "window.stage.store.connection === 'open' && window.stage.store.header")
    settle(page)
    for act in ("run", "phaseOn", "stepOn", "reset"):
        button = page.locator(f"[data-act={act}]")
        assert button.is_disabled()
        assert "shared engine" in (button.get_attribute("title") or "")
    page.get_by_label("Engine", exact=True).select_option("own")
    wait_until(page, "window.stage.store.connection === 'open' && window.stage.store.header")
    settle(page)
    assert page.locator("[data-act=run]").is_enabled()


def test_a_shared_engine_that_is_turned_off_is_not_offered(context: BrowserContext) -> None:
    with stage_server(shared_enabled=False) as alone:
        page = context.new_page()
        page.add_init_script("sessionStorage.setItem('glassbox.engine', 'shared')")
        open_stage(page, alone)
        assert page.get_by_label("Engine", exact=True).is_hidden()
        assert page.evaluate("window.stage.store.engine") == "own"
        settle(page)
        assert page.locator("[data-act=run]").is_enabled()
        page.close()


def test_from_a_saved_trace_there_is_a_way_back_to_live(
    page: Page, server: StageServer, recorded: Recorded
) -> None:
    live = page.evaluate("window.stage.store.header.trace_id")
    page.get_by_label("Open a saved trace").set_input_files(
        {"name": "mine.jsonl", "mimeType": "text/plain", "buffer": recorded.text.encode()}
    )
    banner = page.locator(".gb-banner")
    assert "Saved trace mine.jsonl: no engine stands behind it." in banner.inner_text()
    assert page.locator("[data-act=reset]").is_disabled()
    page.get_by_role("button", name="Back to live").click()
    wait_until(page, "window.stage.store.header?.trace_id === argument", live)
    settle(page)
    assert banner.count() == 0


def test_a_saved_trace_is_what_the_engine_wrote(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=2))
    engine.step()
    wait_until(page, "window.stage.store.headEngine.step === 1")
    with page.expect_download() as download:
        page.locator("[data-act=save]").click()
    trace = Trace.load(download.value.path())
    assert list(trace.lines()) == list(engine.trace.lines())
    assert len(trace.records) > 20


def test_the_theme_follows_the_page(page: Page) -> None:
    workspace = page.locator(".gb")
    assert workspace.get_attribute("data-theme") == "light"
    page.evaluate("document.getElementById('app').classList.add('dark')")
    wait_until(page, "window.stage.root.querySelector('.gb').dataset.theme === 'dark'")


def test_mounting_again_with_new_data_keeps_everything(page: Page, recorded: Recorded) -> None:
    show(page, recorded.text)
    page.evaluate("window.stage.store.seek(33)")
    page.evaluate("window.node = window.stage.root.querySelector('.gb')")
    page.evaluate("window.stage.show(structuredClone(window.stage.store.document))")
    settle(page)
    assert page.evaluate("window.node === window.stage.root.querySelector('.gb')")
    assert page.locator(".gb").count() == 1
    assert cursor(page) == 33


def test_a_long_log_forgets_its_beginning_and_nothing_else(page: Page, recorded: Recorded) -> None:
    found = page.evaluate(
        """async (text) => {
            const { Store } = await import("/assets/core/store.js");
            const { parseTrace } = await import("/assets/core/trace_file.js");
            const { header, records } = parseTrace(text);
            const store = new Store();
            store.maxRecords = 120;
            store.begin(header);
            for (let i = 0; i < records.length; i += 50) store.append(records.slice(i, i + 50));
            store.seek(store.head);
            const dense = store.records.every((r, i) => r.seq === store.header.base_seq + i);
            const first = store.steps[0];
            const kept = [store.records.length, first.first, dense, store.stepAt(store.head).step];
            return [kept, JSON.stringify(store.state), store.header.base_seq];
        }""",
        recorded.text,
    )
    (length, first, dense, step), state, base = found
    records = recorded.trace.records
    assert 60 <= length <= 120 and base + length == len(records)
    assert (first, dense, step) == (0, True, records[-1].step)
    assert json.loads(state) == recorded.trace.state()


@pytest.mark.parametrize("selected", [{"component": "scheduler"}, {"request": "0_r0"}])
def test_the_page_has_no_fault_that_axe_finds(
    page: Page, drawn: Recorded, selected: dict[str, str]
) -> None:
    show(page, drawn.text)
    for theme in ("", "dark"):
        page.evaluate("selected => window.stage.store.select(selected)", selected)
        assert axe_faults(page, theme, lambda target: "gb-panel" not in target) == []
