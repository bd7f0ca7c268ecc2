"""How far everybody in a class is, reckoned anew from the attempts each time it is looked at."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import select

from lessons.classroom.database import Database
from lessons.classroom.models import Attempt, Learner, Run
from lessons.classroom.register import ALWAYS, Rule

WRONG_IN_A_ROW = 3
ALL_HINTS = 3
THERE_SECONDS = 90.0  # since the page was open last
STILL_SECONDS = 8 * 60.0
HOW_STUCK = (
    f"Stuck is who answered one question wrongly {WRONG_IN_A_ROW} times in a row, or wrongly with "
    f"all {ALL_HINTS} hints open, and has not got it right since; or whose page is open and who "
    f"neither answered nor went on for {STILL_SECONDS / 60:.0f} minutes, in a lesson that is not "
    "at its end. Only the lesson that somebody was in last counts."
)


class Given(NamedTuple):
    """An attempt, with whose and where it is."""

    learner_id: int
    run_id: int
    lesson: str
    seed: int
    digest: str
    engine: str
    step: str
    question: str
    given: Any
    shown: str
    right: bool
    points: int
    most: int
    wrong: int | None
    hints: int
    final: bool
    at: float


class Running(NamedTuple):
    """A run: who is where in which lesson."""

    learner_id: int
    run_id: int
    lesson: str
    step: str
    began_at: float
    changed_at: float


class Standing(NamedTuple):
    """A learner in a lesson: their best run of it."""

    right: int  # questions whose last answer is right
    answered: int
    points: int
    most: int  # points of the questions that were answered
    attempts: int
    late: int  # answers after the lesson was due
    last_at: float


class OfQuestion(NamedTuple):
    """A question of a lesson, over a whole class."""

    lesson: str
    step: str
    question: str
    learners: int  # who answered it
    right_at_once: int
    right_now: int
    attempts: int


class Wrong(NamedTuple):
    """A wrong answer, and how many gave it."""

    lesson: str
    step: str
    question: str
    wrong: int | None  # the place of the misconception, where it is a known one
    example: str
    learners: int


class Stuck(NamedTuple):
    """Somebody who may need help, and why."""

    learner_id: int
    lesson: str
    step: str
    why: str
    since: float


class ClassWork(NamedTuple):
    """All that a class did."""

    given: list[Given]
    runs: list[Running]


def work_of(database: Database, class_id: int, learner_id: int | None = None) -> ClassWork:
    """What a class, or one learner of it, did; in the order in which it was done."""
    runs = select(Run).join(Learner).where(Learner.class_id == class_id)
    every = (
        select(Run, Attempt)
        .join(Attempt, Attempt.run_id == Run.id)
        .join(Learner, Learner.id == Run.learner_id)
        .where(Learner.class_id == class_id)
        .order_by(Attempt.id)
    )
    if learner_id is not None:
        runs = runs.where(Learner.id == learner_id)
        every = every.where(Learner.id == learner_id)
    with database.reading() as session:
        given = [_given(run, attempt) for run, attempt in session.execute(every)]
        return ClassWork(given, [_running(run) for run in session.scalars(runs)])


def standings(work: ClassWork, rules: dict[str, Rule]) -> dict[tuple[int, str], Standing]:
    """By learner and lesson: the run with the most points, of two the one with more right."""
    best: dict[tuple[int, str], Standing] = {}
    for items in _by(work.given, "run_id").values():
        first = items[0]
        due = rules.get(first.lesson, ALWAYS).due_at
        last = {(one.step, one.question): one for one in items}.values()
        standing = Standing(
            sum(one.right for one in last),
            len(last),
            sum(one.points for one in last),
            sum(one.most for one in last),
            len(items),
            sum(due is not None and one.at > due for one in items),
            items[-1].at,
        )
        key = (first.learner_id, first.lesson)
        if key not in best or _rank(standing) > _rank(best[key]):
            best[key] = standing
    return best


def _rank(standing: Standing) -> tuple[int, int, float]:
    return standing.points, standing.right, standing.last_at


def questions(work: ClassWork) -> list[OfQuestion]:
    """Each question that was answered."""
    found = []
    for (lesson, step, question), items in _by(work.given, "lesson", "step", "question").items():
        theirs = _by(items, "learner_id").values()
        at_once = sum(each[0].right for each in theirs)
        now = sum(each[-1].right for each in theirs)
        found.append(OfQuestion(lesson, step, question, len(theirs), at_once, now, len(items)))
    return found


def commonest_wrong(work: ClassWork, most: int = 20) -> list[Wrong]:
    """Wrong answers by how many learners gave them.

    Answers that show one misconception count as one, though everybody's numbers are others.
    """
    who: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    examples: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for one in work.given:
        if not one.right:
            shown = "" if one.wrong is not None else one.shown
            key = (one.lesson, one.step, one.question, one.wrong, shown)
            who[key].add(one.learner_id)
            examples[key][one.shown] += 1
    ranked = sorted(who, key=lambda key: (-len(who[key]), key[:3], key[3] is None, key[3:]))
    return [
        Wrong(key[0], key[1], key[2], key[3], examples[key].most_common(1)[0][0], len(who[key]))
        for key in ranked[:most]
    ]


def stuck(
    work: ClassWork, seen_at: dict[int, float], last_steps: dict[str, str], now: float
) -> list[Stuck]:
    """Who may need help (`HOW_STUCK`), longest first; `last_steps` has each lesson's end."""
    found = []
    for theirs in _by(work.runs, "learner_id").values():
        run = max(theirs, key=lambda one: (one.changed_at, one.run_id))
        items = [one for one in work.given if one.run_id == run.run_id]
        for answers in _by(items, "step", "question").values():
            reason = _struggle(answers)
            if reason:
                last = answers[-1]
                found.append(Stuck(run.learner_id, run.lesson, last.step, reason, last.at))
                break
        else:
            quiet = max([run.changed_at, *(one.at for one in items)])
            there = now - seen_at.get(run.learner_id, 0.0) < THERE_SECONDS
            ended = last_steps.get(run.lesson) == run.step
            if there and not ended and now - quiet >= STILL_SECONDS:
                why = f"nothing for {(now - quiet) / 60:.0f} minutes"
                found.append(Stuck(run.learner_id, run.lesson, run.step, why, quiet))
    return sorted(found, key=lambda one: one.since)


def _struggle(answers: list[Given]) -> str:
    last = answers[-1]
    if last.right or last.final:  # a locked prediction cannot be mended
        return ""
    row = next((n for n, one in enumerate(reversed(answers)) if one.right), len(answers))
    if row >= WRONG_IN_A_ROW:
        return f"{row} wrong answers in a row"
    return "wrong with all hints open" if last.hints >= ALL_HINTS else ""


def _by(items: Iterable[Any], *names: str) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for item in items:
        values = tuple(getattr(item, name) for name in names)
        groups.setdefault(values[0] if len(values) == 1 else values, []).append(item)
    return groups


def _given(run: Run, attempt: Attempt) -> Given:
    return Given(
        run.learner_id,
        run.id,
        run.lesson,
        run.seed,
        run.digest,
        run.engine,
        attempt.step,
        attempt.question,
        json.loads(attempt.given),
        attempt.shown,
        attempt.right,
        attempt.points,
        attempt.most,
        attempt.wrong,
        attempt.hints,
        attempt.final,
        attempt.given_at,
    )


def _running(run: Run) -> Running:
    step = json.loads(run.state).get("step", "")
    return Running(run.learner_id, run.id, run.lesson, str(step), run.began_at, run.changed_at)
