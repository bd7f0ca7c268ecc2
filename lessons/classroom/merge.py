"""Two states of one run, saved from two tabs, become one that loses nothing of either.

States are what `lessons.kept` writes. Which answer is the last one is known by its number; of two
with one number that of the newer save stays (both are among the attempts). A prediction stays what
it was when it was locked first. The step is that of the tab that saves.
"""

from __future__ import annotations

from typing import Any

State = dict[str, Any]


def merge(here: State, mine: State) -> State:
    """What is there and what a tab wants to save, made one."""
    theirs, locked = _questions(here), set(here.get("locked", []))
    mines = _questions(mine)
    keys = sorted({*theirs, *mines})
    return {
        **mine,
        "locked": sorted(locked | set(mine.get("locked", []))),
        "questions": [_one(theirs.get(key), mines.get(key), key[0] in locked) for key in keys],
    }


def _one(theirs: State | None, mine: State | None, is_locked: bool) -> State:
    if theirs is None or mine is None:
        return dict(mine if theirs is None else theirs)  # type: ignore[arg-type]
    keeps_theirs = is_locked or theirs["attempts"] > mine["attempts"]
    first, second = (theirs, mine) if keeps_theirs else (mine, theirs)
    merged = dict(first)
    merged["hints"] = max(theirs["hints"], mine["hints"])
    if merged["judged"] is None and merged["given"] == second["given"]:
        merged["judged"] = second["judged"]
    return merged


def _questions(state: State) -> dict[tuple[str, str], State]:
    return {(each["step"], each["question"]): each for each in state.get("questions", [])}
