"""What takes longer than a step: told where it is done, heard by whose engine it is done for.

No box of the map; vLLM 0.26.0 has progress bars on its console (`tqdm` in `capture_model`,
`vllm/v1/worker/gpu_model_runner.py`). The work is deep in the engine and its hearer far above it,
on the same thread, so nothing in between has to pass it on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple


class Doing(NamedTuple):
    """What is under way, and how far it is."""

    what: str  # "capturing the graph FULL 8: recording its operations"
    done: int = 0
    total: int = 0  # 0: it is not known
    unit: str = ""  # of both; "": there is nothing to count

    def __str__(self) -> str:
        if not self.unit:
            return self.what
        of = f" of {self.total:,}" if self.total else ""
        return f"{self.what} ({self.done:,}{of} {self.unit})"


def behind(other: Doing | None) -> Doing | None:
    """What an engine is at that waits for its turn while another one does that."""
    if other is None:
        return None
    return other._replace(what=f"waiting for another engine, which is {other.what}")


def not_there_before(other: Doing) -> Doing:
    """What an engine is at that is to be made once the server has done that."""
    return other._replace(what=f"not there yet: before it, the server is {other.what}")


TELL_AFTER = 0.25  # seconds that a wait lasts before it is told; shorter ones nobody notices
Hear = Callable[[Doing | None], None]


class _Here(threading.local):
    """Of this thread."""

    hear: Hear | None = None
    what = ""


_here = _Here()
_now: dict[int, Doing] = {}  # by thread


@contextmanager
def heard_by(hear: Hear) -> Iterator[None]:
    """Have `hear` told what this thread does meanwhile, and None when that is over.

    Whoever is told of it already still is.
    """
    before = _here.hear

    def both(doing: Doing | None) -> None:
        if before is not None:
            before(doing)
        hear(doing)

    _here.hear = both
    try:
        yield
    finally:
        _here.hear = before


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Say that this is under way. Within it, `tell` says which part of it is."""
    before = _here.what
    _here.what = f"{before}: {what}" if before else what
    _say(Doing(_here.what))
    try:
        yield
    finally:
        _here.what = before
        _say(Doing(before) if before else None)


@contextmanager
def holding(lock: threading.Lock, what: str) -> Iterator[None]:
    """Hold the lock; while another thread has it, say that `what` is under way."""
    free = lock.acquire(blocking=False)
    wait: AbstractContextManager[object] = nullcontext() if free else doing(what)
    with wait:
        if not free:
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def wait_and_tell(is_over: Callable[[float], bool], of: Callable[[], Doing | None]) -> None:
    """Wait for another thread; where that lasts, say again and again what is done meanwhile.

    `is_over` waits so many seconds itself, and `of` says what is waited for.
    """
    told: Doing | None = None
    while not is_over(TELL_AFTER):
        told = of()
        _say(told)
    if told is not None:
        _say(Doing(_here.what) if _here.what else None)


def of_thread(ident: int) -> Doing | None:
    """What a thread does that takes long."""
    return _now.get(ident)


def tell(part: str, done: int = 0, total: int = 0, unit: str = "") -> None:
    """Say which part of it is under way, and how far it is."""
    if _here.what:
        _say(Doing(f"{_here.what}: {part}", done, total, unit))


def _say(now: Doing | None) -> None:
    if now is None:
        _now.pop(threading.get_ident(), None)
    else:
        _now[threading.get_ident()] = now
    if _here.hear is not None:
        _here.hear(now)
