"""The header: whose page this is, and what can be opened from it."""

from __future__ import annotations

import html

import streamlit as st

from engine.async_llm import AsyncLLM
from views.page import class_place, compare_place, lesson_sidebar
from views.page.connect import connect
from views.page.document_menu import back_button, document_menu
from views.page.documents import Shown
from views.page.settings_form import settings_form


def header(shown: Shown, llm: AsyncLLM | None, key: str | None) -> None:
    """Draw name and title, and the popovers for the engine, its address and the document."""
    with st.container(horizontal=True, vertical_alignment="center", key="gb-header"):
        st.html(_brand(shown))
        back_button(shown.opened)
        lesson_sidebar.button()
        class_place.button()
        compare_place.button(llm)
        icon = ":material/settings:"
        with st.popover("Engine", icon=icon, disabled=llm is None, key="gb-engine-menu"):
            if llm is not None:
                settings_form(llm)
        with st.popover("Connect", icon=":material/lan:", disabled=llm is None or key is None):
            if llm is not None and key is not None:
                connect(llm, key)
        icon = ":material/schema:" if shown.refused is None else ":material/error:"
        with st.popover("Document", icon=icon, key="gb-document-menu"):
            document_menu(shown)


def _brand(shown: Shown) -> str:
    title = html.escape(shown.opened.result.title or "no document")
    return f'<div class="gb-brand"><h1>Glassbox</h1><p title="{title}"><bdi>{title}</bdi></p></div>'
