"""A class in two browsers at once: a learner's lab, and what the teacher sees of it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from tests.browser.test_lessons import Learner, look_for_the_hit, lose_it_by_one_token
from tests.browser.test_page import READY, Tab
from tests.servers import ready_app
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SECRET = "a secret of the tests' own"
NAME = "=Ada <b>*Ærø*</b> | x"  # a formula, markup, and a cell's end


@pytest.fixture(scope="module")
def class_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`python app.py` with a class's register of its own."""
    data = str(tmp_path_factory.mktemp("class"))
    with ready_app("tiny-random", GLASSBOX_TEACHER_SECRET=SECRET, GLASSBOX_DATA=data) as (app, url):
        yield url
    assert "Traceback" not in "".join(app.lines), "".join(app.lines)


class Teacher:
    """The teacher's page, in a browser of its own."""

    def __init__(self, page: Page, url: str):
        self.page = page
        page.goto(f"{url}/?page=teacher")
        page.get_by_label("The teacher's secret").fill(SECRET)
        page.get_by_role("button", name="Open", exact=True).click()
        self.reads("A new class")

    def begin(self, title: str) -> str:
        """Begin a class; its code."""
        link = self.page.get_by_text("fills the code in")
        before = link.all_inner_texts()  # of another test's class
        self.page.get_by_label("A new class").fill(title)
        self.page.get_by_role("button", name="Begin").click()
        wait_until(lambda: link.all_inner_texts() not in ([], before))
        found = re.search(r"\?class=(\w+)", link.inner_text())
        assert found, link.inner_text()
        return found[1]

    def reads(self, text: str | re.Pattern[str]) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator("[data-testid=stMain]")).to_contain_text(text)
        self.page.wait_for_selector(READY)

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()

    def download(self, button: str) -> str:
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=button).click()
        return Path(download.value.path()).read_text("utf-8")


@pytest.fixture
def teacher(browser: Browser, class_url: str) -> Iterator[Teacher]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Teacher(context.new_page(), class_url)
    context.close()


@pytest.fixture
def learner(browser: Browser, class_url: str) -> Iterator[Learner]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Learner(Tab(context.new_page(), class_url).open())
    context.close()


def join(learner: Learner, code: str, name: str) -> None:
    page = learner.tab.page
    page.get_by_role("button", name="Class", exact=True).click()
    page.get_by_label("Class code").fill(code)
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Join").click()
    page.get_by_text("You are in the class as").wait_for()
    page.keyboard.press("Escape")


def do_the_lab(learner: Learner) -> None:
    """All of *Lose a hit*: what was locked, an event, a box and a knob, each wrong at first."""
    side = learner.side
    side.get_by_text("The full ones, each under a hash").click()
    side.get_by_role("button", name="Answer").first.click()
    learner.reads("A block with an empty slot would change yet")
    look_for_the_hit(learner, lambda seq: side.locator("input[type=number]").first.fill(str(seq)))
    side.get_by_role("combobox").click()
    learner.tab.page.get_by_role("option", name="KVCacheManager").click()
    side.get_by_role("button", name="Answer").last.click()
    learner.reads("It keeps the hashes of all blocks")
    lose_it_by_one_token(learner)
    learner.next("You have 4 of 6 questions right")


def test_a_learner_does_a_lab_and_the_teacher_sees_it(
    teacher: Teacher, learner: Learner, tmp_path: Path
) -> None:
    code = teacher.begin("Systems")
    join(learner, code, NAME)
    do_the_lab(learner.start("lose-a-hit"))
    teacher.reads(NAME)
    teacher.reads("9 of 10 points, 4 of 6 right, at end")
    teacher.page.reload()  # nobody is asked for the secret again
    teacher.tab("Questions")
    teacher.reads("The commonest wrong answers")
    found = teacher.page.get_by_role("row", name="where").first.inner_text().split("\t")
    assert found == ["Lose a hit by one token", "where", "1", "0 of 1", "1 of 1", "2"]

    teacher.tab("Learners and data")
    assert f"'{NAME}," in teacher.download("All answers, as a table").replace('"', "")
    attempts = json.loads(teacher.download("Everything, as data"))["learners"][0]["attempts"]
    assert [one["question"] for one in attempts if not one["right"]] == [
        "hit",
        "where",
        "one-token",
    ]
    learner.tab.page.get_by_role("button", name="Class", exact=True).click()
    with learner.tab.page.expect_download() as saved:
        learner.tab.page.get_by_role("button", name="Save my work").click()
    work = tmp_path / saved.value.suggested_filename
    saved.value.save_as(work)
    teacher.page.locator("input[type=file]").set_input_files(work)
    teacher.reads("The file is as this server wrote it.")
    teacher.reads("7 answers, 9 points in right ones")
    teacher.page.get_by_text("Delete this learner and all their answers").click()
    teacher.page.get_by_role("button", name="Delete the learner").click()
    teacher.reads("Nobody has joined yet.")
    learner.tab.page.keyboard.press("Escape")
    learner.side.get_by_role("button", name="Leave").click()
    learner.tab.has(".gb-note", "You are not in the class any more")


def test_a_class_shares_one_engine_which_its_teacher_directs(
    teacher: Teacher, learner: Learner
) -> None:
    page, tab = teacher.page, learner.tab
    join(learner, teacher.begin("Together"), NAME)
    teacher.tab("Shared engine")
    page.get_by_role("button", name="Give this class the floor").click()
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Open its map").click()
    director = Tab(popup.value, teacher.page.url)
    director.page.wait_for_selector(".st-key-gb-send button:not([disabled])")
    director.press("Pause")
    director.wait_for("s.headEngine.mode", "paused")

    tab.page.get_by_role("radio", name="Class").click()  # the page has heard of the floor
    tab.page.get_by_label("Prompt", exact=True).fill("<i>ours</i>")
    tab.page.get_by_role("button", name="Send", exact=True).click()
    tab.has(".gb-note", "1 request sent to the class's engine. It is paused")
    tab.wait_for("[s.engine, s.state.requests?.r0?.source]", ["shared", f"class:{NAME}"])
    tab.has(".gb-yours", "r0 submitted")
    tab.page.locator(".gb-yours button").click()
    tab.has(".gb-inspector", f"sent by \u2068{NAME}\u2069")
    assert tab.store("s.canCommand") is False
    teacher.reads(f"{NAME}")
    teacher.reads("<i>ours</i>")

    page.get_by_label("Requests of a sender at once").fill("1")
    page.get_by_role("button", name="Set", exact=True).click()
    teacher.reads("requests of a sender at once: 1")
    tab.page.get_by_role("button", name="Send", exact=True).click()
    tab.has(".gb-note", "takes 1 of a sender at once, you have 1 under way")
    director.press("Run")
    tab.has(".gb-yours", re.compile("r0 finished, \\d+ tokens"))
    director.wait_for("s.state.requests.r0.status", "finished")

    page.get_by_role("button", name="Log out").click()
    page.get_by_label("The teacher's secret").wait_for()
    director.has(".gb-banner", "directs the class's engine no more")
    director.page.wait_for_selector(".st-key-gb-send button:not([disabled])")
    director.wait_for("[s.canCommand, s.state.requests?.r0 ?? null]", [True, None])


def test_an_answer_after_the_due_time_is_late_whatever_clock_who_has(
    browser: Browser, class_url: str
) -> None:
    """Half an hour ago on the teacher's clock is hours from now on an UTC one."""
    due = datetime.now(ZoneInfo("Asia/Kolkata")) - timedelta(minutes=30)
    india, york = (
        browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id=zone)
        for zone in ("Asia/Kolkata", "America/New_York")
    )
    teacher = Teacher(india.new_page(), class_url)
    code = teacher.begin("Late")
    teacher.tab("Lessons")
    teacher.page.get_by_role("combobox", name="Lesson").click()
    teacher.page.keyboard.type("Lose a hit by one token")
    teacher.page.get_by_role("option", name="Lose a hit by one token").click()
    teacher.page.get_by_text("Has a time when it is due").click()
    for part, field in (
        *(("year", "Due on"), ("month", "Due on"), ("day", "Due on")),
        *(("hour", "at"), ("minute", "at")),
    ):
        teacher.page.get_by_role("spinbutton", name=f"{part}, {field}").click()
        teacher.page.keyboard.type(f"{getattr(due, part):02}")
    teacher.page.get_by_role("button", name="Set", exact=True).first.click()
    teacher.reads(f"{due:%a} {due.day} {due:%b, %H:%M}")

    learner = Learner(Tab(york.new_page(), class_url).open())
    join(learner, code, "Ada")
    learner.tab.page.get_by_role("button", name="Lessons", exact=True).click()
    theirs = due.astimezone(ZoneInfo("America/New_York"))
    learner.reads(f"Was due {theirs:%a} {theirs.day} {theirs:%b, %H:%M}; answers from now on")
    learner.tab.page.get_by_role("button", name="Lessons", exact=True).click()
    learner.start("lose-a-hit")
    learner.side.get_by_text("The full ones, each under a hash").click()
    learner.side.get_by_role("button", name="Answer").first.click()
    learner.reads("A block with an empty slot would change yet")
    teacher.tab("Who is where")
    teacher.reads("1 late")
    teacher.tab("Learners and data")
    (row,) = csv.DictReader(io.StringIO(teacher.download("All answers, as a table")))
    assert (row["question"], row["late"]) == ("which-cached", "True")
    for context in (india, york):
        context.close()
