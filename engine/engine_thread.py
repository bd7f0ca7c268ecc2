"""The one thread on which every engine of the process lives.

Whatever touches an `EngineCore` runs here, so no engine needs a lock and the forwards of all
sessions take turns instead of fighting for the cores. Short commands (submit, abort, pause) go
ahead of the queue; steps are turns, first come first served, one step a turn. Engines that schedule
asynchronously run the model on its `executor`, a second thread of the same kind. vLLM has a process
an engine instead (`vllm/v1/engine/core.py`, EngineCoreProc).
"""

from __future__ import annotations

import gc
import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple[Callable[[], Any], "Future[Any]"]

COLLECT_AFTER_SECONDS = 1.0

log = logging.getLogger("glassbox")


class EngineThreadStopped(RuntimeError):
    """The server is going down; nothing runs any more."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class EngineThread:
    """A thread with two queues (commands before turns) and timers that become turns."""

    def __init__(self, name: str = "engine") -> None:
        self.name = name
        self._executor: EngineThread | None = None
        self._wake = threading.Condition()
        self._commands: deque[Job] = deque()
        self._turns: deque[Job] = deque()
        self._timers: list[tuple[float, int, Job]] = []
        self._order = itertools.count()
        self._stopping = False
        self._collecting = False  # it will, soon
        self._thread: threading.Thread | None = None

    def post(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` soon, ahead of every step that waits for its turn."""
        return self._enqueue(self._commands, function)

    def turn(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` when those that came before have had their turn."""
        return self._enqueue(self._turns, function)

    def call(self, function: Callable[[], T]) -> T:
        """`post` and wait; from the engine thread itself, just do it."""
        if threading.current_thread() is self._thread:
            return function()
        return self.post(function).result()

    @property
    def executor(self) -> EngineThread:
        """The thread beside this one on which a step of an engine runs while it decides another."""
        with self._wake:
            if self._executor is None:
                self._executor = EngineThread("executor")
                self._executor._stopping = self._stopping
            return self._executor

    def later(self, seconds: float, function: Callable[[], Any]) -> None:
        """Queue `function` as a turn after `seconds`."""
        job: Job = (function, Future())
        with self._wake:
            if self._stopping:
                return
            due = time.monotonic() + seconds
            heapq.heappush(self._timers, (due, next(self._order), job))
            self._ensure_started()
            self._wake.notify()

    def collect_soon(self) -> None:
        """Have garbage collected in a second: once, however many engines end until then."""
        with self._wake:
            if self._collecting:
                return
            self._collecting = True
        self.later(COLLECT_AFTER_SECONDS, self._collect)

    def _collect(self) -> None:
        self._collecting = False
        gc.collect()

    def stop(self, timeout: float = 3.0) -> None:
        """Finish the job at hand, drop the others, and end the thread; its executor as well."""
        with self._wake:
            self._stopping = True
            dropped = [*self._commands, *self._turns]
            self._commands.clear()
            self._turns.clear()
            self._timers.clear()
            self._wake.notify()
        for _, future in dropped:
            if future.set_running_or_notify_cancel():
                future.set_exception(EngineThreadStopped())
        if self._executor is not None:
            self._executor.stop(timeout)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _enqueue(self, queue: deque[Job], function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._wake:
            if self._stopping:
                raise EngineThreadStopped
            queue.append((function, future))
            self._ensure_started()
            self._wake.notify()
        return future

    def _ensure_started(self) -> None:
        if self._thread is None:
            # A daemon, so that a forward that hangs cannot keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            run_job(*job)
            del job  # else the last one's engine would stay, with its pool, until another comes

    def _next(self) -> Job | None:
        """The next job, once there is one; None when the thread has to end."""
        with self._wake:
            while not self._stopping:
                now = time.monotonic()
                while self._timers and self._timers[0][0] <= now:
                    self._turns.append(heapq.heappop(self._timers)[2])
                if self._commands:
                    return self._commands.popleft()
                if self._turns:
                    return self._turns.popleft()
                self._wake.wait(self._timers[0][0] - now if self._timers else None)
            return None


def run_job(function: Callable[[], Any], future: Future[Any]) -> None:
    """What it returns or raises belongs to whoever waits for the future."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:
        if not isinstance(error, Exception):
            log.exception("a job of the engine thread ended it")
        future.set_exception(error)
