"""A change: knobs of a question, and the button that runs the engine under them."""

from __future__ import annotations

import threading

import streamlit as st

from engine.async_llm import AsyncLLM
from lessons.play import Asked, Player
from lessons.questions import ChangeQuestion, Knob
from views.page.guard import guarded
from views.page.lesson_desk import TROUBLES
from views.page.words import sentence


def fields(player: Player, asked: Asked, ask: str) -> None:
    """Draw the question and its knobs, as they stand."""
    question = asked.question
    assert isinstance(question, ChangeQuestion)
    st.markdown(ask)
    given = player.answers.get(asked.key)
    stand = given if isinstance(given, dict) else {}
    for name, knob in question.knobs.items():
        _knob(_key(player, asked, name), name, knob, stand.get(name, knob.start))


def _knob(key: str, name: str, knob: Knob, value: int | str) -> None:
    label = f"`{name}`"
    if knob.choose is not None:
        st.selectbox(label, knob.choose, knob.choose.index(value), key=key)
        return
    bounds = f"{knob.low} to {knob.high}"
    whole = value if isinstance(value, int) else knob.low
    st.number_input(f"{label} ({bounds})", knob.low, knob.high, whole, 1, key=key)


def button(player: Player, llm: AsyncLLM, asked: Asked, bringing: threading.Lock) -> None:
    """Draw what runs the engine under them; `bringing` is held meanwhile."""
    st.caption(_begins(asked))
    st.form_submit_button(
        "Run with these",
        icon=":material/play_arrow:",
        on_click=_run,
        args=(player, llm, asked, bringing),
    )


def _begins(asked: Asked) -> str:
    assert isinstance(asked.question, ChangeQuestion)
    if asked.question.run.restore is not None:
        return "Each try brings your engine back to the saved moment and goes on from there."
    return "Each try resets your engine and runs the same requests again."


def trouble(player: Player, asked: Asked) -> str:
    """Return why the engine did not run the last try, if it did not."""
    return str(st.session_state.get(_key(player, asked, "trouble"), ""))


@guarded
def _run(player: Player, llm: AsyncLLM, asked: Asked, bringing: threading.Lock) -> None:
    """Run. The reset has the browser ask for another page, which is drawn in another thread.

    What that one draws stays, so it has to wait here, or it would be drawn without the verdict.
    """
    question = asked.question
    assert isinstance(question, ChangeQuestion)
    knobs = {
        name: st.session_state.get(_key(player, asked, name), knob.start)
        for name, knob in question.knobs.items()
    }
    said = ""
    try:
        with bringing:
            player.try_out(llm, asked, knobs)
    except TROUBLES as error:
        said = sentence(str(error))
    st.session_state[_key(player, asked, "trouble")] = said


def _key(player: Player, asked: Asked, name: str) -> str:
    step, question = asked.key
    return f"gb-knob-{player.lesson.id}-{player.seed}-{step}-{question}-{name}"
