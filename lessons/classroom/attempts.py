"""What learners answer: written in one transaction each, once, and on the disk before it counts.

The client gives each attempt a key of its own. The same key again, from a double click, a retried
request or another tab, changes nothing; nor does an answer that says what the last one said. A
run's state has a version: who saves over a newer one merges both (`save`), so that two tabs of one
learner lose nothing to each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sqlalchemy import select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from lessons.classroom.database import Database
from lessons.classroom.models import Attempt, Learner, LessonRule, Run

State = dict[str, Any]
Merge = Callable[[State, State], State]  # of what is there and what is to be saved
MOST_RUNS = 300  # of a learner
MOST_ATTEMPTS = 2_000  # of a run
MOST_STATE = 200_000  # characters
MOST_SHOWN = 300


class NotRecorded(ValueError):
    """An answer that does not count; the message says why."""


class LessonClosed(NotRecorded):
    """The teacher has closed the lesson."""


class Answer(NamedTuple):
    """An answer to be recorded, and what it was worth."""

    key: str
    step: str
    question: str
    given: int | float | str | dict[str, int | str]
    shown: str  # as a person reads it
    right: bool
    points: int = 0
    most: int = 0  # points that there were to have
    wrong: int | None = None  # the place of the misconception that it shows
    hints: int = 0  # levels that were open
    final: bool = False  # a prediction that was locked


class RunInfo(NamedTuple):
    """A run as it is stored."""

    id: int
    lesson: str
    seed: int
    digest: str
    version: int
    state: State
    changed_at: float


class Attempts:
    """The runs of all learners, and their answers."""

    def __init__(self, database: Database, clock: Callable[[], float]):
        self.database = database
        self.clock = clock

    # -- runs ------------------------------------------------------------------------------------

    def begin(
        self, learner_id: int, lesson: str, seed: int, digest: str, engine: str, state: State
    ) -> RunInfo:
        """The learner's run of a lesson with this seed: a new one, or the one that there is."""
        now = self.clock()
        new = {
            "learner_id": learner_id,
            "lesson": lesson,
            "seed": seed,
            "digest": digest,
            "engine": engine,
            "began_at": now,
            "changed_at": now,
            "version": 0,
            "state": _json(state),
        }
        with self.database.writing() as session:
            _check_open(session, learner_id, lesson)
            theirs = select(Run).where(Run.learner_id == learner_id)
            this = theirs.where(Run.lesson == lesson, Run.seed == seed)
            row = session.scalars(this).one_or_none()
            if row is not None:
                return _run(row)
            if len(session.scalars(theirs.with_only_columns(Run.id)).all()) >= MOST_RUNS:
                raise NotRecorded(f"{MOST_RUNS} runs are kept of a learner, and these are all used")
            self._insert_once(session, Run, new)
            return _run(session.scalars(this).one())

    def runs(self, learner_id: int) -> list[RunInfo]:
        """The runs of a learner, the one that they were at last first."""
        with self.database.reading() as session:
            rows = (
                select(Run).where(Run.learner_id == learner_id).order_by(-Run.changed_at, -Run.id)
            )
            return [_run(row) for row in session.scalars(rows)]

    def run(self, learner_id: int, run_id: int) -> RunInfo | None:
        """A run of this learner."""
        with self.database.reading() as session:
            row = session.get(Run, run_id)
            return None if row is None or row.learner_id != learner_id else _run(row)

    def save(
        self, learner_id: int, run_id: int, version: int, state: State, merge: Merge
    ) -> RunInfo:
        """Save a run's state, which was read at `version`; the run as it then is.

        Where somebody saved since, both states are merged.
        """
        while True:
            with self.database.writing() as session:
                row = _own_run(session, learner_id, run_id)
                here = _run(row)
                saved = state if here.version == version else merge(here.state, state)
                if saved == here.state:
                    return here
                text = _json(saved)
                done = session.execute(
                    update(Run)
                    .where(Run.id == run_id, Run.version == here.version)
                    .values(state=text, version=here.version + 1, changed_at=self.clock())
                )
                if done.rowcount:  # type: ignore[attr-defined]
                    return here._replace(version=here.version + 1, state=saved)

    # -- answers ---------------------------------------------------------------------------------

    def record(self, learner_id: int, run_id: int, answers: Iterable[Answer]) -> int:
        """Add answers to a run, all or none; how many of them were new.

        The answer that a question has already is no new one, nor is a second one to a prediction.
        When this returns they are on the disk. Raises LessonClosed and NotRecorded.
        """
        with self.database.writing() as session:
            run = _own_run(session, learner_id, run_id, locked=True)
            _check_open(session, learner_id, run.lesson)
            rows = session.execute(
                select(Attempt.step, Attempt.question, Attempt.given)
                .where(Attempt.run_id == run_id)
                .order_by(Attempt.id)
            ).all()
            latest = {(step, question): given for step, question, given in rows}
            now, added = self.clock(), 0
            for answer in answers:
                if len(rows) + added >= MOST_ATTEMPTS:
                    raise NotRecorded(f"{MOST_ATTEMPTS} answers are kept of a run, and all given")
                added += self._add(session, run_id, answer, latest, now)
            return added

    def _add(
        self,
        session: Session,
        run_id: int,
        answer: Answer,
        latest: dict[tuple[str, str], str],
        now: float,
    ) -> bool:
        given, question = _json(answer.given), (answer.step, answer.question)
        if latest.get(question) == given:
            return False
        row = answer._asdict() | {"run_id": run_id, "given": given, "given_at": now}
        row |= {"shown": _plain(answer.shown), "is_right": row.pop("right")}
        if self._insert_once(session, Attempt, row) is None:
            return False
        latest[question] = given
        return True

    def _insert_once(self, session: Session, table: Any, row: dict[str, Any]) -> int | None:
        """Insert a row; its number, or None where it is there already."""
        insert: Any = sqlite.insert if self.database.is_sqlite else postgresql.insert
        once = insert(table.__table__).values(row).on_conflict_do_nothing().returning(table.id)
        found: int | None = session.scalar(once)
        return found


def _own_run(session: Session, learner_id: int, run_id: int, locked: bool = False) -> Run:
    """A learner's run; `locked`: nobody else writes to it until the transaction ends."""
    row = session.get(Run, run_id, with_for_update=locked or None)
    if row is None or row.learner_id != learner_id:
        raise NotRecorded("This run is not in the register any more; start the lesson again")
    return row


def _check_open(session: Session, learner_id: int, lesson: str) -> None:
    learner = session.get(Learner, learner_id)
    if learner is None:
        raise NotRecorded("You are not in this class any more; ask the teacher")
    rule = session.get(LessonRule, (learner.class_id, lesson))
    if rule is not None and not rule.is_open:
        raise LessonClosed("Your teacher has closed this lesson, so this does not count")


def _json(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    if len(text) > MOST_STATE:
        raise NotRecorded("This is longer than any answer may be")
    return text


def _plain(text: str) -> str:
    """Text that every database takes."""
    return text[:MOST_SHOWN].replace("\0", "").encode("utf-8", "replace").decode()


def _run(row: Run) -> RunInfo:
    state = json.loads(row.state)
    return RunInfo(row.id, row.lesson, row.seed, row.digest, row.version, state, row.changed_at)
