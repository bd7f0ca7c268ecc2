"""The log: what the engine did, in order, from which every number on the page is read.

Records are events and patches (`engine/records.py`). The state at any record is the base state
with all patches up to it merged in; a reader needs nothing else. On disk a trace is JSON Lines:
a header with the base state, then the records.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TextIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine import strict_json
from engine.config import describe
from engine.events import PLACES, Facts
from engine.limits import limit
from engine.reasons import Reason
from engine.records import (
    CODE_OF_REASON,
    FACTS_BY_TYPE,
    REASONS_BY_CODE,
    TYPE_OF_FACTS,
    Event,
    Patch,
    Phase,
    Record,
)
from engine.strict_json import StrictJsonError
from engine.why import Why, why

SCHEMA_VERSION = 6
# Beyond it the oldest are folded into the base state. The page takes twice as many.
MAX_RECORDS = limit("MAX_RECORDS", 100_000, most=200_000)

# As `Event(...)`, which takes twice as long; a step makes hundreds.
new_event: Callable[[tuple[Any, ...]], Event] = partial(tuple.__new__, Event)

State = dict[str, Any]
Changes = dict[str, Any]


class TraceError(ValueError):
    """A trace file that cannot be read; the message names the line and what is wrong with it."""


def error_text(error: BaseException) -> str:
    """An exception as the log has it: its type and the first line of what it says."""
    first_line = (str(error).strip().splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


class Bookmark(BaseModel):
    """A moment that a reader marked: the record that was looked at, and what it is called."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seq: int = Field(ge=-1)
    name: str = Field(max_length=120)


class TraceHeader(BaseModel):
    """What a reader must know before the first record."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int
    trace_id: str  # a reset begins another trace with another id
    config: dict[str, Any]  # EngineConfig
    model: dict[str, Any]  # shape and name of the model; empty where none is run
    document: str  # title of the architecture document, "" where none is shown
    versions: dict[str, str]  # of packages that matter, and of our own source ("glassbox")
    started_at: float  # seconds since the epoch; t_us counts from here
    base_seq: int = 0  # the first record's sequence number
    bookmarks: list[Bookmark] = Field(default=[], max_length=200)  # of whoever saved the log
    fault: str = Field(default="", max_length=120)  # of an engine that was broken on purpose
    state: State  # before the first record


def merge_patch(state: State, changes: Changes) -> None:
    """Apply a JSON Merge Patch (RFC 7386) in place: null removes, objects merge, others are set."""
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        elif isinstance(value, dict):
            merge_patch(state.setdefault(key, {}), value)
        else:
            state[key] = value


def check_patch(state: State, changes: Changes, path: str = "") -> None:
    """Raise `TraceError` where `changes` holds a value that `state` has already.

    A patch says what changed and nothing else, so a snapshot that poses as one fails here.
    """
    for key, value in changes.items():
        here = f"{path}.{key}" if path else key
        if value is None:
            if key not in state:
                raise TraceError(f"{here} is removed, but is not there")
        elif isinstance(value, dict):
            if not value and key in state:
                raise TraceError(f"{here} changes nothing")
            check_patch(state.get(key, {}), value, here)
        elif state.get(key) == value:
            raise TraceError(f"{here} is set to {value!r:.60}, which it was before")


def fold(base: State, records: Iterable[Record]) -> State:
    """The state after `records`: `base` (left as it is) with every patch merged in."""
    return copy.deepcopy(fold_sharing(base, records))


def fold_sharing(base: State, records: Iterable[Record]) -> State:
    """`fold` whose result shares with `base` whatever no patch changed: write to neither.

    So its cost follows the records and not the pool.
    """
    state = dict(base)
    copied: set[int] = set()
    for record in records:
        if isinstance(record, Patch):
            merge_patch_copying(state, record.changes, copied)
    return state


def merge_patch_copying(state: State, changes: Changes, copied: set[int]) -> None:
    """`merge_patch` that copies an object before it first changes it.

    `copied` has the `id` of each such copy. None of them is another's: whatever else is in `state`
    lives as long as the state that was copied.
    """
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        elif isinstance(value, dict):
            inner: State | None = state.get(key)
            if inner is None or id(inner) not in copied:
                inner = state[key] = dict(inner or {})
                copied.add(id(inner))
            merge_patch_copying(inner, value, copied)
        else:
            state[key] = value


class EventLog(Protocol):
    """What the engine's parts log to: a trace, or a lane of one (`engine/two_lanes.py`)."""

    def event(
        self, facts: Facts, reason: Reason | None = None, duration_us: float | None = None
    ) -> None:
        """Append what just happened."""


class Trace:
    """The log of one engine. One thread appends; any thread may read."""

    def __init__(self, header: TraceHeader, max_records: int = MAX_RECORDS):
        self.header = header
        self.max_records = max_records
        self.records: list[Record] = []
        self.on_phase_end: list[Callable[[], None]] = []
        self.step = 0
        self.phase = Phase.COMMAND
        self._lock = threading.Lock()
        self._t0 = time.perf_counter()
        self._phase_began = self._t0

    # -- writing --------------------------------------------------------------------------------

    def begin_phase(self, step: int, phase: Phase) -> None:
        """From here on events belong to `phase` of `step`."""
        self.step, self.phase = step, phase
        self._phase_began = time.perf_counter()

    def event(
        self, facts: Facts, reason: Reason | None = None, duration_us: float | None = None
    ) -> None:
        """Append what just happened."""
        records = self.records
        t_us = int((time.perf_counter() - self._t0) * 1e6)
        seq = self.header.base_seq + len(records)
        records.append(new_event((seq, self.step, self.phase, facts, reason, duration_us, t_us)))

    def end_phase(self, changes: Changes) -> None:
        """Append the phase's patch and tell the subscribers that there is something to read."""
        self._append_patch(changes)
        if len(self.records) > self.max_records:
            self._fold_oldest(self.max_records // 4)
        for callback in tuple(self.on_phase_end):
            callback()

    def _append_patch(self, changes: Changes) -> None:
        now = time.perf_counter()
        duration_us = round((now - self._phase_began) * 1e6, 1)
        t_us = int((now - self._t0) * 1e6)
        self.records.append(Patch(self.next_seq, self.step, self.phase, changes, duration_us, t_us))

    def name_document(self, title: str) -> None:
        """From here on the log says that this architecture document is the one beside it."""
        with self._lock:
            self.header = self.header.model_copy(update={"document": title})

    def go_on_from(self, past: Trace) -> None:
        """Be the rest of another log, which has ended; this one has no record yet.

        Its clock goes on as well, by the clock on the wall: that alone ran in between.
        """
        with self._lock:
            self.header, self.records = past.header, past.records
            last_us = self.records[-1].t_us if self.records else 0
            since = max(time.time() - self.header.started_at, last_us / 1e6)
            self._t0 = time.perf_counter() - since

    def _fold_oldest(self, count: int) -> None:
        """Keep the log's size in bounds: its first steps become part of the base state."""
        with self._lock:
            state = fold_sharing(self.header.state, self.records[:count])
            self.header = self.header.model_copy(
                update={"state": state, "base_seq": self.header.base_seq + count}
            )
            del self.records[:count]

    # -- reading --------------------------------------------------------------------------------

    @property
    def next_seq(self) -> int:
        """The sequence number that the next record will get."""
        return self.header.base_seq + len(self.records)

    @property
    def now_us(self) -> int:
        """Microseconds since the log began."""
        return int((time.perf_counter() - self._t0) * 1e6)

    @property
    def phase_began_us(self) -> int:
        """When the phase at hand began, on the same clock."""
        return int((self._phase_began - self._t0) * 1e6)

    def state(self) -> State:
        """The state after the last record."""
        return fold(self.header.state, self.records)

    def after(self, seq: int, limit: int = 5_000) -> tuple[TraceHeader | None, list[Record]]:
        """Up to `limit` records with a sequence number above `seq`.

        The header comes along where the reader needs it: at the start (`seq` -1), or where the
        records it would go on from have been folded away.
        """
        with self._lock:
            base = self.header.base_seq
            start = max(0, seq + 1 - base)
            lost = seq + 1 < base
            header = self.header if seq < 0 or lost else None
            return header, self.records[start : start + limit]

    def why(self, request: str, step: int) -> list[Why]:
        """All decisions of a step about a request, each with its reason (`engine/why.py`)."""
        return why(self, request, step)

    # -- files ----------------------------------------------------------------------------------

    def snapshot(self) -> tuple[TraceHeader, list[Record]]:
        """The header and all records that follow it, as they are at this moment."""
        with self._lock:
            return self.header, self.records[:]

    def lines(self) -> Iterator[str]:
        """The trace as JSON Lines, without line ends."""
        header, records = self.snapshot()
        yield json.dumps({"kind": "header", **header.model_dump()}, separators=(",", ":"))
        for record in records:
            yield json.dumps(record_to_json(record), separators=(",", ":"))

    def save(self, file: TextIO) -> None:
        """Write the trace as JSON Lines."""
        for line in self.lines():
            file.write(line + "\n")

    @classmethod
    def load(cls, path: Path) -> Trace:
        """Read a trace file; raise `TraceError` naming the line where it is no trace."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(f"{path}: cannot be read ({error})") from None
        return cls.parse(lines_of(text))

    @classmethod
    def parse(cls, lines: list[str]) -> Trace:
        """Read a trace's lines; raise `TraceError` naming the line where it is no trace."""
        if not lines:
            raise TraceError("line 1: the file is empty; a trace begins with its header")
        trace = cls(header_from_json(decode(lines[0], 1)))
        for number, line in enumerate(lines[1:], 2):
            record = record_from_json(decode(line, number), number)
            if record.seq != trace.next_seq:
                raise TraceError(
                    f"line {number}: sequence number {record.seq}, expected {trace.next_seq}"
                )
            trace.records.append(record)
        if trace.records:
            last = trace.records[-1]
            trace.step, trace.phase = last.step, last.phase
        return trace


def lines_of(text: str) -> list[str]:
    """A trace file's lines. (`str.splitlines` would cut at characters that JSON texts may hold.)"""
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def record_to_json(record: Record) -> dict[str, Any]:
    """A record as the wire and the file have it."""
    if isinstance(record, Patch):
        return {"kind": "patch", **record._asdict()}
    facts, reason = record.facts, record.reason
    item: dict[str, Any] = {
        "kind": "event",
        "seq": record.seq,
        "step": record.step,
        "phase": record.phase,
        "type": TYPE_OF_FACTS[type(facts)],
        **PLACES[type(facts)]._asdict(),
        "facts": facts._asdict(),
        "t_us": record.t_us,
    }
    if reason is not None:
        item["reason"] = {"code": CODE_OF_REASON[type(reason)], **reason._asdict()}
    if record.duration_us is not None:
        item["duration_us"] = round(record.duration_us, 1)
    return item


def record_from_json(item: dict[str, Any], line: int) -> Record:
    """The record that `record_to_json` wrote; `TraceError` where it is none."""
    try:
        phase = Phase(item["phase"])
        duration = item.get("duration_us")
        if item["kind"] == "patch":
            return Patch(item["seq"], item["step"], phase, item["changes"], duration, item["t_us"])
        facts = rebuild(FACTS_BY_TYPE[item["type"]], item["facts"])
        reason = None
        if "reason" in item:
            numbers = dict(item["reason"])
            reason = rebuild(REASONS_BY_CODE[numbers.pop("code")], numbers)
        return Event(item["seq"], item["step"], phase, facts, reason, duration, item["t_us"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"line {line}: not a record of a trace ({error!r:.120})") from None


def rebuild(cls: type[Any], values: dict[str, Any]) -> Any:
    """A named tuple out of its JSON object: lists become tuples again."""
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def header_from_json(item: dict[str, Any]) -> TraceHeader:
    """The header that `Trace.lines` wrote; `TraceError` where it is none."""
    if item.pop("kind", None) != "header":
        raise TraceError("line 1: a trace begins with its header (kind: header)")
    if item.get("schema_version") != SCHEMA_VERSION:
        raise TraceError(
            f"line 1: schema version {item.get('schema_version')!r}; this program reads "
            f"{SCHEMA_VERSION}"
        )
    try:
        return TraceHeader.model_validate(item)
    except ValidationError as error:
        raise TraceError(f"line 1: {describe(error)}") from None


def decode(line: str, number: int) -> dict[str, Any]:
    """One line's JSON object; `TraceError` with the column where it is none."""
    try:
        item = strict_json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(f"line {number}, column {error.colno}: not JSON") from None
    except StrictJsonError as error:
        raise TraceError(f"line {number}: not JSON ({error})") from None
    if not isinstance(item, dict):
        raise TraceError(f"line {number}: a JSON object is expected")
    return item
