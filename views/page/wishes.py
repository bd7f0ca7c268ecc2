"""What somebody does in the workspace that the server has to answer: a box, a document, the map.

They come in the order in which they were done, each with its turn (`views/page/turns.py`), and the
browser (`views/assets/page/wishes.js`) keeps them until it is told that they had it.
"""

from __future__ import annotations

from typing import Any

from views.page import documents, lesson_sidebar, turns
from views.page.guard import guarded

_KIND = "wishes"
_MOST = 50  # that wait at once
_MOST_NAME = 200


def begin() -> None:
    """Begin a browser's session."""
    turns.begin(_KIND)


def heard() -> int:
    """Return the turn of the wish that was fulfilled last."""
    return turns.last(_KIND)


def fulfil(told: Any) -> None:
    """Do what was not done yet of what the browser tells, as a stranger's word."""
    for wish in told[:_MOST] if isinstance(told, list) else ():
        turns.take(_KIND, wish, _do)


@guarded
def _do(wish: dict[str, Any]) -> None:
    value = wish.get("value")
    match wish.get("what"):
        case "home":
            documents.go_home()
        case "picked" if isinstance(value, str):
            lesson_sidebar.pick(value)  # a box, while a lesson asks for one
        case "marked" if isinstance(value, dict):
            _mark(value.get("trace_id"), value.get("seq"))
        case "given" if isinstance(value, dict):
            _open(value.get("name"), value.get("text"))


def _open(name: Any, text: Any) -> None:
    """A document that was chosen where traces are opened."""
    if isinstance(name, str) and isinstance(text, str):
        documents.open_upload(name[:_MOST_NAME], text.encode("utf-8", "surrogatepass"))


def _mark(trace_id: Any, seq: Any) -> None:
    """The moment at the cursor was chosen while a lesson asks for one."""
    if isinstance(trace_id, str) and isinstance(seq, int) and not isinstance(seq, bool):
        lesson_sidebar.mark(trace_id, seq)
