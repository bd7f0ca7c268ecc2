"""The popover of the document: what is shown, what can be said against it, and how to open another.

Everything of a document goes into the page as escaped text, never as Markdown.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path

import streamlit as st

from views.architecture import DEFAULT_DOCUMENT, SHIPPED
from views.document.diagnostics import Diagnostic
from views.document.folder import documents_folder
from views.document.reading import MAX_BYTES
from views.page import documents
from views.page.documents import Opened, Shown
from views.page.guard import guarded

_GENERATION = "gb-document-generation"
_PATH = "gb-document-path"


def document_menu(shown: Shown) -> None:
    """Draw the popover's content."""
    _about(shown.opened)
    if shown.refused is not None:
        _refused(shown.refused.name, shown.refused.diagnostics)
    _open_another(shown.opened)
    notes = [item for item in shown.opened.result.diagnostics if item.severity != "error"]
    if notes:
        with st.expander(f"{_counted(len(notes), 'note')} for the author of the document"):
            diagnostics(notes)


def back_button(opened: Opened) -> None:
    """Draw the way back to the engine's own map, where another one is shown."""
    if not documents.is_own(opened):
        name = f"Back to {DEFAULT_DOCUMENT.name}"
        st.button(name, key="gb-document-home", icon=":material/undo:", on_click=_go_home)


def diagnostics(found: Iterable[Diagnostic]) -> None:
    """Say each thing against the document: where it is, what is wrong, and how to mend it."""
    items = "".join(_item(each) for each in found)
    st.html(f'<div class="gb-diagnostics" role="list">{items}</div>')


def _about(opened: Opened) -> None:
    document = opened.result.document
    if document is None:
        st.html("<p>There is no document to draw.</p>")
        return
    subtitle = (
        f"<p><bdi>{_text(document.meta.subtitle)}</bdi></p>" if document.meta.subtitle else ""
    )
    where = "uploaded by you, for this tab alone" if opened.path is None else "a file of the server"
    st.html(
        f'<div class="gb-document"><h4><bdi>{_text(document.meta.title)}</bdi></h4>{subtitle}'
        f"<p><code>{_text(opened.name)}</code>, {where}. {_live(opened)}</p></div>"
    )


def _live(opened: Opened) -> str:
    boxes = len(opened.result.bindings.components)
    of = len(opened.result.document.components) if opened.result.document else 0
    if not boxes:
        return "None of its boxes is a part of the engine: the map is static."
    if boxes == of:
        return "Every box is a part of the engine."
    return f"{boxes} of its {of} boxes are parts of the engine; the others are static."


def _refused(name: str, found: list[Diagnostic]) -> None:
    count = sum(1 for item in found if item.severity == "error")
    st.html(
        f'<p class="gb-refused" role="alert"><b><code>{_text(name)}</code> is not drawn</b>: '
        f"{_counted(count, 'error')}. The map stays as it is.</p>"
    )
    diagnostics(item for item in found if item.severity == "error")


def _open_another(opened: Opened) -> None:
    st.html('<h4 class="gb-document-open">Open another</h4>')
    for path in SHIPPED:
        if path != opened.path:
            title = documents.open_file(path, path.name).result.title
            key = f"gb-document-{path.stem}"
            st.button(title, key=key, icon=":material/map:", on_click=_shipped, args=(path,))
    st.file_uploader(
        f"Upload a document: JSON, at most {MAX_BYTES // 1_000_000} MB",
        type="json",
        key=_upload_key(),
        max_upload_size=MAX_BYTES // 1_000_000,
        on_change=_uploaded,
    )
    with (
        st.form("document", border=False),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        st.text_input(
            "Or name a file in the server's folder of documents",
            key=_PATH,
            placeholder="docs/system.json",
        )
        st.form_submit_button("Open", key="gb-document-open", on_click=_path_typed)
    st.html(
        f'<p class="gb-document-folder">Paths count from the folder '
        f"<code>{_text(documents_folder().name)}</code>. Nobody else's page changes.</p>"
    )


def _upload_key() -> str:
    return f"gb-document-upload-{st.session_state.get(_GENERATION, 0)}"


@guarded
def _uploaded() -> None:
    file = st.session_state.get(_upload_key())
    if file is None:
        return
    st.session_state[_GENERATION] = st.session_state.get(_GENERATION, 0) + 1  # an empty field
    documents.open_upload(file.name, file.getvalue())


@guarded
def _path_typed() -> None:
    documents.open_path(st.session_state.get(_PATH) or "")


@guarded
def _shipped(path: Path) -> None:
    documents.open_shipped(path)


@guarded
def _go_home() -> None:
    documents.go_home()


def _item(item: Diagnostic) -> str:
    subject = f" <bdi>{_text(item.subject)}</bdi>" if item.subject else ""
    return (
        f'<div role="listitem" data-severity="{item.severity}"><b>{item.severity}</b> '
        f"<code>{item.code}</code> "
        f"<code>{_text(item.path)}</code>{subject}<br><bdi>{_text(item.message)}</bdi><br>"
        f"<b>To mend it:</b> <bdi>{_text(item.fix)}</bdi></div>"
    )


def _text(text: str) -> str:
    return html.escape(text)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
