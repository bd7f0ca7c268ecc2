"""The format of a lesson: what may stand in the front matter of a file, as pydantic models.

A lesson is a sequence of steps. A step has a text (the section of the file's body under its id),
says what of the page it shows (`focus`), may run the engine (`run`) and may ask (`questions`).
The steps of a lab have kinds: its learner recalls, predicts (and the predictions are locked),
observes the engine and compares, explains, changes, fixes. Unknown fields are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

from lessons.expressions import Expression, Template
from lessons.parts import Expr, Id, Part, Place, Text
from lessons.questions import Question
from lessons.runs import Run


class Range(Part):
    """A number that each variant draws anew, both ends included."""

    low: int = Field(alias="from")
    high: int = Field(alias="to")

    @model_validator(mode="after")
    def _in_order(self) -> Range:
        if self.low > self.high:
            raise ValueError(f"from {self.low} to {self.high} is empty; swap them")
        return self


class Choices(Part):
    """A value that each variant picks from a list."""

    choose: list[int | str] = Field(min_length=1)


class Computed(Part):
    """A value that follows from those above it."""

    value: Expr = Field(alias="is")


class Focus(Part):
    """What of the page a step shows; what is left out stays as it is.

    The document is the engine's own map where none is named.
    """

    document: str | None = None  # the name of a file that comes with the project
    view: str | None = None
    box: str | None = None
    request: str | None = None
    block: Expr | None = None
    moment: Expr | None = None  # a sequence number; else the end of what the step ran
    claim: int | None = Field(default=None, ge=1)  # the number of a claim's card, which is opened


Kind = Literal["read", "recall", "predict", "observe", "compare", "explain", "change", "fix"]


class Step(Part):
    """One page of a lesson. `text` is its section of the file's body."""

    id: Id
    title: str
    kind: Kind = "read"
    self_check: bool = False  # its questions are for the learner alone, and give no points
    text: Text
    look: Text | None = None
    notes: Text | None = None  # for who presents it, in a window of their own
    seen: Text | None = None  # said when the moment has come that its run waits for
    focus: Focus = Focus()
    run: Run | None = None
    questions: list[Question] = Field(default_factory=list)

    @property
    def gives_points(self) -> bool:
        """Whether its questions give points: those of a self-check or a recall do not."""
        return not self.self_check and self.kind != "recall"


_THREAD = re.compile(r"([\w.-]+/[\w.-]+)?#[1-9]\d*", re.ASCII)


def _thread(text: str) -> str:
    if not _THREAD.fullmatch(text):
        raise ValueError(f"{text!r:.80} is no thread; write '#48803', or 'owner/name#144'")
    return text


Thread = Annotated[str, AfterValidator(_thread)]  # vLLM's, where no repository is named

SHOWN_BY = {  # of a symptom: what stands on the page for it
    "engine": "Your engine shows it by itself.",
    "fault": "A correct engine does not do this. The one here is broken on purpose.",
    "card": "Your engine has no card to fill, so the sizes are computed for one by formula.",
    "simulated": "It takes more than this engine has, so it is acted out with a broken one.",
}


class Lesson(Part):
    """A tour, a lab, a case of the symptom clinic or a bug hunt."""

    id: Id
    kind: Literal["tour", "lab", "clinic", "hunt"]
    title: str
    summary: str
    number: int | None = Field(
        default=None, ge=1
    )  # its place in the course, among those of its kind
    minutes: int = Field(ge=1, le=120)
    threads: list[Thread] = Field(default_factory=list)  # in public, of people who reported it
    shown_by: Literal["engine", "fault", "card", "simulated"] | None = None  # of `SHOWN_BY`
    variant: dict[str, Range | Choices | Computed] = Field(default_factory=dict)
    steps: list[Step] = Field(min_length=1)

    @property
    def points(self) -> int:
        """The points that there are."""
        return sum(q.points for step in self.steps if step.gives_points for q in step.questions)

    def step(self, step_id: str) -> int | None:
        """The place of a step, or None."""
        return next((n for n, step in enumerate(self.steps) if step.id == step_id), None)


def address_of(thread: str) -> str:
    """Where a thread is read; GitHub leads on from an issue's address to a pull request's."""
    repository, _, number = thread.partition("#")
    return f"https://github.com/{repository or 'vllm-project/vllm'}/issues/{number}"


def expressions(part: object, place: Place = ()) -> Iterator[tuple[Place, Expression]]:
    """All expressions of a lesson, those within texts too, and where they stand."""
    match part:
        case Expression():
            yield place, part
        case Template():
            for expression in part.expressions:
                yield place, expression
        case BaseModel():
            for name, field in type(part).model_fields.items():
                yield from expressions(getattr(part, name), (*place, field.alias or name))
        case dict():
            for key, value in part.items():
                yield from expressions(value, (*place, key))
        case list():
            for number, value in enumerate(part):
                yield from expressions(value, (*place, number))
