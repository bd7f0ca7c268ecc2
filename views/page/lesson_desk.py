"""What this tab has open of the lessons: nothing, the list, or one that is being played."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypedDict

import streamlit as st

from engine.async_llm import EngineError
from engine.config import ConfigError
from engine.input_processor import RequestRefusedError
from lessons.expressions import ExpressionError
from lessons.kept import Judged
from lessons.play import Player
from lessons.probes import ProbeError
from lessons.stage import StageError
from views.page import documents
from views.page.guard import guarded

_DESK = "gb-lessons-desk"
TROUBLES = (  # for which an engine does not come where a lesson wants it
    ConfigError,
    EngineError,
    ExpressionError,
    ProbeError,
    RequestRefusedError,
    StageError,
)


class LessonShown(TypedDict):
    """What a step has the workspace show; it is applied once, when anything of it changes."""

    turn: int
    view: str | None
    component: str | None
    request: str | None
    block: int | None
    trace_id: str | None
    seq: int | None
    claim: int | None
    marks: bool  # a moment at the cursor can be an answer
    picks: bool  # a box that is clicked on the map is an answer


@dataclass
class Desk:
    """What this tab has open, and where its learner is."""

    is_open: bool = False
    player: Player | None = None
    left: dict[str, Player] = field(default_factory=dict)  # by lesson, to go on with
    turn: int = 0  # grows when the workspace is to show the step again
    again: bool = False  # the engine is to be brought back to where the step wants it
    trouble: str = ""  # why the engine did not come there
    offered: str | None = None  # the lesson that a link names, which is first in the list
    offered_step: int | None = None  # of it, from 1
    learner: str = ""  # a name from which the numbers are drawn; else chance draws them
    turns: dict[str, int] = field(default_factory=dict)  # beginnings of a learner, by lesson
    on_judged: Callable[[Player, Judged], None] | None = None  # is told of every answer, once
    bringing: threading.Lock = field(default_factory=threading.Lock)  # held while it is brought


def desk() -> Desk:
    """Return what this tab has open."""
    found = st.session_state.get(_DESK)
    if not isinstance(found, Desk):
        found = st.session_state[_DESK] = Desk()
    return found


@guarded
def leave() -> None:
    """Leave the lesson that is being played; it can be gone on with."""
    now = desk()
    if now.player is not None:
        now.left[now.player.lesson.id] = now.player
    now.player, now.trouble, now.offered, now.offered_step = None, "", None, None


@guarded
def go(index: int) -> None:
    """Go to a step of it, and have the workspace show it."""
    now = desk()
    if now.player is not None:
        now.player.go_to(index)
        documents.show_map(now.player.shown_document)
    now.trouble = ""
    now.turn += 1
