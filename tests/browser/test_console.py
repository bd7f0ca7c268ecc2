"""The log beside the map: vLLM's lines in the engine's own words, each with its moment and box."""

# ruff: noqa: F401, F811 (fixtures come by import)

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.events import EngineFailed, GraphCaptured, MemorySized, RequestCompleted, StatsLogged
from engine.metrics.stats_line import start_texts, stats_text
from engine.reasons import CacheLimitsLength
from engine.records import Event
from engine.trace import Trace
from tests.browser.stage import (
    axe_faults,
    context,
    page,
    settle,
    show,
    wait_until,
)
from tests.browser.stage_server import StageServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def trace(server: StageServer) -> Trace:
    """Requests that wait, are preempted, aborted and refused; a periodic line after each step."""
    config = EngineConfig(
        num_gpu_blocks=10, block_size=8, max_num_batched_tokens=32, max_num_seqs=4
    )
    llm = AsyncLLM(server.sessions.wait_for_model(), config, server.sessions.thread)
    llm._line.stats_line.interval = 0.0
    params = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)
    streams = [llm.submit([7 + i] * 20, params) for i in range(3)]
    with pytest.raises(ValueError):
        llm.submit([7] * 500)
    for _ in range(3):
        llm.step()
    llm.reset_prefix_cache()
    llm.abort(streams[0].request_id)
    while llm.num_unfinished:
        llm.step()
    llm.step()
    llm.reset_prefix_cache()
    found = llm.trace
    llm.close()
    return found


def text_of(trace: Trace) -> str:
    return "\n".join(trace.lines()) + "\n"


def open_log(page: Page) -> None:
    page.get_by_role("tab", name="Log").click()
    settle(page)


def lines(page: Page) -> list[dict[str, Any]]:
    """What stands in the log: text, whose line it is, its level."""
    found = page.evaluate(
        """() => Array.from(window.stage.root.querySelectorAll(".gb-console li"), (li) => ({
            text: li.querySelector(".gb-truth").textContent, ...li.dataset,
        }))"""
    )
    return list(found)


def current(page: Page) -> str:
    return page.locator(".gb-console-line[aria-current] .gb-truth").inner_text()


def test_the_lines_are_the_logs_in_vllms_words(page: Page, trace: Trace) -> None:
    show(page, text_of(trace))
    open_log(page)
    found = lines(page)
    by_vllm = [item["text"] for item in found if item["whose"] == "vllm"]
    stats = [r.facts for r in trace.records if isinstance(r, Event)]
    first = trace.records[0]
    assert isinstance(first, Event) and isinstance(first.facts, MemorySized)
    assert first.reason is None or isinstance(first.reason, CacheLimitsLength)
    expected = start_texts(first.facts, first.reason)
    expected += [stats_text(facts) for facts in stats if isinstance(facts, StatsLogged)]
    assert [text for text in by_vllm if "reset prefix cache" not in text] == expected
    assert any("Preemptions: 1, " in text for text in by_vllm)
    failed, done = (item for item in found if "reset prefix cache" in item["text"])
    assert failed["level"] == "WARNING" and "are not freed yet" in failed["text"]
    assert done["text"] == "Successfully reset prefix cache"
    on_request = [item["text"] for item in found if item["whose"] == "requests"]
    assert on_request[:3] == [f"Added request r{i}." for i in range(3)]
    assert on_request[3].startswith("Request r3 failed (bad request): ")
    assert on_request[4:] == ["Aborted request(s) r0."]
    ours = [item["text"] for item in found if item["whose"] == "ours"]
    finished = sum(
        isinstance(facts, RequestCompleted) and facts.finish_reason != "abort" for facts in stats
    )
    assert sum("finished: length" in text for text in ours) == finished == 2
    assert any("preempted" in text for text in ours)
    captured = sum(isinstance(facts, GraphCaptured) for facts in stats)
    assert sum(" graph of " in text for text in ours) == captured > 0


def test_the_start_names_what_a_budget_left(page: Page, server: StageServer) -> None:
    """Each line at its box: graphs at theirs, what they leave and make at the memory's."""
    config = EngineConfig(num_gpu_blocks=0, gpu_memory_utilization=0.001)
    llm = AsyncLLM(server.sessions.wait_for_model(), config, server.sessions.thread)
    first = llm.trace.records[0]
    show(page, text_of(llm.trace))
    llm.close()
    open_log(page)
    assert isinstance(first, Event) and isinstance(first.facts, MemorySized)
    assert [item["text"] for item in lines(page) if item["whose"] == "vllm"] == start_texts(
        first.facts, None
    )
    for text, component in (("Estimated CUDA", "cuda-graph"), ("Available KV", "physical-vram")):
        page.locator(".gb-console-line", has_text=text).hover()
        box = page.locator(f".gb-box[data-component={component}]")
        expect(box).to_have_class(with_class("is-pointed"))


@pytest.mark.parametrize(
    "settings",
    [{"num_gpu_blocks": 0, "gpu_memory_utilization": 0.001}, {"num_gpu_blocks": 24}],
)
def test_the_memorys_parts_are_drawn_to_scale(
    page: Page, server: StageServer, settings: dict[str, Any]
) -> None:
    """Each says whether it was measured; what nobody measured is no 0."""
    model, config = server.sessions.wait_for_model(), EngineConfig(**settings)
    llm = AsyncLLM(model, config, server.sessions.thread)
    first = llm.trace.records[0]
    show(page, text_of(llm.trace))
    llm.close()
    page.evaluate("window.stage.store.select({ component: 'physical-vram' })")
    page.evaluate("window.stage.store.seek(0)")
    settle(page)
    assert isinstance(first, Event) and isinstance(first.facts, MemorySized)
    sized = first.facts
    pool = sized.num_blocks * sized.bytes_per_block
    parts = [sized.weight_bytes, sized.activation_bytes, sized.graph_bytes, pool]
    if sized.budget_bytes:
        parts.append(sized.available_bytes - pool)
        assert sum(parts) == sized.budget_bytes
    grown = page.evaluate(
        """() => Array.from(window.stage.root.querySelectorAll(".gb-memory-bar i"),
            (part) => Number(part.style.flexGrow))"""
    )
    assert grown == pytest.approx([part / sum(parts) for part in parts], abs=1e-4)
    section = page.locator('[aria-label="This engine\'s memory"]')
    kinds = [part.get_attribute("data-truth") for part in section.locator(".gb-truth").all()]
    text = section.inner_text()
    if sized.budget_bytes:
        assert kinds[:5] == ["measured", "measured", "derived", "measured", "derived"]
        assert "gpu_memory_utilization 0.001 of the device's" in text
        assert "not measured" not in text
    else:
        assert kinds[:4] == ["measured"] * 4
        assert "num_gpu_blocks is set to 24, so no budget was divided." in text
        assert "activations\nnot measured" in text
    assert f"blocks\n{sized.num_blocks:,}\n" in text


def test_only_what_vllm_prints_by_default(page: Page, trace: Trace) -> None:
    show(page, text_of(trace))
    open_log(page)
    page.get_by_label("only what it prints by default").check()
    settle(page)
    assert {item["whose"] for item in lines(page)} == {"vllm"}


def test_a_line_leads_to_its_moment_and_shows_its_box(page: Page, trace: Trace) -> None:
    show(page, text_of(trace))
    open_log(page)
    number, record = next(
        (i, r)
        for i, r in enumerate(trace.records)
        if isinstance(getattr(r, "facts", None), StatsLogged)
    )
    line = page.locator(".gb-console-line", has_text="Avg prompt").first
    box = page.locator(".gb-box[data-component=async-engine]")
    line.hover()
    expect(box).to_have_class(with_class("is-pointed"))
    page.get_by_role("tab", name="Log").hover()
    expect(box).not_to_have_class(with_class("is-pointed"))
    line.click()
    settle(page)
    assert page.evaluate("window.stage.store.cursor") == number
    expect(box).to_have_class(with_class("is-selected"))
    expect(box).to_have_class(with_class("is-now"))
    assert current(page) == stats_text(record.facts)  # type: ignore[union-attr, arg-type]
    later = page.locator(".gb-console .is-ahead").count()
    assert 0 < later < page.locator(".gb-console li").count()
    # The start is a moment as well; what happens elsewhere moves the mark along.
    page.locator(".gb-console-line", has_text="GPU KV cache size").click()
    settle(page)
    assert page.evaluate("window.stage.store.cursor") == 0
    page.evaluate("window.stage.store.seek(window.stage.store.head)")
    settle(page)
    assert current(page) == "Successfully reset prefix cache"


def with_class(name: str) -> re.Pattern[str]:
    return re.compile(rf"(^|\s){name}(\s|$)")


def test_who_selects_on_the_map_reads_the_inspector(page: Page, trace: Trace) -> None:
    show(page, text_of(trace))
    open_log(page)
    page.locator(".gb-box[data-component=scheduler]").click()
    expect(page.get_by_role("tab", name="Inspector")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".gb-inspector h2:visible")).to_have_text("Chunked Scheduler")
    open_log(page)
    page.keyboard.press("Escape")
    settle(page)
    expect(page.get_by_role("tab", name="Log")).to_have_attribute("aria-selected", "true")


def test_the_lines_are_one_stop_of_the_keyboard(page: Page, trace: Trace) -> None:
    show(page, text_of(trace))
    page.get_by_role("tab", name="Inspector").focus()
    for _ in range(2):  # past the code
        page.keyboard.press("ArrowRight")
    settle(page)
    page.get_by_label("only what it prints by default").focus()
    page.keyboard.press("Tab")
    focused = "window.stage.root.activeElement.innerText"
    assert "Successfully reset" in page.evaluate(focused)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    assert "The KV cache has 10 blocks because the settings say so" in page.evaluate(focused)
    assert page.evaluate("window.stage.store.pointed") == "physical-vram"
    page.keyboard.press("Enter")
    settle(page)
    assert page.evaluate("window.stage.store.cursor") == 0
    assert "The KV cache has 10 blocks because the settings say so" in page.evaluate(focused)
    page.keyboard.press("Tab")
    assert page.evaluate("window.stage.root.activeElement.className") != "gb-console-line"


def test_a_long_log_is_drawn_in_part_and_text_stays_text(page: Page, trace: Trace) -> None:
    header, *_ = trace.lines()
    head = json.loads(header)
    head["model"]["name"] = HOSTILE
    event = {
        **{"kind": "event", "step": 0, "phase": "command", "component": "async-engine"},
        **{"connection": None, "t_us": 1, "type": "request_completed"},
        "facts": {"request": "r0", "finish_reason": HOSTILE},
    }
    records = [{**event, "seq": i} for i in range(2000)]
    show(page, "\n".join(map(json.dumps, [head, *records])))
    open_log(page)
    note = page.locator(".gb-side-pane .gb-note-small:visible").last
    assert page.locator(".gb-console li").count() == 300
    assert "1,701 earlier lines" in note.inner_text()
    assert HOSTILE in lines(page)[-1]["text"]
    page.evaluate("window.stage.store.seek(-1)")
    settle(page)
    assert page.locator(".gb-console li").count() == 300
    assert HOSTILE in lines(page)[0]["text"] and "1,701 later" in note.inner_text()
    assert page.locator(".gb-console img").count() == 0


def test_a_failure_is_an_error(page: Page, trace: Trace) -> None:
    failed = Trace.parse(text_of(trace).splitlines())
    failed.event(EngineFailed("the engine stopped in the phase `execute` (x)"))
    failed.end_phase({})
    show(page, text_of(failed))
    open_log(page)
    last = lines(page)[-2:]
    assert last[0]["text"] == "EngineCore encountered a fatal error."
    assert last[0]["level"] == "ERROR" and last[1]["whose"] == "ours"


def test_a_live_log_is_followed_unless_one_scrolls_back(
    page: Page,
    server: StageServer,
) -> None:
    open_log(page)
    engine = server.sessions.existing(page.evaluate("window.stage.store.link.key"))
    assert engine is not None
    at_end = """(() => { const s = window.stage.root.querySelector('[aria-label=Log]');
        return s.scrollHeight - s.scrollTop - s.clientHeight < 24; })()"""

    def send(count: int) -> None:
        before = page.locator(".gb-console li").count()
        for _ in range(count):
            engine.submit([5, 6, 7], SamplingParams(max_tokens=1, ignore_eos=True))
        wait_until(
            page,
            "window.stage.root.querySelectorAll('.gb-console li').length === argument",
            before + count,
        )

    send(20)
    wait_until(page, at_end)
    page.evaluate("window.stage.root.querySelector('[aria-label=Log]').scrollTop = 0")
    settle(page)
    send(5)
    assert not page.evaluate(at_end)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_log_has_no_fault_that_axe_finds(page: Page, trace: Trace, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    show(page, text_of(trace))
    open_log(page)
    page.locator(".gb-console-line", has_text="Avg prompt").first.click()
    parts = ("gb-console", "gb-side", "gb-inspector")
    for theme in ("", "dark"):
        assert axe_faults(page, theme, lambda target: any(p in target for p in parts)) == []
    scroller = page.locator("[aria-label=Log]")
    assert scroller.evaluate("node => node.scrollWidth <= node.clientWidth")
