"""Questions of a lesson: what each kind is made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from lessons.expressions import Template
from lessons.parts import Expr, Id, Part, Text
from lessons.runs import Run

HINTS = 3
LEAST_WRONG = 2


class WrongNumber(Part):
    """A wrong answer that shows a misconception, and what is said to it.

    One that is right in part gets `points` of the question's.
    """

    value: Expr
    says: Text
    points: int = Field(default=0, ge=0)


class WrongBox(Part):
    """The same where a box is asked for."""

    box: str
    says: Text
    points: int = Field(default=0, ge=0)


class Option(Part):
    """An answer to choose. Whether it is right is read from the log where `right` is a probe."""

    text: Text
    right: Expr
    says: Text
    points: int = Field(default=0, ge=0)  # of a wrong one

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
    points: int = Field(default=1, ge=0, le=100)
    hints: list[Text] = Field(default_factory=list)
    hint_cost: int = Field(default=0, ge=0, le=100)  # points, of each level that was opened
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


class MomentQuestion(Asked):
    """A record of the log, chosen by the cursor: `given` is its sequence number.

    `accept` may let several through: `event_at(given) == 'block_evicted'`.
    """

    kind: Literal["moment"]
    answer: Expr
    accept: Expr | None = None
    right: Text
    wrong: list[WrongNumber] = Field(min_length=LEAST_WRONG)
    otherwise: Text


class Knob(Part):
    """What a learner may change, within bounds, and where it stands at first."""

    low: int | None = Field(default=None, alias="from")
    high: int | None = Field(default=None, alias="to")
    choose: list[int | str] | None = Field(default=None, min_length=2)
    start: int | str

    @model_validator(mode="after")
    def _has_bounds(self) -> Knob:
        if (self.choose is None) == (self.low is None or self.high is None):
            raise ValueError("a knob has `from` and `to`, or `choose`; write one of these")
        if not self.allows(self.start):
            raise ValueError(f"the start {self.start!r} is out of the knob's bounds; move it in")
        return self

    def allows(self, value: object) -> bool:
        """Whether a value lies within the bounds."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            return False
        if self.choose is not None:
            return any(value == each and type(value) is type(each) for each in self.choose)
        within = isinstance(value, int) and self.low is not None and self.high is not None
        return within and self.low <= value <= self.high  # type: ignore[operator]


class WrongChange(Part):
    """What shows a misconception in the run that came of it (`when`), and an example (`knobs`)."""

    knobs: dict[str, Expr] = Field(min_length=1)
    when: Expr
    says: Text
    points: int = Field(default=0, ge=0)


class ChangeQuestion(Asked):
    """Knobs to be turned until a run does what is wanted; clicks are not looked at.

    Each knob is a value that `run` sees. `accept` and all messages read the log of the run under
    the learner's knobs. A `hidden` one must hold with the numbers of another seed as well.
    """

    kind: Literal["change"]
    knobs: dict[str, Knob] = Field(min_length=1)
    run: Run
    answer: dict[str, Expr] = Field(min_length=1)
    accept: Expr
    right: Text
    wrong: list[WrongChange] = Field(min_length=LEAST_WRONG)
    otherwise: Text
    hidden: bool = False

    @model_validator(mode="after")
    def _begins_anew(self) -> ChangeQuestion:
        if not self.run.begins_anew or self.run.wait is not None:
            raise ValueError(
                "each try begins anew and runs by itself; its run has reset: true, or `restore`"
            )
        if self.hidden and self.run.restore is not None:
            raise ValueError(
                "what was saved has the learner's own numbers, so nothing can be tried with hidden "
                "ones; take `hidden` away, or begin the run with reset: true"
            )
        if self.run.save is not None:
            raise ValueError("a try is not there for later steps; `save` in the run of a step")
        return self


Question = Annotated[
    NumberQuestion | BoxQuestion | ChoiceQuestion | MomentQuestion | ChangeQuestion,
    Field(discriminator="kind"),
]
