"""Saved traces that are wrong, on purpose or not: each is refused by line, or shown; none hangs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from tests.browser.stage import watched
from tests.browser.stage_server import StageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Json = dict[str, Any]
Lines = list[Json]


@pytest.fixture(scope="module")
def good(server: StageServer) -> str:
    """What an engine logs of two requests."""
    config = EngineConfig(num_gpu_blocks=12, block_size=8, max_num_seqs=2)
    llm = AsyncLLM(server.sessions.wait_for_model(), config, server.sessions.thread)
    for prompt in ("Once upon a time there was a block", "Once upon a time there was none"):
        llm.submit(prompt, SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
    while llm.num_unfinished:
        llm.step()
    lines = list(llm.trace.lines())
    llm.close()
    return "\n".join(lines)


@pytest.fixture(scope="module")
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    with watched(browser.new_page(viewport={"width": 1280, "height": 900}), server) as page:
        yield page
        page.close()


def opened(page: Page, text: str) -> str:
    """What the page says of a file; "" where it shows it."""
    said: str = page.evaluate(
        """async (text) => {
            try { window.stage.store.openTrace(text, "test.jsonl"); } catch (error) {
              return error.message;
            }
            await window.stage.frame();
            return "";
        }""",
        text,
    )
    return said


def spoilt(good: str, spoil: Callable[[Lines], Any]) -> str:
    """The file with its records spoilt, numbered anew."""
    lines: Lines = [json.loads(line) for line in good.splitlines()]
    spoil(lines)
    for i, record in enumerate(lines[1:]):
        record["seq"] = lines[0].get("base_seq", 0) + i if isinstance(lines[0], dict) else i
    return "\n".join(json.dumps(line) for line in lines)


def first(lines: Lines, **wanted: Any) -> Json:
    return next(line for line in lines if all(line.get(k) == v for k, v in wanted.items()))


def patch(lines: Lines, changes: Json) -> None:
    last = lines[-1]
    lines.append({**first(lines, kind="patch"), "step": last["step"], "changes": changes})


def requests(lines: Lines, **fields: Any) -> None:
    patch(lines, {"requests": {"x": {"status": "running", **fields}}})


HEADERS: list[tuple[Callable[[Json], Any], str]] = [
    (lambda h: h["config"].update(num_gpu_blocks=1e9), "config.num_gpu_blocks must be a whole"),
    (lambda h: h["config"].update(num_gpu_blocks=-1), "number from 1 to 65,536"),
    (lambda h: h["config"].update(num_gpu_blocks="many"), "config.num_gpu_blocks"),
    (lambda h: h["config"].update(block_size=0), "config.block_size"),
    (lambda h: h["model"].update(num_kv_heads=1e12), "model.num_kv_heads"),
    (lambda h: h["model"].update(device=["cpu"]), "model.device must be a text"),
    (lambda h: h.update(document=4), "document must be a text"),
    (lambda h: h.update(base_seq=-3), "base_seq must be a whole number"),
    (lambda h: h["state"].update(blocks=[1]), "blocks must be an object"),
    (lambda h: h["state"].update(requests={"r": {"status": "odd"}}), "status must be one of"),
]

VERDICT = {"request": "r0", "drafts": [7], "texts": ["a"], "position": 3, "num_accepted": 2}

RECORDS: list[tuple[Callable[[Lines], Any], str]] = [
    (lambda t: requests(t, prompt_pieces="abc"), "requests.x.prompt_pieces must be a list"),
    (lambda t: requests(t, prompt_pieces=["a", 1]), "prompt_pieces[1] must be a text"),
    (lambda t: requests(t, block_table={"0": 12}), "block_table.0 must be a whole number from 0"),
    (lambda t: requests(t, block_table={"-1": 1}), "block_table.-1 must be named by a whole"),
    (lambda t: requests(t, num_tokens="9"), "requests.x.num_tokens must be a whole number"),
    (lambda t: requests(t, status="flying"), "requests.x.status must be one of"),
    (lambda t: patch(t, {"requests": {"y": {"num_tokens": 1}}}), "requests.y needs its status"),
    (lambda t: patch(t, {"blocks": {"99": {"ref_cnt": 0}}}), "blocks.99 must be a whole number"),
    (lambda t: patch(t, {"blocks": {"1": {"ref_cnt": -1}}}), "blocks.1.ref_cnt must be"),
    (lambda t: patch(t, {"queues": {"free": {"length": "x"}}}), "queues.free.length must be"),
    (lambda t: patch(t, {"counters": []}), "counters must be an object"),
    (lambda t: patch(t, {"engine": {"mode": {}}}), "engine.mode must be a text"),
    (lambda t: patch(t, {"requests": None, "blocks": None}) or requests(t, x=deep(40)), "nested"),
    (
        lambda t: patch(t, {"requests": {f"q{i}": {"status": "finished"} for i in range(20_001)}}),
        "more than 20,000 requests",
    ),
    (lambda t: first(t, type="request_scheduled").update(step=10**9), "cannot follow step"),
    (lambda t: t[-1].update(step=0.5), "step must be a whole number"),
    (lambda t: t[-1].update(duration_us="long"), "duration_us must be a number"),
    (
        lambda t: first(t, type="inputs_prepared")["facts"].update(query_start_loc=[0, 10**9]),
        "inputs_prepared: query_start_loc must count up",
    ),
    (
        lambda t: first(t, type="token_sampled").update(
            type="drafts_verified", facts=VERDICT | {"probabilities": [1], "drawn_from": []}
        ),
        "drafts_verified: there must be drafts, and no more of them accepted",
    ),
    (
        lambda t: first(t, type="modules_timed")["facts"]["calls"].pop(),
        "modules_timed: kinds, calls, durations_us must be equally long",
    ),
    (
        lambda t: first(t, type="batch_scheduled")["facts"].update(finished="r0"),
        "batch_scheduled: finished must be a list",
    ),
    (
        lambda t: first(t, type="blocks_allocated")["facts"].update(blocks=[1] * 65_537),
        "blocks has 65537 items; 65536 at most",
    ),
    (
        lambda t: first(t, type="request_scheduled").update(reason={"code": "__proto__"}),
        'unknown reason "__proto__"',
    ),
    (
        lambda t: first(t, type="request_scheduled").update(reason={"code": "constructor"}),
        'unknown reason "constructor"',
    ),
    (
        lambda t: first(t, type="request_scheduled").update(
            reason={"code": "seats_full", "running": {"a": 1}}
        ),
        "a reason must hold numbers and texts",
    ),
]


def deep(levels: int) -> Json:
    made: Json = {}
    for _ in range(levels):
        made = {"a": made}
    return made


def ring(lines: Lines) -> None:
    """Two free blocks that follow each other for ever, beside the queue."""
    patch(
        lines,
        {
            "blocks": {
                "1": {"ref_cnt": 0, "prev": 2, "next": 2},
                "2": {"ref_cnt": 0, "prev": 1, "next": 1},
            }
        },
    )


def no_queue(lines: Lines) -> None:
    """All blocks out of the queue, so that what is built of them is the test's own."""
    patch(lines, {"blocks": {str(i): {"prev": None, "next": None} for i in range(12)}})
    patch(lines, {"queues": {"free": {"length": 0, "head": None, "tail": None}}})


@pytest.mark.parametrize(("spoil", "message"), HEADERS)
def test_a_wrong_header_is_refused(
    page: Page, good: str, spoil: Callable[[Json], Any], message: str
) -> None:
    said = opened(page, spoilt(good, lambda lines: spoil(lines[0])))
    assert said.startswith("line 1: ") and message in said
    assert page.evaluate("window.stage.store.live")


@pytest.mark.parametrize(("spoil", "message"), RECORDS)
def test_a_wrong_record_is_refused_by_its_line(
    page: Page, good: str, spoil: Callable[[Lines], Any], message: str
) -> None:
    text = spoilt(good, spoil)
    said = opened(page, text)
    assert message in said
    number = int(said.split(":")[0].removeprefix("line "))
    assert 1 < number <= len(text.splitlines())
    assert page.evaluate("window.stage.store.live")


def test_what_is_no_json_number_or_too_deep_is_refused(page: Page, good: str) -> None:
    head, *lines = good.splitlines()
    bottomless = '{"a":' * 100_000 + "1" + "}" * 100_000
    for text, message in (
        (lines[0].replace('"t_us":', '"t_us":1e999,"x":'), "t_us must be a number"),
        (
            f'{{"kind":"patch","seq":0,"step":0,"phase":"arrive","t_us":1,'
            f'"changes":{{"x":{bottomless}}}}}',
            "x is nested more than",
        ),
        (bottomless, "not a record of a trace"),
    ):
        assert message in opened(page, f"{head}\n{text}")
    assert "lines; a trace has 240,000" in opened(page, head + "\n{}" * 240_000)


def test_a_key_that_is_there_twice_is_refused_and_what_looks_like_one_is_not(
    page: Page, good: str
) -> None:
    """As the engine's reader has it (engine/strict_json.py)."""
    lines = good.splitlines()
    lines[2] = lines[2].replace('"step":', '"step": 7, "step" :', 1)
    assert opened(page, "\n".join(lines)) == "line 3: a key is there more than once"
    head = json.loads(lines[0])
    head["document"] = 'a "title": with \\" quotes\\\\": and "document":"once more"'
    assert opened(page, "\n".join([json.dumps(head), *good.splitlines()[1:]])) == ""


def test_a_free_queue_in_a_circle_is_refused(page: Page, good: str) -> None:
    said = opened(page, spoilt(good, lambda lines: (no_queue(lines), ring(lines))))
    assert "the free queue holds 0 blocks as it says; 2 are linked" in said

    def one_way(lines: Lines) -> None:
        no_queue(lines)
        patch(lines, {"blocks": {"1": {"next": 2}}})

    assert "blocks.1.next is 2, and block 2 does not know" in opened(page, spoilt(good, one_way))


def test_a_circle_in_the_middle_of_a_log_ends_all_the_same(page: Page, good: str) -> None:
    def spoil(lines: Lines) -> None:
        no_queue(lines)
        ring(lines)
        patch(
            lines,
            {"blocks": {"1": {"prev": None, "next": None}, "2": {"prev": None, "next": None}}},
        )

    assert opened(page, spoilt(good, spoil)) == ""
    page.evaluate("window.stage.store.seek(window.stage.store.head - 1)")
    page.evaluate("window.stage.store.select({ block: 1 })")
    page.evaluate("window.stage.frame()")
    assert "Block 1" in page.locator(".gb-inspector").inner_text()
    page.evaluate("window.stage.store.select({ block: null }); window.stage.store.backToLive()")


def test_a_text_without_end_is_cut_and_shown(page: Page, good: str) -> None:
    letters = "\U0001f9ea" * 30_000

    def spoil(lines: Lines) -> None:
        first(lines, type="text_emitted")["facts"]["text"] = letters
        first(lines, type="request_submitted")["facts"]["request"] = letters
        requests(lines, prompt=letters * 100, prompt_pieces=[letters], num_prompt_tokens=1)

    assert opened(page, spoilt(good, spoil)) == ""
    for view in ("request-lifecycle", "block-allocation", "cuda-acceleration"):
        page.evaluate("view => window.stage.store.setView(view)", view)
        page.evaluate(
            """async () => {
                const { store } = window.stage;
                const at = store.records.findIndex((each) => each.type === "text_emitted");
                store.seek(at);
                await window.stage.frame();
            }"""
        )
    page.evaluate("window.stage.store.seek(window.stage.store.head)")
    page.evaluate("window.stage.store.select({ request: 'x' }); window.stage.frame()")
    assert "characters more" in page.locator(".gb-inspector").inner_text()
    page.evaluate("window.stage.store.select({ request: null }); window.stage.store.backToLive()")


def test_words_that_every_object_of_javascript_has_are_words(page: Page, good: str) -> None:
    def spoil(lines: Lines) -> None:
        for line in lines[1:]:
            facts = line.get("facts", {})
            if line.get("type") == "modules_timed":
                facts["kinds"] = ["constructor"] * len(facts["kinds"])
            elif line.get("type") == "request_submitted":
                facts["source"] = "constructor"
            elif line.get("type") == "request_scheduled":
                facts["kind"] = "constructor"
            for request in line.get("changes", {}).get("requests", {}).values():
                if request and "source" in request:
                    request["source"] = "constructor"

    assert opened(page, spoilt(good, spoil)) == ""
    seen = page.evaluate(
        """async () => {
            const { store, frame, root } = window.stage;
            const seen = [];
            const look = async (index) => {
              store.seek(index);
              await frame();
              seen.push(root.textContent);
            };
            store.setView("cuda-acceleration");
            for (const type of ["request_submitted", "request_scheduled", "modules_timed"])
              await look(store.records.findIndex((each) => each.type === type));
            store.select({ request: "r0" });
            for (const { id } of store.document.components.filter((each) => each.live)) {
              store.openBox(id);
              await look(store.head);
            }
            store.openBox(null);
            store.backToLive();
            return seen;
        }"""
    )
    assert not [text for text in seen if "native code" in text or "TypeError" in text]


def test_a_trace_of_another_document_says_so(page: Page, good: str) -> None:
    def name(lines: Lines) -> None:
        lines[0]["document"] = "<b>A Shop</b>"

    assert opened(page, spoilt(good, name)) == ""
    said = page.locator(".gb-banner").inner_text()
    assert "recorded under another document, “<b>A Shop</b>”" in said
    page.evaluate("window.stage.store.backToLive()")

    def same(lines: Lines) -> None:
        lines[0]["document"] = page.evaluate("window.stage.store.document.meta.title")

    assert opened(page, spoilt(good, same)) == ""
    assert "another document" not in page.locator(".gb-banner").inner_text()
    page.evaluate("window.stage.store.backToLive()")
