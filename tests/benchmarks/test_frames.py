"""Frames out of a browser's trace: which tasks are frames, and whose time is whose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.frames import frames_of

MAIN = [
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "CrRendererMain"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "args": {"name": "Compositor"}},
]


def span(name: str, begin: int, wall: int, cpu: int, tid: int = 2) -> dict[str, Any]:
    """An event as Chromium writes it, in microseconds."""
    return {
        "ph": "X",
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": begin,
        "dur": wall,
        "tdur": cpu,
    }


def test_a_frame_s_time_is_its_task_s_and_nothing_is_counted_twice() -> None:
    events = [
        span("RunTask", 0, 20_000, 10_000),
        span("FireAnimationFrame", 1_000, 9_000, 6_000),
        span("FunctionCall", 1_100, 8_000, 5_900),
        span("Layout", 2_000, 2_000, 2_000),  # asked for in the middle of a script
        span("UpdateLayoutTree", 2_100, 700, 700),  # inside of it
        span("UpdateLayoutTree", 11_000, 600, 500),
        span("Paint", 12_000, 2_000, 1_500),
        span("Commit", 15_000, 1_000, 1_000),
        span("RunTask", 30_000, 5_000, 5_000),  # a timer: no frame
        span("TimerFire", 30_100, 4_000, 4_000),
        span("RunTask", 40_000, 700, 500),  # a frame in which nothing new was drawn
        span("FireAnimationFrame", 40_100, 300, 300),
        span("RunTask", 0, 90_000, 90_000, tid=3),
        span("Commit", 1, 80_000, 80_000, tid=3),
    ]
    first, second = frames_of(json.dumps({"traceEvents": [*events[::-1], *MAIN]}).encode())
    assert (first.wall, first.cpu, first.committed) == (20.0, 10.0, True)
    assert first.layout == pytest.approx(2.5) and first.drawing == pytest.approx(2.5)
    assert first.script == pytest.approx(5.0)
    assert (second.cpu, second.committed) == (0.5, False)
