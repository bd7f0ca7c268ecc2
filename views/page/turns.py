"""What the browser has the server do, each time once, though a run of the script is cut short.

A trigger of a component is there for one run, and Streamlit cuts a run short wherever the next one
is wanted: what it had asked for is lost then, or half of it is. So the browser tells such things as
the component's state, which stands, each with a *turn* that grows. It has its turn until all of it
is done: a run that is cut short leaves it to the next one, so doing it twice must be as doing it
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import streamlit as st

_LAST = "gb-turn-"
_MOST = 1 << 50


def begin(kind: str) -> None:
    """Leave alone, in a new session, what the browser tells still of an earlier one."""
    st.session_state.setdefault(_LAST + kind, int(time.time() * 1000))


def last(kind: str) -> int:
    """Return the turn of what was done last."""
    found = st.session_state.get(_LAST + kind)
    return found if isinstance(found, int) else 0


def take(kind: str, told: Any, act: Callable[[dict[str, Any]], None]) -> None:
    """Do what was told, unless it is done: a mapping with its `turn`, or it is nothing."""
    turn = told.get("turn") if isinstance(told, dict) else None
    if not isinstance(turn, int) or min(turn, _MOST) <= last(kind):
        return
    act(told)
    st.session_state[_LAST + kind] = min(turn, _MOST)
