"""The tables of a register. Times are seconds since the epoch, UTC.

What a learner answered is only ever added to: nothing here is counted up or overwritten but the
state of a run, which has a version for that.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAME_LENGTH = 60  # of a name with its suffix, in code points
_NAMES = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """All tables; constraints have the same names everywhere, so that migrations find them."""

    metadata = MetaData(naming_convention=_NAMES)


class Classroom(Base):
    """A class. Learners join it with its code."""

    __tablename__ = "classes"

    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(String(12), unique=True)
    title: Mapped[str] = mapped_column(String(NAME_LENGTH))
    began_at: Mapped[float] = mapped_column(Double)
    takes_learners: Mapped[bool] = mapped_column(Boolean, server_default=text("true"))


class Learner(Base):
    """Somebody in a class. What opens their work is a secret, of which only the digest is kept."""

    __tablename__ = "learners"
    __table_args__ = (
        UniqueConstraint("class_id", "sort_name"),
        Index("uq_learners_identity", "class_id", "identity", unique=True),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    class_id: Mapped[int] = mapped_column(ForeignKey("classes.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(NAME_LENGTH))
    sort_name: Mapped[str] = mapped_column(String(4 * NAME_LENGTH))  # one for names that look alike
    secret_digest: Mapped[str] = mapped_column(String(64), unique=True)
    identity: Mapped[str | None] = mapped_column(String(300))  # who a log-in says it is
    joined_at: Mapped[float] = mapped_column(Double)
    seen_at: Mapped[float] = mapped_column(Double)


class Run(Base):
    """A learner in one lesson with the numbers of one seed."""

    __tablename__ = "runs"
    __table_args__ = (UniqueConstraint("learner_id", "lesson", "seed"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    learner_id: Mapped[int] = mapped_column(ForeignKey("learners.id", ondelete="CASCADE"))
    lesson: Mapped[str] = mapped_column(String(60))
    seed: Mapped[int] = mapped_column(Integer)
    digest: Mapped[str] = mapped_column(String(64))  # of the lesson's file
    engine: Mapped[str] = mapped_column(String(64))  # the engine's version
    began_at: Mapped[float] = mapped_column(Double)
    changed_at: Mapped[float] = mapped_column(Double)
    version: Mapped[int] = mapped_column(Integer)  # grows with every change of the state
    state: Mapped[str] = mapped_column(Text)  # a player's, as JSON


class Attempt(Base):
    """An answer, and what it was worth; never changed. `key` is the client's: it counts once."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("run_id", "key"),
        # A prediction is locked once, whichever tab was first.
        Index(
            "uq_attempts_final",
            "run_id",
            "step",
            "question",
            unique=True,
            sqlite_where=text("final"),
            postgresql_where=text("final"),
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    key: Mapped[str] = mapped_column(String(100))
    step: Mapped[str] = mapped_column(String(60))
    question: Mapped[str] = mapped_column(String(60))
    given: Mapped[str] = mapped_column(Text)  # as JSON
    shown: Mapped[str] = mapped_column(Text)  # as a person reads it
    hints: Mapped[int] = mapped_column(Integer)  # levels that were open
    final: Mapped[bool] = mapped_column(Boolean)
    right: Mapped[bool] = mapped_column("is_right", Boolean)
    points: Mapped[int] = mapped_column(Integer)
    most: Mapped[int] = mapped_column(Integer)  # points that there were to have
    wrong: Mapped[int | None] = mapped_column(Integer)  # the place of the misconception
    given_at: Mapped[float] = mapped_column(Double)


class LessonRule(Base):
    """What a teacher says of a lesson for a class; without a row it is open, and never due."""

    __tablename__ = "lesson_rules"

    class_id: Mapped[int] = mapped_column(
        ForeignKey("classes.id", ondelete="CASCADE"), primary_key=True
    )
    lesson: Mapped[str] = mapped_column(String(60), primary_key=True)
    is_open: Mapped[bool] = mapped_column(Boolean)
    due_at: Mapped[float | None] = mapped_column(Double)


class EngineRules(Base):
    """What the shared engine takes (`engine.audience.Rules`): one row, or none."""

    __tablename__ = "engine_rules"

    id: Mapped[int] = mapped_column(primary_key=True)
    open_to: Mapped[str] = mapped_column(String(20))
    most_requests: Mapped[int] = mapped_column(Integer)
    most_tokens: Mapped[int] = mapped_column(Integer)
