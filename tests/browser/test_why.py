"""The page tells why as the engine's reader does, in plain sentences, each beside vLLM's place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.conformance import Conformance, Workload, driver_of, load_workload
from engine.events import BlocksHit, BlocksLeftUncomputed, RequestPreempted, RequestScheduled
from engine.origins import Origins
from engine.trace import Trace
from engine.vllm_symbols import DECIDED_BY
from engine.why import DECISIONS, decisions_about
from tests.browser.stage import HOSTILE, axe_faults, settle, show, watched
from tests.browser.stage_server import StageServer
from tests.engine.workloads import ASYNC_FOLDER, FOLDER, SPEC_FOLDER, workload_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WORKLOADS = ["04-mixed-budget", "08-eviction-order", "09-preempt-recompute", "19-admit-watermark"]
WORKLOADS += ["20-reset-cache", "24-random-d", "27-priority-victim-in-step", "29-duplicate-evicted"]
SPEC_WORKLOADS = ["03-prefix-eagle", "06-padding", "08-priority", "09-budget"]
ASYNC_WORKLOADS = ["05-preempt", "08-reset"]
LINES = ".gb-inspector .gb-history .gb-event-button"


@pytest.fixture(scope="module")
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    with watched(browser.new_page(viewport={"width": 1280, "height": 900}), server) as page:
        yield page
        page.close()


READ = """async text => {
          const { originsOf } = await import("/assets/core/origins.js");
          const [header, ...records] = text.split("\\n").map((line) => JSON.parse(line));
          const store = { header, records, cursor: records.length - 1 };
          const origins = originsOf(store);
"""


def recorded(name: str) -> Trace:
    """What the engine logs of a recorded workload."""
    folders = dict.fromkeys(ASYNC_WORKLOADS, ASYNC_FOLDER) | dict.fromkeys(
        SPEC_WORKLOADS, SPEC_FOLDER
    )
    driver = driver_of(load_workload(workload_path(name, folders.get(name, FOLDER)))[0])
    list(driver.steps())
    return driver.trace


def played(requests: list[dict[str, Any]], **config: Any) -> Trace:
    workload = {"name": "w", "config": {"block_size": 4, **config}, "requests": requests}
    driver = Conformance(Workload.model_validate(workload))
    list(driver.steps())
    return driver.trace


@pytest.fixture(scope="module")
def pressure(server: StageServer) -> Trace:
    """A model under pressure: waiting, hits, preemption; its texts are markup."""
    config = EngineConfig(num_gpu_blocks=20, block_size=8, max_num_seqs=3)
    llm = AsyncLLM(server.sessions.wait_for_model(), config, server.sessions.thread)
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    llm.submit(HOSTILE, params)
    llm.submit("Once upon a time", params)
    for _ in range(4):
        llm.step()
    for text in (HOSTILE + "<b>was</b>", HOSTILE + "<b>is</b>", "Zebra"):
        llm.submit(text, SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True))
    while llm.num_unfinished:
        llm.step()
    llm.close()
    return llm.trace


def lines(trace: Trace) -> str:
    return "\n".join(trace.lines())


def open_at_end(page: Page, trace: Trace) -> None:
    """The tab would go back to where it stood in this trace before."""
    show(page, lines(trace))
    page.evaluate("window.stage.store.seek(window.stage.store.head)")
    settle(page)


def select(page: Page, **selection: Any) -> None:
    chosen = {"request": None, "block": None, "component": None, **selection}
    page.evaluate("chosen => window.stage.store.select(chosen)", chosen)
    settle(page)


def sentences(page: Page) -> list[str]:
    return page.locator(LINES).all_inner_texts()


def show_all(page: Page) -> None:
    while page.locator(".gb-history + .gb-button").is_visible():
        page.locator(".gb-history + .gb-button").click()
        settle(page)


def seek_end_of(page: Page, step: int) -> None:
    page.evaluate(
        """step => {
          const { store } = window.stage;
          store.seek(store.steps.findLast((entry) => entry.step === step).last);
        }""",
        step,
    )
    settle(page)


# --- the same as the engine's reader -----------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS + ASYNC_WORKLOADS + SPEC_WORKLOADS)
def test_page_and_engine_tell_the_same_decisions_and_numbers(page: Page, name: str) -> None:
    trace = recorded(name)
    origins = Origins(trace.header, trace.records)
    told = page.evaluate(
        READ
        + """
          const { decisionsAbout } = await import("/assets/core/why.js");
          const { decidedBy } = await import("/assets/words/vllm_symbols.js");
          return [...origins.begins.keys()].flatMap((request) => origins.steps.map((step) => [
            request, step, decisionsAbout(origins, request, step).map((item) => [
              item.decision, item.event.seq, item.numbers, decidedBy(item.event)?.name ?? null])]));
        }""",
        lines(trace),
    )
    looked_at = 0
    for request, step, items in told:
        expected = [
            [
                item.decision,
                item.seq,
                json.loads(json.dumps(item.numbers)),
                item.symbol.name if item.symbol else None,
            ]
            for item in decisions_about(origins, request, step)
        ]
        assert items == expected, (request, step)
        looked_at += len(items)
    assert looked_at > 20


def test_page_and_engine_have_the_same_tables(page: Page) -> None:
    decisions, symbols = page.evaluate(
        """async () => [
          (await import("/assets/core/why.js")).DECISIONS,
          (await import("/assets/words/vllm_symbols.js")).DECIDED_BY]"""
    )
    assert decisions == DECISIONS
    assert symbols == {key: symbol._asdict() for key, symbol in DECIDED_BY.items()}


@pytest.mark.parametrize("name", WORKLOADS + ASYNC_WORKLOADS + SPEC_WORKLOADS)
def test_every_sentence_is_one(page: Page, name: str) -> None:
    said = page.evaluate(
        READ
        + """
          const { decisionsAbout } = await import("/assets/core/why.js");
          const history = await import("/assets/core/history.js");
          const { whySentence, decodeSentence } = await import("/assets/words/why.js");
          const { config } = header;
          const said = [];
          const tell = (items, to) => said.push(...items.map((item) => whySentence(item, to)));
          for (const step of origins.steps) {
            tell(history.stepHistory(store, step, 999).groups.flatMap((g) => g.items), { config });
            for (const request of origins.begins.keys())
              tell(decisionsAbout(origins, request, step), { config, request });
          }
          for (const block of origins.blocks.keys()) {
            const { groups } = history.blockHistory(store, block, 999);
            tell(groups.flatMap((group) => group.items), { config, block });
          }
          for (const request of origins.begins.keys()) {
            const { groups } = new history.RequestHistory(request).read(store, 999);
            const decodes = groups.filter((group) => group.kind === "decode");
            said.push(...decodes.map(decodeSentence));
          }
          return said;
        }""",
        lines(recorded(name)),
    )
    odd = re.compile(r"undefined|NaN|null|\[object|\.\.|  |: \.|: ;|, ,|;;|^it ")
    for sentence in said:
        assert sentence.endswith(".") and not odd.search(sentence), sentence


# --- sentences ---------------------------------------------------------------------------------


def told_of(page: Page, trace: Trace, request: str, step: int) -> list[str]:
    open_at_end(page, trace)
    seek_end_of(page, step)
    select(page, request=request)
    return page.locator(f"{LINES}").all_inner_texts()


def test_whoever_waits_is_told_behind_whom_for_how_long_and_how_many_blocks_short(
    page: Page,
) -> None:
    prompts = [[n, *range(100 * n, 100 * n + 7)] for n in range(4)]
    specs: list[dict[str, Any]] = [
        {"id": f"r{n}", "prompt_token_ids": prompt, "max_tokens": 9}
        for n, prompt in enumerate(prompts)
    ]
    trace = played(specs, num_gpu_blocks=6)
    assert told_of(page, trace, "r3", 0)[0] == (
        "It waits behind r2, which is not admitted: it needs 2 blocks and 1 is free, 1 block short."
    )
    said = told_of(page, played(specs, max_num_seqs=1), "r3", 2)
    assert said[0] == (
        "It waits (2 steps so far) behind r1 and 1 more; r1, the first in the queue, is not "
        "admitted: 1 of 1 seats are taken."
    )


def test_a_miss_shows_both_tokens_and_never_as_markup(page: Page, pressure: Trace) -> None:
    parted = next(
        (request, step)
        for step in range(99)
        for request in ("r2", "r3")
        for item in pressure.why(request, step)
        if item.numbers.get("miss") == "parted"
    )
    said = told_of(page, pressure, *parted)
    numbers = next(i.numbers for i in pressure.why(*parted) if i.numbers.get("miss") == "parted")
    line = next(text for text in said if "parts at position" in text)
    assert f"position {numbers['position']}: token {numbers['token']} “" in line
    assert f"(block {numbers['block']}, of {numbers['other']}) has token " in line
    assert page.locator(".gb-history").inner_html().count("<b>") == 0
    assert page.locator(".gb-inspector img").count() == 0


def test_a_preemption_is_told_to_both_sides(page: Page) -> None:
    trace = recorded("09-preempt-recompute")
    step = next(r.step for r in events(trace) if isinstance(r.facts, RequestPreempted))
    assert (
        "It is preempted for r0, which needs 1 block and 0 are free; it is chosen as the last of 3 "
        "running; 13 computed tokens go with its blocks, and it waits again."
    ) in told_of(page, trace, "r2", step)
    said = told_of(page, trace, "r0", step)
    assert "r2 is preempted for it, as it needs 1 block and 0 are free." in said


def test_who_got_tokens_before_it_was_preempted_is_told_that_they_go_back(page: Page) -> None:
    trace = recorded("27-priority-victim-in-step")
    event = next(r for r in events(trace) if isinstance(r.facts, RequestPreempted))
    said = told_of(page, trace, "low", event.step)
    given = next(line for line in said if line.startswith("It gets 8 tokens from position 18"))
    lost = next(line for line in said if line.startswith("It is preempted for high"))
    assert said.index(lost) < said.index(given)  # the latest first
    assert lost.endswith("; the 8 tokens that this step had given it go back to the budget.")


# --- the history -------------------------------------------------------------------------------


def events(trace: Trace) -> list[Any]:
    return [record for record in trace.records if hasattr(record, "facts")]


def test_a_line_leads_to_its_moment_and_to_vllm(page: Page, pressure: Trace) -> None:
    open_at_end(page, pressure)
    select(page, request="r2")
    show_all(page)
    first = page.locator(LINES).nth(-1)
    seq = int(first.get_attribute("data-seq") or "-1")
    first.click()
    settle(page)
    assert page.evaluate("window.stage.store.cursor") == seq
    assert pressure.records[seq].facts.request == "r2"  # type: ignore[union-attr]
    # At that moment nothing later is told.
    shown = [int(line.get_attribute("data-seq") or "-1") for line in page.locator(LINES).all()]
    assert max(shown) == seq
    link = page.locator(".gb-history a.gb-why-symbol").first
    href = link.get_attribute("href") or ""
    assert re.fullmatch(
        r"https://github\.com/vllm-project/vllm/blob/v0\.26\.0/vllm/v1/\S+\.py#L\d+-L\d+", href
    )
    assert page.locator(".gb-history [aria-current=true]").count() == 1


def test_the_arrows_walk_the_lines_and_tab_goes_on_to_vllm(page: Page, pressure: Trace) -> None:
    open_at_end(page, pressure)
    select(page, request="r0")
    assert page.locator(f"{LINES}[tabindex='0']").count() == 1
    assert page.locator(".gb-history a.gb-why-symbol[tabindex='0']").count() == 1
    page.locator(LINES).first.focus()
    page.keyboard.press("ArrowDown")
    focused = "e => e.getRootNode().activeElement === e"
    assert page.locator(LINES).nth(1).evaluate(focused)
    page.keyboard.press("Tab")
    assert page.locator(".gb-history a.gb-why-symbol").nth(1).evaluate(focused)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Home")
    assert page.locator(LINES).first.evaluate(focused)
    page.keyboard.press("Enter")
    settle(page)
    seq = int(page.locator(LINES).first.get_attribute("data-seq") or "-1")
    assert page.evaluate("window.stage.store.cursor") == seq


def test_a_long_decode_is_one_line_and_the_newest_step_another(page: Page) -> None:
    prompt = list(range(9))
    trace = played(
        [{"id": "r0", "prompt_token_ids": prompt, "max_tokens": 2000}],
        num_gpu_blocks=600,
        max_model_len=2200,
    )
    last = max(r.step for r in events(trace) if isinstance(r.facts, RequestScheduled))
    said = told_of(page, trace, "r0", last)
    assert any(
        text.startswith("It gets 1 token at position 2007, all it wanted; ") for text in said
    )
    assert any(text.startswith("One token in each of 1,998 steps; blocks") for text in said)
    assert len(said) < 20
    titles = page.locator(".gb-history h4").all_inner_texts()
    assert titles == [f"Step {last}", f"Steps 1–{last - 1}", "Step 0"]


def test_waiting_for_the_same_reason_is_one_line(page: Page) -> None:
    specs = [{"id": f"r{n}", "prompt_token_ids": [n] * 5, "max_tokens": 30} for n in range(2)]
    trace = played(specs, max_num_seqs=1)
    at_once = told_of(page, trace, "r1", 0)  # the latest first, within a step too
    assert [text.partition(" with")[0] for text in at_once[1:2]] == ["It joins the waiting queue"]
    assert at_once[0].startswith("It is first in the queue and not admitted: 1 of 1 seats")
    said = told_of(page, trace, "r1", 20)
    assert said[:2] == [
        f"It is first in the queue ({n} steps so far) and not admitted: 1 of 1 seats are taken."
        for n in (20, 19)
    ]
    assert page.locator(".gb-history h4").nth(1).inner_text() == "Steps 1–19"


def test_a_history_grows_as_the_cursor_moves_and_is_the_same_both_ways(
    page: Page, pressure: Trace
) -> None:
    open_at_end(page, pressure)
    select(page, request="r1")
    seen: dict[int, list[str]] = {}
    for cursor in [*range(40, 400, 45), *range(400, 40, -45)]:
        page.evaluate("i => window.stage.store.seek(i)", cursor)
        settle(page)
        told = sentences(page)
        assert seen.setdefault(cursor, told) == told
        seqs = [int(line.get_attribute("data-seq") or "-1") for line in page.locator(LINES).all()]
        assert all(seq <= cursor for seq in seqs)


def test_a_block_and_a_step_have_their_histories(page: Page, pressure: Trace) -> None:
    open_at_end(page, pressure)
    select(page, block=3)
    show_all(page)
    said = sentences(page)
    assert any("shares it, beside r0." in text for text in said), said
    assert any(text.startswith("It is full with tokens 16–23 of r0") for text in said), said
    step = next(r.step for r in events(pressure) if isinstance(r.facts, RequestPreempted))
    select(page)
    seek_end_of(page, step)
    said = sentences(page)
    assert any("is preempted" in text for text in said)
    assert any(" get one token each, all they wanted" in text for text in said)


@pytest.mark.parametrize(("width", "theme"), [(1280, ""), (390, "dark")])
def test_a_history_has_no_fault_that_axe_finds(
    page: Page, pressure: Trace, width: int, theme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_at_end(page, pressure)
    select(page, request="r3")
    show_all(page)
    parts = ("gb-inspector", "gb-history")
    assert axe_faults(page, theme, lambda target: any(p in target for p in parts)) == []
    inspector = page.locator(".gb-inspector-scroll").first
    assert inspector.evaluate("node => node.scrollWidth <= node.clientWidth")
    page.evaluate("document.getElementById('app').className = 'stApp'")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_a_block_in_use_is_told_of_though_its_owner_is_chosen_with_it(
    page: Page, pressure: Trace
) -> None:
    open_at_end(page, pressure)
    page.evaluate("window.stage.store.select({ request: 'r0', block: 3 })")
    settle(page)
    head = page.locator(".gb-inspector h2").first
    assert head.inner_text() == "Block 3"
    assert sentences(page)
    page.evaluate("window.stage.store.select({ request: 'r0' })")
    settle(page)
    assert head.inner_text() == "r0"


def test_waiting_is_told_together_only_while_as_many_blocks_are_short(page: Page) -> None:
    told_of(page, recorded("09-preempt-recompute"), "r2", 12)
    show_all(page)
    titles = page.locator(".gb-history h4").all_inner_texts()
    assert titles[:5] == ["Step 12", "Steps 10–11", "Step 9", "Steps 6–8", "Step 5"]


def test_a_block_that_was_never_computed_says_so_and_whoever_hits_it_too(page: Page) -> None:
    trace = recorded("27-priority-victim-in-step")
    left = next(e for e in events(trace) if isinstance(e.facts, BlocksLeftUncomputed))
    assert isinstance(left.facts, BlocksLeftUncomputed)
    hit = next(e for e in events(trace) if isinstance(e.facts, BlocksHit) and e.facts.uncomputed)
    assert isinstance(hit.facts, BlocksHit) and hit.facts.request == left.facts.request
    block = hit.facts.uncomputed[0]
    open_at_end(page, trace)
    select(page, block=block)
    show_all(page)
    stays = "It stays in the prefix cache, never computed, so a hit reads what stood there before."
    assert stays in sentences(page)
    said = told_of(page, trace, hit.facts.request, hit.step)
    assert any("was never computed" in text or "were never computed" in text for text in said)
    resumed = next(text for text in said if "it was preempted" in text)
    assert re.search(r"of the \d+ tokens computed before it was preempted, all are hit", resumed)
