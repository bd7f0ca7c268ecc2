"""Who this tab's learner is: known by a secret that the browser keeps and tells.

Joining and leaving are told to the browser with a growing number (`turn`); until it has told the
new secret back, what the tab did itself holds.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple, TypedDict

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from lessons.classroom.register import ClassInfo, LearnerInfo
from lessons.classroom.school import School, school
from views.page import state

_OWN = "gb-member"
_KNOWN = "gb-member-known"
_KNOWN_SECONDS = 1.0  # a run of the page asks a dozen times
_GONE = (
    "You are not in the class any more, or got another personal code. Ask your teacher, or join "
    "again under Class."
)
UNREACHABLE = "The class's register cannot be reached, so this is not kept. Try again in a while."


class Member(NamedTuple):
    """A learner, their class, and the register that both are in."""

    school: School
    room: ClassInfo
    learner: LearnerInfo
    secret: str


class ForBrowser(TypedDict):
    """What the browser is to keep, and what it has told."""

    turn: int
    secret: str | None
    known: str | None


def member() -> Member | None:
    """Return this tab's learner; None where nobody joined, or the server has no class."""
    found, secret = school(), _secret()
    if found is None or not secret:
        return None
    at, known = st.session_state.get(_KNOWN, (0.0, None))
    if known is not None and known.secret == secret and time.monotonic() - at < _KNOWN_SECONDS:
        return known  # type: ignore[no-any-return]
    try:
        learner = found.register.learner_with(secret)
        room = None if learner is None else found.register.class_of(learner.class_id)
    except SQLAlchemyError:
        state.say("error", UNREACHABLE)
        return None
    if learner is None or room is None:
        keep(None)
        state.say("error", _GONE)
        return None
    now = Member(found, room, learner, secret)
    st.session_state[_KNOWN] = (time.monotonic(), now)
    return now


def keep(secret: str | None) -> None:
    """Have the browser keep this secret, or none."""
    turn = max(int(time.time() * 1000), _own()["turn"] + 1)
    st.session_state[_OWN] = {"turn": turn, "secret": secret, "confirmed": False}


def for_browser() -> ForBrowser | None:
    """Return what the workspace is told; None where the server has no class."""
    if school() is None:
        return None
    own = _own()
    return {"turn": own["turn"], "secret": own["secret"], "known": _told()}


def who() -> str:
    """Return where this tab's visitor comes from, for what is counted by address."""
    return str(st.context.ip_address or "local")


def identity() -> str | None:
    """Return who a log-in says the visitor is; None without one."""
    user: Any = st.user
    if not getattr(user, "is_logged_in", False):
        return None
    issuer, subject = user.get("iss"), user.get("sub")
    return f"{issuer}|{subject}"[:300] if issuer and subject else None


def log_in_name() -> str:
    """Return the name that a log-in brings, or ""."""
    user: Any = st.user
    return str(user.get("name") or "") if getattr(user, "is_logged_in", False) else ""


def can_log_in() -> bool:
    """Return whether this server has a log-in and the visitor has not used it yet."""
    try:
        configured = "auth" in st.secrets
    except Exception:  # there is no file of secrets, or it cannot be read
        return False
    return configured and not getattr(st.user, "is_logged_in", False)


def _own() -> dict[str, Any]:
    found = st.session_state.get(_OWN)
    return found if isinstance(found, dict) else {"turn": 0, "secret": None, "confirmed": True}


def _told() -> str | None:
    told = state.told("member")
    return told[:200] if isinstance(told, str) else None


def _secret() -> str | None:
    own, told = _own(), _told()
    if not own["confirmed"]:
        if (told or None) != own["secret"]:
            return own["secret"]  # type: ignore[no-any-return]
        own["confirmed"] = True
    return told
