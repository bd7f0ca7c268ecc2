"""Probes: what a lesson may read from the log of an engine, by name.

A probe is a function of a `Moment`, which is a log up to one of its records. Lessons call them in
expressions: `blocks('r0')`. `python -m lessons probes` lists them.
"""

from lessons import event_probes, state_probes  # they enter theirs in the register
from lessons.moments import PROBES, Moment, ProbeError, Value, arguments_of, entry

__all__ = [
    "PROBES",
    "Moment",
    "ProbeError",
    "Value",
    "arguments_of",
    "entry",
    "event_probes",
    "state_probes",
]
