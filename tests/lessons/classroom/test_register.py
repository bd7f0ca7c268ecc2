"""Joining a class and coming back, and what thirty learners do to one another: nothing."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select

from lessons.classroom.attempts import Answer, Attempts, LessonClosed, NotRecorded
from lessons.classroom.database import Database
from lessons.classroom.models import Attempt, Learner, Run
from lessons.classroom.names import NameRefused, spelled
from lessons.classroom.register import LearnerInfo, Register, RegisterError, Rule
from tests.lessons.classroom.conftest import Ticks

LEARNERS = 30


def count(database: Database, table: Any) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


@pytest.fixture
def ada(register: Register) -> LearnerInfo:
    return register.join(register.begin_class("Monday").code, "Ada").learner


def answer(key: str, given: int = 1, **more: Any) -> Answer:
    return Answer(key, "predict", "blocks", given, str(given), right=False, **more)


def begin(attempts: Attempts, learner: LearnerInfo, seed: int = 7) -> int:
    return attempts.begin(learner.id, "lab", seed, "digest", "engine", {"index": 0}).id


def test_who_has_all_their_runs_goes_on_with_each_and_begins_none(
    attempts: Attempts, ada: LearnerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lessons.classroom.attempts.MOST_RUNS", 2)
    first, second = begin(attempts, ada, 1), begin(attempts, ada, 2)
    with pytest.raises(NotRecorded, match="2 runs are kept"):
        begin(attempts, ada, 3)
    assert [begin(attempts, ada, seed) for seed in (1, 2)] == [first, second]


def test_who_joins_is_known_by_their_secret(register: Register) -> None:
    room = register.begin_class("  Monday  ")
    joined = register.join(spelled(room.code).lower(), " Ada ")
    assert joined.learner.name == "Ada"
    assert register.learner_with(joined.secret) == joined.learner
    for wrong in ("", "gbl-", joined.secret[:-1], joined.secret + "x", "gbl-" + "x" * 10**6, "\0"):
        assert register.learner_with(wrong) is None
    for odd in (None, 5, ["gbl-"], {"a": 1}):
        assert register.learner_with(odd) is None  # type: ignore[arg-type]
    with register.database.reading() as session:
        (row,) = session.scalars(select(Learner))
        assert joined.secret not in (row.secret_digest, row.name, row.sort_name)


def test_a_name_that_is_taken_gets_a_number(register: Register) -> None:
    one, other = register.begin_class("Monday"), register.begin_class("Tuesday")
    names = ["Ada", "ada", "ＡＤＡ", "A da", "Ada (2)", "Ada"]
    found = [register.join(one.code, name).learner.name for name in names]
    assert found == ["Ada", "ada (2)", "ＡＤＡ (3)", "A da (4)", "Ada (2) (2)", "Ada (5)"]
    assert register.join(other.code, "Ada").learner.name == "Ada"


def test_a_code_of_no_class_and_a_class_that_takes_nobody(register: Register) -> None:
    room = register.begin_class("Monday")
    for wrong in ("", "AAAAAA", room.code[:-1], "' OR 1=1 --", "\0" * 6):
        with pytest.raises(RegisterError, match="no class with this code"):
            register.join(wrong, "Ada")
    with pytest.raises(NameRefused):
        register.join(room.code, "\u202e")
    register.take_learners(room.id, False)
    with pytest.raises(RegisterError, match="takes nobody in"):
        register.join(room.code, "Ada")


def test_a_log_in_comes_back_without_a_secret(register: Register) -> None:
    room = register.begin_class("Monday")
    first = register.join(room.code, "Ada", "https://id.example|42")
    second = register.join(room.code, "Somebody else", "https://id.example|42")
    assert second.learner.id == first.learner.id
    assert second.learner.name == "Ada"
    assert register.learner_with(first.secret) is None
    assert register.learner_with(second.secret) is not None
    assert register.join(room.code, "Ada", "https://id.example|43").learner.name == "Ada (2)"
    assert register.join(room.code, "Ada").learner.name == "Ada (3)"  # two without a log-in


def test_the_teacher_gives_a_new_secret(register: Register) -> None:
    room = register.begin_class("Monday")
    joined = register.join(room.code, "Ada")
    secret = register.new_secret(joined.learner.id)
    assert register.learner_with(joined.secret) is None
    assert register.learner_with(secret) == joined.learner
    with pytest.raises(RegisterError, match="not in the class"):
        register.new_secret(joined.learner.id + 1)


def test_who_is_there_is_noted_now_and_then(register: Register, clock: Ticks) -> None:
    ada = register.join(register.begin_class("Monday").code, "Ada").learner
    clock.now += 5
    register.seen(ada)
    assert register.learners(ada.class_id)[0].seen_at == ada.seen_at
    clock.now += 30
    register.seen(ada)
    assert register.learners(ada.class_id)[0].seen_at == clock.now


def test_who_is_deleted_leaves_nothing(
    register: Register, attempts: Attempts, ada: LearnerInfo
) -> None:
    run = begin(attempts, ada)
    attempts.record(ada.id, run, [answer("k")])
    register.delete_learner(ada.id)
    assert [count(register.database, table) for table in (Learner, Run, Attempt)] == [0] * 3
    with pytest.raises(NotRecorded, match="not in the register"):
        attempts.record(ada.id, run, [answer("k2")])
    with pytest.raises(NotRecorded, match="not in this class"):
        begin(attempts, ada)


def test_an_answer_counts_once(register: Register, attempts: Attempts, ada: LearnerInfo) -> None:
    run = begin(attempts, ada)
    assert begin(attempts, ada) == run
    assert attempts.record(ada.id, run, [answer("k", 1), answer("k", 2)]) == 1
    assert attempts.record(ada.id, run, [answer("k", 3), answer("l", 4)]) == 1
    assert attempts.record(ada.id, run, [answer("m", 4)]) == 0  # it says what the last one said
    assert attempts.record(ada.id, run, [answer("n", 1)]) == 1
    with register.database.reading() as session:
        rows = session.execute(select(Attempt.key, Attempt.given).order_by(Attempt.id))
        assert [tuple(row) for row in rows] == [("k", "1"), ("l", "4"), ("n", "1")]


def test_nobody_answers_in_somebody_elses_run(
    register: Register, attempts: Attempts, ada: LearnerInfo
) -> None:
    room = register.class_of(ada.class_id)
    assert room is not None
    eve = register.join(room.code, "Eve").learner
    run = begin(attempts, ada)
    for call in (
        lambda: attempts.record(eve.id, run, [answer("k")]),
        lambda: attempts.save(eve.id, run, 0, {}, lambda here, mine: mine),
    ):
        with pytest.raises(NotRecorded):
            call()
    assert attempts.run(eve.id, run) is None
    assert count(register.database, Attempt) == 0


def test_a_prediction_is_locked_once(
    register: Register, attempts: Attempts, ada: LearnerInfo
) -> None:
    run = begin(attempts, ada)
    assert attempts.record(ada.id, run, [answer("tab-1", 5, final=True)]) == 1
    assert attempts.record(ada.id, run, [answer("tab-2", 6, final=True)]) == 0
    other = Answer("tab-2", "predict", "other", 6, "6", right=True, final=True)
    assert attempts.record(ada.id, run, [other]) == 1
    with register.database.reading() as session:
        assert session.scalars(select(Attempt.given).order_by(Attempt.id)).all() == ["5", "6"]


def test_two_presses_of_one_button_at_once_are_one_answer(
    register: Register, attempts: Attempts, ada: LearnerInfo
) -> None:
    """Each press has its own number, as if two threads had counted one after the other."""
    run = begin(attempts, ada)
    at_once = threading.Barrier(2)

    def press(number: int) -> int:
        at_once.wait()
        return attempts.record(ada.id, run, [answer(f"k{number}", 5)])

    for _ in range(10):
        with ThreadPoolExecutor(2) as presses:
            assert sum(presses.map(press, range(2))) == 1
        assert attempts.record(ada.id, run, [answer(f"away{_}", 6)]) == 1
        run = begin(attempts, ada, seed=100 + _)


def test_a_closed_lesson_takes_no_answers(
    register: Register, attempts: Attempts, ada: LearnerInfo
) -> None:
    run = begin(attempts, ada)
    register.set_rule(ada.class_id, "lab", Rule(is_open=False))
    with pytest.raises(LessonClosed):
        attempts.record(ada.id, run, [answer("k")])
    with pytest.raises(LessonClosed):
        begin(attempts, ada, seed=8)
    register.set_rule(ada.class_id, "lab", Rule(due_at=5.0))
    assert register.rules(ada.class_id) == {"lab": Rule(True, 5.0)}
    assert attempts.record(ada.id, run, [answer("k")]) == 1  # late is for the teacher to judge


def test_two_tabs_merge_what_they_save(attempts: Attempts, ada: LearnerInfo) -> None:
    run = begin(attempts, ada)

    def merge(here: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
        return {**here, **mine, "hints": sorted({*here.get("hints", []), *mine["hints"]})}

    one = attempts.save(ada.id, run, 0, {"hints": ["a"]}, merge)
    two = attempts.save(ada.id, run, 0, {"hints": ["b"]}, merge)
    assert (one.version, two.version) == (1, 2)
    assert two.state["hints"] == ["a", "b"]
    assert attempts.save(ada.id, run, 2, {"hints": []}, merge).state == {"hints": []}
    assert attempts.save(ada.id, run, 3, {"hints": []}, merge).version == 3  # nothing new


def test_thirty_learners_at_once_lose_and_double_nothing(
    register: Register, attempts: Attempts
) -> None:
    """All join under one name, and each of their answers comes from two tabs, each with a retry."""
    room = register.begin_class("Monday")
    at_once = threading.Barrier(LEARNERS)
    each = 3

    def learn(number: int) -> tuple[str, int, int]:
        at_once.wait()
        ada = register.join(room.code, "Ada").learner
        run = begin(attempts, ada)
        keys = [f"{run}-{n}" for n in range(each)]

        def tab(name: str) -> int:
            added = 0
            for n, key in [*enumerate(keys), *enumerate(keys)]:
                added += attempts.record(ada.id, run, [answer(key, n)])
                attempts.save(ada.id, run, 0, {name: n}, lambda here, mine: {**here, **mine})
            return added

        with ThreadPoolExecutor(2) as tabs:
            added = sum(tabs.map(tab, ("left", "right")))
        found = attempts.run(ada.id, run)
        assert found is not None
        assert set(found.state) >= {"left", "right"}
        return ada.name, added, run

    with ThreadPoolExecutor(LEARNERS) as learners:
        done = list(learners.map(learn, range(LEARNERS)))
    assert {name for name, _, _ in done} == {"Ada", *(f"Ada ({n})" for n in range(2, LEARNERS + 1))}
    assert [added for _, added, _ in done] == [each] * LEARNERS
    with register.database.reading() as session:
        rows = list(session.execute(select(Attempt.run_id, Attempt.key)))
    assert Counter(run for run, _ in rows) == {run: each for _, _, run in done}
    assert len(set(rows)) == len(rows) == LEARNERS * each
