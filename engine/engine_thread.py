"""The one thread on which every engine of the process lives.

Whatever touches an `EngineCore` runs here, so no engine needs a lock and the forwards of all
sessions take turns instead of fighting for the cores. Steps, and whatever else takes long, are
turns: one an engine, engine by engine, however many an engine has waiting. Short commands (submit,
abort, pause) go ahead of them, but only so many between two turns: whoever sends nothing but
commands holds up nobody. Engines that schedule asynchronously run the model on its `executor`, a
second thread of the same kind. vLLM has a process an engine instead (`vllm/v1/engine/core.py`,
EngineCoreProc).
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
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from engine.doing import Doing, heard_by

T = TypeVar("T")


class Job(NamedTuple):
    """What is to be done, and for whom."""

    function: Callable[[], Any]
    future: Future[Any]
    owner: object


COLLECT_AFTER_SECONDS = 1.0
COMMANDS_BETWEEN_TURNS = 16  # while a turn waits

log = logging.getLogger("glassbox")


class EngineThreadStopped(RuntimeError):
    """The server is going down; nothing runs any more."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


@runtime_checkable
class Waits(Protocol):
    """An owner that wants to know what its jobs wait for."""

    def held_up(self, by: Doing | None) -> None:
        """Another owner's job takes long, and does that; None: no more. On any thread."""


class EngineThread:
    """A thread with two queues (commands before turns) and timers that become turns."""

    def __init__(self, name: str = "engine") -> None:
        self.name = name
        self._executor: EngineThread | None = None
        self._wake = threading.Condition()
        self._commands: deque[Job] = deque()
        self._turns = Turns()
        self._commands_ahead = 0  # since the last turn
        self._timers: list[tuple[float, int, Job]] = []
        self._order = itertools.count()
        self._stopping = False
        self._collecting = False  # it will, soon
        self._thread: threading.Thread | None = None
        self._busy_since: float | None = None
        self._owner: object = None  # of the job at hand
        self.doing: Doing | None = None  # what of it takes long

    @property
    def alive(self) -> bool:
        """Whether it takes jobs: it has not begun yet, or has not ended."""
        return not self._stopping and (self._thread is None or self._thread.is_alive())

    @property
    def busy_seconds(self) -> float:
        """How long it has been at the job at hand; 0 where there is none."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def threads(self) -> list[EngineThread]:
        """It, and its executor where there is one."""
        return [self] if self._executor is None else [self, self._executor]

    def post(self, function: Callable[[], T], owner: object = None) -> Future[T]:
        """Run `function` soon, ahead of every step that waits for its turn."""
        return self._enqueue(self._commands.append, function, owner)

    def turn(self, function: Callable[[], T], owner: object = None) -> Future[T]:
        """Run `function` when it is its owner's turn, after what the same owner asked before."""
        return self._enqueue(self._turns.append, function, owner)

    def call(self, function: Callable[[], T], owner: object = None) -> T:
        """`post` and wait; from the engine thread itself, just do it."""
        if threading.current_thread() is self._thread:
            return function()
        return self.post(function, owner).result()

    def call_in_turn(self, function: Callable[[], T], owner: object = None) -> T:
        """`turn` and wait; from the engine thread itself, just do it."""
        if threading.current_thread() is self._thread:
            return function()
        return self.turn(function, owner).result()

    @property
    def executor(self) -> EngineThread:
        """The thread beside this one on which a step of an engine runs while it decides another."""
        with self._wake:
            if self._executor is None:
                self._executor = EngineThread("executor")
                self._executor._stopping = self._stopping
            return self._executor

    def later(self, seconds: float, function: Callable[[], Any], owner: object = None) -> None:
        """Queue `function` as a turn of the owner's after `seconds`."""
        job = Job(function, Future(), owner)
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
            dropped = [*self._commands, *self._turns.jobs()]
            self._commands.clear()
            self._turns.clear()
            self._timers.clear()
            self._wake.notify()
        for job in dropped:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(EngineThreadStopped())
        if self._executor is not None:
            self._executor.stop(timeout)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _enqueue(
        self, append: Callable[[Job], None], function: Callable[[], T], owner: object
    ) -> Future[T]:
        future: Future[T] = Future()
        with self._wake:
            if self._stopping:
                raise EngineThreadStopped
            append(Job(function, future, owner))
            self._ensure_started()
            self._wake.notify()
            if self.doing is not None:
                self._hold_up({owner})
        return future

    def _hear(self, doing: Doing | None) -> None:
        """The job at hand: what of it takes long."""
        with self._wake:
            self.doing = doing
            self._hold_up({job.owner for job in (*self._commands, *self._turns.jobs())})

    def _hold_up(self, waiting: set[object]) -> None:
        """Under the lock, so that nobody hears of it after it is over."""
        for owner in waiting - {self._owner}:
            if isinstance(owner, Waits):
                owner.held_up(self.doing)

    def _ensure_started(self) -> None:
        if self._thread is None:
            # A daemon, so that a forward that hangs cannot keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            try:
                with heard_by(self._hear):
                    self._run_jobs()
            except BaseException:  # no job's own: it hit the thread between two of them
                log.exception("the thread `%s` was to be ended; it goes on", self.name)

    def _run_jobs(self) -> None:
        while (job := self._next()) is not None:
            self._busy_since, self._owner = time.monotonic(), job.owner
            run_job(job)
            self._busy_since, self._owner = None, None
            del job  # else the last one's engine would stay, with its pool, until another comes

    def _choose(self) -> Job | None:
        if self._commands and not (self._turns and self._commands_ahead >= COMMANDS_BETWEEN_TURNS):
            self._commands_ahead += 1
            return self._commands.popleft()
        self._commands_ahead = 0
        return self._turns.popleft() if self._turns else None

    def _next(self) -> Job | None:
        """The next job, once there is one; None when the thread has to end."""
        with self._wake:
            while not self._stopping:
                now = time.monotonic()
                while self._timers and self._timers[0][0] <= now:
                    self._turns.append(heapq.heappop(self._timers)[2])
                job = self._choose()
                if job is not None:
                    return job
                self._wake.wait(self._timers[0][0] - now if self._timers else None)
            return None


class Turns:
    """Jobs by owner: each owner's in order, and the owners one after the other."""

    def __init__(self) -> None:
        self._by_owner: dict[object, deque[Job]] = {}  # whose turn comes first is in front

    def __bool__(self) -> bool:
        return bool(self._by_owner)

    def append(self, job: Job) -> None:
        """Behind its owner's others; the owner behind all others, unless it waits already."""
        self._by_owner.setdefault(job.owner, deque()).append(job)

    def popleft(self) -> Job:
        """The next job; what its owner has beside it waits until all others had a turn."""
        owner = next(iter(self._by_owner))
        jobs = self._by_owner.pop(owner)
        job = jobs.popleft()
        if jobs:
            self._by_owner[owner] = jobs
        return job

    def jobs(self) -> list[Job]:
        """All of them."""
        return [job for jobs in self._by_owner.values() for job in jobs]

    def clear(self) -> None:
        """Forget all of them."""
        self._by_owner.clear()


def run_job(job: Job) -> None:
    """What it returns or raises belongs to whoever waits for the future."""
    if not job.future.set_running_or_notify_cancel():
        return
    try:
        job.future.set_result(job.function())
    except BaseException as error:
        if not isinstance(error, Exception):
            log.exception("a job of the engine thread ended it")
        job.future.set_exception(error)
