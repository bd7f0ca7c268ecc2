"""How often a wrong secret or code may be tried."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

MOST_REMEMBERED = 10_000  # of those who tried


class Throttle:
    """At most so many tries in so many seconds, for each who tries and for all together."""

    def __init__(
        self,
        each: int,
        together: int,
        seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.each = each
        self.together = together
        self.seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._all: deque[float] = deque()
        self._tries: dict[str, deque[float]] = {}

    def take(self, who: str) -> int:
        """Count a try; or whole seconds to wait, where it may not be made and does not count."""
        with self._lock:
            now = self._clock()
            tries = self._tries.setdefault(who, deque())
            wait = max(self._left(self._all, self.together, now), self._left(tries, self.each, now))
            if not wait:
                self._all.append(now)
                tries.append(now)
            self._forget_old(now)
            return wait

    def forgive(self, who: str) -> None:
        """The last try was right, so it does not count."""
        with self._lock:
            for tries in (self._all, self._tries.get(who)):
                if tries:
                    tries.pop()

    def _forget_old(self, now: float) -> None:
        if len(self._tries) > MOST_REMEMBERED:
            over = now - self.seconds
            self._tries = {w: t for w, t in self._tries.items() if t and t[-1] > over}

    def _left(self, tries: deque[float], most: int, now: float) -> int:
        while tries and tries[0] <= now - self.seconds:
            tries.popleft()
        return 0 if len(tries) < most else int(tries[-most] + self.seconds - now) + 1
