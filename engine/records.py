"""What the log consists of: events and patches, each with its step and phase.

`engine/events.py` says what can happen, `engine/reasons.py` why. Part of the log, which is in no
box of the map (`engine/trace.py`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, NamedTuple, get_args

from engine.events import Facts
from engine.reasons import Reason


class Phase(StrEnum):
    """The parts of a step, in order. The engine can stop between any two.

    `command` is no part of a step: it marks what the front end did between two phases.
    """

    ARRIVE = "arrive"
    SCHEDULE = "schedule"
    PREPARE = "prepare"
    EXECUTE = "execute"
    SAMPLE = "sample"
    UPDATE = "update"
    OUTPUT = "output"
    COMMAND = "command"


STEP_PHASES = tuple(phase for phase in Phase if phase is not Phase.COMMAND)
EXECUTOR_PHASES = (Phase.PREPARE, Phase.EXECUTE, Phase.SAMPLE)  # the rest is the scheduler's side


class Event(NamedTuple):
    """Something that happened."""

    seq: int
    step: int
    phase: Phase
    facts: Facts
    reason: Reason | None
    duration_us: float | None
    t_us: int  # since the log began


class Patch(NamedTuple):
    """What changed by the end of a phase: a JSON Merge Patch (RFC 7386) on the state before."""

    seq: int
    step: int
    phase: Phase
    changes: dict[str, Any]
    duration_us: float | None  # of the phase, the log's own work included
    t_us: int


Record = Event | Patch


def snake_case(name: str) -> str:
    """`PrefixLookedUp` -> `prefix_looked_up`: the log's name of a class of events or reasons."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


FACTS_BY_TYPE: dict[str, type[Any]] = {snake_case(cls.__name__): cls for cls in get_args(Facts)}
REASONS_BY_CODE: dict[str, type[Any]] = {snake_case(cls.__name__): cls for cls in get_args(Reason)}
TYPE_OF_FACTS: dict[type[Any], str] = {cls: name for name, cls in FACTS_BY_TYPE.items()}
CODE_OF_REASON: dict[type[Any], str] = {cls: code for code, cls in REASONS_BY_CODE.items()}
