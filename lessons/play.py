"""One learner in one lesson: where they are, what they answered, and what the engine showed.

Knows no page. A step's moment is read once and kept, so that texts and verdicts stay what they
were, whatever the learner does with the engine meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.async_llm import AsyncLLM
from lessons.expressions import Scope, Template
from lessons.format import Lesson, Step
from lessons.grading import Given, Setting, Verdict, answered, fits, grade
from lessons.kept import Judged, Key, read_state, write_state
from lessons.probes import Moment, Value
from lessons.questions import ChangeQuestion, ChoiceQuestion, Question
from lessons.runs import Run
from lessons.stage import begin, perform, reach, reached
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
class Player:
    """A lesson being played with the numbers of one seed."""

    lesson: Lesson
    seed: int
    index: int = 0
    answers: dict[Key, Given] = field(default_factory=dict)
    attempts: dict[Key, int] = field(default_factory=dict)
    hints: dict[Key, int] = field(default_factory=dict)  # levels that were opened
    locked: set[str] = field(default_factory=set)  # predict steps whose answers are final
    judged: dict[Key, Judged] = field(default_factory=dict)  # what the last answers were worth
    moments: dict[int, Moment] = field(default_factory=dict)
    begun: dict[int, Moment] = field(default_factory=dict)  # where steps that wait began
    tries: dict[Key, Try] = field(default_factory=dict)  # the last one of each change
    on_judged: Callable[[Player, Judged], None] | None = None  # is told of every answer, once

    def __post_init__(self) -> None:
        self.values: dict[str, Value] = draw(self.lesson, self.seed)

    # -- where -----------------------------------------------------------------------------------

    @property
    def step(self) -> Step:
        """The step that is being read."""
        return self.lesson.steps[self.index]

    @property
    def at_end(self) -> bool:
        """Whether no step follows."""
        return self.index == len(self.lesson.steps) - 1

    def moment(self, index: int | None = None) -> Moment | None:
        """The log as of a step: where its run ended, or the last run before it."""
        place = self.index if index is None else index
        reached = [number for number in self.moments if number <= place]
        return self.moments[max(reached)] if reached else None

    def scope(self, index: int | None = None) -> Scope:
        """What the expressions of a step can see."""
        return Scope(self.values, self.moment(index))

    def first_scope(self) -> Scope:
        """What this step's text can see: where it began, for a step that waits."""
        return Scope(self.values, self.begun.get(self.index) or self.moment())

    @property
    def waits(self) -> bool:
        """Whether the moment has not come to which the learner is to bring the engine."""
        run = self.step.run
        return run is not None and run.wait is not None and self.index not in self.moments

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

    def is_reached(self, index: int) -> bool:
        """Whether all runs up to a step are done, so that going there does none."""
        steps = enumerate(self.lesson.steps[: index + 1])
        return all(step.run is None or number in self.moments for number, step in steps)

    def go_to(self, index: int) -> None:
        """Go to a step, or to the first one before it whose predictions are not locked."""
        for number, step in enumerate(self.lesson.steps[:index]):
            if step.kind == "predict" and step.id not in self.locked:
                index = number
                break
        self.index = min(max(index, 0), len(self.lesson.steps) - 1)

    # -- the engine ------------------------------------------------------------------------------

    def missing(self, llm: AsyncLLM, index: int | None = None) -> list[int]:
        """Steps whose runs the engine has still to do before this step can be read."""
        place = self.index if index is None else index
        runs = [n for n, step in enumerate(self.lesson.steps[: place + 1]) if step.run is not None]
        undone = [n for n in runs if n not in self.moments and not self._has_begun(llm, n)]
        if not undone:
            return []
        begin = max(n for n in runs if n <= undone[0] and self.resets(n))
        here = [n for n in runs if n >= begin]
        gone = any(n in self.moments and not self._is_in(llm, self.moments[n]) for n in here)
        # Where its log has ended, what follows needs everything since the last beginning again.
        return here if gone else undone

    def resets(self, index: int) -> bool:
        """Whether the run of a step ends the engine's requests and log."""
        run = self.lesson.steps[index].run
        return run is not None and run.reset

    def bring(self, llm: AsyncLLM, again: bool = False) -> None:
        """Have the engine do what this step needs; `again` where its log has ended since.

        Raises what `stage.perform` raises; the steps that were reached until then stay reached.
        """
        missing = self._all_since_reset() if again else self.missing(llm)
        for number in missing:
            self.moments.pop(number, None)
            self.begun.pop(number, None)
        for number in missing:
            run = self.lesson.steps[number].run
            assert run is not None
            if run.wait is not None and number == self.index:
                self.begun[number] = begin(llm, run, self.scope(number - 1))
            else:
                self._perform(llm, number, run)
        for asked in self.questions():
            self._judge(asked)

    def _perform(self, llm: AsyncLLM, number: int, run: Run) -> None:
        before = self.moment(number - 1)
        after = -1 if before is None else before.seq
        self.moments[number] = perform(llm, run, self.scope(number - 1), after)

    def _has_begun(self, llm: AsyncLLM, number: int) -> bool:
        """Whether the learner is on the way to where this step waits for the engine."""
        begun = self.begun.get(number)
        return number == self.index and begun is not None and self._is_in(llm, begun)

    def look(self, llm: AsyncLLM, run_there: bool = False) -> bool:
        """Whether the moment has come that this step waits for; `run_there` brings the engine.

        Raises StageError where it cannot come, and EngineError.
        """
        run, begun = self.step.run, self.begun.get(self.index)
        if not self.waits or run is None or run.wait is None or begun is None:
            return not self.waits
        if not self._is_in(llm, begun):
            return False
        scope, after = self.scope(self.index - 1), -1 if run.reset else begun.seq
        found = reach(llm, run.wait, scope, after) if run_there else None
        found = found or reached(llm, run.wait, scope, after)
        if found is None:
            return False
        self.moments[self.index] = found
        for asked in self.questions():
            self._judge(asked)
        return True

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
        moment = perform(llm, question.run, Scope({**self.values, **knobs}), -1)
        self.tries.pop(asked.key, None)
        self.tries[asked.key] = Try(moment, holds, self.index)
        self.answer(asked, knobs)

    def _holds_elsewhere(self, llm: AsyncLLM, question: ChangeQuestion, knobs: Setting) -> bool:
        others = draw(self.lesson, self.seed + SEEDS)
        moment = perform(llm, question.run, Scope({**others, **knobs}), -1)
        return grade(question, knobs, Scope(others, moment)).right

    def away(self, llm: AsyncLLM) -> bool:
        """Whether the engine no longer has the log that this step is about."""
        if self.last_try is not None and self._is_in(llm, self.last_try.moment):
            return False
        moment = self.begun.get(self.index) or self.moment()
        return moment is not None and not self._is_in(llm, moment)

    def _all_since_reset(self) -> list[int]:
        runs = [n for n in range(self.index + 1) if self.lesson.steps[n].run is not None]
        begin = max(n for n in runs if self.resets(n))
        return [n for n in runs if n >= begin]

    def _is_in(self, llm: AsyncLLM, moment: Moment) -> bool:
        return llm.failed is None and llm.trace.header.trace_id == moment.trace_id

    @property
    def shown_document(self) -> str | None:
        """The file name of the document that this step shows; None: the engine's own map."""
        return self.step.focus.document

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
