"""The format of a lesson: what may stand in the front matter of a file, as pydantic models.

A lesson is a sequence of steps. A step has a text (the section of the file's body under its id),
says what of the page it shows (`focus`), may run the engine (`run`) and may ask (`questions`).
A lab has four kinds of steps: its learner predicts, and the predictions are locked; the engine runs
and they are compared; then the learner explains. Unknown fields are errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from engine.config import EngineConfig, SamplingParams
from engine.events import FACTS_BY_TYPE, STEP_PHASES
from lessons.expressions import Expression, Template

Place = tuple[int | str, ...]  # where in the front matter something stands
Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=60)]
Expr = Annotated[InstanceOf[Expression], BeforeValidator(Expression.parse)]
Text = Annotated[InstanceOf[Template], BeforeValidator(Template.parse)]
Setting = bool | int | float | str | InstanceOf[Expression]

HINTS = 3
LEAST_WRONG = 2


def _computed(values: object) -> object:
    """In a table of settings a string that begins with = is an expression."""
    if not isinstance(values, dict):
        return values
    return {
        key: Expression.parse(value) if isinstance(value, str) and value[:1] == "=" else value
        for key, value in values.items()
    }


Settings = Annotated[dict[str, Setting], BeforeValidator(_computed)]


def unknown(key: object, known: list[str], what: str = "field") -> PydanticCustomError:
    """An error at a key that means nothing, with what was probably meant."""
    near = get_close_matches(str(key), known, n=1)
    fix = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
    return PydanticCustomError(
        "unknown_key", "there is no {what} `{key}`; {fix}", {"what": what, "key": key, "fix": fix}
    )


class Part(BaseModel):
    """Any part of a lesson: fixed once it is read, and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, values: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in values if isinstance(values, dict) else ():
            if key not in known:
                raise unknown(key, known)
        return values


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
    """What of the page a step shows; what is left out stays as it is."""

    view: str | None = None
    box: str | None = None
    request: str | None = None
    block: Expr | None = None
    moment: Expr | None = None  # a sequence number; else the end of what the step ran


class Until(Part):
    """Where the engine stops: at the end of a phase, or of the phase with an event in it."""

    phase: str | None = None
    event: str | None = None
    request: str | None = None
    step: Expr | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Until:
        phases = [str(phase) for phase in STEP_PHASES]
        if (self.phase is None) == (self.event is None):
            raise ValueError("name one thing to run to: a phase or an event")
        if self.phase is not None and self.phase not in phases:
            raise ValueError(f"there is no phase `{self.phase}`; there are {', '.join(phases)}")
        if self.event is not None and self.event not in FACTS_BY_TYPE:
            raise unknown(self.event, list(FACTS_BY_TYPE), "event")
        return self


class RequestSpec(Part):
    """A request to send: a text, cut or repeated to so many tokens where `tokens` says so."""

    prompt: str = Field(min_length=1)
    tokens: Expr | None = None
    sampling: Settings = Field(default_factory=dict)
    priority: int = 0

    @field_validator("sampling")
    @classmethod
    def _known_sampling(cls, values: dict[str, Any]) -> dict[str, Any]:
        return _only(values, list(SamplingParams.model_fields), "sampling parameter")


class Run(Part):
    """What a step does with the engine: begin anew, send, run to a place; in this order."""

    reset: bool = False
    config: Settings = Field(default_factory=dict)
    send: list[RequestSpec] = Field(default_factory=list)
    until: Until | None = None

    @field_validator("config")
    @classmethod
    def _known_config(cls, values: dict[str, Any]) -> dict[str, Any]:
        return _only(values, list(EngineConfig.model_fields), "engine setting")

    @model_validator(mode="after")
    def _consistent(self) -> Run:
        if self.config and not self.reset:
            raise ValueError("settings need an engine that begins anew; add reset: true")
        return self


def _only(values: dict[str, Any], known: list[str], what: str) -> dict[str, Any]:
    for key in values:
        if key not in known:
            raise unknown(key, known, what)
    return values


class WrongNumber(Part):
    """A wrong answer that shows a misconception, and what is said to it."""

    value: Expr
    says: Text


class WrongBox(Part):
    """The same where a box is asked for."""

    box: str
    says: Text


class Option(Part):
    """An answer to choose. Whether it is right is read from the log where `right` is a probe."""

    text: Text
    right: Expr
    says: Text

    @field_validator("right", mode="before")
    @classmethod
    def _as_expression(cls, value: Any) -> Any:
        return str(value) if isinstance(value, bool) else value


class Asked(Part):
    """What all questions have. `compare_in` names the step that shows what became of a prediction.

    `evidence` is the sequence number of the event that shows the answer.
    """

    id: Id
    ask: Text
    hints: list[Text] = Field(default_factory=list)
    evidence: Expr | None = None
    compare_in: str | None = None

    @field_validator("hints")
    @classmethod
    def _three_or_none(cls, hints: list[Template]) -> list[Template]:
        if len(hints) not in (0, HINTS):
            raise ValueError(f"hints come in {HINTS} levels, and here are {len(hints)}")
        return hints


class NumberQuestion(Asked):
    """A number. `accept` may let several through; `given` is what was answered."""

    kind: Literal["number"]
    answer: Expr
    accept: Expr | None = None
    unit: str = ""
    right: Text
    wrong: list[WrongNumber] = Field(min_length=LEAST_WRONG)
    otherwise: Text


class BoxQuestion(Asked):
    """A box of the map."""

    kind: Literal["box"]
    answer: Expr
    right: Text
    wrong: list[WrongBox] = Field(min_length=LEAST_WRONG)
    otherwise: Text


class ChoiceQuestion(Asked):
    """One of several sentences."""

    kind: Literal["choice"]
    options: list[Option] = Field(min_length=LEAST_WRONG + 1)


Question = Annotated[NumberQuestion | BoxQuestion | ChoiceQuestion, Field(discriminator="kind")]
Kind = Literal["read", "predict", "compare", "explain"]


class Step(Part):
    """One page of a lesson. `text` is its section of the file's body."""

    id: Id
    title: str
    kind: Kind = "read"
    text: Text
    look: Text | None = None
    focus: Focus = Focus()
    run: Run | None = None
    questions: list[Question] = Field(default_factory=list)


class Lesson(Part):
    """A tour or a lab."""

    id: Id
    kind: Literal["tour", "lab"]
    title: str
    summary: str
    minutes: int = Field(ge=1, le=120)
    variant: dict[str, Range | Choices | Computed] = Field(default_factory=dict)
    steps: list[Step] = Field(min_length=1)

    def step(self, step_id: str) -> int | None:
        """The place of a step, or None."""
        return next((n for n, step in enumerate(self.steps) if step.id == step_id), None)


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
