"""What must hold after every phase of any engine, watched while a test drives one."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import Patch
from engine.integrity import check_scheduler
from engine.scheduler import Scheduler
from engine.trace import State, Trace, check_patch, merge_patch


class Watch:
    """After every phase: the engine's rules hold, the fold is the state, the patch only news."""

    def __init__(self, trace: Trace, scheduler: Scheduler, snapshot: Callable[[], State]):
        self.trace, self.scheduler, self.snapshot = trace, scheduler, snapshot
        self.state = snapshot()
        self.seen = 0
        assert trace.header.state == self.state
        trace.on_phase_end.append(self.check)

    def check(self) -> None:
        for record in self.trace.records[self.seen :]:
            if isinstance(record, Patch):
                check_patch(self.state, record.changes)
                merge_patch(self.state, record.changes)
        self.seen = len(self.trace.records)
        assert self.state == self.snapshot()
        assert check_scheduler(self.scheduler) == []
