"""The list of lessons in the sidebar, with the search above it: what there is to begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from engine.async_llm import AsyncLLM
from lessons.format import Lesson
from lessons.loader import LessonError, in_order, lesson_files, load_each
from lessons.play import Player
from views.page import class_desk, lookup
from views.page.lesson_desk import Desk
from views.page.lookup import KINDS, Lit
from views.page.words import plain

Begin = Callable[..., None]

_FOLDED = {  # kinds of lessons that are looked up rather than taken one after the other
    "clinic": (
        "Symptom clinic",
        ":material/stethoscope:",
        "What people who run vLLM have reported, small: find the box and the cause, turn the knob, "
        "see it gone.",
    ),
    "hunt": (
        "Bug hunts",
        ":material/bug_report:",
        "Defects of vLLM 0.26.0, in your engine: find where it goes wrong, switch it off, and see "
        "the difference.",
    ),
}


def draw(now: Desk, llm: AsyncLLM | None, start: Begin, go_on: Begin) -> Lit | None:
    """Draw it; return what is lit of a thing that was looked up."""
    lessons = sorted(readable(), key=lambda lesson: lesson.id != now.offered)
    found = lookup.results(lessons)
    if found is not None:
        for each in found:
            lesson = next((it for it in lessons if (it.kind, it.id) == (each.kind, each.id)), None)
            if lesson is None:
                lookup.offer(each)
            else:
                _offer(now, lesson, start, go_on)
        return None
    lit = lookup.card(llm)
    st.markdown("A tour explains; in a lab you predict what the engine will do, and see.")
    if lessons and lessons[0].id == now.offered:
        _offer(now, lessons.pop(0), start, go_on)
    for kind, (title, icon, says) in _FOLDED.items():
        group = [lesson for lesson in lessons if lesson.kind == kind]
        if group:
            with st.expander(f"{title} ({len(group)})", icon=icon, key=f"gb-group-{kind}"):
                st.markdown(says)
                for lesson in group:
                    _offer(now, lesson, start, go_on)
    lookup.glossary()
    for lesson in lessons:
        if lesson.kind not in _FOLDED:
            _offer(now, lesson, start, go_on)
    for problem in (p for path in lesson_files() for error in _of(path)[1] for p in error.problems):
        st.error(plain(f"{problem.file.name}, line {problem.line}: {problem.message}"))
    return lit


def readable() -> list[Lesson]:
    """Return the lessons that can be read, in the order of the course."""
    return in_order([lesson for path in lesson_files() for lesson in _of(path)[0]])


def _of(path: Path) -> tuple[list[Lesson], list[LessonError]]:
    return _read(path, path.stat().st_mtime_ns)


@st.cache_resource(max_entries=200, show_spinner=False)
def _read(path: Path, changed: int) -> tuple[list[Lesson], list[LessonError]]:
    """Read a file again whenever it has changed."""
    return load_each([path])


def _offer(now: Desk, lesson: Lesson, start: Begin, go_on: Begin) -> None:
    left: Player | None = now.left.get(lesson.id)
    with st.container(border=True, key=f"gb-lesson-{lesson.id}"):
        if lesson.id == now.offered:
            st.caption("The lesson that your link names. It begins when you press Start.")
        st.markdown(f"**{plain(lesson.title)}**")
        st.markdown(plain(lesson.summary))
        st.caption(f"{KINDS[lesson.kind]}, about {lesson.minutes} minutes")
        gate = class_desk.gate(lesson)
        if gate.says:
            st.caption(plain(gate.says))
        if not gate.is_open:
            return
        with st.container(horizontal=True):
            st.button("Start", key=f"gb-start-{lesson.id}", on_click=start, args=(lesson,))
            step = now.offered_step if lesson.id == now.offered else None
            if step is not None and step > 1:
                key = f"gb-start-at-{lesson.id}"
                args = (lesson, step - 1)
                st.button(f"Start at step {step}", key=key, on_click=start, args=args)
            if left is not None:
                label = f"Go on at step {left.index + 1}"
                st.button(label, key=f"gb-go-on-{lesson.id}", on_click=go_on, args=(left,))
