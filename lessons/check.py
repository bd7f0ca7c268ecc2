"""Prove lessons on a real engine: what the model answers passes, and typical wrong answers do not.

Every lesson is played from its first step to its last on each seed. All its texts must have their
values; of each question the model answer must pass, each wrong answer must be refused with the
message that was written for it, and answers that nobody would give must be refused as well, so a
check that lets everything pass is found. Boxes and views must exist in the document.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.async_llm import AsyncLLM, EngineError
from engine.config import ConfigError
from engine.input_processor import RequestRefusedError
from lessons.check_questions import Trial
from lessons.expressions import ExpressionError, Scope, Template
from lessons.format import Lesson
from lessons.map_names import MapNames, not_there
from lessons.play import Asked, Player
from lessons.probes import ProbeError
from lessons.questions import ChoiceQuestion
from lessons.stage import StageError
from lessons.text import render

SEEDS = (1, 2)
_TROUBLES = (
    ExpressionError,
    ProbeError,
    StageError,
    ConfigError,
    EngineError,
    RequestRefusedError,
)


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


def check_lesson(lesson: Lesson, llm: AsyncLLM, names: MapNames, seeds: tuple[int, ...]) -> Report:
    """Play a lesson on an engine with each seed and report all that is wrong with it."""
    report = Report(lesson)
    for step in lesson.steps:
        for what in not_there(step, names):
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
            _check_texts(player, names, report)
            player.look(llm, run_there=True)
            _check_step(player, names, report)
        except _TROUBLES as error:
            report.say(where, str(error))
            return
    for step in player.lesson.steps:
        for question in step.questions:
            asked, here = Asked(step, question), names.of(step) or names
            where = f"step {step.id}, question {question.id}, seed {player.seed}"
            try:
                trial = Trial(asked, player, llm, here)
                for what in trial.problems():
                    report.say(where, what)
                report.questions += 1
                report.refused += trial.refused
            except _TROUBLES as error:
                report.say(where, str(error))


# -- steps --------------------------------------------------------------------------------------


def _check_texts(player: Player, names: MapNames, report: Report) -> None:
    """What is said first must have its values, before the learner has stepped the engine."""
    step = player.step
    _read([step.text, step.look, step.notes], player.first_scope(), names.of(step) or names, report)
    player.shown()


def _read(texts: list[Template | None], scope: Scope, names: MapNames, report: Report) -> None:
    for text in texts:
        if text is not None:
            report.numbers += sum(part.live for part in text.expressions)
            render(text, scope, names.boxes)


def _check_step(player: Player, names: MapNames, report: Report) -> None:
    """Everything else that is said before an answer must have its values."""
    step, scope = player.step, player.scope()
    names = names.of(step) or names
    _read([step.seen], scope, names, report)
    for question in step.questions:
        for text in (question.ask, *question.hints):
            render(text, scope, names.boxes)
        for option in question.options if isinstance(question, ChoiceQuestion) else ():
            render(option.text, scope, names.boxes)
    shown = player.shown()
    requests = {} if scope.moment is None else scope.moment.state.get("requests", {})
    if shown.request is not None and shown.request not in requests:
        report.say(f"step {step.id}", f"focus: the log knows no request {shown.request!r} here")
