"""What is kept of a learner's work in a lesson, as plain JSON, and read again with distrust.

{"lesson": "count-the-blocks", "seed": 4711, "step": "predict", "locked": ["predict"],
 "questions": [{"step": "predict", "question": "prompt-blocks", "given": 4, "attempts": 1,
                "hints": 0, "judged": {"given": 4, "attempt": 1, "right": true, "points": 2,
                                       "wrong": null}}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from lessons.format import Lesson
from lessons.grading import Given, fits

Key = tuple[str, str]  # the step's id and the question's
_OF_KEY = ("step", "question")


class StateError(ValueError):
    """What is no learner's work in this lesson; the message says what is wrong with it."""


class Judged(NamedTuple):
    """What an answer was worth when the engine had shown it; hints are taken off its points."""

    step: str
    question: str
    given: Given
    attempt: int  # from 1
    right: bool
    points: int
    wrong: int | None  # the place of the misconception that it shows

    def worth(self) -> dict[str, Any]:
        """All but whose it is."""
        return {name: value for name, value in self._asdict().items() if name not in _OF_KEY}


class Kept(NamedTuple):
    """A learner's work, of which only what the lesson has is left."""

    seed: int
    step: str
    answers: dict[Key, Given]
    attempts: dict[Key, int]
    hints: dict[Key, int]
    locked: set[str]
    judged: dict[Key, Judged]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Judged(_Part):
    given: int | float | str | dict[str, int | str]
    attempt: int
    right: bool
    points: int
    wrong: int | None


class _Question(_Part):
    step: str
    question: str
    given: int | float | str | dict[str, int | str] | None = None
    attempts: int = 0
    hints: int = 0
    judged: _Judged | None = None


class _State(_Part):
    lesson: str
    seed: int
    step: str
    locked: list[str]
    questions: list[_Question]


def write_state(
    lesson: str,
    seed: int,
    step: str,
    answers: Mapping[Key, Given],
    attempts: Mapping[Key, int],
    hints: Mapping[Key, int],
    locked: set[str],
    judged: Mapping[Key, Judged],
) -> dict[str, Any]:
    """All of it as plain JSON."""
    questions = [
        {
            "step": key[0],
            "question": key[1],
            "given": answers.get(key),
            "attempts": attempts.get(key, 0),
            "hints": hints.get(key, 0),
            "judged": judged[key].worth() if key in judged else None,
        }
        for key in sorted({*answers, *attempts, *hints})
    ]
    return {
        "lesson": lesson,
        "seed": seed,
        "step": step,
        "locked": sorted(locked),
        "questions": questions,
    }


def read_state(lesson: Lesson, state: object) -> Kept:
    """The work that was kept; raises StateError."""
    try:
        found = _State.model_validate(state)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "state"
        raise StateError(f"{where}: {first['msg']}") from None
    if found.lesson != lesson.id:
        raise StateError(f"lesson: this is work in {found.lesson!r:.60}, not in {lesson.id!r}")
    asked = {(step.id, each.id): each for step in lesson.steps for each in step.questions}
    known = {(q.step, q.question): q for q in found.questions if (q.step, q.question) in asked}
    answers = {key: q.given for key, q in known.items() if q.given is not None}
    answers = {key: given for key, given in answers.items() if fits(asked[key], given)}
    judged = {key: q.judged for key, q in known.items() if q.judged and key in answers}
    return Kept(
        found.seed,
        found.step,
        answers,
        {key: q.attempts for key, q in known.items() if q.attempts > 0},
        {key: q.hints for key, q in known.items() if q.hints > 0},
        set(found.locked) & {step.id for step in lesson.steps if step.kind == "predict"},
        {key: Judged(*key, **each.model_dump()) for key, each in judged.items()},
    )
