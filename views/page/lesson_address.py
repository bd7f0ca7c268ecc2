"""Lessons and their steps as the page's address names them."""

from __future__ import annotations

from views.page.lesson_catalogue import readable
from views.page.lesson_desk import desk, go, leave


def offer(lesson_id: str) -> bool:
    """Open the list with this lesson first; return whether there is one of that name.

    It is not started: that would reset the engine, which nobody has asked for by opening a link.
    """
    if all(lesson.id != lesson_id for lesson in readable()):
        return False
    now = desk()
    put_aside()
    now.is_open, now.offered, now.offered_step = True, lesson_id, None
    return True


def put_aside() -> None:
    """Close the lessons; one that is being played can be gone on with."""
    leave()
    desk().is_open = False


def go_to_step(step: int) -> str:
    """Go to this step (from 1) of the lesson that is open, or offer to begin with it.

    The engine is left as it is: a step that it would have to run for is not gone to. Return what is
    to be said of a step that there is not.
    """
    now = desk()
    if now.player is None:
        lesson = next((each for each in readable() if each.id == now.offered), None)
    else:
        lesson = now.player.lesson
    if lesson is None or not now.is_open:
        return "no lesson is open that would have a step"
    if not 1 <= step <= len(lesson.steps):
        return f"the lesson has {len(lesson.steps)} steps, and no step {step}"
    if now.player is None:
        now.offered_step = step
    elif now.player.is_reached(step - 1):
        go(step - 1)
    return ""


def named() -> str | None:
    """Return the lesson that the page's address is to name."""
    now = desk()
    if not now.is_open:
        return None
    return now.offered if now.player is None else now.player.lesson.id


def named_step() -> int | None:
    """Return the step of it, from 1."""
    now = desk()
    if not now.is_open:
        return None
    return now.offered_step if now.player is None else now.player.index + 1
