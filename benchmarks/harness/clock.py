"""A clock that can be stopped; imports nothing, so that other Pythons can read it as well."""

from __future__ import annotations

import time


class Clock:
    """Microseconds between `go` and `stop`, added up: of this thread, and by the wall clock."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    def go(self) -> None:
        """Begin to count."""
        self.began = time.thread_time(), time.perf_counter()

    def stop(self) -> None:
        """Cease to count."""
        cpu, wall = time.thread_time(), time.perf_counter()
        self.cpu += (cpu - self.began[0]) * 1e6
        self.wall += (wall - self.began[1]) * 1e6

    def read(self) -> list[float]:
        """The time of the thread, and by the wall."""
        return [self.cpu, self.wall]
