"""Variants: the same lesson with other numbers, drawn from a seed."""

from __future__ import annotations

import hashlib
import random

from lessons.expressions import Scope
from lessons.format import Choices, Lesson, Range
from lessons.probes import Value

SEEDS = 9_999


def seed_of(learner: str, lesson: str, turn: int = 0) -> int:
    """The seed of a learner of this stable id, 1 to 9,999; `turn` counts new beginnings.

    The same one on any machine, and another one for a neighbour.
    """
    digest = hashlib.sha256(f"{learner}\n{lesson}\n{turn}".encode()).digest()
    return int.from_bytes(digest[:8]) % SEEDS + 1


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
