"""Steps that overlap: the page finds its way in them, and says what is in flight and not known yet.

Two logs of a real engine are looked at, one stepped by hand and one whose threads ran at once; and
a live engine. As elsewhere, no test may leave an error in the console.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from playwright.sync_api import expect

from engine.config import SamplingParams
from engine.model_loader import load_model
from engine.trace import Trace, fold
from tests.browser.async_traces import CONFIG, async_trace
from tests.browser.stage import (
    axe_faults,
    own_engine,
    settle,
    show,
    wait_head,
    wait_live,
    watched,
)
from tests.browser.stage_server import StageServer
from tests.waiting import becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EXECUTOR = ("prepare", "execute", "sample")
Json = dict[str, Any]


class Recorded(NamedTuple):
    """A log: its file, its records as JSON, and as the engine reads it."""

    text: str
    records: list[Json]
    trace: Trace


def recorded(by_hand: bool) -> Recorded:
    text = async_trace(load_model("tiny-random"), by_hand)
    lines = text.splitlines()
    return Recorded(text, [json.loads(line) for line in lines[1:]], Trace.parse(lines))


@pytest.fixture(scope="module")
def by_hand() -> Recorded:
    return recorded(by_hand=True)


@pytest.fixture(scope="module")
def at_once() -> Recorded:
    return recorded(by_hand=False)


@pytest.fixture(params=["by_hand", "at_once"])
def log(request: pytest.FixtureRequest) -> Recorded:
    found: Recorded = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    with watched(browser.new_page(viewport={"width": 1280, "height": 900}), server) as page:
        yield page
        page.close()


def seek(page: Page, index: int) -> None:
    page.evaluate("index => window.stage.store.seek(index)", index)
    settle(page)


def state_at(log: Recorded, index: int) -> Json:
    return fold(log.trace.header.state, log.trace.records[: index + 1])


def patches(log: Recorded) -> list[int]:
    return [i for i, record in enumerate(log.records) if record["kind"] == "patch"]


def of_steps(log: Recorded) -> list[int]:
    """The patches of phases, without those of commands."""
    return [i for i in patches(log) if log.records[i]["phase"] != "command"]


def interval(record: Json) -> tuple[float, float]:
    return record["t_us"] - record["duration_us"], record["t_us"]


# --- finding one's way ---------------------------------------------------------------------------


def test_the_logs_are_what_these_tests_are_about(at_once: Recorded, by_hand: Recorded) -> None:
    for log in (at_once, by_hand):
        steps = [record["step"] for record in log.records]
        assert steps != sorted(steps)
        dropped = [r for r in log.records if r.get("type") == "token_dropped"]
        assert {"reason" in record for record in dropped} == {True, False}
    lanes: list[list[tuple[float, float]]] = [[], []]
    for i in of_steps(at_once):
        lanes[at_once.records[i]["phase"] in EXECUTOR].append(interval(at_once.records[i]))
    assert any(a < d and c < b for a, b in lanes[0] for c, d in lanes[1])


def test_a_press_leads_from_one_end_of_a_phase_to_the_next_of_either_step(
    page: Page, log: Recorded
) -> None:
    show(page, log.text)
    walked = page.evaluate(
        """() => {
            const { store } = window.stage;
            const walk = (from, go) => {
                const found = [];
                for (let at = go(from); at !== found.at(-1); at = go(at)) found.push(at);
                return found;
            };
            const units = ["Phase", "Step"];
            return units.map((unit) => [
                walk(-1, (at) => store[`next${unit}`](at)),
                walk(store.head, (at) => store[`previous${unit}`](at)),
            ]);
        }"""
    )
    (phases, phases_back), (steps, steps_back) = walked
    head = len(log.records) - 1
    ends = [*patches(log), *([head] if patches(log)[-1] != head else [])]
    assert phases == ends
    assert phases_back == [*reversed([i for i in ends if i != head]), -1]
    outputs = [i for i in patches(log) if log.records[i]["phase"] == "output"]
    assert set(outputs) <= set(steps)
    others = {log.records[i]["phase"] for i in steps if i not in outputs and i != head}
    assert others <= {"command"}
    assert steps_back == [*reversed([i for i in steps if i != head]), -1]


def test_each_record_is_in_its_own_step_and_phase(page: Page, log: Recorded) -> None:
    show(page, log.text)
    found = page.evaluate(
        """() => {
            const { store } = window.stage;
            return store.records.map((record, i) => {
                const span = store.phaseAt(i);
                const entry = store.stepAt(i);
                const seqs = (events) => events.map((event) => event.seq);
                return [
                    span.phase, entry.step, entry.command === true,
                    seqs(store.eventsOfPhase(span, i)), seqs(store.eventsOfStep(entry, i)),
                ];
            });
        }"""
    )
    begun: list[int] = []  # of the phase that each lane is in
    for i, (record, (phase, step, between, of_phase, of_step)) in enumerate(
        zip(log.records, found, strict=True)
    ):
        assert (phase, step) == (record["phase"], record["step"])
        same = [k for k in range(i + 1) if log.records[k]["step"] == step]
        own = [k for k in same if log.records[k]["phase"] == phase]
        ended = [k for k in own[:-1] if log.records[k]["kind"] == "patch"]
        begun = own if not ended else [k for k in own if k > ended[-1]]
        assert of_phase == [k for k in begun if log.records[k]["kind"] == "event"]
        if not between and phase != "command":
            events = [k for k in same if log.records[k]["kind"] == "event"]
            mine = [k for k in events if log.records[k]["phase"] != "command"]
            assert [k for k in of_step if log.records[k]["phase"] != "command"] == mine


def test_the_page_folds_what_two_threads_wrote(page: Page, at_once: Recorded) -> None:
    show(page, at_once.text)
    for index in [*range(0, len(at_once.records), 23), len(at_once.records) - 1, 40, -1]:
        seek(page, index)
        told = page.evaluate("() => window.stage.store.atPhaseEnd(JSON.stringify)")
        assert json.loads(told) == state_at(at_once, index)


def test_playing_moves_through_both_steps_and_ends_at_the_head(
    page: Page, at_once: Recorded
) -> None:
    show(page, at_once.text)
    seek(page, -1)
    page.evaluate("window.stage.store.play(null)")
    wait_head(page, "s.cursor === s.head && !s.clock.playing")


def test_a_long_log_forgets_its_beginning_in_the_middle_of_a_step(
    page: Page, by_hand: Recorded
) -> None:
    found = page.evaluate(
        """async (text) => {
            const { Store } = await import("/assets/core/store.js");
            const { parseTrace } = await import("/assets/core/trace_file.js");
            const { model } = await import("/assets/panels/lifecycle_model.js");
            const { lanesAt } = await import("/assets/core/lanes.js");
            const { header, records } = parseTrace(text);
            const store = new Store();
            store.maxRecords = 120;
            store.begin(header);
            for (let i = 0; i < records.length; i += 50) store.append(records.slice(i, i + 50));
            for (let i = -1; i <= store.head; i += 1) {
                store.seek(i);
                model(store);
                lanesAt(store);
            }
            const dense = store.records.every((r, i) => r.seq === store.header.base_seq + i);
            const { length } = store.records;
            return [length, dense, store.header.base_seq, JSON.stringify(store.state)];
        }""",
        by_hand.text,
    )
    length, dense, base, state = found
    assert 60 <= length <= 120 and dense and base + length == len(by_hand.records)
    assert json.loads(state) == by_hand.trace.state()


@pytest.mark.parametrize(
    ("overlap", "back", "problem"),
    [(True, 1, ""), (True, 2, "cannot follow step"), (False, 1, "cannot follow step")],
)
def test_a_step_goes_back_only_as_far_as_steps_can_overlap(
    page: Page, by_hand: Recorded, overlap: bool, back: int, problem: str
) -> None:
    header = json.loads(by_hand.text.splitlines()[0])
    header["config"]["async_scheduling"] = overlap
    rows = [{**r, "step": 5} for r in by_hand.records[:6]]
    rows[4]["step"] = 5 - back
    text = "\n".join(json.dumps(row) for row in [header, *rows])
    said = page.evaluate(
        """async (text) => {
            const { parseTrace } = await import("/assets/core/trace_file.js");
            try { parseTrace(text); return ""; } catch (error) { return error.message; }
        }""",
        text,
    )
    assert problem in said if problem else "cannot follow" not in said


# --- what is said at a moment --------------------------------------------------------------------


def lanes_at(page: Page, indexes: list[int]) -> list[Json]:
    """What both threads do with the cursor at each of these records, and how it is said."""
    found: list[Json] = page.evaluate(
        """async (indexes) => {
            const { lanesAt, runsAtOnce } = await import("/assets/core/lanes.js");
            const { lanesSentence } = await import("/assets/words/lanes.js");
            const { store } = window.stage;
            return indexes.map((index) => {
                store.seek(index);
                const lanes = lanesAt(store);
                const words = lanesSentence(lanes, !runsAtOnce(store.state.engine));
                return { ...lanes, last: Object.fromEntries(lanes.last), words };
            });
        }""",
        indexes,
    )
    settle(page)
    return found


def lanes(page: Page) -> Json:
    """The same where the cursor is."""
    return lanes_at(page, [page.evaluate("window.stage.store.cursor")])[0]


def test_by_hand_it_says_which_phase_comes_next(page: Page, by_hand: Recorded) -> None:
    show(page, by_hand.text)
    ends = of_steps(by_hand)
    found = lanes_at(page, ends[:-1])
    assert page.locator(".gb-lanes-words > span").first.inner_text() == found[-1]["words"]
    for at, following, said in zip(ends[:-1], ends[1:], found, strict=True):
        if any(by_hand.records[i]["phase"] == "command" for i in range(at, following)):
            continue  # it may have changed what comes next
        record = by_hand.records[following]
        assert said["next"] == {"step": record["step"], "phase": record["phase"]}
        assert f"Next: {record['phase']} of step {record['step']}." in said["words"]
        assert "meanwhile" not in said["words"]
    page.evaluate("window.stage.store.seek(window.stage.store.head)")
    assert "Next:" not in lanes(page)["words"]  # no engine stands behind the end of a saved trace


def test_at_once_it_says_what_the_other_thread_does_meanwhile(
    page: Page, at_once: Recorded
) -> None:
    show(page, at_once.text)
    ends = of_steps(at_once)
    seen = 0
    for at, said in zip(ends, lanes_at(page, ends), strict=True):
        own = at_once.records[at]
        others = [
            at_once.records[i]
            for i in ends
            if i > at and (at_once.records[i]["phase"] in EXECUTOR) != (own["phase"] in EXECUTOR)
        ]
        due = next((r for r in others if interval(r)[0] < own["t_us"]), None)
        other = said["other"]
        if not others and other is not None and other["us"] is None:
            continue  # at the head: it is at work, and its end is not written
        assert (other and (other["step"], other["phase"])) == (due and (due["step"], due["phase"]))
        if due:
            seen += 1
            assert "meanwhile" in said["words"] and f"step {due['step']}" in said["words"]
            assert other["us"] == pytest.approx(own["t_us"] - interval(due)[0], abs=1)
    assert seen > 5


def test_time_at_once_is_what_the_intervals_have_in_common(page: Page, at_once: Recorded) -> None:
    show(page, at_once.text)
    seek(page, len(at_once.records) - 1)
    found = lanes(page)["both"]
    rows = [at_once.records[i] for i in of_steps(at_once)]
    engine = [interval(row) for row in rows if row["phase"] not in EXECUTOR]
    executor = [interval(row) for row in rows if row["phase"] in EXECUTOR]
    common = sum(max(0.0, min(b, d) - max(a, c)) for a, b in engine for c, d in executor)
    assert found["us"] == pytest.approx(common, abs=1)
    total = sum(end - start for start, end in engine + executor)
    assert found["of"] == pytest.approx(total - common, abs=2.0 * len(rows))


def test_the_strips_have_each_phase_s_latest_step(page: Page, at_once: Recorded) -> None:
    show(page, at_once.text)
    for at in of_steps(at_once)[::9]:
        seek(page, at)
        latest: dict[str, int] = {}
        for i in of_steps(at_once):
            if i <= at:
                latest[at_once.records[i]["phase"]] = at_once.records[i]["step"]
        doing = lanes(page)["other"]
        if doing:
            latest[doing["phase"]] = doing["step"]
        cells = page.evaluate(
            """() => Array.from(window.stage.root.querySelectorAll(".gb-lane .gb-phase"), (cell) =>
                [cell.dataset.phase, cell.querySelector("small").textContent])"""
        )
        assert {phase: int(step) for phase, step in cells if step} == latest


SLOTS = """() => Array.from(window.stage.root.querySelectorAll(".gbp-card"), (card) => [
    card.querySelector(".gbp-id").textContent,
    card.querySelectorAll(".gbp-slot").length,
])"""


def test_what_is_in_flight_and_not_known_yet_is_the_state_s(page: Page, at_once: Recorded) -> None:
    show(page, at_once.text)
    seen = 0
    for index in range(0, len(at_once.records), 23):
        seek(page, index)
        state = page.evaluate("() => window.stage.store.state")
        chips = page.locator(".gb-inflight").all_inner_texts()
        steps = page.locator(".gb-inflight:is(.is-odd, .is-even)").all_inner_texts()
        in_flight = state["engine"].get("in_flight", {})
        assert steps == [
            f"{step}: {phase}"
            for step, phase in sorted(in_flight.items(), key=lambda item: int(item[0]))
        ]
        coming = {
            key: request["num_output_placeholders"]
            for key, request in state["requests"].items()
            if request.get("num_output_placeholders")
        }
        assert [c for c in chips if "▢" in c] == [f"{k} {'▢' * n}" for k, n in coming.items()]
        # Cards out of sight follow.
        becomes(lambda: {key: n for key, n in page.evaluate(SLOTS) if n}, coming, index)
        seen += len(coming)
    assert seen > 10


def test_a_token_that_is_dropped_says_why(page: Page, log: Recorded) -> None:
    show(page, log.text)
    said = set()
    for index, record in enumerate(log.records):
        if record.get("type") != "token_dropped":
            continue
        seek(page, index)
        request, token = record["facts"]["request"], record["facts"]["token"]
        words = page.locator(".gb-inflight.is-dropped").last.inner_text()
        assert words.startswith(f"token {token} of {request} dropped: ")
        if "reason" in record:
            assert "void since the reset" in words
            said.add("void")
        else:
            reason = state_at(log, index)["requests"][request]["finish_reason"]
            assert "too late" in words
            assert ("was aborted" if reason == "abort" else f"({reason})") in words
            said.add(reason)
        cell = cells(page)[request, record["step"]]
        assert cell["dropped"] is not None
        assert ("reason" in record) != bool(cell.get("late"))
    assert said == {"stop", "abort", "void"}


# --- the panels and the map ----------------------------------------------------------------------


def model(page: Page, name: str) -> Json:
    found: Json = page.evaluate(
        """async (name) => {
            const { model } = await import(`/assets/panels/${name}_model.js`);
            return JSON.parse(JSON.stringify(model(window.stage.store)));
        }""",
        name,
    )
    return found


def cells(page: Page) -> dict[tuple[str, int], Json]:
    rows = model(page, "lifecycle")["rows"]
    return {(row["id"], cell["step"]): cell for row in rows for cell in row["cells"]}


def test_the_timeline_has_each_share_in_its_own_step(page: Page, at_once: Recorded) -> None:
    show(page, at_once.text)
    for index in range(5, len(at_once.records), 37):
        seek(page, index)
        in_flight = state_at(at_once, index)["engine"].get("in_flight", {})
        shown = {key: cell for key, cell in cells(page).items() if "tokens" in cell}
        shares = {
            (record["facts"]["request"], record["step"]): (i, record["facts"])
            for i, record in enumerate(at_once.records)
            if record.get("type") == "request_scheduled"
        }
        assert shown.keys() == shares.keys()
        for key, (i, facts) in shares.items():
            cell = shown[key]
            assert cell["tokens"] == facts["num_tokens"]
            assert cell["future"] == (i > index)
            assert cell.get("inFlight", False) == (str(key[1]) in in_flight and i <= index)


def test_a_step_counts_as_computed_once_its_own_forward_has_run(
    page: Page, by_hand: Recorded
) -> None:
    show(page, by_hand.text)
    ran: dict[int, int] = {
        by_hand.records[i]["step"]: i
        for i in of_steps(by_hand)
        if by_hand.records[i]["phase"] == "execute"
    }
    for record in by_hand.records:  # its event says so before the phase ends
        if record.get("type") == "forward_run":
            ran[record["step"]] = min(ran.get(record["step"], record["seq"]), record["seq"])
    looked_at = 0
    for at in of_steps(by_hand)[::6]:
        seek(page, at)
        state = state_at(by_hand, at)
        streams = {stream["id"]: stream for stream in model(page, "lifecycle")["streams"]}
        open_steps = {int(step) for step in state["engine"].get("in_flight", {})}
        for key, stream in streams.items():
            if state["requests"][key]["status"] != "running":
                continue
            shares = [
                record["facts"]["num_tokens"]
                for i, record in enumerate(by_hand.records[: at + 1])
                if record.get("type") == "request_scheduled"
                and record["facts"]["request"] == key
                and record["step"] in open_steps
                and ran.get(record["step"], len(by_hand.records)) > at
                and i > last_preempted(by_hand, key, at)
            ]
            assert stream["scheduled"] == sum(shares)
            looked_at += len(shares)
            assert (
                stream["done"] + stream["scheduled"]
                == state["requests"][key]["num_computed_tokens"]
            )
    assert looked_at > 5


def last_preempted(log: Recorded, request: str, at: int) -> int:
    found = [
        i
        for i, record in enumerate(log.records[: at + 1])
        if record.get("type") == "request_preempted" and record["facts"]["request"] == request
    ]
    return found[-1] if found else -1


def test_the_kernel_view_and_its_boxes_are_about_the_executor_s_step(
    page: Page, by_hand: Recorded
) -> None:
    show(page, by_hand.text)
    ends = of_steps(by_hand)
    first = next(i for i in ends if by_hand.records[i]["phase"] == "prepare")
    found = page.evaluate(
        """async (indexes) => {
            const { model } = await import("/assets/panels/graph_model.js");
            const { liveOf } = await import("/assets/boxes/live.js");
            const { moments } = await import("/assets/boxes/moment.js");
            const { store } = window.stage;
            return indexes.map((index) => {
                store.seek(index);
                const lines = ["gpu-runner", "scheduler"].map(
                    (name) => [moments(store)(name).entry.step,
                        liveOf(name, moments(store)(name)).line]);
                return [model(store).step, ...lines];
            });
        }""",
        ends,
    )
    latest = {"engine": 0, "executor": 0}
    for at, (shown, runner, scheduler) in zip(ends, found, strict=True):
        record = by_hand.records[at]
        latest["executor" if record["phase"] in EXECUTOR else "engine"] = record["step"]
        assert (shown, runner[0], scheduler[0]) == (
            latest["executor"],
            latest["executor"],
            latest["engine"],
        )
        assert at < first or runner[1] != "not yet in this step"


def test_every_moment_has_its_sentences(page: Page, log: Recorded) -> None:
    show(page, log.text)
    odd = page.evaluate(
        """async () => {
            const names = ["lifecycle", "blocks", "graph"];
            const models = await Promise.all(
                names.map((name) => import(`/assets/panels/${name}_model.js`)));
            const { lanesAt } = await import("/assets/core/lanes.js");
            const { lanesSentence } = await import("/assets/words/lanes.js");
            const { store } = window.stage;
            const odd = [];
            for (let i = -1; i <= store.head; i += 1) {
                store.moveCursor(i);
                const texts = models.map(({ sentence }) =>
                    sentence(store).map((part) => part.text).join(""));
                const both = [true, false].map((slow) => lanesSentence(lanesAt(store), slow));
                for (const each of [...texts, ...both])
                    if (!/^[A-Z].*[.”]$/s.test(each) || /undefined|NaN|null|\\.\\.|  /.test(each))
                        odd.push(each);
            }
            return odd;
        }"""
    )
    assert odd == []


def test_decodes_whose_token_is_in_flight_are_decodes(page: Page, by_hand: Recorded) -> None:
    show(page, by_hand.text)
    for i, record in enumerate(by_hand.records):
        if record.get("type") != "batch_scheduled" or not record["facts"]["num_requests"]:
            continue
        seek(page, i)
        bars = {bar["step"]: bar for bar in model(page, "lifecycle")["steps"]}
        shares = bars[record["step"]]["segments"]
        decodes = [share["tokens"] for share in shares if share["kind"] == "decode"]
        assert sum(decodes) == record["facts"]["decode_tokens"]


# --- live ----------------------------------------------------------------------------------------


def test_without_overlap_nothing_of_it_is_there(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=3))
    engine.step()
    wait_head(page, "s.headEngine.step === 1")
    settle(page)
    expect(page.locator(".gb-lanes")).to_be_hidden()
    expect(page.get_by_label("Phases of the step")).to_be_visible()


def test_a_live_engine_is_stepped_and_runs(page: Page, server: StageServer) -> None:
    engine = own_engine(page, server)
    engine.reset(CONFIG)
    wait_head(page, "s.overlaps")
    engine.submit("Once upon a time", SamplingParams(temperature=0.0, max_tokens=400))
    wait_head(page, "s.head >= 1")
    for ended in ("arrive 0", "schedule 0", "arrive 1", "schedule 1", "prepare 0", "execute 0"):
        page.locator("[data-act=phaseOn]").click()
        phase, step = ended.split()
        wait_head(
            page,
            f"s.cursor === s.head && s.records[s.head].kind === 'patch' && "
            f"s.records[s.head].phase === '{phase}' && s.records[s.head].step === {step}",
        )
    said = re.compile("^Paused with 2 steps in flight, before sample of step 0")
    expect(page.locator(".gb-hint")).to_have_text(said)
    expect(page.locator(".gb-lane .is-next")).to_have_text(re.compile("^sample"))
    page.locator("[data-act=stepOn]").click()
    wait_head(page, "s.cursor === s.head && s.records[s.head].phase === 'output'")
    page.get_by_label("Speed").select_option("2")
    page.locator("[data-act=run]").click()
    wait_head(page, "s.headEngine.mode === 'running'")
    expect(page.locator(".gb-hint")).to_contain_text("above 4 steps/s both threads")
    page.get_by_label("Speed").select_option("free")
    wait_head(page, "Object.values(s.state.requests)[0].status === 'finished'")
    page.locator("[data-act=run]").click()
    wait_head(page, "s.headEngine.mode === 'paused'")
    assert page.evaluate("window.stage.store.records.every((r, i) => r.seq === i)")
    assert lanes(page)["both"]["us"] > 0


def test_the_threads_fold_away_and_stay_so(page: Page, by_hand: Recorded) -> None:
    show(page, by_hand.text)
    body = page.locator(".gb-lanes-body")
    expect(body).to_be_visible()
    page.get_by_label("Fold the threads").click()
    expect(body).to_be_hidden()
    expect(page.get_by_label("Phases of the step")).to_be_visible()
    expect(page.locator(".gb-lanes-words")).to_be_visible()
    page.reload()
    wait_live(page)
    show(page, by_hand.text)
    expect(body).to_be_hidden()


def test_a_click_on_a_phase_in_time_goes_to_its_end(page: Page, at_once: Recorded) -> None:
    show(page, at_once.text)
    seek(page, of_steps(at_once)[20])
    canvas = page.locator(".gb-lanes-canvas")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] * 0.3, "y": box["height"] - 6})
    settle(page)
    record = at_once.records[page.evaluate("window.stage.store.cursor")]
    assert record["kind"] == "patch" and record["phase"] in EXECUTOR


def test_on_a_narrow_screen_nothing_runs_out(page: Page, at_once: Recorded) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, at_once.text)
    seek(page, of_steps(at_once)[20])
    wide = page.evaluate(
        """() => Array.from(window.stage.root.querySelectorAll(".gb-transport, .gb-transport *"))
            .filter((node) => node.getBoundingClientRect().right > innerWidth + 0.5)
            .map((node) => node.className)"""
    )
    assert wide == []


def test_axe_finds_no_fault_in_the_threads(page: Page, at_once: Recorded) -> None:
    show(page, at_once.text)
    seek(page, of_steps(at_once)[20])
    parts = ("gb-lane", "gb-inflight")
    for theme in ("", "dark"):
        assert axe_faults(page, theme, lambda target: any(p in target for p in parts)) == []
