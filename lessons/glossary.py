"""The glossary: terms of the field in two sentences each, with the box that they light."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from lessons.loader import LessonError, Problem, Source, read_front
from lessons.map_names import MapNames
from lessons.parts import Part

GLOSSARY = Path(__file__).parent / "glossary.yaml"
_SENTENCE = re.compile(r"[.!?](?=\s|$)")
SENTENCES = 2


class Term(Part):
    """A term; `document` is the file name of the map that has its box, None: the engine's own."""

    term: str = Field(min_length=1)
    also: list[str] = Field(default_factory=list)  # other words for it
    says: str
    box: str
    document: str | None = None
    see: list[str] = Field(default_factory=list)  # other terms

    @field_validator("says")
    @classmethod
    def _two_sentences(cls, text: str) -> str:
        if len(_SENTENCE.findall(text)) != SENTENCES:
            raise ValueError(f"a term is said in {SENTENCES} sentences: what it is, what follows")
        return text


class Glossary(Part):
    """All of them."""

    terms: list[Term] = Field(min_length=1)


def load_glossary(path: Path = GLOSSARY) -> list[Term]:
    """The terms in the order of the alphabet; raises LessonError with all that is wrong."""
    source = read_front(path)
    try:
        terms = Glossary.model_validate(source.values).terms
    except ValidationError as error:
        problems = [_problem(source, dict(each)) for each in error.errors(include_url=False)]
        raise LessonError(problems) from None
    wrong = [
        Problem(path, source.line(("terms", number)), message)
        for number, message in _wrong_words(terms)
    ]
    if wrong:
        raise LessonError(wrong)
    return sorted(terms, key=lambda term: term.term.casefold())


def _problem(source: Source, error: dict[str, object]) -> Problem:
    place = error["loc"]
    assert isinstance(place, tuple)
    name = place[-1] if place else "terms"
    return Problem(source.path, source.line(place), f"`{name}`: {error['msg']}")


def _wrong_words(terms: list[Term]) -> Iterator[tuple[int, str]]:
    """Words that stand there twice, and terms that are pointed to and are not there."""
    words: dict[str, str] = {}
    for number, term in enumerate(terms):
        for word in (term.term, *term.also):
            if word.casefold() in words:
                yield number, f"`{word}` stands for {words[word.casefold()]} already; remove one"
            words[word.casefold()] = term.term
    names = {term.term for term in terms}
    for number, term in enumerate(terms):
        for other in term.see:
            if other not in names - {term.term}:
                yield number, f"`see` of {term.term} names `{other}`, which is no other term"


def not_on_the_map(terms: list[Term], names: MapNames) -> Iterator[str]:
    """Terms whose box or map there is not."""
    for term in terms:
        here = names if term.document is None else names.others.get(term.document)
        if here is None:
            yield f"{term.term}: there is no document {term.document!r} in the project"
        elif term.box not in here.boxes:
            yield f"{term.term}: there is no box {term.box!r}; there are {', '.join(here.boxes)}"
