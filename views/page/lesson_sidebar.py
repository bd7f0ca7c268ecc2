"""Lessons in the sidebar: what this tab has open, and what it has the workspace show.

A lesson is played by `lessons.play`; here it is drawn, and the learner's clicks are passed on. It
uses this tab's own engine, and says beforehand when that will be reset.
"""

from __future__ import annotations

import secrets
from typing import Literal

import streamlit as st

from engine.async_llm import AsyncLLM
from lessons.format import Lesson
from lessons.pack import seed_for
from lessons.play import Player
from lessons.variants import SEEDS
from views.page import class_desk, documents, lesson_catalogue, lesson_step
from views.page.guard import failed, guarded
from views.page.lesson_catalogue import readable
from views.page.lesson_desk import TROUBLES, Desk, LessonShown, desk, go, leave
from views.page.lookup import Lit
from views.page.words import plain, sentence


def sidebar_state() -> Literal["expanded", "collapsed"]:
    """Return whether the sidebar is there; on a phone it opens over the page."""
    return "expanded" if desk().is_open else "collapsed"


def button() -> None:
    """Draw the header's button, which opens and closes the sidebar."""
    st.button("Lessons", icon=":material/school:", key="gb-lessons", on_click=_toggle)


def sidebar(llm: AsyncLLM | None, labels: dict[str, str]) -> LessonShown | None:
    """Draw the sidebar where it is open, and return what the workspace is to show."""
    now = desk()
    class_desk.attach(now, readable)
    if not now.is_open:
        return None
    with st.sidebar:
        try:
            if now.player is not None:
                return _play(now, now.player, llm, labels)
            _top("Lessons", "Close", _toggle)
            return _lit(now, lesson_catalogue.draw(now, llm, _start, _go_on))
        except Exception:  # a lesson must not take the page with it, nor keep anybody in it
            failed("the lessons")
    return None


# -- a lesson -----------------------------------------------------------------------------------


def _play(
    now: Desk, player: Player, llm: AsyncLLM | None, labels: dict[str, str]
) -> LessonShown | None:
    _top(player.lesson.title, "Leave", leave)
    place, steps = player.index + 1, len(player.lesson.steps)
    variant = f" · variant {player.seed}" if player.lesson.variant else ""
    st.progress(place / steps, text=f"Step {place} of {steps}{variant}")
    st.subheader(plain(player.step.title), anchor=False)
    if llm is None:
        st.info("Your engine is not ready yet. The lesson goes on when it is.")
        return None
    _bring(now, player, llm)
    now.player = player = class_desk.keep(player)  # before anything is said of an answer
    class_desk.say_trouble()
    if now.trouble:
        _trouble(now, player)
        return None
    try:
        lesson_step.draw(player, llm, labels, now.bringing)
        shown = _shown(now, player)
        _navigation(player, llm)
        return shown
    except TROUBLES as error:
        now.trouble = sentence(str(error))
        _trouble(now, player)
        return None


def _bring(now: Desk, player: Player, llm: AsyncLLM) -> None:
    """Have the engine do what the step needs, once.

    A reset has the browser ask for another run while this one is here still, in a thread of its
    own: the two would step one engine, past where the step wants it. So the second one waits.
    """
    with now.bringing:
        if now.trouble or not (now.again or player.missing(llm)):
            return
        try:
            with st.spinner("Your engine is running…"):
                player.bring(llm, now.again)
                now.again = False  # not before: a run that is cut short leaves it to the next
        except TROUBLES as error:
            now.trouble, now.again = sentence(str(error)), False


def _trouble(now: Desk, player: Player) -> None:
    st.error(plain(now.trouble))
    with st.container(horizontal=True):
        st.button(
            "Back",
            key="gb-lesson-back",
            on_click=go,
            args=(player.index - 1,),
            disabled=player.index < 1,
        )
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
        if not (player.at_end or player.waits_for_predictions or player.waits):
            coming = lesson_step.announcement(player, llm)
            if coming:
                st.markdown(coming)
        _buttons(player)


def _buttons(player: Player) -> None:
    with st.container(horizontal=True, key="gb-lesson-nav"):
        st.button(
            "Back",
            key="gb-lesson-back",
            on_click=go,
            args=(player.index - 1,),
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
                on_click=go,
                args=(player.index + 1,),
                disabled=player.waits_for_predictions or player.waits,
            )


def _end(player: Player) -> None:
    if player.questions():
        st.success(standing(player), icon=":material/flag:")
    with st.container(horizontal=True):
        if player.lesson.variant:
            st.button(
                "Again with other numbers",
                key="gb-lesson-anew",
                on_click=_start,
                args=(player.lesson,),
            )
        st.button("All lessons", key="gb-lesson-all", on_click=leave)


def standing(player: Player) -> str:
    """What a lesson's end says of the answers: how many are right, worth what, and missing."""
    (right, every), (got, most) = player.score(), player.points()
    said = [f"You have {right} of {every} questions right."]
    if most:
        said.append(f"That gives {got} of {most} points.")
    if unanswered := every - len(player.judged):
        said.append(f"{unanswered} {'is' if unanswered == 1 else 'are'} still open.")
    return " ".join(said)


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
        "claim": step.claim,
        "marks": lesson_step.moment_question(player) is not None,
        "picks": lesson_step.box_question(player) is not None,
    }


def _lit(now: Desk, lit: Lit | None) -> LessonShown | None:
    """What is shown of something that was looked up."""
    if lit is None:
        return None
    return {
        "turn": now.turn + lit.turn,
        "view": None,
        "component": lit.box,
        "request": None,
        "block": None,
        "trace_id": None,
        "seq": None,
        "claim": lit.claim,
        "marks": False,
        "picks": False,
    }


def _top(title: str, close: str, on_close: object) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="gb-lesson-top"):
        st.markdown(f"**{plain(title)}**")
        st.button(close, key="gb-lesson-close", type="tertiary", on_click=on_close)  # type: ignore[arg-type]
        if desk().player is not None:  # `assets/page/tour.js` takes the click
            st.button("Present", key="gb-lesson-present", type="tertiary")


# -- clicks -------------------------------------------------------------------------------------


@guarded
def pick(box: str) -> None:
    """Take a box that was clicked on the map as what stands in the step's question."""
    player = desk().player
    asked = None if player is None else lesson_step.box_question(player)
    if player is not None and asked is not None:
        lesson_step.fill(player, asked, box)


@guarded
def mark(trace_id: str, seq: int) -> None:
    """Take a record of the step's log as what stands in its question for a moment."""
    player = desk().player
    asked = None if player is None else lesson_step.moment_question(player)
    if player is None or asked is None:
        return
    if trace_id == player.shown().trace_id:
        lesson_step.fill(player, asked, seq)


@guarded
def _toggle() -> None:
    desk().is_open = not desk().is_open


@guarded
def _start(lesson: Lesson, index: int = 0) -> None:
    player = Player(lesson, _seed(lesson))
    player.go_to(index)
    _open(player)


@guarded
def _go_on(player: Player) -> None:
    _open(player)


def _seed(lesson: Lesson) -> int:
    now = desk()
    if not now.learner:
        return secrets.randbelow(SEEDS) + 1
    turn = now.turns.get(lesson.id, 0)
    now.turns[lesson.id] = turn + 1
    return seed_for(now.learner, lesson.id, turn)


def _open(player: Player) -> None:
    now = desk()
    now.player, now.trouble, now.again = player, "", False
    player.on_judged = now.on_judged
    documents.show_map(player.shown_document)
    now.turn += 1


@guarded
def _show() -> None:
    now = desk()
    if now.player is not None:
        documents.show_map(now.player.shown_document)
    now.turn += 1


@guarded
def _again() -> None:
    now = desk()
    now.again, now.trouble = not now.trouble, ""
    now.turn += 1
