"""One learner in one lesson: a reader who answers, and what the answers are worth.

Knows no page. An answer is judged at a step's moment, which `lessons.reader` keeps, so that the
verdict stays what it was, whatever the learner does with the engine meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.async_llm import AsyncLLM
from lessons.expressions import Scope, Template
from lessons.format import Lesson, Step, expressions
from lessons.grading import Given, Setting, Verdict, answered, fits, grade
from lessons.kept import Judged, Key, read_state, write_state
from lessons.probes import Moment
from lessons.questions import ChangeQuestion, ChoiceQuestion, Question
from lessons.reader import Reader
from lessons.stage import perform
from lessons.variants import SEEDS, draw


class Shown(NamedTuple):
    """What the page shows for a step; None leaves a thing as it is."""

    view: str | None
    box: str | None
    request: str | None
    block: int | None
    trace_id: str | None
    seq: int | None
    claim: int | None  # the number of its card


class Asked(NamedTuple):
    """A question and the step that asks it."""

    step: Step
    question: Question

    @property
    def key(self) -> Key:
        """Under which its answer is kept."""
        return self.step.id, self.question.id


class Try(NamedTuple):
    """What came of a change: the run under the learner's knobs, and whether it holds elsewhere."""

    moment: Moment
    holds: bool  # with the numbers of another seed as well, where that is asked for
    step: int  # its place in the lesson


NARROW = Template.parse(
    "This does it with your numbers. The engine ran the same with **other numbers** as well, and "
    "there it does not hold. Look for a setting that does not depend on them."
)


@dataclass
class Player(Reader):
    """A lesson being played with the numbers of one seed."""

    answers: dict[Key, Given] = field(default_factory=dict)
    attempts: dict[Key, int] = field(default_factory=dict)
    hints: dict[Key, int] = field(default_factory=dict)  # levels that were opened
    locked: set[str] = field(default_factory=set)  # predict steps whose answers are final
    judged: dict[Key, Judged] = field(default_factory=dict)  # what the last answers were worth
    tries: dict[Key, Try] = field(default_factory=dict)  # the last one of each change
    on_judged: Callable[[Player, Judged], None] | None = None  # is told of every answer, once

    # -- where -----------------------------------------------------------------------------------

    @property
    def is_broken(self) -> bool:
        """Whether the engine of this step's log is broken on purpose."""
        if self.step.run is None and not self.step.questions:
            return False  # nothing of it is looked at any more
        tried = self.last_try
        moment = self.first_scope().moment if tried is None else tried.moment
        return moment is not None and moment.header.fault != ""

    @property
    def last_try(self) -> Try | None:
        """The latest run of a change that this step asks for."""
        tries = [each for each in self.tries.values() if each.step == self.index]
        return tries[-1] if tries else None

    def go_to(self, index: int) -> None:
        """Go to a step, or to the first one before it whose predictions are not locked."""
        for number, step in enumerate(self.lesson.steps[:index]):
            if step.kind == "predict" and step.id not in self.locked:
                index = number
                break
        self.index = min(max(index, 0), len(self.lesson.steps) - 1)

    # -- the engine ------------------------------------------------------------------------------

    def bring(self, llm: AsyncLLM, again: bool = False) -> None:
        """As a reader does, and judge what was answered before the engine had shown it."""
        super().bring(llm, again)
        self._judge_all()

    def look(self, llm: AsyncLLM, run_there: bool = False) -> bool:
        """As a reader does, and judge what was answered before."""
        has_come = super().look(llm, run_there)
        if has_come:
            self._judge_all()
        return has_come

    def try_out(self, llm: AsyncLLM, asked: Asked, knobs: Setting) -> None:
        """Run what a change asks for under the learner's knobs, and answer with them.

        Raises what `stage.perform` raises, ExpressionError and ProbeError; the answer is not kept
        then. Knobs that are out of their bounds are no answer.
        """
        question = asked.question
        assert isinstance(question, ChangeQuestion)
        if not fits(question, knobs):
            return
        holds = not question.hidden or self._holds_elsewhere(llm, question, knobs)
        moment = perform(llm, question.run, Scope({**self.values, **knobs}), -1, self.saved)
        self.tries.pop(asked.key, None)
        self.tries[asked.key] = Try(moment, holds, self.index)
        self.answer(asked, knobs)

    def _holds_elsewhere(self, llm: AsyncLLM, question: ChangeQuestion, knobs: Setting) -> bool:
        others = draw(self.lesson, self.seed + SEEDS)
        moment = perform(llm, question.run, Scope({**others, **knobs}), -1, {})
        return grade(question, knobs, Scope(others, moment)).right

    def away(self, llm: AsyncLLM) -> bool:
        """Whether the engine no longer has the log that this step is about."""
        if self.last_try is not None and self._is_in(llm, self.last_try.moment):
            return False
        if not any(expression.live for _, expression in expressions(self.step)):
            return False  # nothing of it is said here
        moment = self.begun.get(self.index) or self.moment()
        return moment is not None and not self._is_in(llm, moment)

    def shown(self) -> Shown:
        """What this step has the page show."""
        focus, tried = self.step.focus, self.last_try
        scope = self.first_scope() if self.waits else self.scope()
        moment = scope.moment if tried is None else tried.moment
        seq = None if moment is None else moment.seq
        if focus.moment is not None and tried is None:
            seq = focus.moment.whole(scope)
        return Shown(
            focus.view,
            focus.box,
            focus.request,
            None if focus.block is None else focus.block.whole(scope),
            None if moment is None else moment.trace_id,
            seq,
            focus.claim,
        )

    # -- answers ---------------------------------------------------------------------------------

    def answer(self, asked: Asked, given: Given) -> None:
        """Keep an answer; a locked prediction stays what it was, and the same again is no attempt.

        (Somebody clicked twice.)
        """
        if asked.step.id in self.locked or self.answers.get(asked.key) == given:
            return
        self.answers[asked.key] = given
        self.attempts[asked.key] = self.attempts.get(asked.key, 0) + 1
        self._judge(asked)

    def lock(self) -> bool:
        """Make this step's predictions final; False while one is missing."""
        if any((self.step.id, question.id) not in self.answers for question in self.step.questions):
            return False
        self.locked.add(self.step.id)
        return True

    @property
    def waits_for_predictions(self) -> bool:
        """Whether this step has predictions that are not locked."""
        return self.step.kind == "predict" and self.step.id not in self.locked

    def option_order(self, asked: Asked) -> list[int]:
        """The options of a choice in this variant's order, so that no place is always right."""
        options = asked.question.options if isinstance(asked.question, ChoiceQuestion) else []
        order = list(range(len(options)))
        random.Random(f"{self.seed} {asked.key}").shuffle(order)
        return order

    def predictions(self) -> Iterator[Asked]:
        """Those that this step shows the outcome of."""
        for step in self.lesson.steps:
            for question in step.questions:
                if question.compare_in == self.step.id:
                    yield Asked(step, question)

    def verdict(self, asked: Asked) -> Verdict | None:
        """What an answer was worth; None where there is none, or the engine has not run yet."""
        given = self.answers.get(asked.key)
        place = self.judged_at(asked)
        if given is None or (self.lesson.steps[place].run and place not in self.moments):
            return None
        if isinstance(asked.question, ChangeQuestion):
            return self._worth_of_change(asked, given)
        return grade(asked.question, given, self.scope(place))

    def _worth_of_change(self, asked: Asked, given: Given) -> Verdict | None:
        tried = self.tries.get(asked.key)
        if tried is None:
            return None  # it was another day: the run is gone
        verdict = grade(asked.question, given, Scope(self.values, tried.moment))
        return Verdict(False, NARROW) if verdict.right and not tried.holds else verdict

    def judged_scope(self, asked: Asked) -> Scope:
        """What the message to an answer can see."""
        tried, scope = self.tries.get(asked.key), self.scope(self.judged_at(asked))
        if tried is not None:
            scope = Scope(self.values, tried.moment)
        return answered(asked.question, self.answers[asked.key], scope)

    def judged_at(self, asked: Asked) -> int:
        """The step at whose moment an answer is judged."""
        place = self.lesson.step(asked.question.compare_in or asked.step.id)
        assert place is not None, "the loader lets no other one pass"
        return place

    def _judge_all(self) -> None:
        for asked in self.questions():
            self._judge(asked)

    def _judge(self, asked: Asked) -> None:
        """Keep what an answer was worth, and tell of it, as soon as the engine shows it."""
        attempt = self.attempts.get(asked.key, 0)
        known = self.judged.get(asked.key)
        if known is not None and known.attempt == attempt:
            return
        verdict = self.verdict(asked)
        if verdict is None:
            return
        given, cost = self.answers[asked.key], self.hint_cost(asked)
        points = max(0, verdict.points - cost) if self.counts(asked) else 0
        judged = Judged(*asked.key, given, attempt, verdict.right, points, verdict.wrong)
        self.judged[asked.key] = judged
        if self.on_judged is not None:
            self.on_judged(self, judged)

    def hint_cost(self, asked: Asked) -> int:
        """Points that the hints cost that were opened for a question."""
        return asked.question.hint_cost * self.hints.get(asked.key, 0)

    def counts(self, asked: Asked) -> bool:
        """Whether a question gives points."""
        return asked.step.gives_points

    def questions(self) -> list[Asked]:
        """All questions of the lesson, in their order."""
        return [Asked(step, question) for step in self.lesson.steps for question in step.questions]

    def score(self) -> tuple[int, int]:
        """How many questions are answered rightly now, and how many there are."""
        return sum(judged.right for judged in self.judged.values()), len(self.questions())

    def points(self) -> tuple[int, int]:
        """Points that the answers have now, and that there are."""
        return sum(judged.points for judged in self.judged.values()), self.lesson.points

    # -- kept ------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """All that is to be kept of the learner's work, as plain JSON; the moments are not."""
        return write_state(
            self.lesson.id,
            self.seed,
            self.lesson.steps[self.index].id,
            self.answers,
            self.attempts,
            self.hints,
            self.locked,
            self.judged,
        )

    @classmethod
    def from_state(cls, lesson: Lesson, state: object) -> Player:
        """The player that `to_state` was called of; the engine runs again for what it reads.

        What the lesson does not ask any more is left out. Raises StateError where it is no state.
        """
        kept = read_state(lesson, state)
        player = cls(lesson, kept.seed)
        player.answers, player.attempts, player.hints = kept.answers, kept.attempts, kept.hints
        player.locked, player.judged = kept.locked, kept.judged
        player.go_to(lesson.step(kept.step) or 0)
        return player
