"""What an answer was given to: which engine, and which text of a lesson."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from engine.source_sites import source_version
from lessons.loader import lesson_files


@cache
def engine_version() -> str:
    """The engine's, as its logs have it."""
    return source_version()


def lesson_digest(lesson: str) -> str:
    """The digest of a lesson's file, its scenario included; "" where there is none."""
    path = next((path for path in lesson_files() if path.stem == lesson), None)
    return "" if path is None else _digest(path, path.stat().st_mtime_ns)


@cache
def _digest(path: Path, changed: int) -> str:
    """Read again whenever the file has changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
