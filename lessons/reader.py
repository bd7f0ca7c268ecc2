"""One reader in one lesson: where they are, and what the engine showed them.

Knows no page. A step's moment is read once and kept, so that texts and verdicts stay what they
were, whatever the reader does with the engine meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.async_llm import AsyncLLM
from lessons.expressions import Scope
from lessons.format import Lesson, Step
from lessons.probes import Moment, Value
from lessons.runs import Run
from lessons.stage import Saved, begin, perform, reach, reached
from lessons.variants import draw


@dataclass
class Reader:
    """A lesson being read with the numbers of one seed."""

    lesson: Lesson
    seed: int
    index: int = 0
    moments: dict[int, Moment] = field(default_factory=dict)
    begun: dict[int, Moment] = field(default_factory=dict)  # where steps that wait began
    saved: Saved = field(default_factory=dict)  # by those of these steps that save

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
    def shown_document(self) -> str | None:
        """The file name of the document that this step shows; None: the engine's own map."""
        return self.step.focus.document

    def is_reached(self, index: int) -> bool:
        """Whether all runs up to a step are done, so that going there does none."""
        steps = enumerate(self.lesson.steps[: index + 1])
        return all(step.run is None or number in self.moments for number, step in steps)

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
        return run is not None and run.begins_anew

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
                self.begun[number] = begin(llm, run, self.scope(number - 1), self.saved)
            else:
                self._perform(llm, number, run)

    def _perform(self, llm: AsyncLLM, number: int, run: Run) -> None:
        before = self.moment(number - 1)
        after = -1 if before is None else before.seq
        scope = self.scope(number - 1)
        self.moments[number] = perform(llm, run, scope, after, self.saved)

    def _has_begun(self, llm: AsyncLLM, number: int) -> bool:
        """Whether the reader is on the way to where this step waits for the engine."""
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
        scope, after = self.scope(self.index - 1), -1 if run.begins_anew else begun.seq
        found = reach(llm, run.wait, scope, after) if run_there else None
        found = found or reached(llm, run.wait, scope, after)
        if found is None:
            return False
        self.moments[self.index] = found
        return True

    def _all_since_reset(self) -> list[int]:
        runs = [n for n in range(self.index + 1) if self.lesson.steps[n].run is not None]
        begin = max(n for n in runs if self.resets(n))
        return [n for n in runs if n >= begin]

    def _is_in(self, llm: AsyncLLM, moment: Moment) -> bool:
        return llm.failed is None and llm.trace.header.trace_id == moment.trace_id
