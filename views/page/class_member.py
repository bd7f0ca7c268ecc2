"""Who this tab's learner is: known by a secret that the browser keeps and tells."""

from __future__ import annotations

import hashlib
import time
from typing import Any, NamedTuple

import streamlit as st
from sqlalchemy.exc import SQLAlchemyError

from lessons.classroom.register import ClassInfo, LearnerInfo, Rule
from lessons.classroom.school import School, school
from views.page import state
from views.page.kept_secret import ForBrowser, KeptSecret

_secret = KeptSecret("gb-member", lambda: state.told("member"))
_KNOWN = "gb-member-known"
_LONGEST = 300  # of who a log-in says somebody is, as the register has it
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
    rules: dict[str, Rule]  # of lessons that are closed, or have a time when they are due


def member() -> Member | None:
    """Return this tab's learner; None where nobody joined, or the server has no class."""
    found, secret = school(), _secret.now()
    if found is None or not secret:
        return None
    at, known = st.session_state.get(_KNOWN, (0.0, None))
    if known is not None and known.secret == secret and time.monotonic() - at < _KNOWN_SECONDS:
        return known  # type: ignore[no-any-return]
    try:
        learner = found.register.learner_with(secret)
        room = None if learner is None else found.register.class_of(learner.class_id)
        rules = {} if room is None else found.register.rules(room.id)
    except SQLAlchemyError:
        state.say("error", UNREACHABLE)
        # Who was there stays: nobody leaves a lesson because the register is gone for a moment.
        return known if known is not None and known.secret == secret else None
    if learner is None or room is None:
        keep(None)
        state.say("error", _GONE)
        return None
    now = Member(found, room, learner, secret, rules)
    st.session_state[_KNOWN] = (time.monotonic(), now)
    return now


def keep(secret: str | None) -> None:
    """Have the browser keep this secret, or none."""
    _secret.keep(secret)


def for_browser() -> ForBrowser | None:
    """Return what the workspace is told; None where the server has no class."""
    return None if school() is None else _secret.for_browser()


def who() -> str:
    """Return where this tab's visitor comes from, for what is counted by address."""
    return str(st.context.ip_address or "local")


def identity() -> str | None:
    """Return who a log-in says the visitor is; None without one."""
    user: Any = st.user
    if not getattr(user, "is_logged_in", False):
        return None
    issuer, subject = user.get("iss"), user.get("sub")
    if not issuer or not subject:
        return None
    whole = f"{issuer}|{subject}"  # cut off, two people could be one
    return whole if len(whole) <= _LONGEST else hashlib.sha256(whole.encode()).hexdigest()


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
