"""The place to compare: one workload on two fresh engines with one setting changed.

What is to run, how far it is and what it found stands above the map, on which either log can be
opened. The runs are the server's (`engine/comparison/`); the tab's engine goes on untouched.
"""

from __future__ import annotations

import streamlit as st

from engine.async_llm import AsyncLLM
from engine.sessions import registry
from views.page import compare_form
from views.page.compare_form import Named, form
from views.page.compare_outcome import outcome
from views.page.guard import guarded

_OPEN = "gb-compare-open"
_ABOUT = (
    "Two fresh engines run the same requests, one after the other, and differ in one setting. A "
    "request comes with the step number that it came with, so both are given the same however fast "
    "they are. Your own engine is not touched."
)
_NONE = (
    "Nothing has been compared yet. Run both, and both logs stand here on one clock with their "
    "first difference, then latencies, throughput, KV use and texts."
)


def is_open() -> bool:
    """Return whether this tab compares."""
    return bool(st.session_state.get(_OPEN))


def named() -> Named:
    """Return what a link to what is shown is to name."""
    return compare_form.named() if is_open() else Named()


def close() -> None:
    """Leave the place, as its own button does."""
    st.session_state[_OPEN] = False
    compare_form.forget_linked()


def open_linked(wanted: Named) -> list[str]:
    """Open the place with what a link names; return what of it there is not."""
    st.session_state[_OPEN] = True
    return compare_form.choose_linked(wanted)


def button(llm: AsyncLLM | None) -> None:
    """Draw the header's button, which opens and closes the place."""
    st.button(
        "Compare",
        icon=":material/compare_arrows:",
        key="gb-compare-toggle",
        on_click=_toggle,
        disabled=llm is None,
    )


@guarded
def _toggle() -> None:
    if is_open():
        close()
    else:
        st.session_state[_OPEN] = True
        compare_form.choose_last()


def place(llm: AsyncLLM | None, key: str | None) -> None:
    """Draw it, where it is open."""
    if not is_open() or llm is None or key is None:
        return
    with st.container(key="gb-compare", border=True):
        with st.container(horizontal=True, vertical_alignment="center", key="gb-compare-top"):
            st.header("Compare", anchor=False)
            st.button("Close", key="gb-compare-close", on_click=_toggle, icon=":material/close:")
        st.caption(_ABOUT)
        comparison = registry().comparisons.get(key)
        running = comparison is not None and comparison.stage == "running"
        form(llm, key, running)
        if comparison is not None:
            outcome(comparison)
        else:
            st.caption(_NONE)
