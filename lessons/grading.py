"""Grading: an answer against what the engine did, and the message that was written for it."""

from __future__ import annotations

from typing import NamedTuple

from lessons.expressions import Scope, Template
from lessons.format import BoxQuestion, ChoiceQuestion, NumberQuestion, Question

Given = int | float | str  # a number, the id of a box, or the number of an option


class Verdict(NamedTuple):
    """What an answer was worth; `wrong` is the place of the misconception that it shows."""

    right: bool
    says: Template
    wrong: int | None = None


def grade(question: Question, given: Given, scope: Scope) -> Verdict:
    """Judge an answer at a moment; raises ExpressionError or ProbeError where that cannot be."""
    scope = scope.having(given=given)
    match question:
        case NumberQuestion():
            return _number(question, given, scope)
        case BoxQuestion():
            return _box(question, given, scope)
        case ChoiceQuestion():
            option = question.options[int(given)]
            right = bool(option.right.value(scope))
            return Verdict(right, option.says, None if right else int(given))


def model_answer(question: Question, scope: Scope) -> Given:
    """The answer that the engine gives."""
    if isinstance(question, ChoiceQuestion):
        rights = [bool(option.right.value(scope)) for option in question.options]
        return rights.index(True) if True in rights else -1
    answer = question.answer.value(scope)
    return answer if isinstance(answer, int | float | str) else str(answer)


def _number(question: NumberQuestion, given: Given, scope: Scope) -> Verdict:
    right = (
        bool(question.accept.value(scope))
        if question.accept is not None
        else given == question.answer.value(scope)
    )
    if right:
        return Verdict(True, question.right)
    for place, wrong in enumerate(question.wrong):
        if given == wrong.value.value(scope):
            return Verdict(False, wrong.says, place)
    return Verdict(False, question.otherwise)


def _box(question: BoxQuestion, given: Given, scope: Scope) -> Verdict:
    if given == question.answer.value(scope):
        return Verdict(True, question.right)
    for place, wrong in enumerate(question.wrong):
        if given == wrong.box:
            return Verdict(False, wrong.says, place)
    return Verdict(False, question.otherwise)
