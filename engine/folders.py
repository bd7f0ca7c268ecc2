"""A file by its path inside one folder, whatever is typed: links and `..` lead nowhere else.

For the folders that a server offers (`engine/api/trace_folder.py`, `views/document/folder.py`). No
counterpart in vLLM.
"""

from __future__ import annotations

from enum import Enum, auto
from pathlib import Path, PurePosixPath, PureWindowsPath

MAX_PATH = 400  # characters


class Why(Enum):
    """What is wrong with a path."""

    NO_PATH = auto()  # empty, too long, or with a null in it
    ROOTED = auto()  # it does not begin in the folder
    OUT = auto()  # it leads out of it, by itself or by a link
    HIDDEN = auto()
    SUFFIX = auto()  # another kind of file
    MISSING = auto()


class NotInFolder(ValueError):
    """A path that is not opened, and why."""

    def __init__(self, why: Why):
        super().__init__(why.name)
        self.why = why


def find_inside(folder: Path, typed: str, suffix: str) -> Path:
    """The file that a path names inside the folder; `NotInFolder` where it is not opened.

    What a path says is judged before the disk is asked, so that nobody learns what else lies there.
    `suffix` is lower case; a file's may be either.
    """
    why = what_is_wrong(typed, suffix)
    if why is not None:
        raise NotInFolder(why)
    try:
        root = folder.resolve(strict=True)
        file = (root / typed).resolve(strict=True)
        if not file.is_relative_to(root):
            raise NotInFolder(Why.OUT)
        if file.is_file():
            return file
    except NotInFolder:
        raise
    except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle
        pass
    raise NotInFolder(Why.MISSING)


def what_is_wrong(typed: str, suffix: str) -> Why | None:
    """What is wrong with a path as it is written; None: nothing."""
    parts = PurePosixPath(typed.replace("\\", "/")).parts
    windows = PureWindowsPath(typed)
    if not typed.strip() or len(typed) > MAX_PATH or "\0" in typed:
        return Why.NO_PATH
    if typed.startswith("~") or windows.drive or windows.root:
        return Why.ROOTED
    if ".." in parts:
        return Why.OUT
    if any(part.startswith(".") for part in parts):
        return Why.HIDDEN
    return None if typed.lower().endswith(suffix) else Why.SUFFIX
