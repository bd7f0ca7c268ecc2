"""The class's engine, as a learner's tab reaches it: whether it may, by which name, with which key.

It is the server's shared engine. A teacher gives one class the floor; its learners then send
requests into it under their names, from the composer or with a key, and everybody watches one map.
"""

from __future__ import annotations

import streamlit as st

from engine.async_llm import EngineError
from engine.audience import NAMED
from engine.background_model import ModelNotReady
from engine.config import ConfigError
from engine.sessions import registry
from views.page import class_member
from views.page.class_member import Member
from views.page.tab_engine import Found

_TO = "gb-send-to"
_LABELS = {"own": "Mine", "class": "Class"}


def on_the_floor() -> Member | None:
    """Return this tab's learner where their class has the floor."""
    found = class_member.member()
    if found is None or not registry().shared_enabled or found.school.floor != found.room.id:
        return None
    return found


def choice() -> None:
    """Draw where the composer sends, where there are two places."""
    if on_the_floor() is not None:
        st.segmented_control(
            "Send to",
            list(_LABELS),
            default="own",
            key=_TO,
            required=True,
            format_func=_LABELS.__getitem__,
            label_visibility="collapsed",
        )


def sender() -> Member | None:
    """Return this tab's learner where the composer is to send to the class's engine."""
    return on_the_floor() if st.session_state.get(_TO) == "class" else None


def source_of(member: Member) -> str:
    """Return what the log has as the source of the learner's requests."""
    return f"{NAMED}{member.learner.name}"


def engine() -> Found:
    """Return the class's engine, or why there is none."""
    try:
        return Found(llm=registry().shared())
    except (ModelNotReady, EngineError, ConfigError) as error:
        return Found(trouble=str(error))
