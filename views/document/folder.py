"""A document by its path on the server: only JSON files inside one folder, however it is asked for.

`DOCUMENTS` names the folder, the project's own where it is not set.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

from views.document.diagnostics import Diagnostic, error

PROJECT = Path(__file__).resolve().parents[2]
VARIABLE = "DOCUMENTS"
MAX_PATH = 400  # characters


def documents_folder() -> Path:
    """Return the folder whose documents may be opened by their path."""
    named = os.environ.get(VARIABLE, "").strip()
    return Path(named).expanduser() if named else PROJECT


def find(folder: Path, typed: str) -> Path | Diagnostic:
    """Return the file that a path names inside the folder, or why it is not opened.

    What a path says is judged before the disk is asked, so that nobody learns what else lies there.
    """
    why = _why_not(typed)
    if why is not None:
        return _refused(typed, *why)
    try:
        root = folder.resolve(strict=True)
        file = (root / typed).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle
        return _missing(typed, folder)
    if not file.is_relative_to(root):
        return _refused(typed, "The path leads out of the folder.", "Copy the file into it.")
    if not file.is_file():
        return _missing(typed, folder)
    return file


def _why_not(typed: str) -> tuple[str, str] | None:
    """Return what is wrong with the path as it is written, and what would do."""
    parts = PurePosixPath(typed.replace("\\", "/")).parts
    windows = PureWindowsPath(typed)
    if not typed.strip() or len(typed) > MAX_PATH or "\0" in typed:
        return "That is no path.", "Write one like docs/system.json."
    if typed.startswith("~") or windows.drive or windows.root:
        return "The path is not one inside the folder.", "Write it from the folder on."
    if ".." in parts:
        return "The path leads out of the folder.", "Write it without “..”."
    if any(part.startswith(".") for part in parts):
        return "Hidden files and folders stay closed.", "Copy the file to another place."
    if not typed.lower().endswith(".json"):
        return "A document is a .json file.", "Name a file that ends in .json."
    return None


def _refused(typed: str, message: str, fix: str) -> Diagnostic:
    return error("file/refused", "$", typed, message, fix)


def _missing(typed: str, folder: Path) -> Diagnostic:
    message = f"There is no such file in the folder {folder.name!r}."
    return error("file/unreadable", "$", typed, message, "Look at the spelling, or upload it.")
