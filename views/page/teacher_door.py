"""The teacher's door: it asks for the secret, and a tab that knows it has a pass until that ends.

Whatever is drawn or done for a teacher looks at the pass again: each button, and each part of the
page that is looked up anew while it stands there.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from engine.async_llm import EngineError
from lessons.classroom.names import NameRefused
from lessons.classroom.register import RegisterError
from lessons.classroom.school import SECRET_SETTING, school
from views.page import class_member
from views.page.bootstrap import bootstrap
from views.page.kept_secret import KeptSecret
from views.page.words import code, plain, sentence

P = ParamSpec("P")
_KEPT = "gb-teacher-kept"
_SAID = "gb-teacher-said"
_SECRET = "gb-teacher-secret"
ENDED = "the teacher's pass has ended: write the secret again"
_log = logging.getLogger("glassbox")
_pass = KeptSecret("gb-teacher-pass", lambda: getattr(st.session_state.get(_KEPT), "pass", None))


def keep_pass() -> None:
    """Have the browser keep this tab's pass, and tell it."""
    component = st.components.v2.component("teacher", js=bootstrap("page/teacher.js"))
    component(key=_KEPT, data=_pass.for_browser(), on_pass_change=_noted)


def _noted() -> None:
    """The run that follows reads the pass."""


def shown() -> str:
    """Return the pass that this tab shows, good or not; "" for none."""
    return _pass.now() or ""


def is_in() -> bool:
    """Return whether this tab has a good pass."""
    found = school()
    return found is not None and found.passes.is_good(shown())


def door() -> None:
    """Ask for the secret, once the browser has told that it keeps no good pass."""
    if _pass.told() is None:
        return
    if shown():
        st.info(plain(sentence(ENDED)))
    with st.form("gb-teacher-door"):
        st.text_input("The teacher's secret", key=_SECRET, type="password", max_chars=1000)
        st.form_submit_button("Open", type="primary", on_click=_enter)
    st.caption(f"Whoever started the server set it: {code(SECRET_SETTING)}.")


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


def leave() -> None:
    """End this tab's pass, and what was given with it."""
    found = school()
    if found is not None:
        found.passes.take_back(shown())
    _pass.keep(None)
    st.session_state.pop(_SECRET, None)


def say_trouble() -> None:
    """Say what went wrong with the last click, once."""
    said = st.session_state.pop(_SAID, "")
    if said:
        st.error(plain(sentence(said)))


def for_teacher(act: Callable[..., None], *args: object) -> None:
    """Do what a button does, if this tab has a good pass; say what goes wrong."""
    if not is_in():
        return
    try:
        act(*args)
    except (EngineError, NameRefused, RegisterError) as error:
        st.session_state[_SAID] = str(error)
    except SQLAlchemyError:
        _log.exception("the register cannot be reached")
        st.session_state[_SAID] = class_member.UNREACHABLE


def looked_up_every(seconds: float) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Have a part of the page drawn anew so often, and the door in its place after the pass ended.

    (Streamlit draws such a part alone, so nothing that stands around it is asked then.)
    """

    def wrap(draw: Callable[P, None]) -> Callable[P, None]:
        @st.fragment(run_every=seconds)
        @functools.wraps(draw)
        def again(*args: P.args, **kwargs: P.kwargs) -> None:
            if is_in():
                draw(*args, **kwargs)
            else:
                st.rerun()

        return again

    return wrap
