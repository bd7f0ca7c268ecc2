"""Where events and reasons are really made: the frames that call their classes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.records import CODE_OF_REASON, TYPE_OF_FACTS

ROOT = Path(__file__).resolve().parents[2]


class Made(NamedTuple):
    """The line of a call."""

    path: str
    line: int
    function: str


class Makers:
    """By event or reason, the call that made it; none where it was made before, or copied."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, Made]] = {}  # the object too, so that no id comes again

    def of(self, made: Any) -> Made | None:
        found = self._found.get(id(made))
        return found[1] if found and found[0] is made else None

    def note(self, made: Any, frame: Any) -> None:
        file = Path(frame.f_code.co_filename)
        path = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else str(file)
        made_at = Made(path, frame.f_lineno, frame.f_code.co_qualname)
        self._found[id(made)] = (made, made_at)


@contextlib.contextmanager
def watching() -> Iterator[Makers]:
    """While this is open, every event and every reason is written down with its call."""
    makers = Makers()
    before: dict[Any, Callable[..., Any]] = {}

    def noting(new: Callable[..., Any]) -> Callable[..., Any]:
        def make(cls: Any, *values: Any, **named: Any) -> Any:
            made = new(cls, *values, **named)
            makers.note(made, sys._getframe(1))
            return made

        return make

    for cls in (*TYPE_OF_FACTS, *CODE_OF_REASON):
        before[cls] = cls.__new__
        cls.__new__ = noting(cls.__new__)
    try:
        yield makers
    finally:
        for cls, new in before.items():
            cls.__new__ = new
