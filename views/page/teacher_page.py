"""The teacher's page (`?page=teacher`): one door, and behind it a class, its labs and its data.

A learner's browser gets nothing of it: every part is drawn by the server, once this tab has shown a
pass, which it got for the secret and keeps while it is open; every button asks for it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from engine.async_llm import EngineError
from engine.sessions import registry
from lessons.classroom.names import LONGEST, NameRefused, spelled
from lessons.classroom.register import ClassInfo, RegisterError
from lessons.classroom.school import FILE_SETTING, SECRET_SETTING, SHORTEST, School, school, trouble
from views.page import class_member, teacher_class, teacher_data, teacher_engine
from views.page.bootstrap import bootstrap
from views.page.guard import failed
from views.page.kept_secret import KeptSecret
from views.page.words import code, plain, sentence

_KEPT = "gb-teacher-kept"
_SAID = "gb-teacher-said"
_SECRET, _TITLE, _CHOSEN = "gb-teacher-secret", "gb-teacher-title", "gb-teacher-class"
_log = logging.getLogger("glassbox")
_pass = KeptSecret("gb-teacher-pass", lambda: getattr(st.session_state.get(_KEPT), "pass", None))


def is_asked_for() -> bool:
    """Return whether the address names this page."""
    return st.query_params.get("page") == "teacher"


def page() -> None:
    """Draw it from top to bottom."""
    st.set_page_config(page_title="Glassbox: teacher", page_icon="🔎", layout="wide")
    st.title("Teacher", anchor=False)
    said = st.session_state.pop(_SAID, "")
    if said:
        st.error(plain(sentence(said)))
    found = school()
    try:
        if found is None:
            _no_school()
            return
        _keep_pass()
        if _is_in():
            _inside(found)
        elif _pass.told() is not None:  # before, nobody knows whether this tab has a pass
            _door()
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


def _keep_pass() -> None:
    component = st.components.v2.component("teacher", js=bootstrap("page/teacher.js"))
    component(key=_KEPT, data=_pass.for_browser(), on_pass_change=_noted)


def _noted() -> None:
    """The run that follows reads the pass."""


def _is_in() -> bool:
    found, shown = school(), _pass.now()
    return found is not None and bool(shown) and found.passes.is_good(str(shown))


def _door() -> None:
    with st.form("gb-teacher-door"):
        st.text_input("The teacher's secret", key=_SECRET, type="password", max_chars=1000)
        st.form_submit_button("Open", type="primary", on_click=_enter)
    st.caption(f"It is what the server was started with ({code(SECRET_SETTING)}).")


def _enter() -> None:
    found, given = school(), str(st.session_state.get(_SECRET) or "")
    if found is None:
        return
    try:
        if found.is_teacher(given, class_member.who()):
            _pass.keep(found.passes.give())
        else:
            st.session_state[_SAID] = "That is not the teacher's secret"
    except RegisterError as error:
        st.session_state[_SAID] = str(error)


def _inside(found: School) -> None:
    rooms = {room.id: room for room in found.register.classes()}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        with (
            st.form("gb-teacher-begin", border=False),
            st.container(horizontal=True, vertical_alignment="bottom"),
        ):
            st.text_input("A new class", key=_TITLE, max_chars=LONGEST, placeholder="its name")
            st.form_submit_button("Begin", on_click=_for_teacher, args=(_begin,))
        st.button("Log out", key="gb-teacher-out", on_click=_leave)
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
        teacher_class.lessons_of(found, room, _for_teacher)
    with engine:
        teacher_engine.engine_of(found, room, _for_teacher)
    with data:
        teacher_data.data(found, room, _for_teacher)


# -- clicks -------------------------------------------------------------------------------------


def _for_teacher(act: Callable[..., None], *args: object) -> None:
    """Do what a button does, if this tab has a pass; say what goes wrong."""
    if not _is_in():
        return
    try:
        act(*args)
    except (EngineError, NameRefused, RegisterError) as error:
        st.session_state[_SAID] = str(error)
    except SQLAlchemyError:
        _log.exception("the register cannot be reached")
        st.session_state[_SAID] = class_member.UNREACHABLE


def _begin() -> None:
    found = school()
    if found is not None:
        room = found.register.begin_class(str(st.session_state.get(_TITLE) or ""))
        st.session_state[_CHOSEN] = room.id
        st.session_state[_TITLE] = ""


def _leave() -> None:
    found, shown = school(), _pass.now()
    if found is not None and shown:
        found.passes.take_back(shown)
        registry().end_directing(found.director)
    _pass.keep(None)
    st.session_state.pop(_SECRET, None)
