"""What is free goes back to the system, where its allocator can do that."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from engine.garbage import give_back, share_heaps

ROOT = Path(__file__).resolve().parents[2]
GLIBC = hasattr(ctypes.CDLL(None), "mallopt") and hasattr(ctypes.CDLL(None), "malloc_trim")
# 40 MB in pieces that malloc takes from its heap; the last one keeps the heap from shrinking.
HOLES = """
import ctypes
from engine.garbage import give_back
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
pieces = [bytes(100_000) for _ in range(400)]
last = bytes(100_000)
pieces.clear()
held = resident()
assert give_back()
print(held - resident())
"""


@pytest.mark.skipif(not GLIBC, reason="the system's allocator is another one")
def test_free_pages_inside_a_heap_are_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOLES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 20_000_000


@pytest.mark.skipif(not GLIBC, reason="the system's allocator is another one")
def test_threads_share_heaps_unless_somebody_set_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert share_heaps()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert not share_heaps()


def test_without_such_an_allocator_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert not share_heaps() and not give_back()
