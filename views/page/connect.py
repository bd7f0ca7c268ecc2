"""How to reach this tab's engine over HTTP, to be opened in the header."""

from __future__ import annotations

import streamlit as st

from engine.async_llm import AsyncLLM
from engine.sessions import SHARED_KEY, registry
from views.page import class_floor
from views.page.class_member import Member
from views.page.snippets import base_url, curl_line, python_snippet
from views.page.words import code

_SHARED = "Without a key, requests go to the server's shared engine, which runs by itself."
_NOT_SHARED = "Without a key, this server takes no requests."


def connect(llm: AsyncLLM, key: str) -> None:
    """Draw what somebody needs to send requests to this tab's engine."""
    base = base_url(st.context.url, st.context.headers.get("Host"))
    model = llm.model.name
    if registry().directs(key):
        _of_the_class(base, model)
        return
    learner = class_floor.on_the_floor()
    if learner is not None:
        _to_the_class(learner, base, model)
    st.markdown(
        "Requests sent with this key go to **this tab's engine** and appear on its map. While the "
        "engine is paused they wait there until you press Run, Step or Phase."
    )
    _snippets(base, key, model)
    st.markdown(f"Address {code(f'{base}/v1')}, key {code(key)}, model {code(model)}")
    st.caption(
        "The key lives in this tab only and travels as the header Authorization: Bearer KEY. "
        "Whoever has it can use and watch this engine; closing the tab forgets it. "
        + (_SHARED if registry().shared_enabled else _NOT_SHARED)
    )


def _snippets(base: str, key: str, model: str) -> None:
    shell, python = st.tabs(["curl", "Python (openai)"])
    with shell:
        st.code(curl_line(base, key, model), language="bash", wrap_lines=True)
    with python:
        st.code(python_snippet(base, key, model), language="python", wrap_lines=True)
        st.caption("It needs the package openai: `pip install openai`.")


def _of_the_class(base: str, model: str) -> None:
    """The tab that directs the class's engine stands in front of a room: its key is not shown."""
    st.warning(
        "This tab's key commands the class's engine: whoever had it could pause and reset it for "
        "all. So it is not shown here."
    )
    st.markdown(
        "Learners find a key of their own in *Connect* on their own pages: it sends under their "
        "name, and commands nothing. Without a name, while the engine is open to everybody:"
    )
    _snippets(base, SHARED_KEY, model)


def _to_the_class(learner: Member, base: str, model: str) -> None:
    key = learner.school.engine_key(learner.learner)
    with st.expander("To the class's engine"):
        st.markdown(
            "Requests sent with this key go to **the class's engine**, under your name, for "
            "everybody to watch."
        )
        st.code(python_snippet(base, key, model), language="python", wrap_lines=True)
        st.code(curl_line(base, key, model), language="bash", wrap_lines=True)
