"""Which document a visitor looks at: the server's first one, or one that he opened for himself.

What somebody opens is in his browser session alone. A document with errors never takes the place
of the map that is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import streamlit as st

from views.architecture import (
    DEFAULT_DOCUMENT,
    SHIPPED,
    LoadResult,
    last_changed,
    load_document,
    start_document,
)
from views.document.diagnostics import Diagnostic
from views.document.drawing import PageDocument
from views.document.folder import documents_folder, find
from views.page import uploads

_CHOSEN = "gb-document"
_REFUSED = "gb-document-refused"
_LAST = "gb-document-last"


class Opened(NamedTuple):
    """A document as a page shows it; `path` is None where it was uploaded."""

    name: str
    path: Path | None
    result: LoadResult
    page: PageDocument | None  # None where it has errors
    written: str  # when its file was, "" where there is none
    address: str  # what a link calls it


class Refused(NamedTuple):
    """A document that was not drawn, and why."""

    name: str
    diagnostics: list[Diagnostic]


class Shown(NamedTuple):
    """What a visitor sees, and what he does not see because of its errors."""

    opened: Opened
    refused: Refused | None


def shown() -> Shown:
    """Return what this visitor looks at; a file that was spoilt since leaves the last good map."""
    chosen = st.session_state.get(_CHOSEN)
    refused = st.session_state.get(_REFUSED)
    path, name = start_document(), start_document().name
    if isinstance(chosen, Opened):
        if chosen.path is None:
            return Shown(chosen, refused)
        path, name = chosen.path, chosen.name
    now = open_file(path, name)
    last = st.session_state.get(_LAST)
    if now.page is None and isinstance(last, Opened) and last.path == path:
        return Shown(last, Refused(now.name, now.result.diagnostics))
    st.session_state[_LAST] = now
    return Shown(now, refused)


def is_own(opened: Opened) -> bool:
    """Say whether this is the engine's own map."""
    return opened.path == DEFAULT_DOCUMENT


def open_file(path: Path, name: str) -> Opened:
    """Load a file, or what was loaded of it unless it has changed since."""
    return _loaded(path, name, written(path))


def written(path: Path) -> str:
    """Return when a document's files were written last."""
    return " ".join(str(time) for time in last_changed(path))


def path_of(name: str) -> Path | None:
    """Return the server's file that an opened document of this name was read from."""
    for path in (start_document(), *SHIPPED):
        if path.name == name:
            return path
    found = find(documents_folder(), name)
    return None if isinstance(found, Diagnostic) else found


def is_first(opened: Opened) -> bool:
    """Say whether this is what a visitor sees who opens nothing."""
    return opened.path == start_document()


def open_address(address: str) -> bool:
    """Show what a link calls a document; return whether it is shown."""
    upload = uploads.find(address)
    path = path_of(address) if upload is None else None
    if upload is not None:
        open_upload(*upload)
    elif path is not None:
        _choose(open_file(path, address))
    else:
        open_path(address)
    return _REFUSED not in st.session_state


def open_upload(name: str, data: bytes) -> None:
    """Show an uploaded document, if it can be drawn."""
    result = load_document(data)
    address = uploads.hold(name, data) if result.ok else ""
    _choose(_opened(name, None, "", result, address))


def open_path(typed: str) -> None:
    """Show a document of the server's folder, if it is there and can be drawn."""
    typed = typed.strip()
    found = find(documents_folder(), typed)
    if isinstance(found, Diagnostic):
        st.session_state[_REFUSED] = Refused(typed, [found])
    else:
        _choose(open_file(found, typed))


def open_shipped(path: Path) -> None:
    """Show a document that comes with the project."""
    _choose(open_file(path, path.name))


def open_first() -> None:
    """Show what a visitor sees who opens nothing."""
    path = start_document()
    _choose(open_file(path, path.name))


def go_home() -> None:
    """Show the engine's own map again."""
    open_shipped(DEFAULT_DOCUMENT)


def show_map(name: str | None) -> None:
    """Show a document that comes with the project; None: the engine's own map."""
    opened = shown().opened
    if name is None and not is_own(opened):
        go_home()
    elif name is not None and name != opened.name:
        open_address(name)


def _choose(opened: Opened) -> None:
    if opened.page is None:
        st.session_state[_REFUSED] = Refused(opened.name, opened.result.diagnostics)
        return
    st.session_state.pop(_REFUSED, None)
    st.session_state[_CHOSEN] = opened


@st.cache_resource(max_entries=8, show_spinner=False)
def _loaded(path: Path, name: str, written: str) -> Opened:
    return _opened(name, path, written, load_document(path), name)


def _opened(name: str, path: Path | None, written: str, result: LoadResult, address: str) -> Opened:
    return Opened(name, path, result, result.to_page() if result.ok else None, written, address)
