"""Probes: what a lesson may read from the log of an engine, by name.

A probe is a function of a `Moment`, which is a log up to one of its records. Lessons call them in
expressions: `blocks('r0')`. `python -m lessons probes` lists them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from engine.config import EngineConfig
from engine.events import PLACES, BatchScheduled, BlocksAllocated, BlocksHit
from engine.memory_parts import ALL_WAYS, PAGED, Memory
from engine.origins import Origins
from engine.records import (
    CODE_OF_REASON,
    FACTS_BY_TYPE,
    TYPE_OF_FACTS,
    Event,
    Patch,
    Record,
)
from engine.trace import State, Trace, TraceHeader, fold
from engine.why import Why, decisions_about

Value = bool | int | float | str | tuple[Any, ...]
Probe = Callable[..., Value]

PROBES: dict[str, Probe] = {}


class ProbeError(ValueError):
    """What is asked for is not in the log at this moment; the message says what is missing."""


class Moment(NamedTuple):
    """A log up to one of its records."""

    header: TraceHeader
    records: tuple[Record, ...]
    state: State

    @classmethod
    def of(cls, trace: Trace, seq: int) -> Moment:
        """The log of `trace` up to record `seq`; ProbeError where it is not kept any more."""
        header, records = trace.after(-1, limit=trace.next_seq + 1)
        assert header is not None, "a reader at the start gets the header"
        if seq < header.base_seq:
            raise ProbeError(
                f"record {seq} has left the log, which begins at {header.base_seq} now"
            )
        kept = tuple(records[: seq + 1 - header.base_seq])
        return cls(header, kept, fold(header.state, kept))

    @property
    def trace_id(self) -> str:
        """Of the log that this is a part of."""
        return self.header.trace_id

    @property
    def seq(self) -> int:
        """The sequence number of the last record."""
        return self.records[-1].seq if self.records else self.header.base_seq - 1

    def events(self, type_name: str, request: str = "") -> Iterator[Event]:
        """Events of a type, latest first; of one request, where one is named."""
        facts = FACTS_BY_TYPE.get(type_name)
        if facts is None:
            raise ProbeError(f"there is no event {type_name!r}; engine/events.py has them all")
        for record in reversed(self.records):
            if not isinstance(record, Event) or type(record.facts) is not facts:
                continue
            if not request or getattr(record.facts, "request", None) == request:
                yield record

    def last(self, type_name: str, request: str = "") -> Event:
        """The latest event of a type; ProbeError where there is none."""
        found = next(self.events(type_name, request), None)
        if found is None:
            of_whom = f" of {request}" if request else ""
            raise ProbeError(f"no event {type_name}{of_whom} has happened up to this moment")
        return found

    def request(self, request: str) -> State:
        """The record of a request; ProbeError where the log knows none of this name."""
        found: State | None = self.state.get("requests", {}).get(request)
        if found is None:
            raise ProbeError(f"the log knows no request {request!r} at this moment")
        return found


def probe(function: Probe) -> Probe:
    """Make a function of a moment known to lessons under its own name."""
    PROBES[function.__name__] = function
    return function


def arguments_of(name: str) -> inspect.Signature:
    """What a lesson gives to a probe: all its parameters but the moment."""
    signature = inspect.signature(PROBES[name])
    return signature.replace(parameters=list(signature.parameters.values())[1:])


# -- requests ----------------------------------------------------------------------------------


@probe
def prompt_tokens(moment: Moment, request: str) -> int:
    """Tokens of a request's prompt."""
    return int(moment.request(request)["num_prompt_tokens"])


@probe
def known_tokens(moment: Moment, request: str) -> int:
    """Tokens of a request that are known: its prompt and what was sampled so far."""
    return int(moment.request(request)["num_tokens"])


@probe
def computed_tokens(moment: Moment, request: str) -> int:
    """Tokens of a request whose keys and values are in the cache once its step is done."""
    return int(moment.request(request)["num_computed_tokens"])


@probe
def output_tokens(moment: Moment, request: str) -> int:
    """Tokens that were sampled for a request."""
    return len(moment.request(request).get("output_token_ids", {}))


@probe
def hit_tokens(moment: Moment, request: str) -> int:
    """Tokens of a request that the prefix cache had when it was admitted."""
    return int(moment.request(request)["hit_tokens"])


@probe
def status(moment: Moment, request: str) -> str:
    """What a request is: waiting, running, preempted, finished."""
    return str(moment.request(request)["status"])


@probe
def output_text(moment: Moment, request: str) -> str:
    """The text that a request has sent out so far."""
    pieces = moment.request(request).get("output_pieces", {})
    return "".join(str(piece) for piece in pieces.values())


# -- blocks ------------------------------------------------------------------------------------


@probe
def blocks(moment: Moment, request: str) -> int:
    """Blocks in a request's block table now; none once it has finished."""
    return len(moment.request(request).get("block_table", {}))


@probe
def blocks_taken(moment: Moment, request: str) -> int:
    """Blocks that a request was given since the log began, from the pool or from the cache."""
    given = [*moment.events("blocks_allocated", request), *moment.events("blocks_hit", request)]
    facts = [event.facts for event in given]
    return sum(len(f.blocks) for f in facts if isinstance(f, BlocksAllocated | BlocksHit))


@probe
def block(moment: Moment, request: str, index: int) -> int:
    """The physical block at a place of a request's block table, counted from 0."""
    table = moment.request(request).get("block_table", {})
    if str(index) not in table:
        raise ProbeError(f"{request} has no block at place {index} of its table at this moment")
    return int(table[str(index)])


@probe
def first_blocks(moment: Moment, request: str) -> tuple[int, ...]:
    """The blocks that a request was given first."""
    given = [*moment.events("blocks_allocated", request)]
    if not given:
        raise ProbeError(f"{request} was given no blocks up to this moment")
    blocks: tuple[int, ...] = tuple(given[-1].facts._asdict()["blocks"])
    return blocks


@probe
def free_blocks(moment: Moment) -> int:
    """Blocks in the free queue."""
    return int(moment.state["queues"]["free"]["length"])


@probe
def null_block(moment: Moment) -> int:
    """The block that is never given to a request."""
    found = [key for key, block in moment.state["blocks"].items() if block.get("null_block")]
    return int(found[0])


@probe
def ref_cnt(moment: Moment, block: int) -> int:
    """How many requests hold a block."""
    found = moment.state["blocks"].get(str(block))
    if found is None:
        raise ProbeError(f"the pool has no block {block!r:.20}")
    return int(found["ref_cnt"])


@probe
def queue(moment: Moment, name: str) -> tuple[Any, ...]:
    """What stands in a queue, from its head: requests in waiting and running, blocks in free."""
    found = entry(moment.state["queues"], name, "queue")
    members = moment.state["blocks" if name == "free" else "requests"]
    return tuple(_linked(members, found.get("head")))  # type: ignore[union-attr]


def _linked(members: State, key: Any) -> Iterator[Any]:
    while key is not None:
        yield key
        key = members[str(key)].get("next")


# -- beside the old ways -----------------------------------------------------------------------


def memory(moment: Moment, way: str) -> Memory:
    """The memory of the moment; ProbeError where there is no such way to divide it up."""
    if way not in ALL_WAYS:
        raise ProbeError(f"there is no way {way!r}; there are {', '.join(ALL_WAYS)}")
    return Memory(moment.state, EngineConfig.parse(moment.header.config))


@probe
def slots(moment: Moment, way: str, part: str) -> Value:
    """Slots that are tokens, reserved, internal, external or free, under max, pow2, oracle, paged.

    What the ways are: `engine/contiguous.py`; what the parts: `engine/memory_parts.py`.
    """
    return entry(memory(moment, way).parts(way)._asdict(), part, "part of the memory")


@probe
def have_room(moment: Moment, way: str) -> int:
    """How many of the requests that run would have their memory under a way."""
    return memory(moment, way).has_room(way)


@probe
def largest_batch(moment: Moment, way: str) -> int:
    """How many of the requests that run and wait would fit at once under a way."""
    return memory(moment, way).largest_batch(way)


@probe
def reserves(moment: Moment, way: str, request: str) -> int:
    """Slots that a request has under a way, or would have; paged: those of its blocks."""
    divided = memory(moment, way)
    if way == PAGED:
        return len(moment.request(request).get("block_table", {})) * divided.block_size
    piece = divided.pieces[way].get(request)
    if piece is None:
        raise ProbeError(f"{request} has ended, or is not known, at this moment")
    return int(piece["length"])


# -- engine ------------------------------------------------------------------------------------


@probe
def config(moment: Moment, name: str) -> Value:
    """A setting of the engine."""
    return entry(moment.header.config, name, "setting")


@probe
def model(moment: Moment, name: str) -> Value:
    """A fact of the model: num_layers, num_kv_heads, kv_bytes_per_token and so on."""
    return entry(moment.header.model, name, "fact of the model")


@probe
def counter(moment: Moment, name: str) -> Value:
    """A total since the engine began: prefix_hits, generation_tokens and so on."""
    return entry(moment.state.get("counters", {}), name, "counter")


@probe
def captured_sizes(moment: Moment, mode: str) -> tuple[int, ...]:
    """Rows of all graphs that there can be in a mode, FULL or PIECEWISE; none where it has none."""
    keys = moment.state.get("dispatcher", {}).get("keys", {})
    if mode not in keys:
        raise ProbeError(f"there are no graphs of mode {mode!r}; there are {', '.join(keys)}")
    return tuple(int(key[0]) for key in keys[mode])


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


@probe
def step(moment: Moment) -> int:
    """The step of the moment, counted from 0."""
    return moment.records[-1].step if moment.records else 0


@probe
def phase(moment: Moment) -> str:
    """The phase of the moment."""
    return str(moment.records[-1].phase) if moment.records else "command"


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


def entry(record: dict[str, Any], name: str, what: str) -> Value:
    """A value of a record; ProbeError with the names that there are."""
    if name not in record:
        raise ProbeError(f"there is no {what} {name!r}; there are {', '.join(record)}")
    value: Value = record[name]
    return value
