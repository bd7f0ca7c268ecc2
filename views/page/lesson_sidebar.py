"""Lessons in the sidebar: what this tab has open, and what it has the workspace show.

A lesson is played by `lessons.play`; here it is drawn, and the learner's clicks are passed on. It
uses this tab's own engine, and says beforehand when that will be reset.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

import streamlit as st

from engine.async_llm import AsyncLLM, EngineError
from engine.config import ConfigError
from engine.input_processor import RequestRefusedError
from lessons.expressions import ExpressionError
from lessons.format import Lesson
from lessons.loader import LessonError, lesson_files, load_each
from lessons.play import Player
from lessons.probes import ProbeError
from lessons.stage import StageError
from views.page import documents, lesson_step
from views.page.guard import FAILED, guarded
from views.page.words import plain, sentence

_log = logging.getLogger("glassbox")
_DESK = "gb-lessons-desk"
_TROUBLES = (
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
    picks: bool  # a box that is clicked on the map is an answer


@dataclass
class Desk:
    """What this tab has open: nothing, the list, or a lesson that is being played."""

    is_open: bool = False
    player: Player | None = None
    left: dict[str, Player] = field(default_factory=dict)  # by lesson, to go on with
    turn: int = 0  # grows when the workspace is to show the step again
    again: bool = False  # the engine is to be brought back to where the step wants it
    trouble: str = ""  # why the engine did not come there


def desk() -> Desk:
    """Return what this tab has open."""
    found = st.session_state.get(_DESK)
    if not isinstance(found, Desk):
        found = st.session_state[_DESK] = Desk()
    return found


def sidebar_state() -> Literal["expanded", "collapsed"]:
    """Return whether the sidebar is there; on a phone it opens over the page."""
    return "expanded" if desk().is_open else "collapsed"


def button() -> None:
    """Draw the header's button, which opens and closes the sidebar."""
    st.button("Lessons", icon=":material/school:", key="gb-lessons", on_click=_toggle)


def sidebar(llm: AsyncLLM | None, labels: dict[str, str]) -> LessonShown | None:
    """Draw the sidebar where it is open, and return what the workspace is to show."""
    now = desk()
    if not now.is_open:
        return None
    with st.sidebar:
        try:
            if now.player is not None:
                return _play(now, now.player, llm, labels)
            _catalogue()
        except Exception:  # a lesson must not take the page with it, nor keep anybody in it
            _log.exception("the lessons failed")
            st.error(FAILED)
    return None


# -- the list -----------------------------------------------------------------------------------


def _catalogue() -> None:
    _top("Lessons", "Close", _toggle)
    st.markdown("A tour explains; in a lab you predict what the engine will do, and see.")
    for path in lesson_files():
        found, errors = _read(path, path.stat().st_mtime_ns)
        for lesson in found:
            _offer(lesson)
        for problem in (problem for error in errors for problem in error.problems):
            st.error(plain(f"{problem.file.name}, line {problem.line}: {problem.message}"))


def _offer(lesson: Lesson) -> None:
    left = desk().left.get(lesson.id)
    with st.container(border=True, key=f"gb-lesson-{lesson.id}"):
        st.markdown(f"**{plain(lesson.title)}**")
        st.markdown(plain(lesson.summary))
        st.caption(f"{lesson.kind.capitalize()}, about {lesson.minutes} minutes")
        with st.container(horizontal=True):
            st.button("Start", key=f"gb-start-{lesson.id}", on_click=_start, args=(lesson,))
            if left is not None:
                label = f"Go on at step {left.index + 1}"
                st.button(label, key=f"gb-go-on-{lesson.id}", on_click=_go_on, args=(left,))


@st.cache_resource(max_entries=200, show_spinner=False)
def _read(path: Path, changed: int) -> tuple[list[Lesson], list[LessonError]]:
    """Read a file again whenever it has changed."""
    return load_each([path])


# -- a lesson -----------------------------------------------------------------------------------


def _play(
    now: Desk, player: Player, llm: AsyncLLM | None, labels: dict[str, str]
) -> LessonShown | None:
    _top(player.lesson.title, "Leave", _leave)
    place, steps = player.index + 1, len(player.lesson.steps)
    variant = f" · variant {player.seed}" if player.lesson.variant else ""
    st.progress(place / steps, text=f"Step {place} of {steps}{variant}")
    st.subheader(plain(player.step.title), anchor=False)
    if llm is None:
        st.info("Your engine is not ready yet. The lesson goes on when it is.")
        return None
    _bring(now, player, llm)
    if now.trouble:
        _trouble(now, player)
        return None
    try:
        lesson_step.draw(player, labels)
        shown = _shown(now, player)
        _navigation(player, llm)
        return shown
    except _TROUBLES as error:
        now.trouble = sentence(str(error))
        _trouble(now, player)
        return None


def _bring(now: Desk, player: Player, llm: AsyncLLM) -> None:
    """Have the engine do what the step needs, once."""
    again, now.again = now.again, False
    if now.trouble or not (again or player.missing(llm)):
        return
    try:
        with st.spinner("Your engine is running…"):
            player.bring(llm, again)
    except _TROUBLES as error:
        now.trouble = sentence(str(error))


def _trouble(now: Desk, player: Player) -> None:
    st.error(plain(now.trouble))
    with st.container(horizontal=True):
        st.button("Back", key="gb-lesson-back", on_click=_go, args=(-1,), disabled=player.index < 1)
        st.button("Try again", key="gb-lesson-retry", on_click=_again)


def _navigation(player: Player, llm: AsyncLLM) -> None:
    if player.away(llm):
        st.info(
            "Your engine was reset since, so the map shows another log. The numbers above are "
            "those of the run before.",
            icon=":material/history:",
        )
        st.button(
            "Reset it and bring it back here",
            key="gb-lesson-again",
            on_click=_again,
            icon=":material/restart_alt:",
        )
    if player.at_end:
        _end(player)
    with st.container(key="gb-lesson-foot"):
        if not player.at_end and not player.waits_for_predictions:
            coming = lesson_step.announcement(player, llm)
            if coming:
                st.markdown(coming)
        _buttons(player)


def _buttons(player: Player) -> None:
    with st.container(horizontal=True, key="gb-lesson-nav"):
        st.button(
            "Back",
            key="gb-lesson-back",
            on_click=_go,
            args=(-1,),
            disabled=player.index == 0,
        )
        st.button(
            "Show me",
            key="gb-lesson-show",
            help="Show the view, the box and the moment of this step again.",
            on_click=_show,
        )
        if not player.at_end:
            st.button(
                "Next",
                key="gb-lesson-next",
                type="primary",
                on_click=_go,
                args=(1,),
                disabled=player.waits_for_predictions,
            )


def _end(player: Player) -> None:
    right, every = player.score()
    if every:
        st.success(f"You have {right} of {every} questions right.", icon=":material/flag:")
    with st.container(horizontal=True):
        if player.lesson.variant:
            st.button(
                "Again with other numbers",
                key="gb-lesson-anew",
                on_click=_start,
                args=(player.lesson,),
            )
        st.button("All lessons", key="gb-lesson-all", on_click=_leave)


def _shown(now: Desk, player: Player) -> LessonShown:
    step = player.shown()
    return {
        "turn": now.turn,
        "view": step.view,
        "component": step.box,
        "request": step.request,
        "block": step.block,
        "trace_id": step.trace_id,
        "seq": step.seq,
        "picks": lesson_step.box_question(player) is not None,
    }


def _top(title: str, close: str, on_close: object) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="gb-lesson-top"):
        st.markdown(f"**{plain(title)}**")
        st.button(close, key="gb-lesson-close", type="tertiary", on_click=on_close)  # type: ignore[arg-type]


# -- clicks -------------------------------------------------------------------------------------


@guarded
def pick(box: str) -> None:
    """Take a box that was clicked on the map as what stands in the step's question."""
    player = desk().player
    asked = None if player is None else lesson_step.box_question(player)
    if player is not None and asked is not None:
        lesson_step.fill(player, asked, box)


@guarded
def _toggle() -> None:
    desk().is_open = not desk().is_open


@guarded
def _start(lesson: Lesson) -> None:
    _open(Player(lesson, seed=secrets.randbelow(9_999) + 1))


@guarded
def _go_on(player: Player) -> None:
    _open(player)


def _open(player: Player) -> None:
    if not documents.is_own(documents.shown().opened):
        documents.go_home()  # a lesson speaks of the engine's own map
    now = desk()
    now.player, now.trouble, now.again = player, "", False
    now.turn += 1


@guarded
def _leave() -> None:
    now = desk()
    if now.player is not None:
        now.left[now.player.lesson.id] = now.player
    now.player, now.trouble = None, ""


@guarded
def _go(by: int) -> None:
    now = desk()
    if now.player is not None:
        now.player.index = min(max(now.player.index + by, 0), len(now.player.lesson.steps) - 1)
    now.trouble = ""
    now.turn += 1


@guarded
def _show() -> None:
    desk().turn += 1


@guarded
def _again() -> None:
    now = desk()
    now.again, now.trouble = not now.trouble, ""
    now.turn += 1
