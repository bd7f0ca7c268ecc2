"""Where a tab's learner is written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lessons.classroom.school import open_school
from lessons.classroom.standing import work_of
from lessons.loader import lesson_files, load_each
from lessons.play import Asked, Player
from views.page import class_desk
from views.page.class_member import Member


class Ended:
    """Streamlit in a run of the page that another one has taken the place of."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a run that is over would end at st.{name}")


def test_an_answer_is_recorded_though_the_run_of_the_page_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    school = open_school(
        {"GLASSBOX_TEACHER_SECRET": "correct horse", "GLASSBOX_DATA": str(tmp_path)}
    )
    assert school is not None
    room = school.register.begin_class("Systems")
    joined = school.join(room.code, "Ada", None, "here")
    ledger = class_desk.Ledger(Member(school, room, joined.learner, joined.secret, {}))
    lesson = next(each for each in load_each(lesson_files())[0] if each.id == "lose-a-hit")
    player = Player(lesson, seed=1, on_judged=ledger.record)
    monkeypatch.setattr(class_desk, "st", Ended())
    step = player.lesson.steps[0]
    player.answer(Asked(step, step.questions[0]), 0)
    assert [one.question for one in work_of(school.register.database, room.id).given] == [
        "which-cached"
    ]
    assert ledger.trouble == ""
