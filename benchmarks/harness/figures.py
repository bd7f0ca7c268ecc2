"""What a benchmark returns: figures, each with its samples summed up and its goal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, computed_field

Verdict = Literal["met", "missed", "not measured", "none"]


class Goal(BaseModel):
    """What a figure should be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bound: Literal["at most", "at least"]
    limit: float

    def holds(self, value: float) -> bool:
        """Whether a figure of this value meets it."""
        return value <= self.limit if self.bound == "at most" else value >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.bound == 'at most' else '>='} {self.limit:g}"


def at_most(limit: float) -> Goal:
    """A goal for what should be small."""
    return Goal(bound="at most", limit=limit)


def at_least(limit: float) -> Goal:
    """A goal for what should be large."""
    return Goal(bound="at least", limit=limit)


class Figure(BaseModel):
    """One number of a run. `value` is what counts: the median, unless `note` says otherwise."""

    model_config = ConfigDict(frozen=True)

    name: str
    unit: str
    value: float | None  # None: it could not be measured here; `note` says why
    samples: int
    median: float | None
    quartiles: tuple[float, float] | None  # the middle half of the samples lies between them
    goal: Goal | None
    note: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Verdict:
        """Whether the goal is met."""
        if self.goal is None:
            return "none"
        if self.value is None:
            return "not measured"
        return "met" if self.goal.holds(self.value) else "missed"


def figure(
    name: str, unit: str, samples: Sequence[float], goal: Goal | None = None, note: str = ""
) -> Figure:
    """The median of one or more samples, with their quartiles."""
    median = statistics.median(samples)
    quartiles = quartiles_of(samples)
    return Figure(
        name=name,
        unit=unit,
        value=median,
        samples=len(samples),
        median=median,
        quartiles=quartiles,
        goal=goal,
        note=note,
    )


def high_figure(name: str, unit: str, samples: Sequence[float], goal: Goal | None = None) -> Figure:
    """What 95 of 100 samples stay below."""
    high = sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.95))]
    found = figure(name, unit, samples, goal, note="the 95th percentile")
    return found.model_copy(update={"value": high})


def not_measured(name: str, unit: str, note: str, goal: Goal | None = None) -> Figure:
    """A figure that there is none of on this machine, or not yet; `note` says why."""
    return Figure(
        name=name,
        unit=unit,
        value=None,
        samples=0,
        median=None,
        quartiles=None,
        goal=goal,
        note=note,
    )


def quartiles_of(samples: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile."""
    if len(samples) == 1:
        return samples[0], samples[0]
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return first, third
