"""A log that two threads write: the engine's, and the one that runs the model beside it.

Part of no box. Each lane is in a phase of its own, so records of two steps interleave; a phase of
either lane ends with its patch, which says when it ended and how long it took.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.events import Facts
from engine.reasons import Reason
from engine.records import Event, Patch, Phase, Record
from engine.trace import MAX_RECORDS, Changes, Trace, TraceHeader


class TwoLaneTrace(Trace):
    """The log, which is the engine lane's own, and `executor`, which writes into it as well."""

    def __init__(self, header: TraceHeader, max_records: int = MAX_RECORDS):
        super().__init__(header, max_records)
        self._writing = threading.Lock()
        self.executor = Lane(self)

    def event(
        self, facts: Facts, reason: Reason | None = None, duration_us: float | None = None
    ) -> None:
        """Append what just happened in the engine lane."""
        with self._writing:
            super().event(facts, reason, duration_us)

    def append(self, make: Callable[[int, int], Record]) -> None:
        """Append what `make` gives of a sequence number and the time, in microseconds.

        A phase's length is reckoned to that time: read before, while another thread has the log,
        it would place the phase's beginning too late.
        """
        with self._writing:
            self.records.append(make(self.next_seq, self.now_us))

    def _append_patch(self, changes: Changes) -> None:
        with self._writing:
            super()._append_patch(changes)

    def _fold_oldest(self, count: int) -> None:
        with self._writing:
            super()._fold_oldest(count)


class Lane:
    """The second writer: events and patches as `Trace` has them, of a step and phase of its own."""

    def __init__(self, trace: TwoLaneTrace):
        self.trace = trace
        self.step = 0
        self.phase = Phase.PREPARE
        self.on_phase_end: list[Callable[[], None]] = []  # on this lane's thread
        self._phase_began_us = 0

    def begin_phase(self, step: int, phase: Phase) -> None:
        """From here on this lane's events belong to `phase` of `step`."""
        self.step, self.phase = step, phase
        self._phase_began_us = self.trace.now_us

    def event(
        self, facts: Facts, reason: Reason | None = None, duration_us: float | None = None
    ) -> None:
        """Append what just happened in this lane."""
        self.trace.append(
            lambda seq, t_us: Event(seq, self.step, self.phase, facts, reason, duration_us, t_us)
        )

    def end_phase(self, changes: Changes) -> None:
        """Append the phase's patch and tell this lane's subscribers."""
        began_us = self._phase_began_us

        def patch(seq: int, t_us: int) -> Patch:
            return Patch(seq, self.step, self.phase, changes, t_us - began_us, t_us)

        self.trace.append(patch)
        for callback in tuple(self.on_phase_end):
            callback()
