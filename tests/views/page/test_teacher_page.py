"""The teacher's page without a browser: its door, and what is drawn and kept behind it."""

from __future__ import annotations

import asyncio
import csv
import io
import logging
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from streamlit.proto.BackMsg_pb2 import BackendOperationRequest
from streamlit.runtime.backend_operation_handler import DeferredFileHandler
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.testing.v1 import AppTest

from engine import sessions
from engine.audience import Rules
from engine.model_loader import load_model
from engine.sessions import Sessions
from lessons.classroom import school as school_module
from lessons.classroom.attempts import Answer
from lessons.classroom.export import as_csv
from lessons.classroom.register import Rule
from lessons.classroom.school import School, open_school
from lessons.classroom.standing import work_of
from tests.views.page.test_script import PAGE, click, settled, words
from tests.waiting import PATIENCE_S
from views.page import class_desk, teacher_class, teacher_data, teacher_door, teacher_engine

SECRET = "correct horse"


class Door:
    """What this tab's browser keeps; the page's own part of that is Streamlit's."""

    def __init__(self) -> None:
        self.shown = ""

    def keep(self, secret: str | None) -> None:
        self.shown = secret or ""

    def now(self) -> str:
        return self.shown

    told = now

    def for_browser(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def school(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> School:
    found = open_school({"GLASSBOX_TEACHER_SECRET": SECRET, "GLASSBOX_DATA": str(tmp_path)})
    assert found is not None
    opened = school_module._Opened()
    opened.school, opened.done = found, True
    monkeypatch.setattr(school_module, "_opened", opened)
    monkeypatch.setattr(teacher_door, "_pass", Door())
    return found


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    made = Sessions(lambda report: load_model("tiny-random"))
    monkeypatch.setattr(sessions, "_registry", made)
    yield made
    made.close()


@pytest.fixture
def page(school: School, engines: Sessions) -> AppTest:
    """Behind the door, with a class."""
    school.register.begin_class("Systems")
    at = AppTest.from_file(PAGE, default_timeout=PATIENCE_S)
    at.query_params["page"] = "teacher"
    return enter(settled(at.run()), SECRET)


def enter(at: AppTest, secret: str) -> AppTest:
    at.text_input(key="gb-teacher-secret").set_value(secret)
    (button,) = [each for each in at.button if each.label == "Open"]
    return settled(button.click().run())


def is_inside(at: AppTest) -> bool:
    return any(each.label == "Log out" for each in at.button)


def test_a_pass_opens_the_page_and_with_it_ends_all_that_it_gave(
    page: AppTest, school: School, engines: Sessions
) -> None:
    assert is_inside(page)
    click(page, "gb-teacher-floor")
    key = page.session_state[teacher_engine._KEY]
    assert school.floor == 1 and engines.directs(key)
    settled(page.run())
    assert page.session_state[teacher_engine._KEY] == key  # one for a pass
    click(page, "gb-teacher-out")
    assert not is_inside(page) and "fills the code in" not in words(page)
    assert school.floor is None and not engines.knows(key)
    enter(page, "wrong")
    assert "That is not the teacher's secret." in words(page) and not is_inside(page)
    enter(page, SECRET)
    click(page, "gb-teacher-floor")
    assert page.session_state[teacher_engine._KEY] != key


def test_a_button_of_a_pass_that_has_ended_does_nothing(page: AppTest, school: School) -> None:
    school.passes.take_back(teacher_door.shown())
    click(page, "gb-teacher-floor")
    assert school.floor is None and not is_inside(page)


def test_what_is_looked_up_anew_asks_for_the_pass_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(
        teacher_door,
        "st",
        SimpleNamespace(
            fragment=lambda run_every: lambda draw: draw, rerun=lambda: drawn.append("the page")
        ),
    )
    again = teacher_door.looked_up_every(1.0)(lambda: drawn.append("names"))
    for is_in in (True, False):
        monkeypatch.setattr(teacher_door, "is_in", lambda answer=is_in: answer)
        again()
    assert drawn == ["names", "the page"]


def test_the_shared_engines_rules_are_in_force_and_kept(
    page: AppTest, school: School, engines: Sessions
) -> None:
    page.radio(key="gb-rules-open").set_value("class")
    page.number_input(key="gb-rules-requests").set_value(2)
    (button,) = [each for each in page.button if each.form_id == "gb-teacher-rules"]
    settled(button.click().run())
    assert engines.audience.rules == school.register.engine_rules() == Rules("class", 2, 0)
    assert "In force: the class alone; requests of a sender at once: 2" in words(page)


def test_due_is_a_time_of_the_teachers_clock_and_what_comes_later_is_marked(
    page: AppTest, school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = ZoneInfo("Asia/Kolkata")
    proposed = (datetime(2026, 12, 7, 9, minute, tzinfo=zone) for minute in range(60))
    for module in (teacher_class, class_desk):
        monkeypatch.setattr(module, "local_zone", lambda: zone)
    first_due = teacher_class._first_due
    monkeypatch.setattr(
        teacher_class,
        "_first_due",  # each run of the page comes a minute later
        lambda rule: next(proposed) if rule.due_at is None else first_due(rule),
    )
    page.selectbox(key="gb-rule-lesson").set_value("lose-a-hit")
    settled(page.run())
    form = "gb-rule-1-lose-a-hit"
    page.toggle(key=f"{form}-limited").set_value(True)
    page.date_input(key=f"{form}-day").set_value(date(2026, 12, 1))
    page.time_input(key=f"{form}-at").set_value(time(18, 45))
    (button,) = [each for each in page.button if each.form_id == form]
    settled(button.click().run())
    due = datetime(2026, 12, 1, 13, 15, tzinfo=UTC).timestamp()
    assert school.register.rules(1) == {"lose-a-hit": Rule(True, due)}
    assert "Tue 1 Dec, 18:45" in words(page) and "(Asia/Kolkata)" in words(page)
    assert page.time_input(key=f"{form}-at").value == time(18, 45)

    learner = school.register.join(school.register.classes()[0].code, "Ada").learner
    run = school.attempts.begin(learner.id, "lose-a-hit", 1, "d", "e", {})
    for question, at in (("hit", due), ("where", due + 0.5)):
        monkeypatch.setattr(school.attempts, "clock", lambda now=at: now)
        answer = Answer(question, "predict", question, 1, "1", True, 1, 1)
        school.attempts.record(learner.id, run.id, [answer])
    assert "2 of 6 right, 1 late" in words(settled(page.run()))
    rows = list(csv.DictReader(io.StringIO(exported(school).lstrip("\ufeff"))))
    assert [(row["question"], row["late"]) for row in rows] == [
        ("hit", "False"),
        ("where", "True"),
    ]


def test_an_export_after_the_pass_ended_is_refused_in_a_sentence(
    page: AppTest, school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Streamlit's own way to a file that is made when it is asked for."""
    buttons: dict[str, tuple[Any, dict[str, Any]]] = {}
    monkeypatch.setattr(
        teacher_data.st,
        "download_button",
        lambda label, data, *_, key, **more: buttons.update({key: (data, more)}),
    )
    settled(page.run())
    make, given = buttons["gb-export-json"]
    manager = MediaFileManager(MemoryMediaFileStorage("/media"))
    asked = BackendOperationRequest()
    asked.deferred_file.file_id = manager.add_deferred(make, "text/csv", "0")
    handler = DeferredFileHandler(lambda: manager)
    assert asyncio.run(handler.handle(asked, "")).deferred_file.url

    school.passes.take_back(teacher_door.shown())
    told: list[logging.LogRecord] = []
    log = logging.getLogger(DeferredFileHandler.__module__)
    monkeypatch.setattr(log, "handlers", [Told(told)])
    assert asyncio.run(handler.handle(asked, "")).error_msg
    (record,) = told
    assert record.getMessage().startswith("No export was made: the teacher's pass has ended")
    assert (record.exc_info, record.levelname) == (None, "INFO")
    assert given["on_click"] == "ignore"  # else the page's next run might delete what was made
    assert "pass has ended: write the secret again" in words(settled(page.run()))


class Told(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, records: list[logging.LogRecord]):
        super().__init__()
        self.emit = records.append  # type: ignore[method-assign]


def exported(school: School) -> str:
    work = work_of(school.register.database, 1)
    return as_csv(school.register.learners(1), work, school.register.rules(1))
