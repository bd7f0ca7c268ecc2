"""The teacher's secret: where it comes from, what is none, and who guesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.audience import Audience, Rules
from lessons.classroom import school as school_module
from lessons.classroom.register import RegisterError
from lessons.classroom.school import School, SchoolError, open_school, teacher_secret

SECRET = "correct horse"


def settings(folder: Path, **more: str) -> dict[str, str]:
    return {"GLASSBOX_DATA": str(folder), **more}


@pytest.fixture
def school(tmp_path: Path) -> School:
    found = open_school(settings(tmp_path, GLASSBOX_TEACHER_SECRET=SECRET))
    assert found is not None
    return found


def test_without_a_secret_there_is_no_class_and_no_file(tmp_path: Path) -> None:
    assert open_school(settings(tmp_path / "data")) is None
    assert not (tmp_path / "data").exists()


def test_a_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    assert teacher_secret({"GLASSBOX_TEACHER_SECRET_FILE": str(file)}) == SECRET
    file.write_text("\n")
    with pytest.raises(SchoolError, match="is empty"):
        teacher_secret({"GLASSBOX_TEACHER_SECRET_FILE": str(file)})
    with pytest.raises(SchoolError, match="cannot be read"):
        teacher_secret({"GLASSBOX_TEACHER_SECRET_FILE": str(tmp_path / "none")})


def test_a_short_secret_is_refused_without_being_told(tmp_path: Path) -> None:
    with pytest.raises(SchoolError, match="12 at least") as caught:
        open_school(settings(tmp_path, GLASSBOX_TEACHER_SECRET="sesame"))
    assert "sesame" not in str(caught.value)


def test_a_database_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    more = {"GLASSBOX_TEACHER_SECRET": SECRET, "GLASSBOX_DATABASE_URL": "mysql://x"}
    with pytest.raises(SchoolError, match="GLASSBOX_DATABASE_URL"):
        open_school(settings(tmp_path, **more))


def test_who_guesses_waits_and_the_right_one_then_waits_too(school: School) -> None:
    for _ in range(10):
        assert school.is_teacher(SECRET, "teacher")
    for wrong in ("", SECRET + "x", SECRET[:-1], "\ud800", "x" * 10**6):
        assert not school.is_teacher(wrong, "guesser")
    with pytest.raises(RegisterError, match="Too many wrong secrets; try again in"):
        school.is_teacher(SECRET, "guesser")
    assert school.is_teacher(SECRET, "teacher")


def test_wrong_codes_are_counted_and_right_ones_are_not(school: School) -> None:
    room = school.register.begin_class("Monday")
    for number in range(40):
        school.join(room.code, f"Learner {number}", None, "one address")
    for _ in range(20):
        with pytest.raises(RegisterError, match="no class"):
            school.join("AAAAAA", "Eve", None, "one address")
    with pytest.raises(RegisterError, match="Too many wrong codes"):
        school.join(room.code, "Eve", None, "one address")
    assert school.join(room.code, "Eve", None, "another").learner.name == "Eve"


def test_a_key_of_the_shared_engine_is_one_learners_while_their_class_has_the_floor(
    school: School,
) -> None:
    register = school.register
    rooms = [register.begin_class(title) for title in ("A class", "B class")]
    ada, bob = (school.join(room.code, room.title[0], None, "x") for room in rooms)
    key = school.engine_key(ada.learner)
    assert ada.secret not in key
    assert school.name_behind(key) is None  # nobody has the floor
    school.give_floor(rooms[0].id, school.passes.give())
    assert school.name_behind(key) == "A"
    assert school.name_behind(school.engine_key(bob.learner)) is None
    other = school.join(rooms[0].code, "C", None, "x").learner
    forged = key.replace(f"-{ada.learner.id}-", f"-{other.id}-")
    for wrong in (forged, key[:-1], key + "0", "gb-class-", "gb-class-²-1", f"gb-class-{9**99}-x"):
        assert school.name_behind(wrong) is None
    register.new_secret(ada.learner.id)
    assert school.name_behind(key) is None
    assert school.name_behind(school.engine_key(ada.learner)) == "A"
    register.delete_learner(ada.learner.id)
    assert school.name_behind(key) is None
    assert school.engine_key(ada.learner) == ""


def test_a_class_that_is_deleted_leaves_the_floor_to_nobody(school: School) -> None:
    rooms = [school.register.begin_class(title) for title in ("A class", "B class")]
    school.give_floor(rooms[1].id, school.passes.give())
    school.delete_class(rooms[0].id)
    assert school.floor == rooms[1].id
    school.delete_class(rooms[1].id)
    assert school.floor is None and school.register.classes() == []


def test_without_the_floor_the_register_is_not_asked_whose_key_it_is(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(school.register, "named", asked.append)
    for has_floor in (False, True):
        if has_floor:
            school.give_floor(1, school.passes.give())
        for key in ("gb-class-1-x", "gb-class-9999999999-x"):  # the second fits no database
            assert school.name_behind(key) is None
    assert asked == [1]


def test_floor_and_command_of_the_engine_end_with_the_pass_that_they_were_given_for(
    school: School,
) -> None:
    first, second = school.passes.give(), school.passes.give()
    directs, other = school.directing(first), school.directing(second)
    assert not directs()  # nobody has the floor
    school.give_floor(1, first)
    assert school.floor == 1 and directs() and other()
    school.passes.take_back(second)
    assert school.floor == 1 and directs() and not other()
    school.passes.take_back(first)
    assert school.floor is None and not directs()
    school.give_floor(1, school.passes.give())
    assert school.floor == 1 and not directs()  # a pass that has ended stays that
    school.give_floor(1, "no pass")
    assert school.floor is None


def test_what_the_shared_engine_takes_is_kept_over_a_restart(
    school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Rules("class", 2, 300)
    assert school.register.engine_rules() == Rules()
    for each in (Rules("nobody"), rules):
        school.register.set_engine_rules(each)
    for name, value in settings(tmp_path, GLASSBOX_TEACHER_SECRET=SECRET).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(school_module, "_opened", school_module._Opened())
    audience = Audience()
    school_module.attend(audience)
    assert audience.rules == rules
    assert audience.look_up == school_module.name_behind
