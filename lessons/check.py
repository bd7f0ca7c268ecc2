"""Prove lessons on a real engine: what the model answers passes, and typical wrong answers do not.

Every lesson is played from its first step to its last on each seed. All its texts must have their
values; of each question the model answer must pass, each wrong answer must be refused with the
message that was written for it, and answers that nobody would give must be refused as well, so a
check that lets everything pass is found. Boxes and views must exist in the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from engine.async_llm import AsyncLLM, EngineError
from engine.config import ConfigError
from engine.input_processor import RequestRefusedError
from lessons.expressions import ExpressionError, Scope, Template
from lessons.format import BoxQuestion, ChoiceQuestion, Lesson, NumberQuestion, Question, Step
from lessons.grading import Given, grade, model_answer
from lessons.play import Asked, Player
from lessons.probes import ProbeError
from lessons.stage import StageError
from lessons.text import boxes, render

SEEDS = (1, 2)
NOBODY_SAYS = (-987_654_321, 987_654_321)
_TROUBLES = (
    ExpressionError,
    ProbeError,
    StageError,
    ConfigError,
    EngineError,
    RequestRefusedError,
)


class CheckError(ValueError):
    """The check itself cannot be done; the message says why."""


class MapNames(NamedTuple):
    """What a lesson may name of an architecture document."""

    boxes: dict[str, str]  # id -> label
    views: tuple[str, ...]


@dataclass
class Report:
    """What came out of a lesson's check."""

    lesson: Lesson
    problems: list[str] = field(default_factory=list)
    questions: int = 0
    refused: int = 0
    numbers: int = 0  # read live

    def say(self, where: str, message: str) -> None:
        """Note a problem once, on however many seeds it shows."""
        line = f"{where}: {message}"
        if line not in self.problems:
            self.problems.append(line)


def read_map(path: Path) -> MapNames:
    """Ids of boxes and views of an architecture document; raises CheckError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        labels = {box["id"]: box["label"] for box in document["components"]}
        views = tuple(view["id"] for view in document["meta"]["views"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckError(f"{path}: no architecture document ({error!r:.120})") from None
    return MapNames(labels, views)


def check_lesson(lesson: Lesson, llm: AsyncLLM, names: MapNames, seeds: tuple[int, ...]) -> Report:
    """Play a lesson on an engine with each seed and report all that is wrong with it."""
    report = Report(lesson)
    for step in lesson.steps:
        for what in _not_on_map(step, names):
            report.say(f"step {step.id}", what)
    for seed in seeds:
        _play(Player(lesson, seed), llm, names, report)
    if not report.numbers:
        report.say("lesson", "no text reads a number from the log; let one of them, with {{probe}}")
    if not report.questions:
        report.say("lesson", "it asks nothing, so it exposes no misconception; add a question")
    report.questions //= len(seeds)
    return report


def _play(player: Player, llm: AsyncLLM, names: MapNames, report: Report) -> None:
    for number, step in enumerate(player.lesson.steps):
        player.index = number
        where = f"step {step.id}, seed {player.seed}"
        try:
            player.bring(llm)
            _check_step(player, names, report)
        except _TROUBLES as error:
            report.say(where, str(error))
            return
    for step in player.lesson.steps:
        for question in step.questions:
            asked = Asked(step, question)
            where = f"step {step.id}, question {question.id}, seed {player.seed}"
            try:
                for what in _check_question(asked, player, names, report):
                    report.say(where, what)
            except _TROUBLES as error:
                report.say(where, str(error))


# -- steps --------------------------------------------------------------------------------------


def _not_on_map(step: Step, names: MapNames) -> Iterator[str]:
    """Boxes and views that the document does not have."""
    view, named = step.focus.view, [step.focus.box] if step.focus.box else []
    if view is not None and view not in names.views:
        yield f"there is no view {view!r} in the document; there are {', '.join(names.views)}"
    for question in step.questions:
        if isinstance(question, BoxQuestion):
            named += [wrong.box for wrong in question.wrong]
    named += [box for text in _texts(step) for box in boxes(text)]
    for box in dict.fromkeys(named):
        if box not in names.boxes:
            yield f"there is no box {box!r} in the document; there are {', '.join(names.boxes)}"


def _check_step(player: Player, names: MapNames, report: Report) -> None:
    """Everything that is said before an answer must have its values."""
    step, scope = player.step, player.scope()
    for text in (step.text, step.look):
        if text is not None:
            report.numbers += sum(part.live for part in text.expressions)
            render(text, scope, names.boxes)
    for question in step.questions:
        for text in (question.ask, *question.hints):
            render(text, scope, names.boxes)
        for option in question.options if isinstance(question, ChoiceQuestion) else ():
            render(option.text, scope, names.boxes)
    shown = player.shown()
    requests = {} if scope.moment is None else scope.moment.state.get("requests", {})
    if shown.request is not None and shown.request not in requests:
        report.say(f"step {step.id}", f"focus: the log knows no request {shown.request!r} here")


def _texts(part: Any) -> Iterator[Template]:
    """All texts of a part of a lesson."""
    match part:
        case Template():
            yield part
        case BaseModel():
            for name in type(part).model_fields:
                yield from _texts(getattr(part, name))
        case list():
            for item in part:
                yield from _texts(item)


# -- questions ----------------------------------------------------------------------------------


def _check_question(asked: Asked, player: Player, names: MapNames, report: Report) -> Iterator[str]:
    scope = player.scope(player.judged_at(asked))
    question = asked.question
    report.questions += 1
    if not _reads_log(question):
        yield "its answer is not read from the log; let it call a probe"
    right = model_answer(question, scope)
    if isinstance(question, BoxQuestion) and right not in names.boxes:
        yield f"the answer {right!r} is no box of the document"
    if isinstance(question, ChoiceQuestion) and right == -1:
        yield "no option is right"
        return
    verdict = grade(question, right, scope)
    if not verdict.right:
        yield f"the model answer {right!r} is refused"
    render(verdict.says, scope.having(given=right), names.boxes)
    if question.evidence is not None:
        question.evidence.whole(scope)
    yield from _wrong_answers(asked, scope, right, names, report)


def _reads_log(question: Question) -> bool:
    """Whether the engine has a say in what is right."""
    if isinstance(question, ChoiceQuestion):
        return any(option.right.live for option in question.options)
    return question.answer.live


def _wrong_answers(
    asked: Asked, scope: Scope, right: Given, names: MapNames, report: Report
) -> Iterator[str]:
    question = asked.question
    for place, wrong in _typical(asked, scope, right):
        verdict = grade(question, wrong, scope)
        if verdict.right:
            yield f"the wrong answer {wrong!r} passes: it cannot be told from a right one"
        elif verdict.wrong != place:
            yield f"the wrong answer {wrong!r} gets the message of another one"
        else:
            report.refused += 1
        render(verdict.says, scope.having(given=wrong), names.boxes)
    if isinstance(question, ChoiceQuestion):
        return
    strangers: tuple[Given, ...] = NOBODY_SAYS if isinstance(question, NumberQuestion) else ("",)
    passed = [stranger for stranger in strangers if grade(question, stranger, scope).right]
    if passed:
        yield f"the check lets {passed[0]!r} pass: it is always true, or nearly so"
    render(question.otherwise, scope.having(given=strangers[0]), names.boxes)


def _typical(asked: Asked, scope: Scope, right: Given) -> Iterator[tuple[int, Given]]:
    """Wrong answers and the place of the message that each should get."""
    match asked.question:
        case NumberQuestion(wrong=wrongs):
            for place, number in enumerate(wrongs):
                value = number.value.value(scope)
                yield place, value if isinstance(value, int | float) else str(value)
        case BoxQuestion(wrong=wrongs):
            for place, box in enumerate(wrongs):
                yield place, box.box
        case ChoiceQuestion(options=options):
            rights = [bool(option.right.value(scope)) for option in options]
            if all(rights):
                yield 0, 0  # it passes, which is reported
            yield from ((n, n) for n, is_right in enumerate(rights) if not is_right)
