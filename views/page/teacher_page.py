"""The teacher's page (`?page=teacher`): one door, and behind it a class, its labs and its data.

A learner's browser gets nothing of it: every part is drawn by the server, once this tab has shown a
pass, which it got for the secret and keeps while it is open (`teacher_door`).
"""

from __future__ import annotations

import logging

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from lessons.classroom.names import LONGEST, spelled
from lessons.classroom.register import ClassInfo
from lessons.classroom.school import FILE_SETTING, SECRET_SETTING, SHORTEST, School, school, trouble
from views.page import class_member, teacher_class, teacher_data, teacher_door, teacher_engine
from views.page.guard import failed
from views.page.teacher_door import for_teacher
from views.page.words import code, plain, sentence

_TITLE, _CHOSEN = "gb-teacher-title", "gb-teacher-class"
_log = logging.getLogger("glassbox")


def is_asked_for() -> bool:
    """Return whether the address names this page."""
    return st.query_params.get("page") == "teacher"


def page() -> None:
    """Draw it from top to bottom."""
    st.set_page_config(page_title="Glassbox: teacher", page_icon="🔎", layout="wide")
    st.title("Teacher", anchor=False)
    teacher_door.say_trouble()
    found = school()
    try:
        if found is None:
            _no_school()
            return
        teacher_door.keep_pass()
        if teacher_door.is_in():
            _inside(found)
        else:
            teacher_door.door()
    except SQLAlchemyError:
        _log.exception("the register cannot be reached")
        st.error(class_member.UNREACHABLE)
    except Exception:
        failed("the teacher's page")


def _no_school() -> None:
    if trouble():
        st.error(plain(sentence(f"This server should keep a class and cannot: {trouble()}")))
        return
    st.info(
        f"This server keeps no class. Start it with {code(SECRET_SETTING)} in its environment, a "
        f"secret of {SHORTEST} characters or more, or with {code(FILE_SETTING)}, the path of a "
        "file that has it."
    )


def _inside(found: School) -> None:
    rooms = {room.id: room for room in found.register.classes()}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        with (
            st.form("gb-teacher-begin", border=False),
            st.container(horizontal=True, vertical_alignment="bottom"),
        ):
            st.text_input("A new class", key=_TITLE, max_chars=LONGEST, placeholder="its name")
            st.form_submit_button("Begin", on_click=for_teacher, args=(_begin,))
        st.button("Log out", key="gb-teacher-out", on_click=teacher_door.leave)
    if not rooms:
        st.info("There is no class yet. Begin one, and show its code to your learners.")
        return
    if st.session_state.get(_CHOSEN) not in rooms:
        st.session_state[_CHOSEN] = next(iter(rooms))
    chosen = st.selectbox(
        "Class",
        list(rooms),
        key=_CHOSEN,
        format_func=lambda room: f"{rooms[room].title} ({spelled(rooms[room].code)})",
    )
    _class(found, rooms[chosen])


def _class(found: School, room: ClassInfo) -> None:
    st.markdown(
        f"Learners open this server, press *Class*, and write **{code(spelled(room.code))}** and a "
        f"name. The link `?class={room.code}` fills the code in."
    )
    names = ("Who is where", "Questions", "Lessons", "Shared engine", "Learners and data")
    where, questions, lessons, engine, data = st.tabs(names)
    with where:
        teacher_class.roster(found, room)
    with questions:
        teacher_class.questions_of(found, room)
    with lessons:
        teacher_class.lessons_of(found, room)
    with engine:
        teacher_engine.engine_of(found, room)
    with data:
        teacher_data.data(found, room)


def _begin() -> None:
    found = school()
    if found is not None:
        room = found.register.begin_class(str(st.session_state.get(_TITLE) or ""))
        st.session_state[_CHOSEN] = room.id
        st.session_state[_TITLE] = ""
