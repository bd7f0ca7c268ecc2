"""The stage in a real browser, with the real API and a real engine of the tiny model behind it.

What its tests share. Every one of them ends with two checks: nothing was written to the console as
an error, and no request left for anywhere but the test's server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.trace import Trace
from tests.browser.stage_server import StageServer
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

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
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, server: StageServer) -> Iterator[Page]:
    with watched(context.new_page(), server) as page:
        yield page


@contextmanager
def watched(page: Page, server: StageServer) -> Iterator[Page]:
    """Open the stage, and watch it."""
    with watching(page, server):
        open_stage(page, server)
        yield page


@contextmanager
def watching(page: Page, server: StageServer) -> Iterator[None]:
    """At the end nothing may have gone to the console as an error, or elsewhere."""
    problems: list[str] = []
    foreign: list[str] = []
    listeners: dict[Any, Any] = {
        "console": lambda m: problems.append(m.text) if m.type == "error" else None,
        "pageerror": lambda error: problems.append(str(error)),
        "request": lambda r: None if is_own(r.url, server.url) else foreign.append(r.url),
        "dialog": lambda dialog: problems.append(f"dialog: {dialog.message}"),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    yield
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    assert not problems, problems
    assert foreign == []


def is_own(url: str, own: str) -> bool:
    return url.startswith((own, "blob:", "data:"))


def open_stage(page: Page, server: StageServer, query: str = "") -> None:
    page.goto(f"{server.url}/{query}")
    wait_live(page)


def wait_live(page: Page, engine: str = "own") -> None:
    """Wait until this engine is followed, and all that was learnt while connecting is drawn."""
    page.wait_for_selector(".gb-stage .gb-box")
    wait_until(page, "window.stage?.root.querySelector('.gb-panel-area > *')")
    wait_until(page, "document.fonts.status === 'loaded'")  # texts are fitted by their letters
    wait_until(
        page,
        "window.stage.store.connection === 'open' && window.stage.store.header"
        " && window.stage.store.engine === argument",
        engine,
    )
    settle(page)


def show(page: Page, text: str) -> None:
    page.evaluate("text => window.stage.store.openTrace(text, 'test.jsonl')", text)
    settle(page)


def wait_until(page: Page, condition: str, argument: Any = None) -> None:
    """Poll from here: the page's own policy forbids the evaluation that Playwright would do."""
    until = time.monotonic() + PATIENCE_S
    while not page.evaluate(f"argument => Boolean({condition})", argument):
        assert time.monotonic() < until, f"never came true: {condition}"
        page.wait_for_timeout(20)


def settle(page: Page) -> None:
    """Wait until what has changed is drawn."""
    page.evaluate("window.stage.frame()")


def come_to_rest(page: Page) -> None:
    """Wait until nothing fades or moves any more."""
    settle(page)
    wait_until(
        page,
        """[document, window.stage.root].every((root) => root.getAnimations().every(
            (each) => each.playState !== 'running'
              || each.effect.getComputedTiming().endTime === Infinity))""",
    )


def set_theme(page: Page, theme: str) -> None:
    """Let Streamlit be dark, or light (""), and wait until all is in its colours."""
    page.evaluate("name => (document.getElementById('app').className = `stApp ${name}`)", theme)
    wait_until(
        page,
        "window.stage.root.querySelector('.gb').dataset.theme === argument",
        theme or "light",
    )
    come_to_rest(page)


def axe_faults(page: Page, theme: str, is_meant: Callable[[str], bool]) -> list[Any]:
    """What axe finds in a theme ("" is light), of elements whose selector is meant."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    set_theme(page, theme)
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


def cursor(page: Page) -> int:
    return int(page.evaluate("window.stage.store.cursor"))


def own_engine(page: Page, server: StageServer) -> AsyncLLM:
    engine = server.sessions.get(page.evaluate("sessionStorage.getItem('glassbox.session')"))
    assert engine is not None
    return engine


def wait_head(page: Page, condition: str) -> None:
    wait_until(page, f"((s) => {condition})(window.stage.store)")


def selected(page: Page) -> list[str | None]:
    boxes = page.locator(".gb-box[aria-pressed=true]").all()
    return [box.get_attribute("data-component") for box in boxes]
