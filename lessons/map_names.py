"""What of the project's documents a lesson may name: boxes, views and claims."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lessons.format import Step
from lessons.questions import BoxQuestion
from lessons.text import boxes, texts

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "architecture.json"  # the engine's own map
CLAIMS = ROOT / "views" / "assets" / "claims" / "claims.json"


class DocumentError(ValueError):
    """A document or the claims cannot be read; the message says which."""


class Claim(NamedTuple):
    """What is often said of vLLM, and what holds."""

    number: int
    claim: str
    verdict: str
    holds: str
    components: list[str]  # the boxes that it is about


class MapNames(NamedTuple):
    """What there is to be named on a map, and on those of the other documents by file name."""

    boxes: dict[str, str]  # id -> label
    views: tuple[str, ...]
    others: Mapping[str, MapNames] = {}
    claims: tuple[int, ...] = ()

    def of(self, step: Step) -> MapNames | None:
        """The names of the document that a step shows; None where there is no such document."""
        document = step.focus.document
        return self if document is None else self.others.get(document)


def read_map(path: Path) -> MapNames:
    """What can be named of a document and of those that come with the project."""
    shipped = [DOCUMENT, *sorted((ROOT / "docs").glob("*.architecture.json"))]
    others = {other.name: MapNames(*_names(other)) for other in shipped}
    return MapNames(*_names(path), others, tuple(claim.number for claim in read_claims()))


def read_claims() -> list[Claim]:
    """The claims that the page has cards for."""
    try:
        return [Claim(*(claim[name] for name in Claim._fields)) for claim in _json(CLAIMS)]
    except (KeyError, TypeError) as error:
        raise DocumentError(f"{CLAIMS}: no claims ({error!r:.120})") from None


def _names(path: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    document = _json(path)
    try:
        labels = {box["id"]: box["label"] for box in document["components"]}
        views = tuple(view["id"] for view in document["meta"].get("views", ()))
    except (KeyError, TypeError, AttributeError) as error:
        raise DocumentError(f"{path}: no architecture document ({error!r:.120})") from None
    return labels, views


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DocumentError(f"{path}: cannot be read ({error!r:.120})") from None


def not_there(step: Step, names: MapNames) -> Iterator[str]:
    """What a step names and the document that it shows does not have."""
    here = names.of(step)
    if here is None:
        listed = ", ".join(names.others)
        yield f"there is no document {step.focus.document!r} in the project; there are {listed}"
        return
    view, claim = step.focus.view, step.focus.claim
    if view is not None and view not in here.views:
        yield f"there is no view {view!r} in the document; there are {', '.join(here.views)}"
    if claim is not None and claim not in names.claims:
        yield f"there is no claim {claim}; there are 1 to {max(names.claims, default=0)}"
    named = [step.focus.box] if step.focus.box else []
    for question in step.questions:
        if isinstance(question, BoxQuestion):
            named += [wrong.box for wrong in question.wrong]
    named += [box for text in texts(step) for box in boxes(text)]
    for box in dict.fromkeys(named):
        if box not in here.boxes:
            yield f"there is no box {box!r} in the document; there are {', '.join(here.boxes)}"
