"""No traceback reaches the page: what a click sets off says in plain words that it failed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec

import streamlit as st

from views.page import state

P = ParamSpec("P")
FAILED = (
    "The page met an error of its own, and the server's log has the details. Your engine and its "
    "trace are as they were: try again, or reload the page."
)
_log = logging.getLogger("glassbox")


def failed(what: str) -> None:
    """Log an error of the page that is being handled, and say in its place that there was one.

    Not of a run that another one replaces: Streamlit begins that one while the old one goes on to
    where it can stop, and changes the session's state under it.
    """
    st.session_state.get("gb-failed")  # where it can stop, a replaced run ends
    _log.exception("%s failed", what)
    st.error(FAILED)


def guarded(function: Callable[P, None]) -> Callable[P, None]:
    """Wrap a callback: an error becomes the line below the composer, and is logged in full."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception:
            _log.exception("%s failed", function.__qualname__)
            state.say("error", FAILED)

    return call
