"""Claims beside the map: marks that open them, and figures that are the log's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.reasons import LastTokenNeeded
from engine.records import TYPE_OF_FACTS, Event
from engine.trace import Trace, fold
from tests.browser.stage import axe_faults, settle, show, wait_until, watched
from tests.browser.stage_server import StageServer
from views.document.claims import claims

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LIST = ".gb-claims-list"


@pytest.fixture
def page(browser: Browser, server: StageServer) -> Iterator[Page]:
    with watched(browser.new_page(viewport={"width": 1280, "height": 900}), server) as page:
        yield page
        page.close()


@pytest.fixture(scope="module")
def pressure(server: StageServer) -> Trace:
    """A small pool on the tiny model: hits, shared blocks, chunks, preemptions, both graphs."""
    config = EngineConfig(
        num_gpu_blocks=16, block_size=8, max_num_batched_tokens=32, max_num_seqs=4
    )
    llm = AsyncLLM(server.sessions.wait_for_model(), config, server.sessions.thread)
    params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    llm.submit("Once upon a time there was a library in a wood", params)
    for _ in range(4):
        llm.step()
    for _ in range(3):
        llm.submit("Once upon a time there was a library in a wood", params)
    while llm.num_unfinished:
        llm.step()
    trace = Trace.parse(list(llm.trace.lines()))
    llm.close()
    return trace


def figures(page: Page, number: int) -> dict[str, str]:
    rows = page.evaluate(
        "number => import('/assets/words/claims.js').then(m => "
        "m.figuresOf(window.stage.store, number).map(r => [r.name, r.value, r.how, r.truth]))",
        number,
    )
    assert all(how and truth in ("measured", "derived") for _, _, how, truth in rows)
    return {name: value for name, value, *_ in rows}


def plainly(trace: Trace, upto: int) -> dict[str, Any]:
    """The same numbers, computed from the log in the plainest way."""
    records = trace.records[: upto + 1]
    events: list[Any] = [r for r in records if isinstance(r, Event)]
    state = fold(trace.header.state, records)
    size = trace.header.config["block_size"]

    def of(kind: str) -> list[Any]:
        return [e for e in events if TYPE_OF_FACTS[type(e.facts)] == kind]

    filled: dict[int, int] = {}
    tables = Counter[int]()
    for request in state["requests"].values():
        for logical, block in request.get("block_table", {}).items():
            tables[block] += 1
            here = min(size, max(0, request["num_computed_tokens"] - int(logical) * size))
            filled[block] = max(filled.get(block, 0), here)
    again, lost = 0, dict[str, int]()
    for event in events:
        kind, facts = TYPE_OF_FACTS[type(event.facts)], event.facts
        if kind == "request_preempted":
            lost[facts.request] = facts.num_computed_tokens
        elif kind == "request_scheduled" and facts.kind == "resumed":
            again += max(0, lost[facts.request] - facts.num_computed_tokens)
    return {
        "blocks": len(filled),
        "tokens": sum(filled.values()),
        "shared": sum(count > 1 for count in tables.values()),
        "preemptions": len(of("request_preempted")),
        "again": again,
        "limited": sum(isinstance(e.reason, LastTokenNeeded) for e in of("prefix_looked_up")),
        "looked_up": len(of("prefix_looked_up")),
        "modes": Counter(str(e.facts.mode) for e in of("step_dispatched")),
        "mixed": sum(
            e.facts.prefill_tokens > 0 and e.facts.decode_tokens > 0 for e in of("batch_scheduled")
        ),
        "replayed": of("graph_replayed")[-1].facts if of("graph_replayed") else None,
        "sizes": state["dispatcher"]["sizes"],
    }


@pytest.mark.parametrize("part", [0.3, 0.6, 0.8, 1.0])
def test_figures_are_those_of_the_log_at_the_cursor(
    same_page: Page, pressure: Trace, part: float
) -> None:
    show(same_page, "\n".join(pressure.lines()))
    upto = int((len(pressure.records) - 1) * part)
    same_page.evaluate("at => window.stage.store.seek(at)", upto)
    settle(same_page)
    plain = plainly(pressure, upto)
    held, room = figures(same_page, 2), plain["blocks"] * 8
    if room:
        assert held["tokens in held blocks"] == f"{plain['tokens']} of {room}"
        share = same_page.evaluate(
            "share => import('/assets/words/format.js').then(m => m.percent(share))",
            (room - plain["tokens"]) / room,
        )
        assert held["wasted of what is held"] == share
    else:
        assert held == {}
    assert figures(same_page, 6) == {
        "preemptions": str(plain["preemptions"]),
        "computed again for them": f"{plain['again']} token{'s' * (plain['again'] != 1)}",
    }
    assert figures(same_page, 7) == {"blocks that several hold": str(plain["shared"])}
    assert figures(same_page, 9)["look-ups that ended so"] == (
        f"{plain['limited']} of {plain['looked_up']}"
    )
    assert figures(same_page, 13) == {
        "FULL replays": str(plain["modes"]["FULL"]),
        "PIECEWISE replays": str(plain["modes"]["PIECEWISE"]),
        "eager steps": str(plain["modes"]["NONE"]),
    }
    assert figures(same_page, 14) == {"sizes here": ", ".join(map(str, plain["sizes"])) or "none"}
    assert figures(same_page, 24) == {"steps with both": str(plain["mixed"])}
    replayed = plain["replayed"]
    if replayed is not None:
        rows = replayed.num_padded_tokens - replayed.num_tokens
        assert figures(same_page, 12) == {
            "padding of the latest replay": f"{rows} row{'s' * (rows != 1)}"
        }


def test_the_trace_has_what_the_figures_are_of(pressure: Trace) -> None:
    plain = plainly(pressure, len(pressure.records) - 1)
    assert plain["preemptions"] > 0 and plain["again"] > 0 and plain["mixed"] > 0
    assert plain["looked_up"] > 3 and plain["modes"]["FULL"] > 0
    shared = [plainly(pressure, i)["shared"] for i in range(0, len(pressure.records), 40)]
    assert max(shared) > 0


def test_bytes_a_token_are_those_of_the_formula(same_page: Page, pressure: Trace) -> None:
    show(same_page, "\n".join(pressure.lines()))
    model = pressure.header.model
    size = 2 * model["num_layers"] * model["num_kv_heads"] * model["head_dim"] * 4
    heads, kv = model["num_attention_heads"], model["num_kv_heads"]
    assert figures(same_page, 10) == {
        "query heads ÷ KV heads": f"{heads} ÷ {kv} = {heads // kv}",
        "KV bytes a token": f"{size:,}",
    }


def test_before_there_is_anything_no_figure_is_made_up(same_page: Page, pressure: Trace) -> None:
    show(same_page, "\n".join(pressure.lines()))
    same_page.evaluate("window.stage.store.seek(-1)")
    for number in (1, 2, 3, 12, 15, 17, 20, 21, 25):
        assert figures(same_page, number) == {}


def select(page: Page, component: str | None) -> None:
    page.evaluate("id => window.stage.store.select({component: id})", component)
    settle(page)


def test_a_mark_in_the_inspector_opens_its_claim(page: Page) -> None:
    select(page, "shared-gqa")
    mark = page.get_by_role("button", name="Claim 10, wrong")
    assert "8 times the bandwidth" in (mark.get_attribute("title") or "")
    mark.focus()
    page.keyboard.press("Enter")
    claim = page.locator(f"{LIST} [data-claim='10']")
    expect(claim).to_be_visible()
    expect(page.locator(f"{LIST} > li")).to_have_count(1)
    expect(claim).to_contain_text("There is no such component.")
    expect(page.get_by_role("tab", name="Claims")).to_be_focused()
    # Its box leads back to it, and all the others are one click away.
    page.get_by_role("button", name="Of Grouped KV Heads alone ×").click()
    expect(page.locator(f"{LIST} > li")).to_have_count(len(claims()))
    claim.get_by_role("button", name="Grouped KV Heads").click()
    expect(page.get_by_role("tab", name="Inspector")).to_have_attribute("aria-selected", "true")


def test_a_card_s_item_has_its_marks(page: Page) -> None:
    item = page.locator(".gb-note-card li", has_text="96.3 %")
    expect(item.get_by_role("button")).to_have_count(3)  # they come with a file of their own
    names = [button.get_attribute("aria-label") for button in item.get_by_role("button").all()]
    assert names == ["Claim 1, imprecise", "Claim 2, true", "Claim 3, wrong"]
    item.get_by_role("button", name="Claim 3, wrong").click()
    expect(page.locator(f"{LIST} > li")).to_have_count(3)


def test_a_mark_on_the_map_opens_what_is_said_of_its_box(page: Page) -> None:
    page.locator(".gb-claim-flag").first.wait_for()
    flags = page.locator(".gb-claim-flag")
    assert {flag.get_attribute("data-tone") for flag in flags.all()} == {""}
    flag = page.locator(".gb-claim-flag", has_text="Claims about GPU Device Memory")
    flag.dispatch_event("click")
    wanted = [claim.number for claim in claims() if "physical-vram" in claim.components]
    expect(page.locator(f"{LIST} > li")).to_have_count(len(wanted))
    settle(page)
    shown = [int(li.get_attribute("data-claim") or 0) for li in page.locator(f"{LIST} > li").all()]
    assert shown == wanted
    assert page.evaluate("window.stage.store.selection.component") is None


def test_a_mark_on_the_map_is_reached_and_pressed_by_the_keyboard(page: Page) -> None:
    box = page.locator(".gb-box[data-component=scheduler]")
    box.focus()
    page.keyboard.press("Tab")
    focused = "window.stage.root.activeElement"
    assert page.evaluate(f"{focused}.getAttribute('aria-label')").endswith("Scheduler")
    for key in ("Enter", " "):
        page.get_by_role("tab", name="Inspector").click()
        box.focus()
        page.keyboard.press("Tab")
        page.keyboard.press(key)
        wanted = [claim.number for claim in claims() if "scheduler" in claim.components]
        expect(page.locator(f"{LIST} > li")).to_have_count(len(wanted))
        expect(page.get_by_role("tab", name="Claims")).to_be_focused()
        assert page.evaluate("window.stage.store.selection.component") is None
        assert page.evaluate("window.stage.store.headEngine.mode") != "running"


def test_all_are_listed_and_can_be_searched(page: Page) -> None:
    page.get_by_role("tab", name="Claims").click()
    expect(page.locator(f"{LIST} > li")).to_have_count(len(claims()))
    for claim in claims():
        item = page.locator(f"{LIST} [data-claim='{claim.number}']")
        text = item.inner_text()
        for wanted in (claim.claim, claim.holds, claim.verdict):
            assert wanted in text
        for source, link in zip(
            [s for s in claim.sources if s.url], item.locator("a").all(), strict=True
        ):
            assert link.get_attribute("href") == source.url
            assert link.get_attribute("rel") == "noreferrer noopener"
    page.get_by_role("searchbox", name="Search the claims").fill("swapped outdated")
    expect(page.locator(f"{LIST} > li")).to_have_count(1)
    expect(page.locator(LIST)).to_contain_text("computes again")
    page.get_by_role("searchbox", name="Search the claims").fill("no such words")
    expect(page.get_by_text("No claim has these words.")).to_be_visible()


def test_its_figures_follow_the_cursor(page: Page, pressure: Trace) -> None:
    show(page, "\n".join(pressure.lines()))
    page.get_by_role("tab", name="Claims").click()
    row = page.locator(f"{LIST} [data-claim='6'] dd").first
    total = plainly(pressure, len(pressure.records) - 1)["preemptions"]
    expect(row).to_have_text(str(total))
    page.evaluate("window.stage.store.seek(0)")
    expect(row).to_have_text("0")


@pytest.mark.parametrize("width", [1280, 390])
def test_claims_have_no_fault_that_axe_finds(page: Page, pressure: Trace, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    show(page, "\n".join(pressure.lines()))
    parts = ("gb-claim", "gb-side", "gb-inspector")
    for open_claims in (False, True):
        if open_claims:
            page.get_by_role("tab", name="Claims").click()
            wait_until(
                page,
                "document.getElementById('host').shadowRoot.querySelector('.gb-claims-list > li')",
            )
        else:
            select(page, "block-manager")
        for theme in ("", "dark"):
            assert axe_faults(page, theme, lambda target: any(p in target for p in parts)) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
