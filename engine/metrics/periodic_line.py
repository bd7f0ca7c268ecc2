"""When the periodic line is due, and into which logs it goes.

Part of box `async-engine`. vLLM 0.26.0: `AsyncLLM.do_log_stats` and the timer of its server
(`vllm/entrypoints/openai/api_server.py`). What the line says is in `engine/metrics/stats_line.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from weakref import WeakMethod

from engine.core import EngineCore
from engine.engine_thread import EngineThread
from engine.events import SpecDecodingLogged, StatsLogged
from engine.metrics.stats import EngineStats
from engine.metrics.stats_line import StatsLine, stats_text

log = logging.getLogger("glassbox")


class PeriodicLine:
    """One engine's line, from its beginning to its reset; on the engine thread."""

    def __init__(
        self,
        core: EngineCore,
        stats: EngineStats,
        thread: EngineThread,
        sleeps: Callable[[EngineCore], bool],
        console: bool,
    ):
        """`sleeps`: whether this core runs and has nothing to do. `console`: print as well."""
        self.stats_line = StatsLine(stats)
        self._core = core
        self._stats = stats
        self._thread = thread
        self._sleeps = WeakMethod(sleeps)  # a timer must not keep the pool of an engine that rests
        self._console = console
        self._awaited = False

    def wake(self) -> None:
        """Work comes after a rest."""
        self.stats_line.wake()

    def step_ends(self) -> None:
        """In a step's last phase, when its outcome has gone out: the line may be due."""
        if not self.stats_line.seconds_left:
            self._stats.end_step()
            for line in self._take():
                self._core.trace.event(line)

    def await_due(self) -> None:
        """An engine that sleeps owes the line of what it did last."""
        if self._awaited:
            return
        self._awaited = True
        due = WeakMethod(self._due)
        self._thread.later(self.stats_line.seconds_left, lambda: (call := due()) and call())

    def _due(self) -> None:
        """On while there is something to say; one that works again logs it with its steps."""
        self._awaited = False
        sleeps = self._sleeps()
        if sleeps is None or not sleeps(self._core):
            return
        if self.stats_line.seconds_left:  # a step has logged it meanwhile
            self.await_due()
            return
        lines = self._take()
        for line in lines:
            self._core.note(line)
        if lines:
            self.await_due()

    def _take(self) -> list[StatsLogged | SpecDecodingLogged]:
        lines = self.stats_line.take()
        self.print(*map(stats_text, lines))
        return lines

    def print(self, *lines: str) -> None:
        """Lines for the console, where this engine is the one that speaks there."""
        if self._console:
            for line in lines:
                log.info(line)
