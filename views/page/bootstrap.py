"""What mounts a component: a small script, the same for all, that loads a module of `/assets`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_BOOTSTRAP = Path(__file__).parents[1] / "assets" / "bootstrap.js"


@cache
def bootstrap(module: str) -> str:
    """Return the script of a component that is mounted by this module of `/assets`."""
    # A one-line string with a slash would be taken for a path.
    return _BOOTSTRAP.read_text(encoding="utf-8").replace("workspace.js", module) + "\n"
