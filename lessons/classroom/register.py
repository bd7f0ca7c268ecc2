"""The register: classes, who is in them, and which lessons they may work on.

A learner is known by a secret that their browser keeps. Who lost it comes back by a log-in, where
the server has one, or by a new secret that the teacher gives out.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple, cast

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from engine.audience import OpenTo, Rules
from lessons.classroom.database import Database
from lessons.classroom.models import Classroom, EngineRules, Learner, LessonRule
from lessons.classroom.names import clean_code, clean_name, new_code, numbered, sort_name

MOST_LEARNERS = 500  # of a class
MOST_CLASSES = 200
SECRET = "gbl-"  # what every learner's secret begins with
SEEN_SECONDS = 20.0  # between two notes that somebody is there
_ONLY = 1  # of a table with one row


class RegisterError(ValueError):
    """Something that cannot be done; the message says why and what helps."""


class ClassInfo(NamedTuple):
    """A class."""

    id: int
    code: str
    title: str
    began_at: float
    takes_learners: bool


class LearnerInfo(NamedTuple):
    """A learner of a class."""

    id: int
    class_id: int
    name: str
    joined_at: float
    seen_at: float


class Joined(NamedTuple):
    """A learner, and what lets them come back; nobody is told it again."""

    learner: LearnerInfo
    secret: str


class Rule(NamedTuple):
    """Whether a lesson is open, and until when answers are in time."""

    is_open: bool = True
    due_at: float | None = None


ALWAYS = Rule()


class Register:
    """Everything about a class but the answers, which are `attempts.Attempts`."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time):
        self.database = database
        self.clock = clock

    # -- classes ---------------------------------------------------------------------------------

    def classes(self) -> list[ClassInfo]:
        """All classes, the newest first."""
        with self.database.reading() as session:
            return [
                _class(row) for row in session.scalars(select(Classroom).order_by(-Classroom.id))
            ]

    def class_of(self, class_id: int) -> ClassInfo | None:
        """A class by its number."""
        with self.database.reading() as session:
            row = session.get(Classroom, class_id)
            return None if row is None else _class(row)

    def begin_class(self, title: str) -> ClassInfo:
        """A new class with a code of its own; raises NameRefused and RegisterError."""
        title = clean_name(title)
        with self.database.writing() as session:
            if session.scalar(select(func.count(Classroom.id))) >= MOST_CLASSES:  # type: ignore[operator]
                raise RegisterError(f"There are {MOST_CLASSES} classes; delete one of them first")
            code = new_code()
            while session.scalar(select(Classroom.id).where(Classroom.code == code)):
                code = new_code()
            row = Classroom(code=code, title=title, began_at=self.clock(), takes_learners=True)
            session.add(row)
            session.flush()
            return _class(row)

    def take_learners(self, class_id: int, takes: bool) -> None:
        """Whether the class's code lets anybody in; who is in stays in."""
        with self.database.writing() as session:
            session.execute(
                update(Classroom).where(Classroom.id == class_id).values(takes_learners=takes)
            )

    def delete_class(self, class_id: int) -> None:
        """The class, its learners and all that they did."""
        with self.database.writing() as session:
            session.execute(delete(Classroom).where(Classroom.id == class_id))

    # -- learners --------------------------------------------------------------------------------

    def join(self, code: str, name: str, identity: str | None = None) -> Joined:
        """Somebody joins a class; raises NameRefused, and RegisterError for a code of no class.

        A name that is there already gets a number. Who comes with the `identity` of a learner is
        that learner, whatever name they write.
        """
        name = clean_name(name)
        with self.database.writing() as session:
            return self._join(session, code, name, identity)

    def _join(self, session: Session, code: str, name: str, identity: str | None) -> Joined:
        # One at a time in a class (SQLite has one writer anyway), so that no name is given twice.
        named = select(Classroom).where(Classroom.code == clean_code(code))
        room = session.scalar(named.with_for_update())
        if room is None:
            raise RegisterError("There is no class with this code; compare it with the teacher's")
        secret, now = _new_secret(), self.clock()
        known = None
        if identity is not None:
            known = session.scalar(
                select(Learner).where(Learner.class_id == room.id, Learner.identity == identity)
            )
        if known is not None:
            known.secret_digest, known.seen_at = _digest(secret), now
            return Joined(_learner(known), secret)
        if not room.takes_learners:
            raise RegisterError("This class takes nobody in at the moment; ask the teacher")
        here = select(Learner).where(Learner.class_id == room.id)
        if session.scalar(select(func.count()).select_from(here.subquery())) >= MOST_LEARNERS:  # type: ignore[operator]
            raise RegisterError(f"This class has {MOST_LEARNERS} learners and takes no more")
        taken = set(session.scalars(here.with_only_columns(Learner.sort_name)))
        number = next(n for n in range(1, 2 * MOST_LEARNERS) if _free(numbered(name, n), taken))
        row = Learner(
            class_id=room.id,
            name=numbered(name, number),
            sort_name=sort_name(numbered(name, number)),
            secret_digest=_digest(secret),
            identity=identity,
            joined_at=now,
            seen_at=now,
        )
        session.add(row)
        session.flush()
        return Joined(_learner(row), secret)

    def learner_with(self, secret: str) -> LearnerInfo | None:
        """Who has this secret; None where nobody has, and for whatever else a browser sends."""
        if not isinstance(secret, str) or not secret.startswith(SECRET) or len(secret) > 100:
            return None
        with self.database.reading() as session:
            row = session.scalar(select(Learner).where(Learner.secret_digest == _digest(secret)))
            return None if row is None else _learner(row)

    def named(self, learner_id: int) -> tuple[LearnerInfo, str] | None:
        """A learner by their number, and the digest of their secret."""
        with self.database.reading() as session:
            row = session.get(Learner, learner_id)
            return None if row is None else (_learner(row), row.secret_digest)

    def learners(self, class_id: int) -> list[LearnerInfo]:
        """All of a class, by name."""
        with self.database.reading() as session:
            rows = session.scalars(select(Learner).where(Learner.class_id == class_id))
            return sorted((_learner(row) for row in rows), key=lambda one: sort_name(one.name))

    def seen(self, learner: LearnerInfo) -> None:
        """Their page is open; noted every 20 seconds at most."""
        now = self.clock()
        with self.database.writing() as session:
            session.execute(
                update(Learner)
                .where(Learner.id == learner.id, Learner.seen_at < now - SEEN_SECONDS)
                .values(seen_at=now)
            )

    def new_secret(self, learner_id: int) -> str:
        """Another secret for a learner who lost theirs, which is good no more."""
        secret = _new_secret()
        with self.database.writing() as session:
            found = session.get(Learner, learner_id)
            if found is None:
                raise RegisterError("This learner is not in the class any more")
            found.secret_digest = _digest(secret)
        return secret

    def delete_learner(self, learner_id: int) -> None:
        """A learner and all that they did."""
        with self.database.writing() as session:
            session.execute(delete(Learner).where(Learner.id == learner_id))

    # -- rules -----------------------------------------------------------------------------------

    def rules(self, class_id: int) -> dict[str, Rule]:
        """What a class's teacher said of lessons; those that are not here are `ALWAYS`."""
        with self.database.reading() as session:
            rows = session.scalars(select(LessonRule).where(LessonRule.class_id == class_id))
            return {row.lesson: Rule(row.is_open, row.due_at) for row in rows}

    def set_rule(self, class_id: int, lesson: str, rule: Rule) -> None:
        """Open or close a lesson for a class, and say when it is due."""
        with self.database.writing() as session:
            session.merge(LessonRule(class_id=class_id, lesson=lesson, **rule._asdict()))

    def engine_rules(self) -> Rules:
        """What the shared engine takes; it is the server's, and so are these."""
        with self.database.reading() as session:
            row = session.get(EngineRules, _ONLY)
            if row is None:
                return Rules()
            return Rules(cast(OpenTo, row.open_to), row.most_requests, row.most_tokens)

    def set_engine_rules(self, rules: Rules) -> None:
        """Keep what the shared engine is to take."""
        with self.database.writing() as session:
            session.merge(EngineRules(id=_ONLY, **rules._asdict()))


def _free(name: str, taken: set[str]) -> bool:
    return sort_name(name) not in taken


def _new_secret() -> str:
    return SECRET + secrets.token_urlsafe(24)


def _digest(secret: str) -> str:
    """A secret of 192 random bits needs no salt and no slow digest."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _class(row: Classroom) -> ClassInfo:
    return ClassInfo(row.id, row.code, row.title, row.began_at, row.takes_learners)


def _learner(row: Learner) -> LearnerInfo:
    return LearnerInfo(row.id, row.class_id, row.name, row.joined_at, row.seen_at)
