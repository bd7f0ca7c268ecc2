"""Why a request got what it got: the decisions of a log, each with its reason and its numbers.

No box of its own: it reads what the boxes `scheduler` and `block-manager` logged. Most numbers
stand in the events and their reasons; what follows from the log before them comes from
`engine/origins.py`. The page's history of a request is the same, in sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from engine.events import (
    AdmissionStopped,
    BlockEvicted,
    PrefixLookedUp,
    RequestPassedOver,
    RequestPreempted,
    RequestScheduled,
)
from engine.origins import Numbers, Origins
from engine.reasons import BudgetSpent, PreemptedThisStep, Reason
from engine.records import CODE_OF_REASON, TYPE_OF_FACTS, Event
from engine.vllm_symbols import Symbol, decided_by

if TYPE_CHECKING:
    from engine.trace import Trace

# Which events tell a decision, and which. (`allocation_failed` is none: what follows from it, a
# preemption or a stop, has its numbers.)
DECISIONS = {
    "request_submitted": "submitted",
    "request_refused": "refused",
    "request_arrived": "queued",
    "request_aborted": "aborted",
    "prefix_cache_reset": "reset",
    "prefix_looked_up": "looked_up",
    "blocks_hit": "hit",
    "block_evicted": "evicted",
    "blocks_allocated": "allocated",
    "blocks_cached": "cached",
    "blocks_uncached": "uncached",
    "blocks_left_uncomputed": "left_uncomputed",
    "blocks_freed": "freed",
    "request_scheduled": "scheduled",
    "drafts_scheduled": "drafts",
    "drafts_dropped": "lost_drafts",
    "drafts_settled": "settled",
    "request_passed_over": "passed_over",
    "request_preempted": "preempted",
    "admission_stopped": "kept_waiting",
    "token_dropped": "dropped",
    "request_finished": "finished",
}
FIRST_SHARES = {"new": "admitted", "resumed": "resumed"}
# Decisions about a request that an event tells of another one: a preemption for its sake, and
# that somebody ahead of it in the queue, or of those running, got nothing.
MADE_ROOM, BEHIND, SKIPPED = "made_room", "behind", "skipped"


class Why(NamedTuple):
    """One decision about a request: what was decided, on what grounds, and where."""

    decision: str  # of `DECISIONS`, or another name of this module
    event: Event  # that tells it
    numbers: Numbers  # what the event itself does not have

    @property
    def seq(self) -> int:
        """The sequence number of the event."""
        return self.event.seq

    @property
    def reason(self) -> Reason | None:
        """Why it fell as it did; None where the event says it all."""
        return self.event.reason

    @property
    def symbol(self) -> Symbol | None:
        """The place in vLLM 0.26.0 that decides the same; None where it has no counterpart."""
        code = "" if self.reason is None else CODE_OF_REASON[type(self.reason)]
        return decided_by(TYPE_OF_FACTS[type(self.event.facts)], code)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks that it is about."""
        facts = self.event.facts
        if isinstance(facts, BlockEvicted):
            return (facts.block,)
        if isinstance(facts, PrefixLookedUp):
            return facts.hit_blocks
        blocks: tuple[int, ...] = getattr(facts, "blocks", ())
        return blocks

    @property
    def requests(self) -> tuple[str, ...]:
        """All requests that it names, each once."""
        facts, numbers = self.event.facts, self.numbers
        names = [getattr(facts, "request", ""), getattr(facts, "by", "")]
        names += [numbers.get(key, "") for key in ("cached_by", "lost_to", "other")]
        names += [*numbers.get("holders", ()), *numbers.get("victims", ())]
        names += [name for name, _ in numbers.get("sources", ())]
        return tuple(dict.fromkeys(name for name in names if name))


def why(trace: Trace, request: str, step: int) -> list[Why]:
    """All decisions of a step about a request, in order.

    A record counts to its own step, also where asynchronous steps overlap in the log.
    """
    header, records = trace.after(-1, limit=trace.next_seq + 1)
    assert header is not None, "a reader at the start gets the header"
    return decisions_about(Origins(header, records), request, step)


def decisions_about(origins: Origins, request: str, step: int) -> list[Why]:
    """`why` over a log that was read already."""
    events = origins.events.get(step, [])
    return [item for event in events for item in about(origins, event, request)]


def about(origins: Origins, event: Event, request: str) -> Iterator[Why]:
    """What an event decides about a request, also where it names another."""
    facts = event.facts
    numbers = origins.numbers.get(event.seq, {})
    decision = DECISIONS.get(TYPE_OF_FACTS[type(facts)])
    if decision is None:
        return
    if getattr(facts, "request", "") == request:
        if isinstance(facts, RequestScheduled):
            decision = FIRST_SHARES.get(facts.kind, decision)
        yield Why(decision, event, numbers)
    elif isinstance(facts, RequestPreempted):
        if facts.by == request:
            yield Why(MADE_ROOM, event, numbers)
    elif isinstance(facts, AdmissionStopped):
        if stood(origins, event, request) == "waiting":
            place = origins.place_in_queue(request, event)
            yield Why(BEHIND, event, {**numbers, **place})
    elif isinstance(facts, RequestPassedOver) and runs_behind(origins, event, request):
        yield Why(SKIPPED, event, numbers)


def runs_behind(origins: Origins, event: Event, request: str) -> bool:
    """Whether a running request is one of those that get nothing because of this passing over."""
    if not isinstance(event.reason, BudgetSpent | PreemptedThisStep):
        return False  # the other's own length: those behind it are looked at
    if stood(origins, event, request) != "running":
        return False
    return not any(
        isinstance(other.facts, RequestScheduled | RequestPassedOver)
        and other.facts.request == request
        for other in origins.events[event.step]
    )


def stood(origins: Origins, event: Event, request: str) -> str:
    """How a request stood when an event happened; "" before it came."""
    standing = origins.standing(request, event.seq)
    return "" if standing is None else standing.status
