"""Variants: the same lesson with other numbers, drawn from a seed."""

from __future__ import annotations

import random

from lessons.expressions import Scope
from lessons.format import Choices, Lesson, Range
from lessons.probes import Value


def draw(lesson: Lesson, seed: int) -> dict[str, Value]:
    """The values of a variant: the same ones for the same seed, on any machine."""
    source = random.Random(f"{lesson.id} {seed}")
    values: dict[str, Value] = {}
    for name, rule in lesson.variant.items():
        match rule:
            case Range():
                values[name] = source.randint(rule.low, rule.high)
            case Choices():
                values[name] = source.choice(rule.choose)
            case _:
                values[name] = rule.value.value(Scope(values))
    return values
