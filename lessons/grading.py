"""Grading: an answer against what the engine did, and the message that was written for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lessons.expressions import Expression, Scope, Template
from lessons.questions import (
    BoxQuestion,
    ChangeQuestion,
    ChoiceQuestion,
    MomentQuestion,
    NumberQuestion,
    Question,
    WrongBox,
    WrongChange,
    WrongNumber,
)

Setting = dict[str, int | str]  # of a change: its knobs
# A number (of an option, of a record), the id of a box, or the knobs of a change.
Given = int | float | str | Setting
Wrong = WrongNumber | WrongBox | WrongChange
Graded = NumberQuestion | BoxQuestion | MomentQuestion | ChangeQuestion


class Verdict(NamedTuple):
    """What an answer was worth; `wrong` is the place of the misconception that it shows.

    `points` are the answer's alone: what opened hints cost is not taken off yet.
    """

    right: bool
    says: Template
    wrong: int | None = None
    points: int = 0


def fits(question: Question, given: object) -> bool:
    """Whether something can be an answer to a question at all."""
    match question:
        case NumberQuestion():
            return isinstance(given, int | float) and not isinstance(given, bool)
        case MomentQuestion():
            return isinstance(given, int) and not isinstance(given, bool)
        case BoxQuestion():
            return isinstance(given, str)
        case ChoiceQuestion():
            if not isinstance(given, int) or isinstance(given, bool):
                return False
            return 0 <= given < len(question.options)
        case ChangeQuestion():
            if not isinstance(given, dict) or given.keys() != question.knobs.keys():
                return False
            return all(knob.allows(given[name]) for name, knob in question.knobs.items())


def answered(question: Question, given: Given, scope: Scope) -> Scope:
    """What the expressions of a question see of an answer: `given`, or the knobs by name."""
    if isinstance(given, dict):
        return scope.having(**given)
    return scope.having(given=given)


def grade(question: Question, given: Given, scope: Scope) -> Verdict:
    """Judge an answer at a moment; raises ExpressionError or ProbeError where that cannot be."""
    scope = answered(question, given, scope)
    if isinstance(question, ChoiceQuestion):
        place = int(given)  # type: ignore[arg-type]
        option = question.options[place]
        if option.right.value(scope):
            return Verdict(True, option.says, points=question.points)
        return Verdict(False, option.says, place, option.points)
    if _is_right(question, given, scope):
        return Verdict(True, question.right, points=question.points)
    wrongs: Sequence[Wrong] = question.wrong
    for place, wrong in enumerate(wrongs):
        if _is_this(wrong, given, scope):
            return Verdict(False, wrong.says, place, wrong.points)
    return Verdict(False, question.otherwise)


def model_answer(question: Question, scope: Scope) -> Given:
    """The answer that the engine gives."""
    if isinstance(question, ChoiceQuestion):
        rights = [bool(option.right.value(scope)) for option in question.options]
        return rights.index(True) if True in rights else -1
    if isinstance(question, ChangeQuestion):
        return turned(question.answer, question, scope)
    answer = question.answer.value(scope)
    return answer if isinstance(answer, int | float | str) else str(answer)


def turned(knobs: Mapping[str, Expression], question: ChangeQuestion, scope: Scope) -> Setting:
    """All knobs of a question: those that are named, and the others as they stand at first."""
    start = {name: knob.start for name, knob in question.knobs.items()}
    return {**start, **{name: _knob(value, scope) for name, value in knobs.items()}}


def _knob(value: Expression, scope: Scope) -> int | str:
    found = value.value(scope)
    return found if isinstance(found, int | str) else str(found)


def _is_right(question: Graded, given: Given, scope: Scope) -> bool:
    if isinstance(question, BoxQuestion) or not question.accept:
        assert not isinstance(question, ChangeQuestion)
        return given == question.answer.value(scope)
    return bool(question.accept.value(scope))


def _is_this(wrong: Wrong, given: Given, scope: Scope) -> bool:
    match wrong:
        case WrongNumber():
            return given == wrong.value.value(scope)
        case WrongBox():
            return given == wrong.box
        case WrongChange():
            return bool(wrong.when.value(scope))
