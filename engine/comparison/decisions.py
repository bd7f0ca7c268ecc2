"""Where two logs part: the first step in which the engines decided otherwise.

A step's decisions are who got how many tokens, which blocks were hit, handed out and evicted, who
was preempted and who finished, in the order in which they fell. What a token says is none of them,
nor is a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from engine.events import (
    AdmissionStopped,
    BlockEvicted,
    BlocksAllocated,
    BlocksHit,
    DraftsScheduled,
    RequestFinished,
    RequestPassedOver,
    RequestPreempted,
    RequestScheduled,
    StepDispatched,
)
from engine.records import Event, Phase, Record
from engine.trace import record_to_json

# In the order in which they explain a difference: what is told is the first that differs.
KINDS = ("hit", "scheduled", "preempted", "drafts", "finished", "allocated", "evicted")


class Decision(NamedTuple):
    """One decision of a step; two of them are the same where all but the event is."""

    kind: str
    request: str
    what: tuple[Any, ...]
    event: Event

    @property
    def key(self) -> tuple[Any, ...]:
        """What is compared."""
        return self[:3]


class Told(NamedTuple):
    """What both engines did about one request in one step, as the log's own events."""

    step: int
    request: str
    kind: str  # of `KINDS`; "order": the same in another order
    a: list[dict[str, Any]]
    b: list[dict[str, Any]]


class Decisions:
    """The decisions of one log, by step."""

    def __init__(self, records: Iterable[Record]):
        self.by_step: dict[int, list[Decision]] = {}
        self.dispatched: dict[int, Event] = {}
        self._withheld: dict[int, list[Event]] = {}  # who got nothing, and why
        self._finished: dict[str, Event] = {}
        for record in records:
            if isinstance(record, Event) and record.phase is not Phase.COMMAND:
                self._take(record)

    def _take(self, event: Event) -> None:
        facts = event.facts
        match facts:
            case StepDispatched():
                self.dispatched[event.step] = event
            case AdmissionStopped() | RequestPassedOver():
                self._withheld.setdefault(event.step, []).append(event)
            case RequestFinished():
                self._finished[facts.request] = event
        decision = decision_of(event)
        if decision is not None:
            self.by_step.setdefault(event.step, []).append(decision)

    def keys(self, step: int) -> list[tuple[Any, ...]]:
        """What was decided in a step."""
        return [decision.key for decision in self.by_step.get(step, [])]

    def about(self, step: int, request: str, kind: str) -> list[Decision]:
        """A step's decisions of one kind about one request."""
        found = self.by_step.get(step, [])
        return [each for each in found if (each.request, each.kind) == (request, kind)]

    def tell(self, step: int, request: str, kind: str) -> list[dict[str, Any]]:
        """The events of a kind; where it got no tokens, that which says why."""
        events = [each.event for each in self.about(step, request, kind)]
        if not events and kind == "scheduled":
            events = self._why_nothing(step, request)
        return [record_to_json(event) for event in events]

    def _why_nothing(self, step: int, request: str) -> list[Event]:
        own = [each.event for each in self.about(step, request, "preempted")]
        withheld = self._withheld.get(step, [])
        own += [e for e in withheld if getattr(e.facts, "request", "") == request]
        ended = self._finished.get(request)
        if not own and ended is not None and ended.step < step:
            own = [ended]
        return own or withheld[-1:]  # behind the one that was not let in


def decision_of(event: Event) -> Decision | None:
    """What an event decides; None where it decides nothing of a step."""
    match event.facts:
        case RequestScheduled() as f:
            what = (f.kind, f.num_tokens, f.num_computed_tokens, f.num_known_tokens)
            return Decision("scheduled", f.request, what, event)
        case BlocksHit() as f:
            return Decision("hit", f.request, f.blocks, event)
        case BlocksAllocated() as f:
            return Decision("allocated", f.request, f.blocks, event)
        case BlockEvicted() as f:
            return Decision("evicted", f.request, (f.block,), event)
        case RequestPreempted() as f:
            return Decision("preempted", f.request, (f.by,), event)
        case DraftsScheduled() as f:
            return Decision("drafts", f.request, (len(f.tokens),), event)
        case RequestFinished() as f:
            return Decision("finished", f.request, (f.finish_reason, f.num_output_tokens), event)
    return None


def first_divergence(a: Decisions, b: Decisions) -> Told | None:
    """The first step whose decisions differ, told of the first request about which they do."""
    for step in sorted(a.by_step.keys() | b.by_step.keys()):
        keys = a.keys(step), b.keys(step)
        if keys[0] != keys[1]:
            return _told(step, a, b)
    return None


def _told(step: int, a: Decisions, b: Decisions) -> Told:
    both = a.by_step.get(step, []), b.by_step.get(step, [])
    place = next(
        (i for i, (x, y) in enumerate(zip(*both, strict=False)) if x.key != y.key),
        min(map(len, both)),
    )
    first = [decisions[place] for decisions in both if place < len(decisions)]
    for request in dict.fromkeys(each.request for each in (*first, *both[0], *both[1])):
        # Where one side left it out altogether, that comes before what it would have hit.
        left_out = any(not side.about(step, request, "scheduled") for side in (a, b))
        for kind in ("scheduled", *KINDS) if left_out else KINDS:
            of = [[d.key for d in side.about(step, request, kind)] for side in (a, b)]
            if of[0] != of[1]:
                told = (side.tell(step, request, kind) for side in (a, b))
                return Told(step, request, kind, *told)
    sides = ([record_to_json(side[place].event)] for side in both)
    return Told(step, first[0].request, "order", *sides)


def first_other_dispatch(a: Decisions, b: Decisions) -> Told | None:
    """The first step whose forward ran otherwise: by another graph, or by none."""
    for step in sorted(a.dispatched.keys() & b.dispatched.keys()):
        events = a.dispatched[step], b.dispatched[step]
        if events[0].facts != events[1].facts:
            return Told(step, "", "dispatched", *([record_to_json(e)] for e in events))
    return None
