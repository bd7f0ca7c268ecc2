"""What the front of a room is shown of a lesson: its step, and the presenter's notes beside it.

The lesson itself is drawn as ever; `assets/page/tour.js` makes the page large, takes the clicker's
keys, and tells a second window (`assets/notes.html`) what is said here.
"""

from __future__ import annotations

from typing import TypedDict

from lessons.expressions import ExpressionError, Template
from lessons.play import Player
from lessons.probes import ProbeError
from lessons.text import told
from views.page.lesson_desk import desk


class Tour(TypedDict):
    """A step of the lesson that is open, in plain text."""

    lesson: str
    place: int  # from 1
    steps: int
    title: str
    next: str | None  # the next step's title
    look: str
    notes: str


def tour(labels: dict[str, str]) -> Tour | None:
    """Return what there is to present; None where no lesson is open."""
    now = desk()
    player = now.player
    if player is None or not now.is_open:
        return None
    steps, place = player.lesson.steps, player.index
    return {
        "lesson": player.lesson.title,
        "place": place + 1,
        "steps": len(steps),
        "title": player.step.title,
        "next": steps[place + 1].title if place + 1 < len(steps) else None,
        "look": _told(player, player.step.look, labels),
        "notes": _told(player, player.step.notes, labels),
    }


def _told(player: Player, text: Template | None, labels: dict[str, str]) -> str:
    try:
        return "" if text is None else told(text, player.first_scope(), labels)
    except (ExpressionError, ProbeError):
        return ""  # the engine is not there yet; the step says so
