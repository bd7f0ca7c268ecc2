"""Prove a question: its model answer passes, and each typical wrong one gets its own message."""

from __future__ import annotations

from collections.abc import Iterator

from engine.async_llm import AsyncLLM
from lessons.expressions import Scope
from lessons.grading import Given, answered, fits, grade, model_answer, turned
from lessons.map_names import MapNames
from lessons.play import Asked, Player
from lessons.questions import (
    BoxQuestion,
    ChangeQuestion,
    ChoiceQuestion,
    MomentQuestion,
    NumberQuestion,
    Question,
)
from lessons.stage import perform
from lessons.text import render
from lessons.variants import SEEDS, draw

NOBODY_SAYS = (-987_654_321, 987_654_321)


class Trial:
    """A question before its judge: at a moment, or in a run of its own for each answer."""

    def __init__(self, asked: Asked, player: Player, llm: AsyncLLM, names: MapNames):
        self.asked, self.player, self.llm, self.names = asked, player, llm, names
        self.question: Question = asked.question
        self.refused = 0

    def scope(self, given: Given | None, seed: int = 0) -> Scope:
        """What the judge sees of an answer; None: before there is any."""
        question = self.question
        if given is None or not isinstance(question, ChangeQuestion) or not isinstance(given, dict):
            return self.player.scope(self.player.judged_at(self.asked))
        values = draw(self.player.lesson, seed) if seed else self.player.values
        saved = self.player.saved
        moment = perform(self.llm, question.run, Scope({**values, **given}), -1, saved)
        return Scope(values, moment)

    def problems(self) -> Iterator[str]:
        """All that is wrong with the question."""
        question, before = self.question, self.scope(None)
        if not self._reads_log():
            yield "its answer is not read from the log; let it call a probe"
        right = model_answer(question, before)
        if isinstance(question, BoxQuestion) and right not in self.names.boxes:
            yield f"the answer {right!r} is no box of the document"
        if isinstance(question, ChoiceQuestion) and right == -1:
            yield "no option is right"
            return
        yield from self._right(right)
        for place, wrong in self._typical(before):
            yield from self._wrong(place, wrong)
        yield from self._strangers()

    def _reads_log(self) -> bool:
        """Whether the engine has a say in what is right; what is recalled is of another run."""
        match self.question:
            case _ if self.asked.step.kind == "recall":
                return True
            case ChoiceQuestion(options=options):
                return any(option.right.live or option.right.derived for option in options)
            case ChangeQuestion(accept=accept):
                return accept.live
            case _:
                return self.question.answer.live or self.question.answer.derived

    def _right(self, right: Given) -> Iterator[str]:
        question = self.question
        if not fits(question, right):
            yield f"the model answer {right!r} is none: it is of another kind, or out of bounds"
            return
        scope = self.scope(right)
        verdict = grade(question, right, scope)
        if not verdict.right:
            yield f"the model answer {right!r} is refused"
        render(verdict.says, answered(question, right, scope), self.names.boxes)
        if question.evidence is not None:
            question.evidence.whole(answered(question, right, scope))
        if isinstance(question, ChangeQuestion) and question.hidden:
            seed = self.player.seed + SEEDS
            if not grade(question, right, self.scope(right, seed)).right:
                yield f"the model answer {right!r} does not hold on the hidden seed {seed}"

    def _wrong(self, place: int, wrong: Given) -> Iterator[str]:
        if not fits(self.question, wrong):
            yield f"the wrong answer {wrong!r} is none: it is of another kind, or out of bounds"
            return
        scope = self.scope(wrong)
        verdict = grade(self.question, wrong, scope)
        if verdict.right:
            yield f"the wrong answer {wrong!r} passes: it cannot be told from a right one"
        elif verdict.wrong != place:
            yield f"the wrong answer {wrong!r} gets the message of another one"
        else:
            self.refused += 1
        render(verdict.says, answered(self.question, wrong, scope), self.names.boxes)

    def _strangers(self) -> Iterator[str]:
        """Answers that nobody would give, or that change nothing, must not pass."""
        strangers: tuple[Given, ...]
        match self.question:
            case ChoiceQuestion():
                return
            case NumberQuestion() | MomentQuestion():
                strangers = NOBODY_SAYS
            case BoxQuestion():
                strangers = ("",)
            case ChangeQuestion(knobs=knobs):
                strangers = ({name: knob.start for name, knob in knobs.items()},)
        scope = self.scope(strangers[0])
        passed = [each for each in strangers if grade(self.question, each, scope).right]
        if passed:
            yield f"the check lets {passed[0]!r} pass: it is always true, or nearly so"
        render(
            self.question.otherwise,
            answered(self.question, strangers[0], scope),
            self.names.boxes,
        )

    def _typical(self, scope: Scope) -> Iterator[tuple[int, Given]]:
        """Wrong answers and the place of the message that each should get."""
        match self.question:
            case NumberQuestion(wrong=wrongs) | MomentQuestion(wrong=wrongs):
                for place, number in enumerate(wrongs):
                    value = number.value.value(scope)
                    yield place, value if isinstance(value, int | float) else str(value)
            case BoxQuestion(wrong=boxes):
                yield from ((place, wrong.box) for place, wrong in enumerate(boxes))
            case ChangeQuestion(wrong=changes):
                for place, change in enumerate(changes):
                    yield place, turned(change.knobs, self.question, scope)
            case ChoiceQuestion(options=options):
                rights = [bool(option.right.value(scope)) for option in options]
                if all(rights):
                    yield 0, 0  # it passes, which is reported
                yield from ((n, n) for n, is_right in enumerate(rights) if not is_right)
