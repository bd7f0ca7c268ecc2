"""What the page's address names for the server: the document, the lesson, the comparison.

Document and lesson are in the query, which the server reads and writes. Everything else that a link
names is in its fragment, which the browser keeps to itself (`views/assets/page/address.js`); it
tells what of that the server has to show, and is told what it shows. No part of it is a key.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import streamlit as st

from views.page import compare_place, documents, lesson_address, state, turns, uploads
from views.page.compare_form import Named as Compared
from views.page.guard import guarded

DOCUMENT, LESSON = "document", "lesson"
_WRITTEN = "gb-address-written"
_PLACE = "place"
_PROBLEMS = "gb-address-problems"


class Named(NamedTuple):
    """What the query names; None where it does not."""

    document: str | None
    lesson: str | None


class Shown(TypedDict):
    """What of a place the server shows, as the workspace is told it."""

    turn: int  # of what it was told to show last
    problems: list[str]  # of that
    document: str | None
    lesson: str | None
    lesson_step: int | None  # from 1
    compare: str | None  # what is run
    setting: str | None  # that the engines differ in
    a: str | None
    b: str | None


def read() -> None:
    """Show what the address names, once in a browser session; what cannot be shown is said.

    Later the query may lag behind the page, so the browser tells by itself what its way back
    leads to (`arrive`).
    """
    if _WRITTEN in st.session_state:
        return
    asked = st.session_state[_WRITTEN] = _asked()
    turns.begin(_PLACE)
    troubles = [_read_document(asked.document), _read_lesson(asked.lesson)]
    said = " ".join(filter(None, troubles))
    if said:
        state.say("error", said)


def write(opened: documents.Opened) -> None:
    """Have the address name what is shown, where a reload would not show it by itself."""
    now, written = _now(opened), st.session_state[_WRITTEN]
    if now == written == _asked() or (_asked() != written and now != _asked()):
        return  # or the browser went back, and has not told yet where to
    st.session_state[_WRITTEN] = now
    if now != _asked():
        _write(now)


def _write(now: Named) -> None:
    """Set both at once: each setting is an entry of the browser's history."""
    named = {name: value for name, value in now._asdict().items() if value is not None}
    others = {k: v for k, v in st.query_params.to_dict().items() if k not in Named._fields}
    st.query_params.from_dict(others | named)


def shown(opened: documents.Opened) -> Shown:
    """Return what the workspace is told."""
    now = _now(opened)
    return {
        "turn": turns.last(_PLACE),
        "problems": st.session_state.get(_PROBLEMS, []),
        "document": now.document,
        "lesson": now.lesson,
        "lesson_step": lesson_address.named_step(),
        **compare_place.named()._asdict(),  # type: ignore[typeddict-item]
    }


def arrive(place: Any) -> None:
    """Show the server's part of the place that a link or the browser's way back led to last."""
    turns.take(_PLACE, place, _bring_about)


@guarded
def _bring_about(place: dict[str, Any]) -> None:
    """What it names is a stranger's: whatever is not there is said and left out."""
    exact = place.get("exact") is True
    problems = []
    if exact:
        problems += [_go_to_document(_text(place, DOCUMENT)), _go_to_lesson(_text(place, LESSON))]
    step = place.get("lesson_step")
    if isinstance(step, int):
        problems.append(lesson_address.go_to_step(step))
    source = _text(place, "compare")
    if source is not None:
        wanted = Compared(source, *(_text(place, k) for k in ("setting", "a", "b")))
        problems += compare_place.open_linked(wanted)
    elif exact:
        compare_place.close()
    st.session_state[_PROBLEMS] = [problem for problem in problems if problem]


def _text(place: dict[str, Any], name: str) -> str | None:
    value = place.get(name)
    return value[:300] if isinstance(value, str) else None


def _asked() -> Named:
    return Named(st.query_params.get(DOCUMENT), st.query_params.get(LESSON))


def _now(opened: documents.Opened) -> Named:
    lesson = lesson_address.named()
    return Named(None if documents.is_first(opened) else opened.address, lesson)


def _go_to_document(name: str | None) -> str:
    opened = documents.shown().opened
    if name == _now(opened).document:
        return ""
    if name is None:
        documents.open_first()
        return ""
    return _read_document(name)


def _go_to_lesson(name: str | None) -> str:
    """Come back to a lesson as far as the engine goes untouched: what was left is offered."""
    if name == lesson_address.named():
        return ""
    if name is None:
        lesson_address.put_aside()
        return ""
    return _read_lesson(name)


def _read_document(name: str | None) -> str:
    if name is None:
        return ""
    if documents.open_address(name):
        return ""
    shown = name if len(name) <= 60 else f"{name[:59]}…"
    if uploads.is_token(name):
        return (
            "The link's document was uploaded, and the server does not have it any more: upload it "
            "again. The first one is shown."
        )
    return (
        f"The link's document “{shown}” cannot be shown. The first one is; Document says what is "
        "wrong."
    )


def _read_lesson(name: str | None) -> str:
    if name is None or lesson_address.offer(name):
        return ""
    shown = name if len(name) <= 60 else f"{name[:59]}…"
    return f"There is no lesson “{shown}”, which the link names."
