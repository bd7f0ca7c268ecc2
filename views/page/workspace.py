"""The workspace: tabs, map, inspector, transport and panels, one component for all of them.

Its JavaScript is a small bootstrap; the modules come from `/assets`, the document once as data, and
everything live through the event stream. It tells the page its session's key (`session`), and when
the engine began another log (`trace`). When `sent` grows, it shows the engine that the composer
sent to (`sent_to`): the tab's own, or the shared one, where requests from the source `mine` are
this learner's; when `lesson` changes, it shows what that names, and `tour` is what is presented of
it. `file` is the server's file of the document, None where there is none, and `written` when it
was; `named` says what the server shows of a place that a link can name, `refused` what is wrong
with a document that is not drawn, `heard` which of its wishes were fulfilled, and `session` the key
as the page knows it, for the browser to tell it again where Streamlit has lost it; `member` is what
the browser keeps of a class, and tells (`member`). Its one trigger says that the file was written
since (`changed`), as any run will find. What of a place the server has to show (`arrived`), and
what else it has to do (`wishes`), is state, which stands: a run that is cut short loses triggers.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from views.page import address, class_floor, class_member, state, wishes
from views.page.bootstrap import bootstrap
from views.page.documents import Shown
from views.page.lesson_desk import LessonShown
from views.page.state import WORKSPACE
from views.page.tour import Tour

DATA_VERSION = 1
_MOST_ERRORS = 20


def workspace(
    shown: Shown, sent: int, lesson: LessonShown | None, presented: Tour | None = None
) -> None:
    """Draw the workspace; `sent` grows with everything that is sent."""
    opened = shown.opened
    learner = class_floor.on_the_floor()
    file = None if opened.path is None else opened.name
    component = st.components.v2.component("workspace", js=bootstrap("workspace.js"))
    component(
        key=WORKSPACE,
        data={
            "document": opened.page,
            "file": file,
            "written": opened.written,
            "version": DATA_VERSION,
            "sent": sent,
            "sent_to": state.sent_to(),
            "mine": None if learner is None else class_floor.source_of(learner),
            "lesson": lesson,
            "tour": presented,
            "named": address.shown(opened),
            "refused": _refused(shown),
            "session": state.session_key(),
            "heard": wishes.heard(),
            "member": class_member.for_browser(),
        },
        on_session_change=_noted,
        on_member_change=_noted,
        on_trace_change=_noted,
        on_changed_change=_noted,
        on_arrived_change=_noted,
        on_wishes_change=_noted,
    )


def _refused(shown: Shown) -> dict[str, Any] | None:
    """What is wrong with the document that is not drawn: where, on which box, and what mends it."""
    refused, page = shown.refused, shown.opened.page
    if refused is None or page is None:
        return None
    boxes = {box["id"] for box in page["components"]}
    errors = [item for item in refused.diagnostics if item.severity == "error"]
    return {
        "name": refused.name,
        "is_shown": refused.name == shown.opened.name,  # it was drawn, before it was changed
        "count": len(errors),
        "errors": [
            {
                "path": item.path,
                "box": item.subject if item.subject in boxes else None,
                "text": f"{item.message} {item.fix}",
            }
            for item in errors[:_MOST_ERRORS]
        ],
    }


def _noted() -> None:
    """The run that follows reads what there is to read: the key, the place, wishes, the file."""
