"""A step that waits: the learner brings the engine to a moment, in whatever way, or has it done."""

from __future__ import annotations

import streamlit as st

from engine.async_llm import AsyncLLM, EngineError
from lessons.play import Player
from lessons.probes import ProbeError
from lessons.runs import Until
from lessons.stage import StageError
from views.page.guard import guarded
from views.page.words import plain, sentence

_EVERY_SECONDS = 1.0
_TROUBLE = "gb-lesson-wait-trouble"


def draw(player: Player, llm: AsyncLLM) -> None:
    """Draw what is waited for, and the button that does it for the learner."""
    run = player.step.run
    assert run is not None and run.wait is not None
    st.info(
        f"**Step the engine yourself**, {described(run.wait)}: with *Step* or *Run* below the "
        "map. The lesson goes on by itself when it is there.",
        icon=":material/footprint:",
    )
    st.button("Do it for me", key="gb-lesson-do", on_click=_do, args=(player, llm))
    trouble = st.session_state.pop(_TROUBLE, "")
    if trouble:
        st.error(plain(trouble))
    _look(player, llm)


def described(until: Until) -> str:
    """Return where an engine is to come to, in words."""
    if until.phase:
        return f"to the end of its phase {until.phase}"
    of = f" of {until.request}" if until.request else ""
    return f"until this event{of}: {str(until.event).replace('_', ' ')}"


@st.fragment(run_every=_EVERY_SECONDS)
def _look(player: Player, llm: AsyncLLM) -> None:
    """Look whether the engine has come there."""
    if not player.waits or player.look(llm):
        st.rerun()


@guarded
def _do(player: Player, llm: AsyncLLM) -> None:
    try:
        player.look(llm, run_there=True)
    except (StageError, EngineError, ProbeError) as error:
        st.session_state[_TROUBLE] = sentence(str(error))
