"""The rooms: the inside of each box, in the map's place, equals the state at the cursor.

One recording under memory pressure serves all of them: chunks, hits, preemptions, evictions, a
waiting queue, greedy and drawn tokens. What is drawn is read back and compared with the state, and
with the log's events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.events import PLACES
from engine.records import TYPE_OF_FACTS, Event, Patch
from engine.trace import State, Trace, fold
from tests.browser.stage import (
    Recorded,
    come_to_rest,
    set_theme,
    settle,
    show,
    wait_until,
    watched,
)
from tests.browser.stage_server import StageServer
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

SHARED = "You are a helpful assistant who answers in short sentences. "
ASKED = ("What is paging?", "What is a cache?", "Name three colours.", "Count.", "Hamlet?", "Hi.")


@pytest.fixture(scope="module")
def pressed(server: StageServer) -> Recorded:
    return under_pressure(server)


def under_pressure(server: StageServer) -> Recorded:
    """Six requests in a pool that holds three of them."""
    config = EngineConfig(
        num_gpu_blocks=24, block_size=8, max_num_batched_tokens=32, max_num_seqs=4
    )
    llm = AsyncLLM(server.sessions.wait_for_model(), config, server.sessions.thread)
    for number, text in enumerate(ASKED):
        drawn = number % 2 == 1
        params = SamplingParams(
            temperature=0.8 if drawn else 0.0, max_tokens=24, ignore_eos=True, seed=1
        )
        llm.submit(SHARED + text, params)
        if number in (1, 3):
            llm.step()
    while llm.num_unfinished:
        llm.step()
    text = "\n".join(llm.trace.lines()) + "\n"
    llm.close()
    return Recorded(text, Trace.parse(text.splitlines()))


@pytest.fixture(scope="module")
def page(browser: Browser, server: StageServer, pressed: Recorded) -> Iterator[Page]:
    """One page for all rooms, with the recording open."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    with watched(context.new_page(), server) as page:
        show(page, pressed.text)
        yield page
    context.close()


def indexes(trace: Trace, kind: str) -> list[int]:
    """Where events of one type stand in the log."""
    return [
        i
        for i, record in enumerate(trace.records)
        if isinstance(record, Event) and type(record.facts).__name__ == kind
    ]


def ends(trace: Trace, phase: str) -> list[int]:
    """Where a phase of some step has ended."""
    return [
        i
        for i, record in enumerate(trace.records)
        if isinstance(record, Patch) and record.phase.value == phase
    ]


def moments(trace: Trace) -> list[int]:
    """Some moments in the middle of things, and both ends."""
    chosen = [0, len(trace.records) - 1]
    for kind in ("RequestPreempted", "BlockEvicted", "TokenSampled", "BlocksFreed"):
        found = indexes(trace, kind)
        chosen += [found[0], found[len(found) // 2]]
    schedules = ends(trace, "schedule")
    return sorted({*chosen, *schedules[:: max(1, len(schedules) // 8)]})


def enter(page: Page, box: str, index: int) -> None:
    page.evaluate(
        "([box, index]) => { window.stage.store.openBox(box); window.stage.store.seek(index); }",
        [box, index],
    )
    page.wait_for_selector(".gb-room:not([hidden]) .gb-room-inside")
    settle(page)


def state_on(page: Page, trace: Trace, index: int) -> State:
    """The state that the page shows at a record.

    Where a phase ends it is what the engine's own `fold` makes of the log; inside one it is what
    tests/browser/test_phase_state.py holds against that.
    """
    text = page.evaluate("() => JSON.stringify(window.stage.store.state)")
    assert page.evaluate("() => window.stage.store.cursor") == index
    state: State = json.loads(text)
    if isinstance(trace.records[index], Patch):
        assert state == fold(trace.header.state, trace.records[: index + 1])
    return state


def queue(state: State, name: str) -> list[str]:
    """The requests of a queue, from its head."""
    found: list[str] = []
    at = state["queues"][name].get("head")
    while at is not None:
        found.append(at)
        at = state["requests"][at].get("next")
    return found


def step_events(trace: Trace, index: int) -> list[Any]:
    """The events of the step at a record, up to there."""
    step = trace.records[index].step
    return [
        record
        for record in trace.records[: index + 1]
        if isinstance(record, Event) and record.step == step and record.phase.value != "command"
    ]


# --- the frame ---------------------------------------------------------------------------------


def box(page: Page, component: str) -> Locator:
    return page.locator(f".gb-box[data-component={component}]")


def leave(page: Page) -> None:
    page.evaluate(
        "() => { const s = window.stage.store; s.openBox(null);"
        " s.select({component: null, request: null, block: null}); }"
    )
    settle(page)


WAYS: dict[str, Callable[[Page], None]] = {
    "double click": lambda page: box(page, "scheduler").dblclick(),
    "the sign on the box": lambda page: page.locator("[data-open=scheduler]").click(),
    "Enter twice": lambda page: [
        box(page, "scheduler").focus(),
        page.keyboard.press("Enter"),
        page.keyboard.press("Enter"),
    ][0],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_box_is_opened_and_left_again(page: Page, way: str) -> None:
    leave(page)
    WAYS[way](page)
    room = page.get_by_role("region", name="Inside Chunked Scheduler")
    room.wait_for()
    wait_until(page, "window.stage.store.opened === 'scheduler'")
    settle(page)
    assert page.evaluate("window.stage.store.selection.component") == "scheduler"
    assert not page.locator(".gb-stage").is_visible()
    if way == "Enter twice":  # the focus goes in, and comes back to the box
        wait_until(page, "window.stage.root.activeElement?.className.includes('gb-room-back')")
        page.keyboard.press("Escape")
        settle(page)
        focused = "window.stage.root.activeElement.dataset.component"
        assert page.evaluate(focused) == "scheduler"
    else:
        page.get_by_role("button", name="Back to the map").click()
        settle(page)
    assert not room.is_visible()
    assert page.locator(".gb-stage").is_visible()


def test_a_room_stays_while_the_cursor_moves_and_after_a_reload(
    browser: Browser, server: StageServer, pressed: Recorded
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    with watched(context.new_page(), server) as page:
        show(page, pressed.text)
        enter(page, "scheduler", 5)
        page.evaluate("() => window.stage.store.seek(40)")
        settle(page)
        assert page.locator(".gb-room").is_visible()
        page.reload()
        page.wait_for_selector(".gb-room:not([hidden])")
        assert page.evaluate("window.stage.store.opened") == "scheduler"
    context.close()


def test_the_edges_of_a_room_lead_to_its_neighbours_and_say_what_travels(
    page: Page, pressed: Recorded
) -> None:
    document = page.evaluate("() => window.stage.store.document")
    for index in moments(pressed.trace)[::3]:
        for item in document["components"]:
            enter(page, item["id"], index)
            for side, near, far in (("in", "to", "from"), ("out", "from", "to")):
                lines = [line for line in document["connections"] if line[near] == item["id"]]
                ports = page.locator(f".gb-ports.is-{side} .gb-port")
                assert ports.count() == len(lines)
                for port, line in zip(ports.all(), lines, strict=True):
                    other = next(c for c in document["components"] if c["id"] == line[far])
                    assert port.locator(".gb-port-box").inner_text() == other["label"]
                    assert port.locator(".gb-port-name").inner_text() == (line["label"] or "")
    enter(page, "scheduler", indexes(pressed.trace, "BatchScheduled")[0])
    lit = page.locator(".gb-ports.is-out .gb-port.is-now")
    assert lit.get_attribute("data-connection") == "sched-to-runner"
    assert lit.locator(".gb-port-amount").inner_text().endswith("tok")
    lit.locator(".gb-port-box").click()
    assert page.evaluate("window.stage.store.opened") == "gpu-runner"


def test_a_room_follows_the_theme(page: Page, pressed: Recorded) -> None:
    enter(page, "scheduler", ends(pressed.trace, "schedule")[5])
    seat = page.locator(".gb-seat").first
    light = seat.get_attribute("data-colour")
    set_theme(page, "dark")
    assert seat.get_attribute("data-colour") != light
    set_theme(page, "")
    assert seat.get_attribute("data-colour") == light


# --- the rooms ---------------------------------------------------------------------------------


def test_the_schedulers_queues_and_budget_are_the_engines(page: Page, pressed: Recorded) -> None:
    trace = pressed.trace
    drawn = """() => {
      const texts = (queue) => Array.from(queue, (node) => node.dataset.request);
      const at = (node) => { const b = node.getBoundingClientRect(); return [b.left, b.top]; };
      const room = window.stage.root.querySelector(".gb-room");
      const half = at(room.querySelectorAll(".gb-queue-head")[1])[0];
      const seats = Array.from(room.querySelectorAll(".gb-seat"));
      const order = (nodes) => nodes.sort((a, b) => at(a)[1] - at(b)[1] || at(a)[0] - at(b)[0]);
      return {
        waiting: texts(order(seats.filter((node) => at(node)[0] < half - 1))),
        running: texts(order(seats.filter((node) => at(node)[0] >= half - 1))),
        spent: Array.from(room.querySelectorAll(".gb-budget-bar i"),
          (node) => [node.dataset.request, Number(node.dataset.tokens)]),
        sum: room.querySelector(".gb-room-caption .gb-truth").textContent,
        marks: Object.fromEntries(seats.map((n) => [n.dataset.request, n.dataset.mark ?? ""])),
      };
    }"""
    for index in moments(trace):
        enter(page, "scheduler", index)
        come_to_rest(page)  # cards on their way
        shown = page.evaluate(drawn)
        state = state_on(page, trace, index)
        assert shown["waiting"] == queue(state, "waiting"), index
        assert shown["running"] == queue(state, "running"), index
        spent: dict[str, int] = {}
        for event in step_events(trace, index):
            name = type(event.facts).__name__
            if name == "RequestScheduled":
                spent[event.facts.request] = event.facts.num_tokens
            if name == "RequestPreempted":
                spent.pop(event.facts.request, None)
        assert dict(shown["spent"]) == spent, index
        assert shown["sum"] == f"{sum(spent.values())} / 32"


def test_cards_move_only_where_their_queue_gives_them_time(page: Page, pressed: Recorded) -> None:
    """What plays faster than a card moves would otherwise be behind its log."""
    steps = ends(pressed.trace, "schedule")
    enter(page, "scheduler", steps[0])
    come_to_rest(page)
    moving = """async ([steps, apart]) => {
      const { store, frame, root } = window.stage;
      const now = performance.now;
      let time = now.call(performance) + 10_000;
      performance.now = () => time;
      const moving = [];
      for (const step of steps) {
        const places = () => Array.from(root.querySelectorAll(".gb-seat-place"));
        const before = new Map(places().map((node) => [node, node.dataset.at]));
        time += apart;
        store.moveCursor(step);
        await frame();
        const moved = places().filter((node) =>
          before.has(node) && before.get(node) !== node.dataset.at);
        if (moved.length) moving.push(moved.some((node) => node.getAnimations().length > 0));
      }
      performance.now = now;
      return moving;
    }"""
    there = page.evaluate(moving, [steps, 1000])
    come_to_rest(page)
    back = page.evaluate(moving, [steps[::-1], 5])
    assert len(there) > 2 and all(there)
    assert len(back) > 2 and not any(back[1:])


def spots(page: Page) -> list[dict[str, Any]]:
    """What the open room's canvas has drawn: kind, key and what each spot stands for."""
    drawn: list[dict[str, Any]] = page.evaluate(
        """async () => {
          const { boardOf } = await import("/assets/rooms/board.js");
          const canvas = window.stage.root.querySelector(".gb-room .gb-board");
          return boardOf(canvas).spots.map(({ kind, key, of, x, y, w, h }) =>
            ({ kind, key, of, x, y, w, h }));
        }"""
    )
    return drawn


def free_queue(state: State) -> list[int]:
    found: list[int] = []
    at = state["queues"]["free"].get("head")
    while at is not None:
        found.append(at)
        at = state["blocks"][str(at)].get("next")
    return found


def test_the_free_queue_the_hash_map_and_the_tables_are_the_pools(
    page: Page, pressed: Recorded
) -> None:
    trace = pressed.trace
    for index in moments(trace):
        enter(page, "block-manager", index)
        state = state_on(page, trace, index)
        tables = {
            key: list(request["block_table"].values())
            for key, request in state["requests"].items()
            if request.get("block_table")
        }
        # Blocks may be on their way.
        becomes(lambda: queue_and_tables(spots(page)), (free_queue(state), tables), index)
        becomes(lambda: list(overlapping(spots(page))), [], index)
        drawn = spots(page)
        hashes = {
            block["hash"]: int(key) for key, block in state["blocks"].items() if block.get("hash")
        }
        entries = {spot["key"]: spot["of"] for spot in drawn if spot["kind"] == "entry"}
        assert entries.items() <= hashes.items(), index
        assert len(entries) >= min(len(hashes), 12), index


def queue_and_tables(drawn: list[dict[str, Any]]) -> tuple[list[int], dict[str, list[int]]]:
    tables: dict[str, list[int]] = {}
    for spot in drawn:
        if spot["kind"] == "table":
            tables.setdefault(spot["key"], []).append(spot["of"])
    return [spot["of"] for spot in drawn if spot["kind"] == "free"], tables


def overlapping(drawn: list[dict[str, Any]]) -> Iterator[tuple[Any, Any]]:
    """Pairs of what is drawn that hide each other."""
    for i, a in enumerate(drawn):
        for b in drawn[i + 1 :]:
            apart = (
                a["x"] + a["w"] <= b["x"] + 0.01
                or b["x"] + b["w"] <= a["x"] + 0.01
                or a["y"] + a["h"] <= b["y"] + 0.01
                or b["y"] + b["h"] <= a["y"] + 0.01
            )
            if not apart:
                yield a, b


def test_the_pages_that_attention_reads_are_those_of_the_step(
    page: Page, pressed: Recorded
) -> None:
    trace = pressed.trace
    reads = indexes(trace, "PagesRead")
    for index in [*reads[:: max(1, len(reads) // 6)], ends(trace, "schedule")[4]]:
        enter(page, "paged-attn", index)
        expected = [
            (event.facts.request, block)
            for event in step_events(trace, index)
            if type(event.facts).__name__ == "PagesRead"
            for block in event.facts.blocks
        ]
        assert [(spot["key"], spot["of"]) for spot in spots(page)] == expected, index


def test_the_runner_has_the_batch_and_what_each_token_was_chosen_from(
    page: Page, pressed: Recorded
) -> None:
    trace = pressed.trace
    for index in indexes(trace, "TokenSampled")[::17]:
        enter(page, "gpu-runner", index)
        event: Any = trace.records[index]
        events = step_events(trace, index)
        prepared = next(e.facts for e in events if type(e.facts).__name__ == "InputsPrepared")
        dispatched = next(e.facts for e in events if type(e.facts).__name__ == "StepDispatched")
        rows = len(prepared.input_ids)
        padding = dispatched.num_padded_tokens - dispatched.num_tokens
        caption = page.locator(".gb-room-caption .gb-truth").first.inner_text()
        plural = "row" if rows == 1 else "rows"
        assert caption == f"{rows} {plural}" + (f" + {padding} of padding" if padding else "")
        sampled = [e.facts for e in events if type(e.facts).__name__ == "TokenSampled"]
        chips = page.locator(".gb-sampled-chip").all()
        assert [(chip.get_attribute("data-request"), chip.get_attribute("data-token"))
                for chip in chips] == [(f.request, str(f.token)) for f in sampled]  # fmt: skip
        assert page.locator(".gb-sampled-chip[aria-pressed=true]").count() == 1
        facts = event.facts
        ids = page.locator(".gb-room .gb-candidates tbody small").all_inner_texts()
        assert ids == [str(token) for token in facts.candidates]
        said = page.locator(".gb-room .gb-sampling").inner_text()
        sampling = state_on(page, trace, index)["requests"][facts.request]["sampling"]
        assert said.startswith(f"temperature {sampling['temperature']:g}")
        assert ("greedy" in said) is facts.greedy


def test_the_graph_that_is_taken_stands_out_with_its_padding(page: Page, pressed: Recorded) -> None:
    trace = pressed.trace
    for index in indexes(trace, "StepDispatched")[::6]:
        enter(page, "cuda-graph", index)
        facts: Any = trace.records[index].facts  # type: ignore[union-attr]
        state = state_on(page, trace, index)
        taken = page.locator(".gb-ladder .is-taken")
        if facts.mode == "NONE":
            assert taken.count() == 0
        else:
            assert taken.count() == 1
            assert taken.get_attribute("data-size") == str(facts.num_padded_tokens)
            padding = facts.num_padded_tokens - facts.num_tokens
            text = f"{facts.num_tokens}+{padding}" if padding else ""
            assert taken.locator(".gb-rung-pad").inner_text() == text
        for mode, keys in state["dispatcher"]["keys"].items():
            ladder = page.locator(f".gb-ladder[data-mode={mode}]")
            sizes = [li.get_attribute("data-size") for li in ladder.locator("li").all()]
            assert sizes == [str(key[0]) for key in keys]
            captured = ladder.locator("li.is-captured").all()
            assert [f"{mode} {li.get_attribute('data-size')}" for li in captured] == [
                f"{mode} {key[0]}" for key in keys if f"{mode} {key[0]}" in state["graphs"]
            ]


def test_the_memory_is_to_scale(page: Page, pressed: Recorded) -> None:
    trace = pressed.trace
    sized: Any = trace.records[0].facts  # type: ignore[union-attr]
    for index in moments(trace):
        enter(page, "physical-vram", index)
        come_to_rest(page)  # widths on their way
        drawn = page.evaluate(
            """() => Array.from(window.stage.root.querySelectorAll(".gb-room .gb-scale"), (bar) =>
              Array.from(bar.children, (node) => [node.dataset.part, Number(node.dataset.size),
                node.getBoundingClientRect().width / bar.getBoundingClientRect().width]))"""
        )
        for bar in drawn:
            whole = sum(size for _, size, _ in bar)
            for _, size, share in bar:
                assert abs(share - size / whole) < 0.01, index
        whole_bar = {name: size for name, size, _ in drawn[0]}
        assert whole_bar["weights"] == sized.weight_bytes
        assert whole_bar["KV cache"] == sized.pool_bytes
        state = state_on(page, trace, index)
        free = free_queue(state)
        cached = [block for block in free if state["blocks"][str(block)].get("hash")]
        pool = {name: size for name, size, _ in drawn[1]}
        assert pool == {
            "in use": len(state["blocks"]) - 1 - len(free),
            "free, cached": len(cached),
            "free, empty": len(free) - len(cached),
        }, index
    enter(page, "physical-vram", index)
    moved = page.locator(".gb-moved .gb-truth").all_inner_texts()
    assert len(moved) == 3


@pytest.mark.parametrize("room", ["client-req", "async-engine"])
def test_each_stream_has_the_text_that_went_out(page: Page, pressed: Recorded, room: str) -> None:
    trace = pressed.trace
    for index in moments(trace):
        enter(page, room, index)
        sent: dict[str, str] = {}
        for record in trace.records[: index + 1]:
            if isinstance(record, Event) and type(record.facts).__name__ == "TextEmitted":
                facts: Any = record.facts
                sent[facts.request] = sent.get(facts.request, "") + facts.text
        state = state_on(page, trace, index)
        asked = state.get("requests", {})
        shown = page.evaluate(
            """() => Array.from(window.stage.root.querySelectorAll(".gb-room .gb-stream"), (row) =>
              [row.dataset.request, row.dataset.status,
               row.querySelector(".gb-stream-text > span").textContent])"""
        )
        statuses = [status for _, status, _ in shown]
        assert statuses == sorted(statuses, key=lambda status: status == "finished"), index
        assert len(shown) >= min(5, len(asked)), index
        for request, status, text in shown:
            assert status == asked[request]["status"]
            went = sent.get(request, "").replace("\n", "⏎").replace("\t", "⇥")
            assert went.endswith(text) if went else text == "no text yet", (index, request)
        if room == "async-engine":
            arriving = page.locator(".gb-arriving .gb-sampled-chip").all_inner_texts()
            assert arriving == [k for k, r in asked.items() if r["status"] == "submitted"]


def test_the_heads_are_the_models(page: Page, pressed: Recorded) -> None:
    trace = pressed.trace
    index = indexes(trace, "HeadsGrouped")[3]
    enter(page, "shared-gqa", index)
    facts: Any = trace.records[index].facts  # type: ignore[union-attr]
    assert page.locator(".gb-heads svg circle").count() == facts.num_attention_heads
    assert page.locator(".gb-heads svg rect").count() == 2 * facts.num_kv_heads
    widths = page.locator(".gb-moved i").evaluate_all("bars => bars.map((b) => b.style.width)")
    group = facts.num_attention_heads / facts.num_kv_heads
    assert widths == [f"{100 / group:g}%", "100%"]


def way_of(event: Event) -> str | None:
    return PLACES[type(event.facts)].connection


# --- what moved --------------------------------------------------------------------------------


def test_the_table_of_what_moved_has_each_crossing_in_order(page: Page, pressed: Recorded) -> None:
    leave(page)
    trace = pressed.trace
    page.get_by_role("button", name="What moved in this step").click()
    document = page.evaluate("() => window.stage.store.document")
    names = {item["id"]: item["label"] for item in document["components"]}
    lines = {line["live"]: line for line in document["connections"]}
    for index in moments(trace):
        page.evaluate("index => window.stage.store.seek(index)", index)
        crossed = [e for e in step_events(trace, index) if way_of(e) is not None]
        if trace.records[index].phase.value == "command":
            continue
        numbers = "rows => rows.map((row) => row.dataset.seq)"
        found = page.locator(".gb-crossings tbody tr")
        becomes(  # it follows a few times a second
            partial(found.evaluate_all, numbers), [str(event.seq) for event in crossed], index
        )
        rows = found.all()
        for row, event in list(zip(rows, crossed, strict=True))[-4:]:
            cells = row.locator("td").all_inner_texts()
            line = lines[way_of(event)]
            ends = [names[line["from"]], names[line["to"]]]
            if type(event.facts).__name__ in ("WeightsRead", "PagesRead"):
                ends.reverse()
            assert cells[:2] == ends
            if type(event.facts).__name__ == "PagesRead":
                assert cells[4:6] == [str(event.facts.num_tokens), str(len(event.facts.blocks))]
                assert cells[6].endswith("B")
    page.get_by_role("button", name="What moved in this step").click()
    assert page.locator(".gb-crossings.gb-sr table").count() == 1  # there for those who listen


def test_every_event_that_travels_says_how_much(page: Page) -> None:
    known = page.evaluate(
        """async () => {
          const packets = await import("/assets/map/packets.js");
          const moved = await import("/assets/words/moved.js");
          return [Object.keys(packets.QUANTITIES), Object.keys(moved.AMOUNTS)];
        }"""
    )
    travels = {TYPE_OF_FACTS[cls] for cls, place in PLACES.items() if place.connection}
    assert set(known[0]) == travels
    assert set(known[1]) == travels
