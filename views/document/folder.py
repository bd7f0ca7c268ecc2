"""A document by its path on the server: only JSON files inside one folder, however it is asked for.

`DOCUMENTS` names the folder, the project's own where it is not set.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.folders import NotInFolder, Why, find_inside
from views.document.diagnostics import Diagnostic
from views.document.diagnostics import error as diagnostic

PROJECT = Path(__file__).resolve().parents[2]
VARIABLE = "DOCUMENTS"


def documents_folder() -> Path:
    """Return the folder whose documents may be opened by their path."""
    named = os.environ.get(VARIABLE, "").strip()
    return Path(named).expanduser() if named else PROJECT


def find(folder: Path, typed: str) -> Path | Diagnostic:
    """Return the file that a path names inside the folder, or why it is not opened."""
    try:
        return find_inside(folder, typed, ".json")
    except NotInFolder as error:
        if error.why is Why.MISSING:
            message = f"There is no such file in the folder {folder.name!r}."
            fix = "Look at the spelling, or upload it."
            return diagnostic("file/unreadable", "$", typed, message, fix)
        return diagnostic("file/refused", "$", typed, *_WORDS[error.why])


_WORDS = {
    Why.NO_PATH: ("That is no path.", "Write one like docs/system.json."),
    Why.ROOTED: ("The path is not one inside the folder.", "Write it from the folder on."),
    Why.OUT: ("The path leads out of the folder.", "Name a file that lies in it."),
    Why.HIDDEN: ("Hidden files and folders stay closed.", "Copy the file to another place."),
    Why.SUFFIX: ("A document is a .json file.", "Name a file that ends in .json."),
}
