"""What must hold after every phase of any engine, watched while a test drives one."""

from __future__ import annotations

from collections.abc import Callable

from engine.core import EngineCore
from engine.integrity import check_runner, check_scheduler, differences
from engine.records import Patch
from engine.scheduler import Scheduler
from engine.trace import State, Trace, check_patch, merge_patch
from engine.two_lanes import TwoLaneTrace


class Watch:
    """After every phase: the engine's rules hold, the fold is the state, the patch only news."""

    def __init__(
        self,
        trace: Trace,
        scheduler: Scheduler,
        snapshot: Callable[[], State],
        core: EngineCore | None = None,
    ):
        self.trace, self.scheduler, self.snapshot, self.core = trace, scheduler, snapshot, core
        self.state = snapshot()
        self.seen = 0
        assert trace.header.state == self.state
        trace.on_phase_end.append(self.check)
        if isinstance(trace, TwoLaneTrace):
            trace.executor.on_phase_end.append(self.check)

    @classmethod
    def of(cls, core: EngineCore) -> Watch:
        """Watch an engine with its runner."""
        return cls(core.trace, core.scheduler, core.state, core)

    def check(self) -> None:
        self.check_rules()
        self.check_log()

    def check_rules(self) -> None:
        report = check_scheduler(self.scheduler)
        if self.core is not None:
            check_runner(self.core, report)
        assert not report.violations, report.violations

    def check_log(self) -> None:
        """What is new in the log since the last time, and what it comes to."""
        for record in self.trace.records[self.seen :]:
            if isinstance(record, Patch):
                check_patch(self.state, record.changes)
                merge_patch(self.state, record.changes)
        self.seen = len(self.trace.records)
        state = self.snapshot()
        assert self.state == state, list(differences(self.state, state))
