"""Two things measured by turns, so that a machine that is busy elsewhere favours neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def by_turns(a: Callable[[], T], b: Callable[[], T], count: int) -> list[tuple[T, T]]:
    """`count` pairs of what `a` and `b` return: A B, B A, A B, and so on."""
    pairs = []
    for number in range(count):
        if number % 2:
            second = b()
            pairs.append((a(), second))
        else:
            first = a()
            pairs.append((first, b()))
    return pairs
