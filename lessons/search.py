"""Search: lessons, cases, terms, claims and settings by the words that stand in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from engine.config import EngineConfig
from lessons.format import Lesson
from lessons.glossary import Term
from lessons.map_names import Claim

Kind = Literal["term", "tour", "lab", "clinic", "hunt", "claim", "setting"]
_ORDER: tuple[Kind, ...] = ("term", "setting", "tour", "lab", "clinic", "hunt", "claim")


class Entry(NamedTuple):
    """Something that can be found. `also` are other names for it, as good as its title."""

    kind: Kind
    id: str  # of a lesson, a term, a setting; the number of a claim
    title: str
    text: str = ""
    also: tuple[str, ...] = ()


def entries(
    lessons: Iterable[Lesson], terms: Iterable[Term], claims: Iterable[Claim]
) -> list[Entry]:
    """All that can be found, the engine's settings among it."""
    found = [Entry("term", t.term, t.term, t.says, tuple(t.also)) for t in terms]
    found += [_of_lesson(lesson) for lesson in lessons]
    found += [
        Entry("claim", str(claim.number), claim.claim, f"{claim.verdict} {claim.holds}")
        for claim in claims
    ]
    for name, field in EngineConfig.model_fields.items():
        found.append(Entry("setting", name, name, field.description or ""))
    return found


def _of_lesson(lesson: Lesson) -> Entry:
    texts = [lesson.summary, *lesson.threads]
    for step in lesson.steps:
        texts += [step.title, step.text.text]
    return Entry(lesson.kind, lesson.id, lesson.title, " ".join(texts), (lesson.id,))


def search(among: Iterable[Entry], query: str, most: int = 12) -> list[Entry]:
    """Those that have every word of the query, best first: by name before by text."""
    words = query.casefold().split()
    ranked = [(rank, entry) for entry in among if (rank := _rank(entry, words)) is not None]
    ranked.sort(key=lambda it: (it[0], _ORDER.index(it[1].kind), it[1].title.casefold()))
    return [entry for _, entry in ranked[:most]]


def _rank(entry: Entry, words: list[str]) -> int | None:
    """How well it fits, 0 best; None where a word is missing."""
    if not words:
        return None
    names = [name.casefold() for name in (entry.title, *entry.also)]
    query = " ".join(words)
    if query in names:
        return 0
    if any(name.startswith(query) for name in names):
        return 1
    begins = [part for name in names for part in name.replace("_", " ").replace("-", " ").split()]
    if all(any(part.startswith(word) for part in begins) for word in words):
        return 2
    if all(any(word in name for name in names) for word in words):
        return 3
    everything = " ".join([*names, entry.text.casefold()])
    return 4 if all(word in everything for word in words) else None
