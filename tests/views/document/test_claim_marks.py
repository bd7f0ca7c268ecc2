"""Claims about vLLM: whole, checked, and found where a document says them or speaks of them."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from views.architecture import load_document, load_page
from views.document.bindings import ENGINE_COMPONENTS
from views.document.claims import claims
from views.document.drawing import PageDocument

ROOT = Path(__file__).parents[3]
DOCUMENTS = ROOT / "tests" / "documents"
SEED = DOCUMENTS / "seed.architecture.json"


def places(page: PageDocument) -> dict[int, list[tuple[str, str]]]:
    """By claim, where its marks stand and what is said there."""
    found: dict[int, list[tuple[str, str]]] = {}
    where: list[tuple[str, list[Any]]] = [("map", page["meta"]["claims"])]
    where += [(c["id"], c["claims"]) for c in page["components"]]
    where += [(f"{c['id']} sources", c["source_claims"]) for c in page["components"]]
    where += [(v["id"], v["claims"]) for v in page["views"]]
    where += [
        (f"{card['title']} {i}", marks)
        for card in page["cards"]
        for i, marks in enumerate(card["claims"])
    ]
    for name, marks in where:
        for mark in marks:
            found.setdefault(mark["claim"], []).append((name, mark["said"]))
    return found


def test_there_are_all_of_them_in_order() -> None:
    assert [claim.number for claim in claims()] == list(range(1, 26))


def test_each_says_what_holds_and_where_to_read_it() -> None:
    for claim in claims():
        assert claim.claim.endswith(".") and claim.holds.endswith(".")
        assert set(claim.components) <= set(ENGINE_COMPONENTS)
        for pattern in (*claim.says, *claim.phrases):
            re.compile(pattern)


def test_every_claim_stands_somewhere_on_the_engine_s_own_map() -> None:
    found = places(load_page())
    assert set(found) == {claim.number for claim in claims()}


def test_every_box_and_every_phrase_of_a_claim_is_on_that_map() -> None:
    page = load_page()
    text = json.dumps(page, ensure_ascii=False)
    for claim in claims():
        for component in claim.components:
            marks = next(c["claims"] for c in page["components"] if c["live"] == component)
            assert claim.number in [mark["claim"] for mark in marks]
        for phrase in claim.phrases:
            assert re.search(phrase, text, re.IGNORECASE), (claim.number, phrase)


def test_the_engine_s_own_map_says_nothing_that_does_not_hold() -> None:
    """But for the ranges that it pins, which nobody could read."""
    verdicts = {claim.number: claim.verdict for claim in claims()}
    for number, where in places(load_page()).items():
        for name, said in where:
            assert not said or verdicts[number] == "true" or name.endswith(" sources"), (name, said)


@pytest.mark.parametrize(
    ("number", "place", "said"),
    [
        (3, "Non-Contiguous VRAM Paging 2", "Eliminates 96% internal and external memory"),
        (8, "Non-Contiguous VRAM Paging 1", "16-token physical blocks"),
        (10, "shared-gqa", "Shared GQA Cache"),
        (10, "map", "gqa reduce"),
        (11, "physical-vram", "Physical GPU HBM"),
        (12, "cuda-graph", "Zero Overhead"),
        (12, "Static CUDA Graph Replay 2", "near zero"),
        (13, "Static CUDA Graph Replay 1", "Pre-captures decode"),
        (15, "paged-attn", "CUDA Kernel"),
        (15, "cuda-acceleration", "PagedAttention CUDA kernel launch"),
        (18, "Chunked Prefill Co-Scheduling 1", "discrete token chunks"),
        (19, "scheduler sources", "vllm/v1/core/sched/scheduler.py 40-95"),
        (22, "gpu-runner", "Worker Loop"),
        (24, "scheduler", "Prefill & Decode"),
    ],
)
def test_what_a_document_says_is_found_word_for_word(number: int, place: str, said: str) -> None:
    found = dict(places(load_document(SEED).to_page())[number])
    assert said in found[place]


@pytest.mark.parametrize("name", ["lending-library", "weather-stations"])
def test_documents_of_something_else_have_no_claims(name: str) -> None:
    assert places(load_document(DOCUMENTS / f"{name}.architecture.json").to_page()) == {}


def test_a_static_document_of_vllm_has_those_that_it_says() -> None:
    document = json.loads(SEED.read_text())
    document["meta"]["title"] = "vLLM, as somebody sees it"
    named = copy.deepcopy(document)
    for component in named["components"]:
        component["id"] = f"my-{component['id']}"
    for connection in named["connections"]:
        connection["from"], connection["to"] = f"my-{connection['from']}", f"my-{connection['to']}"
    for part in (*named["boundaries"], *named["meta"]["views"]):
        key = "wraps" if "wraps" in part else "focus"
        part[key] = [f"my-{each}" for each in part[key]]
    result = load_document(json.dumps(named))
    assert result.ok, result.diagnostics
    page = result.to_page()
    assert not page["live"]
    found = places(page)
    assert dict(found[12])["my-cuda-graph"] == "Zero Overhead"
    assert 5 not in found  # nobody says it, and no box is known to be the memory


def test_a_long_text_is_looked_at_in_no_time() -> None:
    document = json.loads(SEED.read_text())
    document["cards"][0]["items"] = ["prefill " * 20_000]
    places(load_document(json.dumps(document)).to_page())
