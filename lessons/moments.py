"""A moment of an engine's log, and the register of what may be asked of it: the probes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from engine.records import FACTS_BY_TYPE, Event, Record
from engine.trace import State, Trace, TraceHeader, fold

Value = bool | int | float | str | tuple[Any, ...]
Probe = Callable[..., Value]

PROBES: dict[str, Probe] = {}


class ProbeError(ValueError):
    """What is asked for is not in the log at this moment; the message says what is missing."""


class Moment(NamedTuple):
    """A log up to one of its records."""

    header: TraceHeader
    records: tuple[Record, ...]
    state: State

    @classmethod
    def of(cls, trace: Trace, seq: int) -> Moment:
        """The log of `trace` up to record `seq`; ProbeError where it is not kept any more."""
        header, records = trace.after(-1, limit=trace.next_seq + 1)
        assert header is not None, "a reader at the start gets the header"
        if seq < header.base_seq:
            raise ProbeError(
                f"record {seq} has left the log, which begins at {header.base_seq} now"
            )
        kept = tuple(records[: seq + 1 - header.base_seq])
        return cls(header, kept, fold(header.state, kept))

    @property
    def trace_id(self) -> str:
        """Of the log that this is a part of."""
        return self.header.trace_id

    @property
    def seq(self) -> int:
        """The sequence number of the last record."""
        return self.records[-1].seq if self.records else self.header.base_seq - 1

    def events(self, type_name: str, request: str = "") -> Iterator[Event]:
        """Events of a type, latest first; of one request, where one is named."""
        facts = FACTS_BY_TYPE.get(type_name)
        if facts is None:
            raise ProbeError(f"there is no event {type_name!r}; engine/events.py has them all")
        for record in reversed(self.records):
            if not isinstance(record, Event) or type(record.facts) is not facts:
                continue
            if not request or getattr(record.facts, "request", None) == request:
                yield record

    def last(self, type_name: str, request: str = "") -> Event:
        """The latest event of a type; ProbeError where there is none."""
        found = next(self.events(type_name, request), None)
        if found is None:
            of_whom = f" of {request}" if request else ""
            raise ProbeError(f"no event {type_name}{of_whom} has happened up to this moment")
        return found

    def request(self, request: str) -> State:
        """The record of a request; ProbeError where the log knows none of this name."""
        found: State | None = self.state.get("requests", {}).get(request)
        if found is None:
            raise ProbeError(f"the log knows no request {request!r} at this moment")
        return found


def probe(function: Probe) -> Probe:
    """Make a function of a moment known to lessons under its own name."""
    PROBES[function.__name__] = function
    return function


def arguments_of(name: str) -> inspect.Signature:
    """What a lesson gives to a probe: all its parameters but the moment."""
    signature = inspect.signature(PROBES[name])
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def entry(record: dict[str, Any], name: str, what: str) -> Value:
    """A value of a record; ProbeError with the names that there are."""
    if name not in record:
        raise ProbeError(f"there is no {what} {name!r}; there are {', '.join(record)}")
    value: Value = record[name]
    return value
