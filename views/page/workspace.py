"""The workspace: tabs, map, inspector, transport and panels, one component for all of them.

Its JavaScript is a small bootstrap; the modules come from `/assets`, the document once as data,
and everything live through the event stream. It tells the page its session's key. When
`sent` grows, it shows the tab's own engine, which is where requests of the composer go; when
`lesson` changes, it shows what that names. Its triggers ask for the engine's own map (`home`), and
tell the box that was clicked for a lesson (`picked`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st

from views.document.drawing import PageDocument
from views.page import documents, lesson_sidebar
from views.page.lesson_sidebar import LessonShown
from views.page.state import WORKSPACE

_BOOTSTRAP = Path(__file__).parents[1] / "assets" / "bootstrap.js"
DATA_VERSION = 1


def workspace(document: PageDocument, sent: int, lesson: LessonShown | None) -> None:
    """Draw the workspace; `sent` grows with everything that is sent."""
    component = st.components.v2.component("workspace", js=_bootstrap())
    component(
        key=WORKSPACE,
        data={"document": document, "version": DATA_VERSION, "sent": sent, "lesson": lesson},
        on_session_change=_noted,
        on_home_change=documents.go_home,
        on_picked_change=_picked,
    )


@cache
def _bootstrap() -> str:
    # A one-line string with a slash would be taken for a path.
    return _BOOTSTRAP.read_text(encoding="utf-8") + "\n"


def _picked() -> None:
    """A box was clicked while a lesson asks for one."""
    box = getattr(st.session_state.get(WORKSPACE), "picked", None)
    if isinstance(box, str):
        lesson_sidebar.pick(box)


def _noted() -> None:
    """The key is in the session's state now, and the run that follows reads it there."""
