"""What is often said of vLLM, checked, and where a document says it or speaks of it.

The claims are data (`views/assets/claims/claims.json`, which the page lists). A document *says* one
where a text of it matches one of the claim's patterns, right or wrong as the claim is. Live boxes,
and texts that have it right already, are *about* one: there a reader expects the claim, and learns
what holds. Documents that are not about vLLM have no claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypedDict

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from views.document.bindings import Bindings
from views.document.model import Component, Document, Source

MOST_LETTERS = 1000  # of a text are looked at: patterns must not be slow on what somebody opens
FILE = Path(__file__).resolve().parent.parent / "assets" / "claims" / "claims.json"

Text = Annotated[str, Field(min_length=1)]
Verdict = Literal["true", "imprecise", "outdated", "wrong"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ClaimSource(_Model):
    """Where it can be read what holds."""

    text: Text
    url: Annotated[str, Field(pattern=r"^https://[\w./#-]+\z")] | None


class Claim(_Model):
    """A claim, the verdict on it, and what holds."""

    number: int
    claim: Text
    verdict: Verdict
    note: str  # beside the verdict: of what or when it is so
    holds: Text
    sources: Annotated[list[ClaimSource], Field(min_length=1)]
    says: list[Text]  # patterns of texts that say it
    components: list[Text]  # the engine's boxes that it is about
    phrases: list[Text]  # patterns of texts that have it right already


class PageMark(TypedDict):
    """A mark beside a text: `said` is what the document says, "" where it only speaks of it."""

    claim: int
    verdict: str
    text: str
    said: str


class Marks(NamedTuple):
    """The marks of a document, by place."""

    components: list[list[PageMark]]
    sources: list[list[PageMark]]  # of the ranges that a component pins
    views: list[list[PageMark]]
    cards: list[list[list[PageMark]]]  # of each card its title's, then its items'
    meta: list[PageMark]  # of title and subtitle, of arrows and frames


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in order."""
    text = FILE.read_text(encoding="utf-8")
    return tuple(TypeAdapter(list[Claim]).validate_json(text))


def marks_of(document: Document, bindings: Bindings) -> Marks:
    """Return where the document says a claim, or is about one."""
    known = claims() if bindings.live or _is_about_vllm(document) else ()
    cards = [[_marks(known, [text]) for text in (c.title, *c.items)] for c in document.cards]
    return Marks(
        [_marks(known, _texts(c), bindings.components.get(c.id)) for c in document.components],
        [_marks(known, [_range(s) for s in c.sources or ()]) for c in document.components],
        [_marks(known, [view.label, view.note or ""]) for view in document.meta.views],
        cards,
        _marks(known, _texts_around(document)),
    )


def _texts_around(document: Document) -> list[str]:
    texts = [document.meta.title, document.meta.subtitle or ""]
    texts += [edge.label or "" for edge in document.connections]
    return texts + [boundary.label for boundary in document.boundaries]


def _is_about_vllm(document: Document) -> bool:
    texts = [document.meta.title, document.meta.subtitle or ""]
    if document.meta.repository is not None:
        texts.append(document.meta.repository.url)
    return any("vllm" in text.lower() for text in texts)


def _texts(component: Component) -> list[str]:
    return [component.label, component.sublabel or "", component.tag or ""]


def _range(source: Source) -> str:
    lines = "" if source.line is None else f" {source.line}-{source.end_line or source.line}"
    return f"{source.path}{lines}"


def _marks(
    known: Iterable[Claim], texts: list[str], engine_id: str | None = None
) -> list[PageMark]:
    return [
        PageMark(claim=claim.number, verdict=claim.verdict, text=claim.claim, said=said)
        for claim in known
        for said in _said(claim, texts, engine_id)
    ]


def _said(claim: Claim, texts: list[str], engine_id: str | None) -> Iterator[str]:
    """What of the texts says the claim, once; "" where they are only about it; nothing at all."""
    said = next((text for text in texts if _matches(claim.says, text)), None)
    if said is not None:
        yield said
    elif engine_id in claim.components or any(_matches(claim.phrases, text) for text in texts):
        yield ""


def _matches(patterns: Iterable[str], text: str) -> bool:
    start = text[:MOST_LETTERS]
    return any(re.search(pattern, start, re.IGNORECASE) for pattern in patterns)
