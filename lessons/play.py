"""One learner in one lesson: where they are, what they answered, and what the engine showed.

Knows no page. A step's moment is read once and kept, so that texts and verdicts stay what they
were, whatever the learner does with the engine meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.async_llm import AsyncLLM
from lessons.expressions import Scope
from lessons.format import ChoiceQuestion, Lesson, Question, Step
from lessons.grading import Given, Verdict, grade
from lessons.probes import Moment, Value
from lessons.stage import perform
from lessons.variants import draw

Key = tuple[str, str]  # the step's id and the question's


class Shown(NamedTuple):
    """What the page shows for a step; None leaves a thing as it is."""

    view: str | None
    box: str | None
    request: str | None
    block: int | None
    trace_id: str | None
    seq: int | None


class Asked(NamedTuple):
    """A question and the step that asks it."""

    step: Step
    question: Question

    @property
    def key(self) -> Key:
        """Under which its answer is kept."""
        return self.step.id, self.question.id


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
    moments: dict[int, Moment] = field(default_factory=dict)

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

    # -- the engine ------------------------------------------------------------------------------

    def missing(self, llm: AsyncLLM, index: int | None = None) -> list[int]:
        """Steps whose runs the engine has still to do before this step can be read."""
        place = self.index if index is None else index
        runs = [n for n, step in enumerate(self.lesson.steps[: place + 1]) if step.run is not None]
        undone = [n for n in runs if n not in self.moments]
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
        for number in missing:
            run = self.lesson.steps[number].run
            before = self.moment(number - 1)
            assert run is not None
            self.moments[number] = perform(
                llm, run, self.scope(number - 1), -1 if before is None else before.seq
            )

    def away(self, llm: AsyncLLM) -> bool:
        """Whether the engine no longer has the log that this step is about."""
        moment = self.moment()
        return moment is not None and not self._is_in(llm, moment)

    def _all_since_reset(self) -> list[int]:
        runs = [n for n in range(self.index + 1) if self.lesson.steps[n].run is not None]
        begin = max(n for n in runs if self.resets(n))
        return [n for n in runs if n >= begin]

    def _is_in(self, llm: AsyncLLM, moment: Moment) -> bool:
        return llm.failed is None and llm.trace.header.trace_id == moment.trace_id

    def shown(self) -> Shown:
        """What this step has the page show."""
        focus, scope, moment = self.step.focus, self.scope(), self.moment()
        seq = None if moment is None else moment.seq
        if focus.moment is not None:
            seq = focus.moment.whole(scope)
        return Shown(
            focus.view,
            focus.box,
            focus.request,
            None if focus.block is None else focus.block.whole(scope),
            None if moment is None else moment.trace_id,
            seq,
        )

    # -- answers ---------------------------------------------------------------------------------

    def answer(self, asked: Asked, given: Given) -> None:
        """Keep an answer; a locked prediction stays what it was."""
        if asked.step.id in self.locked:
            return
        self.answers[asked.key] = given
        self.attempts[asked.key] = self.attempts.get(asked.key, 0) + 1

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
        return grade(asked.question, given, self.scope(place))

    def judged_at(self, asked: Asked) -> int:
        """The step at whose moment an answer is judged."""
        place = self.lesson.step(asked.question.compare_in or asked.step.id)
        assert place is not None, "the loader lets no other one pass"
        return place

    def score(self) -> tuple[int, int]:
        """How many questions are answered rightly now, and how many there are."""
        every = [Asked(step, q) for step in self.lesson.steps for q in step.questions]
        verdicts = [self.verdict(asked) for asked in every]
        return sum(v is not None and v.right for v in verdicts), len(every)
