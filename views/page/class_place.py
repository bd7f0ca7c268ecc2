"""Class, in the header: joining with a code and a name, and what a learner has of it after."""

from __future__ import annotations

import time

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from lessons.classroom.export import as_work
from lessons.classroom.names import LONGEST, NameRefused, spelled
from lessons.classroom.register import RegisterError
from lessons.classroom.school import school
from lessons.classroom.standing import work_of
from views.page import class_member, state
from views.page.class_member import UNREACHABLE, Member
from views.page.guard import guarded
from views.page.words import code, plain, sentence

_SAID = "gb-class-said"
_FLOOR = "gb-class-floor"  # whether the class had it when that was looked at last
_SEEN_SECONDS = 10
_CODE, _NAME, _BACK = "gb-class-code", "gb-class-name", "gb-class-back"
_KEPT = (
    "Kept are your name, and in lessons your answers, hints and where you are. Your teacher sees "
    "that, and can delete it. Requests, prompts and what your engine writes are not kept."
)


def button() -> None:
    """Draw the header's popover, where the server has a class."""
    if school() is None:
        return
    with st.popover("Class", icon=":material/groups:", key="gb-class-menu"):
        found = class_member.member()
        said = st.session_state.pop(_SAID, "")
        if said:
            st.error(plain(sentence(said)))
        if found is None:
            _join_form()
        else:
            _about(found)


def isolated(name: str) -> str:
    """Return a name as Markdown, that turns the writing of nothing beside it."""
    return f"\u2068{plain(name)}\u2069"


def _join_form() -> None:
    st.markdown("Join a class with the code that your teacher shows.")
    if class_member.can_log_in():
        st.button("Log in", key="gb-class-log-in", on_click=st.login)
        st.caption("Who logs in comes back from any browser. It works without, too.")
    with st.form("gb-class-form", border=False):
        linked, name = str(st.query_params.get("class", "")), class_member.log_in_name()
        st.text_input("Class code", linked[:20], 20, key=_CODE, placeholder="KXM-472")
        st.text_input("Your name", name[:LONGEST], LONGEST, key=_NAME)
        st.form_submit_button("Join", type="primary", on_click=_join)
    with st.expander("I was here before, in another browser"), st.form("gb-class-back-form"):
        st.text_input("Personal code", key=_BACK, type="password", max_chars=100)
        st.form_submit_button("Come back", on_click=_come_back)
    st.caption(_KEPT)


def _about(found: Member) -> None:
    _is_there(found)
    name, title = isolated(found.learner.name), isolated(found.room.title)
    st.markdown(f"You are **{name}** in **{title}** ({code(spelled(found.room.code))}).")
    try:
        work = work_of(found.school.register.database, found.room.id, found.learner.id)
    except SQLAlchemyError:
        st.error(UNREACHABLE)
        return
    kept = {0: "No answer is kept yet.", 1: "1 answer is kept."}
    st.markdown(kept.get(len(work.given), f"{len(work.given)} answers are kept."))
    st.download_button(
        "Save my work",
        as_work(found.room, found.learner, work, found.rules, time.time(), found.school.seal_key),
        "glassbox-work.json",
        "application/json",
        icon=":material/download:",
        on_click="ignore",
        key="gb-class-save",
    )
    with st.expander("Go on in another browser"):
        st.markdown("Your personal code opens your work, so keep it to yourself:")
        st.code(found.secret, language=None, wrap_lines=True)
    st.button("Leave the class", key="gb-class-leave", on_click=_leave)
    st.caption(f"{_KEPT} Leaving deletes nothing: this browser forgets who you are.")


@st.fragment(run_every=_SEEN_SECONDS)
def _is_there(found: Member) -> None:
    """Note that the page is open, so that the teacher sees who is there; see who has the floor."""
    before = st.session_state.get(_FLOOR)
    now = st.session_state[_FLOOR] = found.school.floor == found.room.id
    if before not in (None, now):
        st.rerun()
    try:
        found.school.register.seen(found.learner)
    except SQLAlchemyError:
        return


@guarded
def _join() -> None:
    found = school()
    if found is None:
        return
    given, name = (str(st.session_state.get(key) or "") for key in (_CODE, _NAME))
    try:
        joined = found.join(given, name, class_member.identity(), class_member.who())
    except (NameRefused, RegisterError) as error:
        st.session_state[_SAID] = str(error)
        return
    except SQLAlchemyError:
        st.session_state[_SAID] = UNREACHABLE
        return
    class_member.keep(joined.secret)
    state.say("sent", f"You are in the class as {joined.learner.name}.")


@guarded
def _come_back() -> None:
    found, secret = school(), str(st.session_state.get(_BACK) or "").strip()
    if found is None:
        return
    if found.register.learner_with(secret) is None:
        st.session_state[_SAID] = "Nobody has this personal code; ask your teacher for another one"
        return
    class_member.keep(secret)


@guarded
def _leave() -> None:
    class_member.keep(None)
