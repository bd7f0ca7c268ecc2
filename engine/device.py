"""Whose turn it is to compute: one thread at a time has the device.

Part of box `gpu-runner`. Forwards of two threads at once would fight for the cores, and they share
what a model has only once: its timer and its captured graphs. While a CUDA graph is captured, no
other thread may touch the device at all. vLLM has a process for each engine instead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from engine.doing import Doing, behind, of_thread, wait_and_tell

P = ParamSpec("P")
T = TypeVar("T")


class Turns:
    """A lock that goes to whoever has waited longest.

    So a step on the engine's thread, whose phases each wait for a turn, waits for three phases of
    the executor at most: for one forward. A plain lock would go again and again to who had it.
    Who has it may enter again.
    """

    def __init__(self) -> None:
        self._books = threading.Lock()
        self._is_taken = False
        self._owner = 0  # the thread that has it, and how often it entered
        self._depth = 0
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            self._wait()
            self._owner = threading.get_ident()
        self._depth += 1

    def _wait(self) -> None:
        with self._books:
            if not self._is_taken:
                self._is_taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        # Until whoever leaves hands over.
        wait_and_tell(lambda seconds: mine.acquire(timeout=seconds), self._at_work)

    def _at_work(self) -> Doing:
        return behind(of_thread(self._owner)) or Doing("waiting for another engine's forward")

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._owner = 0
        with self._books:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False


DEVICE = Turns()


def in_turn(function: Callable[P, T]) -> Callable[P, T]:
    """Have `function` wait until no other thread computes."""

    @wraps(function)
    def wait_and_run(*args: P.args, **kwargs: P.kwargs) -> T:
        with DEVICE:
            return function(*args, **kwargs)

    return wait_and_run
