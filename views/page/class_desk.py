"""A learner's lessons, kept in the class's register: before the page says anything of an answer.

`attach` makes a tab's desk the learner's; `keep` saves where they are and brings in what another
tab of theirs did; each answer is recorded as soon as it is judged (`Ledger.record`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from lessons.classroom.attempts import Answer, NotRecorded, RunInfo
from lessons.classroom.merge import merge
from lessons.classroom.register import ALWAYS, Rule
from lessons.classroom.versions import engine_version, lesson_digest
from lessons.format import Lesson
from lessons.kept import Judged, StateError
from lessons.play import Asked, Player
from lessons.questions import ChoiceQuestion
from lessons.text import words
from views.page import class_member
from views.page.class_member import UNREACHABLE, Member
from views.page.lesson_desk import Desk
from views.page.words import plain

_WHO = "gb-class-who"
_LEDGER = "gb-class-ledger"


class Gate(NamedTuple):
    """Whether a lesson may be worked on, and what is said of that."""

    is_open: bool
    says: str


@dataclass
class Ledger:
    """Where a tab's learner is written down.

    It asks nothing of Streamlit: whatever does is where a run of the page ends once another one is
    asked for, as by an engine that is reset, and then an answer would be judged and not recorded.
    """

    member: Member
    runs: dict[tuple[str, int], RunInfo] = field(default_factory=dict)  # by lesson and seed
    trouble: str = ""  # why something was not kept

    def record(self, player: Player, judged: Judged) -> None:
        """Write an answer down: it is on the disk before the learner hears what it was worth."""
        asked = next(a for a in player.questions() if a.key == (judged.step, judged.question))
        learner, attempts = self.member.learner, self.member.school.attempts
        try:
            run = self.run_of(player)
            attempts.record(learner.id, run.id, [_answer(player, asked, judged)])
        except NotRecorded as error:
            self.trouble = f"{error}."
        except SQLAlchemyError:
            self.trouble = UNREACHABLE

    def save(self, player: Player) -> RunInfo | None:
        """Save where the learner is; what then stands there, None where it could not be."""
        learner, attempts = self.member.learner, self.member.school.attempts
        try:
            run = self.run_of(player)
            saved = attempts.save(learner.id, run.id, run.version, player.to_state(), merge)
        except NotRecorded as error:
            self.trouble = f"{error}."
            return None
        except SQLAlchemyError:
            self.trouble = UNREACHABLE
            return None
        self.runs[player.lesson.id, player.seed] = saved
        return saved

    def run_of(self, player: Player) -> RunInfo:
        """The register's run of a player, begun with the first thing that is kept of it."""
        key = (player.lesson.id, player.seed)
        if key not in self.runs:
            begun = self.member.school.attempts.begin(
                self.member.learner.id,
                player.lesson.id,
                player.seed,
                lesson_digest(player.lesson.id),
                engine_version(),
                player.to_state(),
            )
            self.runs[key] = begun._replace(version=-1)  # this tab has not seen what stands there
        return self.runs[key]


def attach(now: Desk, lessons: Callable[[], list[Lesson]]) -> None:
    """Have the desk be the learner's, once after they came, and nobody's after they left."""
    found = class_member.member()
    who = None if found is None else found.learner.id
    before = st.session_state.get(_WHO)
    if who == before:
        return
    st.session_state[_WHO] = who
    ledger = st.session_state[_LEDGER] = None if found is None else Ledger(found)
    if before is not None:  # somebody else's work is nobody's business
        now.player, now.left, now.turns = None, {}, {}
    if found is None or ledger is None:
        now.learner, now.on_judged = "", None
        return
    now.learner = found.learner.name
    now.on_judged = ledger.record
    if now.player is not None:
        now.player.on_judged = ledger.record
    known = {lesson.id: lesson for lesson in lessons()}
    for run in found.school.attempts.runs(found.learner.id):
        now.turns[run.lesson] = now.turns.get(run.lesson, 0) + 1
        player = _player(known.get(run.lesson), run)
        if player is not None:
            now.left.setdefault(run.lesson, player)


def keep(player: Player) -> Player:
    """Save where the learner is; the player, with what another tab of theirs did."""
    ledger = _ledger()
    if ledger is None:
        return player
    state = player.to_state()
    saved = ledger.save(player)
    if saved is None or saved.state == state:
        return player
    merged = _player(player.lesson, saved)
    if merged is None:
        return player
    merged.moments, merged.on_judged = player.moments, player.on_judged
    merged.go_to(player.index)
    return merged


def say_trouble() -> None:
    """Say why something was not kept, once."""
    ledger = _ledger()
    if ledger is not None and ledger.trouble:
        st.warning(plain(ledger.trouble), icon=":material/cloud_off:")
        ledger.trouble = ""


def gate(lesson: Lesson) -> Gate:
    """Return what the learner's teacher says of a lesson."""
    found = class_member.member()
    if found is None:
        return Gate(True, "")
    rule = found.rules.get(lesson.id, ALWAYS)
    return Gate(rule.is_open, _words_of(rule))


def local_time(at: float) -> str:
    """Return a time as the visitor's clock has it: `Tue 1 Dec, 14:30`."""
    moment = datetime.fromtimestamp(at, local_zone())
    return f"{moment:%a} {moment.day} {moment:%b, %H:%M}"


def local_zone() -> ZoneInfo:
    """Return the zone of the visitor's clock; UTC where the browser names none that is known."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (KeyError, ValueError, OSError):
        return ZoneInfo("UTC")


def _words_of(rule: Rule) -> str:
    if not rule.is_open:
        return "Your teacher has closed this lesson."
    if rule.due_at is None:
        return ""
    if time.time() > rule.due_at:
        return f"Was due {local_time(rule.due_at)}; answers from now on count as late."
    return f"Due {local_time(rule.due_at)}."


def _ledger() -> Ledger | None:
    found = st.session_state.get(_LEDGER)
    return found if isinstance(found, Ledger) else None


def _player(lesson: Lesson | None, run: RunInfo) -> Player | None:
    """The player of a run; None where its lesson is gone, or is another one now."""
    try:
        return None if lesson is None else Player.from_state(lesson, run.state)
    except StateError:
        return None


def _answer(player: Player, asked: Asked, judged: Judged) -> Answer:
    told = f"{judged.step}\n{judged.question}\n{judged.attempt}\n{judged.given!r}"
    return Answer(
        hashlib.sha256(told.encode()).hexdigest()[:32],
        judged.step,
        judged.question,
        judged.given,
        _shown(asked, judged),
        judged.right,
        judged.points,
        asked.question.points if player.counts(asked) else 0,
        judged.wrong,
        player.hints.get(asked.key, 0),
        asked.step.kind == "predict",
    )


def _shown(asked: Asked, judged: Judged) -> str:
    if isinstance(judged.given, dict):
        return ", ".join(f"{name} {value}" for name, value in judged.given.items())
    if isinstance(asked.question, ChoiceQuestion):
        return " ".join(asked.question.options[int(judged.given)].text.text.split())[:200]
    return words(judged.given)
