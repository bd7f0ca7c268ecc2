"""What a teacher's tab has instead of the secret, so that a reload asks for nothing.

A pass is random, good for one working day, and known to this process by its digest alone: with the
server's end, or with *Log out*, it is worth nothing.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable

GOOD_SECONDS = 12 * 3600.0
MOST = 100  # tabs; whoever logs in after that has the oldest log in again


class Passes:
    """The passes that are good."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}  # by digest, oldest first

    def give(self) -> str:
        """A new pass."""
        made = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._until) >= MOST:
                del self._until[next(iter(self._until))]
            self._until[_digest(made)] = self._clock() + GOOD_SECONDS
        return made

    def is_good(self, shown: str) -> bool:
        """Whether this is a pass, given and neither too old nor taken back."""
        return self._is_good(_digest(shown))

    def while_good(self, shown: str) -> Callable[[], bool]:
        """What tells from now on whether it still is; it does not hold the pass itself."""
        digest = _digest(shown)
        return lambda: self._is_good(digest)

    def take_back(self, shown: str) -> None:
        """It is good no more."""
        with self._lock:
            self._until.pop(_digest(shown), None)

    def _is_good(self, digest: str) -> bool:
        with self._lock:
            return self._until.get(digest, 0.0) > self._clock()


def _digest(shown: str) -> str:
    return hashlib.sha256(shown.encode("utf-8", "replace")).hexdigest()
