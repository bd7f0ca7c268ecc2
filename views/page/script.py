"""The page: header, composer, workspace. `app.py` runs this script for every visitor.

No box of the map: it is what the map is shown on. Everything live in the workspace comes over the
event stream; this script only hands requests and settings to the front end (`engine.async_llm`).
"""

from __future__ import annotations

import logging
from pathlib import Path

import streamlit as st

from views.architecture import DEFAULT_DOCUMENT, LoadResult, last_changed, load_document
from views.page import state
from views.page.composer import composer
from views.page.guard import FAILED
from views.page.header import diagnostics, header
from views.page.tab_engine import find_engine, model_status
from views.page.workspace import workspace

_CSS = Path(__file__).parents[1] / "assets" / "shell.css"


def main() -> None:
    """Draw the page from top to bottom."""
    st.set_page_config(page_title="Glassbox", page_icon="🔎", layout="wide")
    st.html(_CSS)
    result = _document(last_changed(DEFAULT_DOCUMENT))
    key = state.session_key()
    found = find_engine(key)
    header(result, found.llm, key)
    if result.document is None:
        _no_document(result)
        return
    composer(found.llm)
    model_status(found, key)
    workspace(result.to_page(), state.last_sent())


@st.cache_resource(max_entries=1, show_spinner=False)
def _document(changed: tuple[int, ...]) -> LoadResult:
    """Load the document again whenever it or its sources have changed."""
    return load_document(DEFAULT_DOCUMENT)


def _no_document(result: LoadResult) -> None:
    st.subheader("The map cannot be drawn")
    st.markdown(f"`{DEFAULT_DOCUMENT.name}` has errors. Mend them and reload the page.")
    diagnostics(result.diagnostics)


try:
    main()
except Exception:
    logging.getLogger("glassbox").exception("the page failed")
    st.error(FAILED)
