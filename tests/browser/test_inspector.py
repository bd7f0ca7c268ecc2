"""The inspector: where its numbers come from, and what a token was chosen from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from engine.async_llm import AsyncLLM
from engine.config import SamplingParams
from engine.trace import Trace
from tests.browser.stage import (
    HOSTILE,
    Recorded,
    as_text,
    axe_faults,
    context,
    page,
    recorded,
    records_of,
    settle,
    show,
)
from tests.browser.stage_server import StageServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["context", "page", "recorded"]  # fixtures


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
    shown = page.locator(".gb-note-card li").evaluate_all(
        "all => all.map((e) => [...e.childNodes].filter((n) => n.className !== 'gb-claim-marks')"
        ".map((n) => n.textContent).join(''))"
    )
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
    first = page.locator("#gb-side-inspector .gb-event-button").last
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


@pytest.mark.parametrize("selected", [{"component": "scheduler"}, {"request": "0_r0"}])
def test_the_page_has_no_fault_that_axe_finds(
    page: Page, drawn: Recorded, selected: dict[str, str]
) -> None:
    show(page, drawn.text)
    for theme in ("", "dark"):
        page.evaluate("selected => window.stage.store.select(selected)", selected)
        assert axe_faults(page, theme, lambda target: "gb-panel" not in target) == []
