"""Probes of what happened up to a moment: events, decisions, steps and their sizes, times."""

from __future__ import annotations

from collections.abc import Iterator

from engine.events import PLACES, BatchScheduled
from engine.origins import Origins
from engine.records import CODE_OF_REASON, TYPE_OF_FACTS, Event, Patch, Record
from engine.why import Why, decisions_about
from lessons.moments import Moment, ProbeError, Value, entry, probe
from lessons.reason_words import reason_words

# -- steps -------------------------------------------------------------------------------------


@probe
def step(moment: Moment) -> int:
    """The step of the moment, counted from 0."""
    return moment.records[-1].step if moment.records else 0


@probe
def phase(moment: Moment) -> str:
    """The phase of the moment."""
    return str(moment.records[-1].phase) if moment.records else "command"


@probe
def rows(moment: Moment) -> int:
    """Tokens that went through the model since the log began, again or for the first time."""
    facts = [event.facts for event in moment.events("batch_scheduled")]
    return sum(f.prefill_tokens + f.decode_tokens for f in facts if isinstance(f, BatchScheduled))


@probe
def most_rows(moment: Moment, request: str) -> int:
    """Most tokens that a step had in which a request got a token after its first one.

    The wait for that token is as long as the step, and a step is as long as it has rows.
    """
    steps = [event.step for event in moment.events("token_sampled", request)][:-1]
    sizes = [
        event.facts.prefill_tokens + event.facts.decode_tokens
        for event in moment.events("batch_scheduled")
        if event.step in steps and isinstance(event.facts, BatchScheduled)
    ]
    if not sizes:
        raise ProbeError(f"{request} has had no second token up to this moment")
    return max(sizes)


# -- events ------------------------------------------------------------------------------------


@probe
def count(moment: Moment, event: str, request: str = "") -> int:
    """How many events of a type have happened, of one request where it is named."""
    return sum(1 for _ in moment.events(event, request))


@probe
def in_step(moment: Moment, event: str, request: str = "") -> int:
    """How many events of a type have happened in the moment's own step."""
    return sum(each.step == step(moment) for each in moment.events(event, request))


@probe
def step_of(moment: Moment, event: str, request: str = "") -> int:
    """The step of the latest event of a type, counted from 0."""
    return moment.last(event, request).step


@probe
def seq(moment: Moment, event: str, request: str = "") -> int:
    """The sequence number of the latest event of a type."""
    return moment.last(event, request).seq


@probe
def first_seq(moment: Moment, event: str, request: str = "") -> int:
    """The sequence number of the first event of a type."""
    found = list(moment.events(event, request))
    return found[-1].seq if found else moment.last(event, request).seq


@probe
def first_step(moment: Moment, event: str, request: str = "") -> int:
    """The step of the first event of a type, counted from 0."""
    found = list(moment.events(event, request))
    return found[-1].step if found else moment.last(event, request).step


@probe
def fact(moment: Moment, event: str, field: str, request: str = "") -> Value:
    """A fact of the latest event of a type."""
    return entry(moment.last(event, request).facts._asdict(), field, f"fact of {event}")


@probe
def reason(moment: Moment, event: str, request: str = "") -> str:
    """The code of the reason that the latest event of a type has; empty where it has none."""
    found = moment.last(event, request).reason
    return "" if found is None else CODE_OF_REASON[type(found)]


@probe
def because(moment: Moment, event: str, request: str = "") -> str:
    """Why the latest event of a type came out as it did, in words; empty where it has no reason."""
    found = moment.last(event, request).reason
    return "" if found is None else reason_words(found)


@probe
def event_at(moment: Moment, seq: int) -> str:
    """The type of the event that a record is; empty for what is no event of this log."""
    found = record_at(moment, seq)
    return TYPE_OF_FACTS[type(found.facts)] if isinstance(found, Event) else ""


@probe
def request_at(moment: Moment, seq: int) -> str:
    """The request that a record is about; empty where it is about none."""
    found = record_at(moment, seq)
    return str(getattr(found.facts, "request", "")) if isinstance(found, Event) else ""


@probe
def step_at(moment: Moment, seq: int) -> int:
    """The step of a record; -1 where this log has none of this number."""
    found = record_at(moment, seq)
    return -1 if found is None else found.step


def record_at(moment: Moment, seq: int) -> Record | None:
    """The record of this sequence number, where the moment has it."""
    place = seq - moment.header.base_seq
    return moment.records[place] if 0 <= place < len(moment.records) else None


@probe
def decision(moment: Moment, request: str) -> str:
    """The latest decision about a request: admitted, behind, preempted and so on."""
    return next(decided(moment, request)).decision


@probe
def why(moment: Moment, decision: str, name: str, request: str) -> Value:
    """A number behind the latest such decision about a request: ahead, short and so on."""
    found = next((item for item in decided(moment, request) if item.decision == decision), None)
    if found is None:
        raise ProbeError(f"no decision {decision!r} about {request} fell up to this moment")
    reason = {} if found.reason is None else found.reason._asdict()
    known = {**found.event.facts._asdict(), **reason, **found.numbers}
    return entry(known, name, f"number behind {decision}")


def decided(moment: Moment, request: str) -> Iterator[Why]:
    """All decisions about a request, latest first; ProbeError where there is none."""
    origins = Origins(moment.header, moment.records)
    found = [item for step in origins.events for item in decisions_about(origins, request, step)]
    if not found:
        raise ProbeError(f"nothing was decided about {request} up to this moment")
    return reversed(found)


@probe
def milliseconds(moment: Moment, event: str) -> float:
    """How long the latest event of a type took, measured."""
    took = moment.last(event).duration_us
    if took is None:
        raise ProbeError(f"{event} is an event without a duration")
    return took / 1000


@probe
def phase_milliseconds(moment: Moment) -> float:
    """How long the phase of the moment took, measured, the log's own work included."""
    took = [r.duration_us for r in moment.records if isinstance(r, Patch) and r.duration_us]
    return took[-1] / 1000 if took else 0.0


@probe
def step_milliseconds(moment: Moment, step: int) -> float:
    """How long the phases of a step took together, measured, the log's own work included."""
    patches = [r for r in moment.records if isinstance(r, Patch) and r.step == step]
    if not patches:
        raise ProbeError(f"the log has no step {step!r:.20} up to this moment")
    return sum(patch.duration_us or 0.0 for patch in patches) / 1000


@probe
def box(moment: Moment, event: str) -> str:
    """The box of the map that the latest event of a type belongs to."""
    return PLACES[type(moment.last(event).facts)].component
