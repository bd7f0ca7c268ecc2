"""The header: whose page this is, and what can be opened from it."""

from __future__ import annotations

import html

import streamlit as st

from engine.async_llm import AsyncLLM
from views.architecture import LoadResult
from views.document.diagnostics import Diagnostic
from views.page.connect import connect
from views.page.settings_form import settings_form
from views.page.words import code, plain


def header(result: LoadResult, llm: AsyncLLM | None, key: str | None) -> None:
    """Draw name and title, and the popovers for the engine, its address and the document."""
    with st.container(horizontal=True, vertical_alignment="center", key="gb-header"):
        st.html(_brand(result))
        with st.popover("Engine", icon=":material/settings:", disabled=llm is None):
            if llm is not None:
                settings_form(llm)
        with st.popover("Connect", icon=":material/lan:", disabled=llm is None or key is None):
            if llm is not None and key is not None:
                connect(llm, key)
        with st.popover("Document", icon=":material/schema:"):
            _document(result)


def diagnostics(found: list[Diagnostic]) -> None:
    """Say each thing against the document: where it is, what is wrong, and how to mend it."""
    for item in found:
        draw = st.error if item.severity == "error" else st.warning
        subject = f" ({plain(item.subject)})" if item.subject else ""
        draw(
            f"{code(item.path)}{subject}: {plain(item.message)}  \n"
            f"**To mend it:** {plain(item.fix)}"
        )


def _brand(result: LoadResult) -> str:
    title = result.document.meta.title if result.document else "no document"
    return (
        f'<div class="gb-brand"><h1>Glassbox</h1>'
        f'<p title="{html.escape(title)}">{html.escape(title)}</p></div>'
    )


def _document(result: LoadResult) -> None:
    if result.document is None:
        st.markdown("There is no document to draw.")
        return
    meta = result.document.meta
    st.markdown(f"**{plain(meta.title)}**")
    if meta.subtitle:
        st.caption(plain(meta.subtitle))
    st.markdown(
        "`architecture.json` is the map: boxes, arrows, views. Edit it and reload the page."
    )
    errors = [item for item in result.diagnostics if item.severity == "error"]
    notes = [item for item in result.diagnostics if item.severity != "error"]
    st.markdown(_counted(len(errors), "error") + (":" if errors else "."))
    diagnostics(errors)
    if notes:
        with st.expander(f"{_counted(len(notes), 'note')} for the author of the document"):
            diagnostics(notes)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
