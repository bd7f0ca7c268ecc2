"""The whole page against the real server and SmolLM2, seen through a real browser.

What is drawn is compared with the engine's own log (`GET /api/trace`), fetched beside the page.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from engine.records import STEP_PHASES
from engine.trace import State, merge_patch
from tests.servers import ROOT, ready_app
from tests.waiting import PATIENCE_S, becomes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

SHOTS = ROOT / "test-results"
READY = (
    "[data-testid=stApp][data-test-connection-state=CONNECTED][data-test-script-state=notRunning]"
)
VIEWS = ("request-lifecycle", "block-allocation", "cuda-acceleration")
PANELS = ("lifecycle", "blocks", "graph")
PROMPT = "The capital of France is"
# The store is one module for the whole page, so the test sees the one that is drawn.
IN_SIGHT = """element => {
  const box = element.getBoundingClientRect();
  const middle = [box.left + box.width / 2, box.top + box.height / 2];
  return box.top >= 0 && element.contains(document.elementFromPoint(...middle));
}"""
# What decides where the cursor is, and where it goes: said where it does not come there.
WHERE = """(({ header, clock }) => ({
  cursor: s.cursor, head: s.head, following: s.following, live: s.live,
  wantedSeq: s.wantedSeq, stepWanted: s.stepWanted, connection: s.connection,
  base: header?.base_seq, trace: header?.trace_id, isHidden: document.hidden,
  clock: { frame: clock.frame, rate: clock.rate, deadline: clock.deadline, now: performance.now() },
}))(s)"""
STORE = "async () => { const s = (await import('/assets/workspace.js')).store(); return %s; }"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's folder of documents."""
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="module")
def server_url(documents: Path) -> Iterator[str]:
    """`python app.py` with the default model, on any free port."""
    with ready_app(model="", DOCUMENTS=str(documents)) as (app, url):
        yield url
    assert "Traceback" not in "".join(app.lines), "".join(app.lines)


@dataclass
class Log:
    """The engine's log up to now: records, and the state that they fold to."""

    header: dict[str, Any]
    records: list[dict[str, Any]]
    state: State = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Log:
        header, *records = (json.loads(line) for line in text.splitlines())
        state: State = header["state"]
        for record in records:
            if record["kind"] == "patch":
                merge_patch(state, record["changes"])
        return cls(header, records, state)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record.get("type") == kind]


class Tab:
    """One browser tab with the page in it."""

    def __init__(self, page: Page, url: str):
        self.page = page
        self.url = url
        self.requested: list[str] = []
        self.faults: list[str] = []
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))

    def open(self) -> Tab:
        self.page.goto(self.url)
        self.page.wait_for_selector(".st-key-gb-send button:not([disabled])")
        self.settle()
        return self

    def settle(self) -> None:
        self.page.wait_for_selector(READY)
        assert self.page.locator("[data-testid=stException]").count() == 0
        assert self.faults == []

    @property
    def key(self) -> str:
        return str(self.page.evaluate("sessionStorage.getItem('glassbox.session')"))

    def log(self) -> Log:
        request = urllib.request.Request(
            f"{self.url}/api/trace", headers={"Authorization": f"Bearer {self.key}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return Log.parse(answer.read().decode())

    def store(self, expression: str) -> Any:
        return self.page.evaluate(STORE % expression)

    def wait_for(self, expression: str, expected: Any) -> None:
        """Wait until something of the store has this value; the cursor walks to the head."""
        until = time.monotonic() + PATIENCE_S
        while (found := self.store(expression)) != expected:
            if time.monotonic() > until:
                told = f"{expression} is {found!r:.500}, not {expected!r:.500}"
                pytest.fail(f"{told}; {self.store(WHERE)}")
            self.page.wait_for_timeout(50)

    def send(self, prompt: str | None = None, max_tokens: int | None = None) -> None:
        if max_tokens is not None:
            self.page.get_by_role("button", name="Sampling").click()
            self.page.get_by_label("max_tokens: tokens to generate").fill(str(max_tokens))
            self.page.locator(".gb-brand").click()  # beside the popover: it closes and keeps it
        if prompt is not None:
            self.page.get_by_label("Prompt", exact=True).fill(prompt)
        self.page.get_by_role("button", name="Send", exact=True).click()
        self.has(".gb-note", "sent.")
        self.settle()

    def view(self, number: int) -> None:
        self.page.get_by_role("tab").nth(number).click()
        self.has(f"#gb-tab-{VIEWS[number]}[aria-selected=true]", "")

    def press(self, name: str) -> None:
        """Press the transport's button that goes forward."""
        self.page.locator(".gb-transport").get_by_role("button", name=name).last.click()

    def has(self, selector: str, text: str | re.Pattern[str]) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator(selector).first).to_contain_text(text)

    def rows(self, table: str, expected: Sequence[Sequence[str | re.Pattern[str]]]) -> None:
        """Wait until a table, which draws the canvas beside it for readers, says this."""
        from playwright.sync_api import expect

        found: Locator = self.page.locator("table", has_text=table).locator("tbody tr")
        expect(found).to_have_count(len(expected))
        for number, cells in enumerate(expected):
            for place, cell in enumerate(cells):
                expect(found.nth(number).locator("td, th").nth(place)).to_have_text(cell)


@pytest.fixture
def tab(browser: Browser, server_url: str) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Tab(context.new_page(), server_url).open()
    context.close()


def squeezed(text: str) -> str:
    """Text without what only lays it out."""
    return re.sub(r"[\s⏎·␣]", "", text)


def check_lifecycle(tab: Tab, log: Log) -> None:
    request = log.state["requests"]["r0"]
    batch = log.events("batch_scheduled")[-1]
    tokens = batch["facts"]["prefill_tokens"] + batch["facts"]["decode_tokens"]
    tab.has(".gbp-sentence", f"Step {batch['step']} gave {tokens} of 64 tokens")
    shown = [f"{request['num_computed_tokens']} of {request['num_tokens']}"]
    outputs = len(request.get("output_token_ids", {}))
    tab.rows("Requests over steps", [["r0", request["status"], *shown, str(outputs)]])
    text = request["prompt"] + "".join(request.get("output_pieces", {}).values())
    panel = tab.page.locator("#gb-panel")
    becomes(lambda: squeezed(text) in squeezed(panel.inner_text()), True)


def check_blocks(tab: Tab, log: Log) -> None:
    used = {
        name: block
        for name, block in log.state["blocks"].items()
        if block["ref_cnt"] > 0 and not block.get("null_block")
    }
    table = log.state["requests"]["r0"].get("block_table", {})
    assert sorted(used) == sorted(str(block) for block in table.values())
    tab.rows("Blocks in use", [[name, "r0", str(used[name]["ref_cnt"])] for name in used])
    tab.has("#gb-panel", f"Free queue, in order: {log.state['queues']['free']['length']} blocks")


def check_graph(tab: Tab, log: Log) -> None:
    steps = [
        [
            str(event["step"]),
            "eager" if event["facts"]["mode"] == "NONE" else event["facts"]["mode"],
            str(event["facts"]["num_tokens"]),
        ]
        for event in log.events("step_dispatched")
    ]
    tab.rows("Steps and how they ran", steps)
    model = log.header["model"]
    kilobytes = f"{model['kv_bytes_per_token'] / 1000:.1f} kB of KV a token"
    tab.has(".gbp-shape", kilobytes)
    tab.has(".gbp-shape", f"× {model['num_layers']} layers × {model['num_kv_heads']} KV heads ×")
    forward = log.events("forward_run")[-1]["facts"]
    tab.has(".gbp-total", f"{forward['num_tokens']} token")
    read = log.events("pages_read")[-1]["facts"]
    tab.has(".gbp-lead", f"{len(read['blocks'])} page")
    tab.has(".gbp-lead", f"{read['num_tokens']} tokens of context")


CHECKS = (check_lifecycle, check_blocks, check_graph)


def test_a_prompt_goes_phase_by_phase_through_all_three_views(tab: Tab) -> None:
    tab.send(PROMPT, max_tokens=4)
    submitted = tab.log()
    assert submitted.state["requests"]["r0"]["max_tokens"] == 4
    assert submitted.state["requests"]["r0"]["sampling"]["temperature"] == 0
    tab.has(".gb-map", "1 open · 0 done")
    for step in range(4):
        for number, phase in enumerate(STEP_PHASES):
            tab.press("Phase")
            tab.has(".gb-phase.is-now", str(phase))
            tab.has(".gb-transport", f"step {step} / {step}")
            tab.view(number % 3)
            assert "could not" not in tab.page.locator("#gb-panel").inner_text()
            log = tab.log()
            assert (log.records[-1]["step"], log.records[-1]["phase"]) == (step, phase)
            tab.wait_for("s.cursor", len(log.records) - 1)
            assert tab.store("s.state") == log.state
        for number, check in enumerate(CHECKS):
            tab.view(number)
            check(tab, tab.log())
    log = tab.log()
    assert log.state["requests"]["r0"]["status"] == "finished"
    assert log.state["requests"]["r0"]["finish_reason"] == "length"
    assert log.state["requests"]["r0"]["output_pieces"]["0"] == " Paris"
    tab.has(".gb-map", "0 open · 1 done")


# What each view's sentence tells of a step with one request that finds no cached prefix.
TOLD = (
    {"batch_scheduled", "request_scheduled", "text_emitted"},
    {"blocks_allocated", "blocks_cached", "prefix_looked_up"},
    {
        *("step_dispatched", "graph_captured", "graph_replayed"),
        *("forward_run", "modules_timed", "pages_read"),
    },
)


def test_what_the_sentence_says_comes_from_events_of_the_log(tab: Tab) -> None:
    """A part for each event of the step that the view tells of, with that event's own numbers."""
    tab.send(PROMPT, max_tokens=2)
    tab.press("Step")
    tab.wait_for("s.headEngine.step", 1)  # the whole step is done, not only begun
    tab.has(".gb-transport", "step 0 / 0")
    for number in range(3):
        tab.view(number)
        log = tab.log()
        tab.wait_for("s.cursor", len(log.records) - 1)
        tab.has(f".gbp-{PANELS[number]} .gbp-sentence", "tep 0")
        wanted = {
            record["seq"]: record
            for record in log.records
            if record.get("type") in TOLD[number] and record["step"] == 0
        }
        parts = tab.page.locator(".gbp-sentence [data-seqs]")
        cited: set[int] = set()
        for part in parts.all():
            seqs = [int(seq) for seq in (part.get_attribute("data-seqs") or "").split()]
            cited |= set(seqs)
            for seq in seqs:
                for word in words_of(wanted[seq]):
                    assert word in part.inner_text(), wanted[seq]
        assert cited == set(wanted)


def words_of(event: dict[str, Any]) -> list[str]:
    """What a sentence must say of an event."""
    facts = event["facts"]
    if event["type"] == "batch_scheduled":
        tokens = facts["prefill_tokens"] + facts["decode_tokens"]
        return [f"gave {tokens} of {facts['max_num_batched_tokens']} tokens"]
    if event["type"] == "request_scheduled":
        return [facts["request"], f"{facts['num_tokens']}-token prompt"]
    if event["type"] in ("blocks_allocated", "blocks_cached"):
        return [facts["request"], str(facts["blocks"][0]), str(facts["blocks"][-1])]
    if event["type"] == "pages_read":
        return [facts["request"], f"{len(facts['blocks'])} page", "derived"]
    if event["type"] == "forward_run":
        return [f"{facts['num_tokens']} tokens", f"{facts['num_layers']} layers", "the CPU"]
    if event["type"] == "modules_timed":
        times = zip(facts["durations_us"], facts["kinds"], strict=True)
        return [max(times)[1]]
    if event["type"] == "text_emitted":
        return [facts["request"], facts["text"].strip()]
    if event["type"] == "step_dispatched":
        return ["eager" if facts["mode"] == "NONE" else f"{facts['mode']} graph"]
    if event["type"] == "graph_captured":
        return ["captured"]
    if event["type"] == "graph_replayed":
        return [f"{facts['operations']} operations"]
    return [facts["request"]]


def test_an_openai_client_appears_on_the_map(tab: Tab) -> None:
    from openai import OpenAI

    answers: list[str] = []

    def ask() -> None:
        client = OpenAI(base_url=f"{tab.url}/v1", api_key=key, max_retries=0)
        answer = client.completions.create(
            model="SmolLM2-135M-Instruct", prompt=PROMPT, max_tokens=3, temperature=0
        )
        answers.append(answer.choices[0].text)

    key = tab.key
    client = threading.Thread(target=ask)
    client.start()
    tab.has(".gb-map", "1 open · 0 done")
    tab.has(".gbp-sentence", re.compile("http", re.IGNORECASE))
    assert tab.log().state["requests"]["r0"]["source"] == "http"
    tab.press("Run")
    client.join(PATIENCE_S)
    assert not client.is_alive()
    request = tab.log().state["requests"]["r0"]
    assert answers == ["".join(request["output_pieces"].values())]
    tab.has(".gb-map", "0 open · 1 done")


def test_the_connect_popover_has_this_tabs_key(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Connect").click()
    tab.has("[data-testid=stPopoverBody] pre", f"Authorization: Bearer {tab.key}")
    tab.has("[data-testid=stPopoverBody] pre", f"{tab.url}/v1/chat/completions")


def test_a_reload_returns_to_the_same_engine_and_place(tab: Tab) -> None:
    tab.send(PROMPT, max_tokens=3)
    tab.press("Step")
    tab.wait_for("s.headEngine.step", 1)  # the whole step is done, not only begun
    tab.has(".gb-transport", "step 0 / 0")
    tab.view(1)
    tab.page.locator(".gb-transport").get_by_role("button", name="Phase").first.click()
    place = "[s.header.trace_id, s.cursor, s.view, s.following]"
    before, key = tab.store(place), tab.key
    tab.page.reload()
    tab.page.wait_for_selector(".st-key-gb-send button:not([disabled])")
    tab.has(".gb-transport", "step 0 / 0")
    tab.wait_for(place, before)
    assert tab.key == key
    tab.settle()


def test_a_double_click_sends_once(tab: Tab) -> None:
    prompts = [PROMPT, "Another prompt", "The last, by which those before it have come"]
    for number, prompt in enumerate(prompts, start=1):
        tab.page.get_by_label("Prompt", exact=True).fill(prompt)
        send = tab.page.get_by_role("button", name="Send", exact=True)
        send.dblclick() if prompt != prompts[-1] else send.click()
        tab.has(".gb-map", f"{number} open")
        tab.settle()
    assert [each["prompt"] for each in tab.log().state["requests"].values()] == prompts


def test_a_preset_reaches_fields_that_are_not_open(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Memory pressure").click()
    tab.has(".gb-note", "Memory pressure")
    tab.has(".gb-note", "Send resets your engine with num_gpu_blocks 14, max_num_seqs 4")
    tab.page.get_by_role("button", name="Sampling").click()
    field = tab.page.get_by_label("max_tokens: tokens to generate")
    becomes(lambda: field.input_value() == "64", True)
    tab.page.keyboard.press("Escape")
    tab.send()
    tab.has(".gb-map", "13 free")
    tab.has(".gb-note", "The answers outgrow the pool")
    requests = tab.log().state["requests"].values()
    assert [request["max_tokens"] for request in requests] == [64] * 4
    assert tab.log().header["config"]["max_num_seqs"] == 4


def test_wrong_settings_are_all_named_in_sight(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Engine", exact=True).first.click()
    tab.page.get_by_label("max_num_seqs: most requests running at once").fill("0")
    tab.page.get_by_label("block_size: tokens a KV-cache block holds").fill("500")
    tab.page.get_by_role("button", name="Apply and reset the engine").click()
    error = tab.page.locator("[data-testid=stPopoverBody] [data-testid=stAlert]")
    error.wait_for()
    assert "max_num_seqs: must be 1 or more (got 0)" in error.inner_text()
    assert "block_size: must be 128 or less (got 500)" in error.inner_text()
    becomes(lambda: error.evaluate(IN_SIGHT), True)


def test_what_is_sent_is_shown_whatever_was_looked_at(tab: Tab) -> None:
    tab.send(PROMPT, max_tokens=2)
    own = tab.log().header["trace_id"]
    tab.wait_for("s.header?.trace_id", own)
    tab.store("s.link.choose('shared')")
    tab.wait_for(f"Boolean(s.header) && s.header.trace_id !== '{own}'", True)
    tab.send("Something else")
    tab.wait_for("[s.engine, s.header?.trace_id]", ["own", own])
    text = "(await (await s.link.traceFile()).text())"
    tab.store(f"s.openTrace({text}, 'saved.jsonl')")
    tab.wait_for("s.live", False)
    tab.send("Another prompt")
    tab.wait_for("[s.live, s.header?.trace_id]", [True, own])
    tab.has(".gb-map", "3 open · 0 done")


def test_another_document_is_opened_by_one_tab_alone(tab: Tab, server_url: str) -> None:
    page = tab.page
    weather = ROOT / "tests" / "documents" / "weather-stations.architecture.json"
    page.get_by_role("button", name="Document").click()
    upload = page.locator("[data-testid=stFileUploader] input")
    upload.set_input_files(weather)
    tab.has(".gb-document", "None of its boxes is a part of the engine")
    upload.set_input_files({"name": "b.json", "mimeType": "text/json", "buffer": b"{"})
    tab.has(".gb-refused", "b.json is not drawn")
    tab.has(".gb-diagnostics", "json/syntax")
    page.locator(".gb-brand").click()
    tab.has(".gb-tab", "A Reading")
    becomes(lambda: page.locator(".gb-box.is-static").count() == 13, True)
    tab.has("#gb-panel", "Your engine goes on all the same")
    tab.send(PROMPT, max_tokens=1)
    assert tab.log().header["document"] == "Weather Stations of a Valley"
    other = Tab(page.context.new_page(), server_url).open()
    assert other.page.locator(".gb-box.is-static").count() == 0
    page.get_by_role("button", name="Back to the engine's own map").click()
    tab.has(".gb-tab", "Prefill")
    becomes(lambda: page.locator(".gb-box.is-static").count() == 0, True)
    tab.settle()


def test_a_map_follows_its_file_on_the_server(tab: Tab, documents: Path) -> None:
    text = (ROOT / "tests" / "documents" / "lending-library.architecture.json").read_text("utf-8")
    file = documents / "library.json"
    file.write_text(text, "utf-8")
    page = tab.page
    page.get_by_role("button", name="Document").click()
    page.get_by_label("Or name a file in the server's folder").fill("library.json")
    page.locator(".st-key-gb-document-open button").click()
    tab.has(".gb-map", "Kiosk")
    file.write_text(text.replace("Kiosk", "Terminal"), "utf-8")
    tab.has(".gb-map", "Terminal")


def test_the_topology_lights_each_stop_of_a_way(tab: Tab) -> None:
    page = tab.page
    page.get_by_role("button", name="Document").click()
    page.get_by_role("button", name="vLLM V1 Process Topology").click()
    page.locator(".gb-brand").click()
    tab.has(".gb-tab", "One Step's Path")
    tab.send(PROMPT, max_tokens=1)
    tab.press("Step")
    tab.wait_for("s.headEngine.step === 1 && s.headEngine.next_phase === 'arrive'", True)
    tab.store("s.seek(s.records.findIndex((r) => r.type === 'batch_scheduled'))")
    page.wait_for_selector(".gb-packet[data-connection=sched-to-runner] >> nth=3", state="attached")
    tab.settle()


def test_ctrl_enter_sends_and_bad_input_keeps_the_text(tab: Tab) -> None:
    box = tab.page.get_by_label("Prompt", exact=True)
    box.fill("word " * 3000)
    box.press("Control+Enter")
    tab.has(".gb-note[role=alert]", "tokens, and may have 1007 at most")
    assert box.input_value() == "word " * 3000
    box.fill("Hello")
    box.press("Control+Enter")
    tab.has(".gb-note", "1 request sent.")
    assert list(tab.log().state["requests"]) != []


def test_nothing_is_fetched_from_elsewhere(tab: Tab) -> None:
    tab.send(PROMPT, max_tokens=1)
    for number in range(3):
        tab.view(number)
    for name in ("Engine", "Connect", "Document"):
        tab.page.get_by_role("button", name=name, exact=True).first.click()
        tab.page.keyboard.press("Escape")
    tab.settle()
    own = (tab.url, tab.url.replace("http", "ws"), "data:", "blob:")
    assert [url for url in tab.requested if not url.startswith(own)] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_view_has_no_serious_accessibility_fault(
    browser: Browser, server_url: str, scheme: Any
) -> None:
    SHOTS.mkdir(exist_ok=True)
    context = browser.new_context(
        viewport={"width": 1280, "height": 1400}, color_scheme=scheme, reduced_motion="reduce"
    )
    tab = Tab(context.new_page(), server_url).open()
    tab.send(PROMPT, max_tokens=4)
    for step in (1, 2):
        tab.press("Step")
        tab.wait_for("[s.headEngine.step, s.cursor === s.head]", [step, True])
    tab.has(".gb-transport", "step 1 / 1")
    found = []
    for number, view in enumerate(VIEWS):
        tab.view(number)
        tab.has(f".gbp-{PANELS[number]} .gbp-sentence", "tep 1")
        tab.settle()
        tab.page.screenshot(path=str(SHOTS / f"{view}-{scheme}.png"))
        for fault in Axe().run(tab.page).response["violations"]:
            if fault["impact"] in ("serious", "critical"):
                where = [node["target"] for node in fault["nodes"]]
                found.append((view, fault["id"], fault["help"], where))
    context.close()
    assert not found, "\n".join(map(str, found))


def test_a_narrow_screen_does_not_scroll_sideways(browser: Browser, server_url: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    tab = Tab(context.new_page(), server_url).open()
    main = "document.querySelector('[data-testid=stMain]')"
    fits = (
        f"document.documentElement.scrollWidth <= 390 && {main}.scrollWidth <= {main}.clientWidth"
    )
    becomes(lambda: tab.page.evaluate(fits), True)
    SHOTS.mkdir(exist_ok=True)
    tab.page.screenshot(path=str(SHOTS / "narrow.png"))
    context.close()


def test_popovers_know_dark_from_light(browser: Browser, server_url: str) -> None:
    """They are outside of the element whose colour scheme Streamlit sets."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="dark")
    from playwright.sync_api import expect

    page = Tab(context.new_page(), server_url).open().page
    page.get_by_role("button", name="Engine", exact=True).click()
    apply = page.get_by_role("button", name="Apply and reset the engine")
    expect(apply).to_have_css("color", "rgb(6, 32, 42)")
    context.close()
