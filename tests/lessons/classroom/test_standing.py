"""Who is how far, who is stuck, what is commonly wrong; and what is written out and read back."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from lessons.classroom.attempts import Answer, Attempts
from lessons.classroom.export import WorkError, as_csv, as_json, as_work, read_work
from lessons.classroom.register import ClassInfo, LearnerInfo, Register, Rule
from lessons.classroom.standing import (
    STILL_SECONDS,
    commonest_wrong,
    questions,
    standings,
    stuck,
    work_of,
)
from tests.lessons.classroom.conftest import Ticks

KEY = b"the teacher's"


class Room:
    """A class with learners who answer."""

    def __init__(self, register: Register, attempts: Attempts, clock: Ticks):
        self.register, self.attempts, self.clock = register, attempts, clock
        self.info: ClassInfo = register.begin_class("Monday")
        self.count = 0

    def learner(self, name: str) -> LearnerInfo:
        return self.register.join(self.info.code, name).learner

    def answers(self, who: LearnerInfo, question: str, *given: Any, **more: Any) -> None:
        """0 is the right answer; `step` is where the learner is then."""
        run = self.attempts.begin(who.id, "lab", more.pop("seed", 1), "d1", "e1", {"step": "ask"})
        for one in given:
            self.clock.now += 1
            self.count += 1
            right = one == 0
            fields = {"points": 2 * right, "most": 2, **more}
            answer = Answer(f"k{self.count}", "ask", question, one, str(one), right, **fields)
            self.attempts.record(who.id, run.id, [answer])

    @property
    def work(self) -> Any:
        return work_of(self.register.database, self.info.id)


@pytest.fixture
def room(register: Register, attempts: Attempts, clock: Ticks) -> Room:
    return Room(register, attempts, clock)


def test_the_best_run_counts_and_late_answers_are_told(room: Room, clock: Ticks) -> None:
    ada = room.learner("Ada")
    room.answers(ada, "a", 0)
    room.answers(ada, "b", 5)
    due = clock.now
    room.answers(ada, "a", 0, seed=2)
    room.answers(ada, "b", 5, 0, seed=2)
    (found,) = standings(room.work, {"lab": Rule(due_at=due)}).values()
    assert found[:6] == (2, 2, 4, 4, 3, 3)
    assert [tuple(q)[2:] for q in questions(room.work)] == [("a", 1, 1, 1, 2), ("b", 1, 0, 1, 3)]


def test_answers_that_show_one_misconception_are_one(room: Room) -> None:
    for name, given, wrong in (("A", 7, 1), ("B", 9, 1), ("C", 3, None), ("D", 4, None)):
        room.answers(room.learner(name), "a", given, wrong=wrong)
    found = [(one.wrong, one.example, one.learners) for one in commonest_wrong(room.work)]
    assert found == [(1, "7", 2), (None, "3", 1), (None, "4", 1)]


def test_who_is_stuck_and_why(room: Room, clock: Ticks) -> None:
    def says(**there: float) -> list[tuple[str, str]]:
        names = {one.id: one.name for one in room.register.learners(room.info.id)}
        seen = {number: there.get(name, 0.0) for number, name in names.items()}
        found = stuck(room.work, seen, {"lab": "end"}, clock.now)
        return [(names[one.learner_id], one.why) for one in found]

    ada, bea, cleo, dora = (room.learner(name) for name in ("Ada", "Bea", "Cleo", "Dora"))
    room.answers(ada, "a", 0, 1, 2)
    room.answers(bea, "a", 1, hints=3)
    room.answers(cleo, "a", 1, final=True)
    room.answers(dora, "a", 1, 2, 3, 0)
    assert says() == [("Bea", "wrong with all hints open")]
    room.answers(ada, "a", 3)
    assert says() == [("Bea", "wrong with all hints open"), ("Ada", "3 wrong answers in a row")]
    room.answers(bea, "a", 0, hints=3)
    clock.now += STILL_SECONDS
    assert says() == [("Ada", "3 wrong answers in a row")]
    assert ("Cleo", "nothing for 8 minutes") in says(Cleo=clock.now)
    run = room.attempts.runs(cleo.id)[0]
    room.attempts.save(cleo.id, run.id, run.version, {"step": "end"}, lambda a, b: b)
    clock.now += STILL_SECONDS
    assert says(Cleo=clock.now) == [("Ada", "3 wrong answers in a row")]


def test_a_table_has_no_formulas(room: Room) -> None:
    for name in ("=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(A1)", "|cmd", "Ada"):
        room.answers(room.learner(name), "a", -5, "=1+1")
    learners = room.register.learners(room.info.id)
    text = as_csv(learners, room.work, {})
    head, *rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    assert head[:5] == ["learner", "lesson", "seed", "scenario_digest", "engine_version"]
    cells = {cell for row in rows for cell in row}
    assert {"'=HYPERLINK(1)", "'+1+1", "'-2+3", "'@SUM(A1)", "'|cmd", "Ada", "-5", "'=1+1"} <= cells
    assert not any(cell[:1] in "=+@|" for cell in cells if cell)


def test_data_has_everything_but_what_opens_it(room: Room) -> None:
    ada = room.learner("Ada")
    room.answers(ada, "a", 3, 0)
    text = as_json(room.info, room.register.learners(room.info.id), room.work, {"lab": Rule(False)})
    assert room.info.code not in text and "gbl-" not in text
    value = json.loads(text)
    assert value["lessons"] == {"lab": {"open": False, "due_at": None}}
    (learner,) = value["learners"]
    wrong, right = learner["attempts"]
    assert (wrong["attempt"], wrong["right"], wrong["points"], wrong["of"]) == (1, False, 0, 2)
    assert (right["attempt"], right["right"], right["points"]) == (2, True, 2)
    assert (right["scenario_digest"], right["engine_version"]) == ("d1", "e1")


def test_a_learners_file_is_read_back_and_a_changed_one_is_told(room: Room) -> None:
    ada, eve = room.learner("Ada"), room.learner("Eve")
    room.answers(ada, "a", 3, 0)
    room.answers(eve, "a", 9)
    work = work_of(room.register.database, room.info.id, ada.id)
    text = as_work(room.info, ada, work, {}, 5.0, KEY)
    read = read_work(text.encode(), KEY)
    assert (read.learner, read.class_title, read.is_sealed) == ("Ada", "Monday", True)
    assert [row["answer"] for row in read.attempts] == ["3", "0"]
    assert not read_work(text.replace('"points": 0', '"points": 2').encode(), KEY).is_sealed
    assert not read_work(text.encode(), b"another server's").is_sealed


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "kind"),
        (b'{"kind": "glassbox class"}', "kind"),
        (b'{"kind": "glassbox learner\'s work", "version": 9}', "version"),
        (b'{"kind": "glassbox learner\'s work", "version": 1}', "class"),
        (b'{"kind": "glassbox learner\'s work", "version": 1, "class": "x"}', "learner"),
        (b"x" * (2 << 20) + b"x", "larger"),
    ],
)
def test_what_is_no_learners_file(content: bytes, why: str) -> None:
    with pytest.raises(WorkError, match=why):
        read_work(content, KEY)
