"""Frames of a page, out of the browser's own trace (Chrome's trace event format)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CATEGORIES = ("devtools.timeline", "disabled-by-default-devtools.timeline")
TASK = "RunTask"
# Marks a task as a frame: callbacks of `requestAnimationFrame`, or the handing over of a picture.
FRAME = frozenset({"FireAnimationFrame", "Commit"})
LAYOUT = frozenset({"UpdateLayoutTree", "Layout"})
DRAWING = frozenset({"PrePaint", "Paint", "Layerize", "Commit"})


class Frame(NamedTuple):
    """One frame's work on the page's main thread, in milliseconds."""

    wall: float
    cpu: float  # of the thread, so that what else the machine does is left out
    layout: float  # CPU time of style and layout, wherever they were asked for
    drawing: float  # CPU time of painting and handing over to the compositor
    committed: bool  # something new was drawn

    @property
    def script(self) -> float:
        """CPU time of all the rest, which is JavaScript and its garbage."""
        return self.cpu - self.layout - self.drawing


@dataclass
class Span:
    """An event with a beginning and an end, and the CPU time of those inside it."""

    name: str
    end: float
    wall: float
    cpu: float
    inside: float = 0.0
    kinds: dict[str, float] = field(default_factory=dict)


def frames_of(trace: bytes) -> list[Frame]:
    """The frames of the busiest page in a trace, in order."""
    events = json.loads(trace)["traceEvents"]
    frames: dict[tuple[int, int], list[Frame]] = {}
    for thread, spans in by_thread(events).items():
        frames[thread] = list(frames_among(spans))
    return max(frames.values(), key=len, default=[])


def by_thread(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """The complete events of each page's main thread, in the order of their beginning."""
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    found: dict[tuple[int, int], list[dict[str, Any]]] = {thread: [] for thread in mains}
    for event in events:
        thread = (event["pid"], event["tid"])
        if event["ph"] == "X" and thread in found:
            found[thread].append(event)
    for spans in found.values():
        spans.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    return found


def frames_among(events: Iterable[dict[str, Any]]) -> Iterator[Frame]:
    """Of one thread's events, nested as they are, the tasks that are frames."""
    stack: list[Span] = []
    for event in events:
        while stack and stack[-1].end <= event["ts"]:
            yield from closed(stack)
        wall, cpu = event.get("dur", 0), event.get("tdur", event.get("dur", 0))
        stack.append(Span(event["name"], event["ts"] + wall, wall, cpu))
    while stack:
        yield from closed(stack)


def closed(stack: list[Span]) -> Iterator[Frame]:
    """Take the innermost span off; its time goes to the task around it, or makes a frame."""
    span = stack.pop()
    span.kinds[span.name] = span.kinds.get(span.name, 0.0) + span.cpu - span.inside
    if span.name == TASK:
        if FRAME & span.kinds.keys():
            yield frame_of(span)
        return
    if stack:
        outer = stack[-1]
        outer.inside += span.cpu
        for name, own in span.kinds.items():
            outer.kinds[name] = outer.kinds.get(name, 0.0) + own


def frame_of(task: Span) -> Frame:
    """A task that is a frame, in milliseconds."""
    return Frame(
        wall=task.wall / 1e3,
        cpu=task.cpu / 1e3,
        layout=sum(own for name, own in task.kinds.items() if name in LAYOUT) / 1e3,
        drawing=sum(own for name, own in task.kinds.items() if name in DRAWING) / 1e3,
        committed="Commit" in task.kinds,
    )
