"""Who a tab's learner is, also while the register cannot be asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from lessons.classroom.school import open_school
from views.page import class_member


def test_a_learner_stays_while_the_register_is_gone_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    school = open_school(
        {"GLASSBOX_TEACHER_SECRET": "correct horse", "GLASSBOX_DATA": str(tmp_path)}
    )
    assert school is not None
    joined = school.join(school.register.begin_class("Systems").code, "Ada", None, "here")
    shown, said = [joined.secret], list[str]()
    monkeypatch.setattr(class_member, "school", lambda: school)
    monkeypatch.setattr(class_member, "st", SimpleNamespace(session_state={}))
    monkeypatch.setattr(class_member, "_secret", SimpleNamespace(now=lambda: shown[0]))
    monkeypatch.setattr(class_member, "_KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(class_member.state, "say", lambda kind, text: said.append(text))
    there = class_member.member()
    assert there is not None and there.learner == joined.learner

    def gone(secret: str) -> Any:
        raise OperationalError("select", {}, Exception("the disk is gone"))

    monkeypatch.setattr(school.register, "learner_with", gone)
    assert class_member.member() is there
    shown[0] = "gbl-another"
    assert class_member.member() is None
    assert said == [class_member.UNREACHABLE] * 2


def test_two_people_of_a_log_in_are_two_however_long_they_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class User(dict[str, str]):
        is_logged_in = True

    def identity(subject: str) -> str | None:
        user = User(iss="https://log.in", sub=subject)
        monkeypatch.setattr(class_member, "st", SimpleNamespace(user=user))
        return class_member.identity()

    assert identity("ada") == "https://log.in|ada"
    long = [identity("x" * 400 + end) for end in "ab"]
    assert len(set(long)) == 2 and all(each and len(each) <= 300 for each in long)
    assert identity("") is None
