"""Search finds what has all the words, and what is named so before what speaks of it."""

from __future__ import annotations

from lessons.glossary import load_glossary
from lessons.loader import lesson_files, load_each
from lessons.map_names import read_claims
from lessons.search import Entry, entries, search

SHELF = [
    Entry("claim", "1", "Blocks are swapped to the CPU", "outdated: V1 recomputes"),
    Entry("setting", "block_size", "block_size", "tokens of a KV-cache block"),
    Entry("tour", "paging", "Paging", "blocks and tables"),
    Entry("term", "Block", "Block", "room for tokens", ("page",)),
    Entry("term", "Block table", "Block table", "a request's blocks"),
]


def found(query: str) -> list[str]:
    return [entry.id for entry in search(SHELF, query)]


def test_a_name_comes_before_its_beginning_and_that_before_a_text() -> None:
    assert found("block") == ["Block", "Block table", "block_size", "1", "paging"]


def test_another_name_is_as_good_as_the_title() -> None:
    assert found("page")[0] == "Block"


def test_every_word_must_be_there_in_any_order_and_case() -> None:
    assert found("TABLE block") == ["Block table", "paging"]
    assert found("size bl") == ["block_size"]
    assert found("block nonsense") == []


def test_nothing_is_found_by_nothing() -> None:
    assert found("") == found("   ") == []


def test_no_more_are_told_than_asked_for() -> None:
    assert len(search(SHELF, "block", most=2)) == 2


def test_all_kinds_of_things_are_found() -> None:
    every = entries(load_each(lesson_files())[0], load_glossary(), read_claims())
    assert {entry.kind for entry in every} == {
        *("term", "tour", "lab", "clinic", "hunt", "claim", "setting")
    }
    assert len({(entry.kind, entry.id) for entry in every}) == len(every)
    best = {query: search(every, query)[0] for query in ("TTFT", "max_num_seqs", "#48803", "swap")}
    assert best["TTFT"][:2] == ("term", "TTFT")
    assert best["max_num_seqs"].id == "max_num_seqs"
    assert best["#48803"].id == "ttft-spike"
    assert best["swap"].id == "Swapping"
