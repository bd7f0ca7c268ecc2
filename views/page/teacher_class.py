"""What a teacher sees of a class: who is where, which questions are hard, what is open."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import streamlit as st

from lessons.classroom.register import ALWAYS, ClassInfo, Rule
from lessons.classroom.school import School
from lessons.classroom.standing import (
    HOW_STUCK,
    THERE_SECONDS,
    Wrong,
    commonest_wrong,
    questions,
    standings,
    stuck,
    work_of,
)
from lessons.format import Lesson
from lessons.questions import BoxQuestion, ChoiceQuestion, NumberQuestion
from views.page import lesson_catalogue
from views.page.class_desk import local_time, local_zone
from views.page.class_place import isolated
from views.page.teacher_door import for_teacher, looked_up_every
from views.page.words import plain

_EVERY_SECONDS = 5.0


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Draw a table; cells are Markdown, so whatever somebody wrote comes through `plain`."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    st.markdown("\n".join(lines))


@st.cache_resource(ttl=30, max_entries=1, show_spinner=False)
def all_lessons() -> dict[str, Lesson]:
    """Return the lessons that can be read, by their id."""
    return {lesson.id: lesson for lesson in lesson_catalogue.readable()}


@looked_up_every(_EVERY_SECONDS)
def roster(found: School, room: ClassInfo) -> None:
    """Draw who is in the class, how far they are, and who may need help."""
    database, now = found.register.database, time.time()
    learners = found.register.learners(room.id)
    if not learners:
        st.info("Nobody has joined yet.")
        return
    work = work_of(database, room.id)
    names = {learner.id: isolated(learner.name) for learner in learners}
    lessons = all_lessons()
    ends = {name: lesson.steps[-1].id for name, lesson in lessons.items()}
    held_up = stuck(work, {one.id: one.seen_at for one in learners}, ends, now)
    st.subheader("Who may need help", anchor=False)
    if held_up:
        rows = [
            (
                names[s.learner_id],
                plain(_title(s.lesson)),
                plain(s.step),
                s.why,
                local_time(s.since),
            )
            for s in held_up
        ]
        table(("Learner", "Lesson", "Step", "Why", "Since"), rows)
    else:
        st.markdown("Nobody, as far as this can tell.")
    st.caption(HOW_STUCK)
    st.subheader("Everybody", anchor=False)
    best = standings(work, found.register.rules(room.id))
    begun = list(dict.fromkeys(run.lesson for run in work.runs))
    places = {(run.learner_id, run.lesson): run for run in work.runs}
    everybody: list[list[str]] = []
    for one in learners:
        cells = [
            names[one.id],
            "here" if now - one.seen_at < THERE_SECONDS else _ago(now, one.seen_at),
        ]
        for lesson in begun:
            standing, run = best.get((one.id, lesson)), places.get((one.id, lesson))
            cells.append(_cell(lesson, standing, None if run is None else run.step))
        everybody.append(cells)
    table(("Learner", "Seen", *(plain(_title(name)) for name in begun)), everybody)
    st.caption(
        "Of each lesson the run with the most points: points of those that there are, questions "
        "whose last answer is right, and the step. Looked up anew every "
        f"{_EVERY_SECONDS:.0f} seconds."
    )


def _cell(lesson: str, standing: Any, step: str | None) -> str:
    if standing is None:
        return "" if step is None else f"begun, at {plain(step)}"
    known = all_lessons().get(lesson)
    every = sum(len(each.questions) for each in known.steps) if known else standing.answered
    most = known.points if known else standing.most
    late = f", {standing.late} late" if standing.late else ""
    at = f", at {plain(step)}" if step else ""
    return f"{standing.points} of {most} points, {standing.right} of {every} right{late}{at}"


def _ago(now: float, at: float) -> str:
    minutes = int((now - at) / 60)
    return f"{minutes} minutes ago" if minutes < 60 else local_time(at)


@looked_up_every(_EVERY_SECONDS)
def questions_of(found: School, room: ClassInfo) -> None:
    """Draw each question's outcome and the commonest wrong answers."""
    work = work_of(found.register.database, room.id)
    if not work.given:
        st.info("No question is answered yet.")
        return
    st.subheader("Question by question", anchor=False)
    table(
        ("Lesson", "Question", "Answered by", "Right at once", "Right now", "Answers"),
        [
            (
                plain(_title(one.lesson)),
                plain(one.question),
                str(one.learners),
                f"{one.right_at_once} of {one.learners}",
                f"{one.right_now} of {one.learners}",
                str(one.attempts),
            )
            for one in questions(work)
        ],
    )
    st.subheader("The commonest wrong answers", anchor=False)
    table(
        ("Lesson", "Question", "Answer", "Learners"),
        [
            (plain(_title(one.lesson)), plain(one.question), _wrong(one), str(one.learners))
            for one in commonest_wrong(work)
        ],
    )
    st.caption(
        "Everybody's numbers are others: answers that show one known misconception count as one, "
        "with the rule by which the number comes out."
    )


def _title(lesson: str) -> str:
    known = all_lessons().get(lesson)
    return lesson if known is None else known.title


def _wrong(one: Wrong) -> str:
    lesson = all_lessons().get(one.lesson)
    every = [] if lesson is None else [q for step in lesson.steps for q in step.questions]
    asked = next((question for question in every if question.id == one.question), None)
    match asked:
        case NumberQuestion() if one.wrong is not None and one.wrong < len(asked.wrong):
            return f"{plain(asked.wrong[one.wrong].value.text)}, as in {plain(one.example)}"
        case ChoiceQuestion() | BoxQuestion():
            return plain(one.example)
    return plain(one.example)


def lessons_of(found: School, room: ClassInfo) -> None:
    """Draw which lessons are open and when they are due, to be changed."""
    rules = found.register.rules(room.id)
    st.markdown("A closed lesson takes no answers. After it is due it takes them, marked as late.")
    lessons = all_lessons()
    name = st.selectbox(
        "Lesson", list(lessons), key="gb-rule-lesson", format_func=lambda one: lessons[one].title
    )
    if name is None:
        return
    rule = rules.get(name, ALWAYS)
    zone, first = local_zone(), _first_due(rule)
    form = f"gb-rule-{room.id}-{name}"
    with st.form(form):
        # With a key, a field keeps what was typed though its first value is another one by now.
        opened = st.toggle("Open", rule.is_open, key=f"{form}-open")
        limited = st.toggle(
            "Has a time when it is due", rule.due_at is not None, key=f"{form}-limited"
        )
        with st.container(horizontal=True):
            day = st.date_input("Due on", first.date(), key=f"{form}-day")
            at = st.time_input("at", first.time(), key=f"{form}-at")
        if st.form_submit_button("Set", type="primary"):
            moment = datetime.combine(day, at, zone).timestamp() if limited else None
            for_teacher(found.register.set_rule, room.id, name, Rule(opened, moment))
            rules = found.register.rules(room.id)
    rows = [
        (plain(_title(each)), "open" if one.is_open else "**closed**", _due(one.due_at))
        for each, one in sorted(rules.items())
    ]
    if rows:
        table(("Lesson", "State", "Due"), rows)
    st.caption(
        "All others are open, and never due. Times are those of your browser's clock "
        f"({plain(str(zone))}); learners read them as their own clocks have them."
    )


def _first_due(rule: Rule) -> datetime:
    """When a lesson is due on the visitor's clock; where it is not, what is proposed."""
    if rule.due_at is not None:
        return datetime.fromtimestamp(rule.due_at, local_zone())
    now = datetime.now(local_zone()) + timedelta(days=7)
    return now.replace(second=0, microsecond=0)


def _due(at: float | None) -> str:
    return "never" if at is None else local_time(at)
