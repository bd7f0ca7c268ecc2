"""The page: header, composer, workspace. `app.py` runs this script for every visitor.

No box of the map: it is what the map is shown on. Everything live in the workspace comes over the
event stream; this script only hands requests and settings to the front end (`engine.async_llm`).
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from engine.async_llm import AsyncLLM
from views.page import (
    address,
    compare_place,
    documents,
    lesson_sidebar,
    state,
    teacher_page,
    wishes,
)
from views.page.composer import composer
from views.page.document_menu import diagnostics
from views.page.documents import Opened, Shown
from views.page.guard import failed
from views.page.header import header
from views.page.tab_engine import find_engine, model_status
from views.page.tour import tour
from views.page.workspace import workspace

_CSS = Path(__file__).parents[1] / "assets" / "shell.css"


def main() -> None:
    """Draw the page from top to bottom."""
    if teacher_page.is_asked_for():
        teacher_page.page()
        st.html(_CSS)
        return
    address.read()
    wishes.begin()
    address.arrive(state.told("arrived"))
    wishes.fulfil(state.told("wishes"))
    st.set_page_config(
        page_title="Glassbox",
        page_icon="🔎",
        layout="wide",
        initial_sidebar_state=lesson_sidebar.sidebar_state(),
    )
    st.html(_CSS)
    shown = documents.shown()
    address.write(shown.opened)
    key = state.session_key()
    found = find_engine(key)
    _name_document(found.llm, shown)
    header(shown, found.llm, key)
    if shown.opened.page is None:
        _no_document(shown.opened)
        return
    page = shown.opened.page
    labels = {box["id"]: box["label"] for box in page["components"]}
    lesson = lesson_sidebar.sidebar(found.llm, labels)
    composer(found)
    model_status(found, key)
    compare_place.place(found.llm, key)
    workspace(shown, state.last_sent(), lesson, tour(labels))
    state.sending().page_is_drawn()


def _name_document(llm: AsyncLLM | None, shown: Shown) -> None:
    """Have the tab's log say which map it is looked at with."""
    title = shown.opened.result.title
    if llm is not None and llm.document != title:
        llm.name_document(title)


def _no_document(opened: Opened) -> None:
    st.subheader("The map cannot be drawn")
    st.text(f"{opened.name} has errors. Mend them and reload the page.")
    diagnostics(opened.result.diagnostics)


try:
    main()
except Exception:
    failed("the page")
