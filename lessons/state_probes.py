"""Probes of the state at a moment: requests, blocks, memory, settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.config import EngineConfig
from engine.events import BlocksAllocated, BlocksHit
from engine.memory_parts import ALL_WAYS, PAGED, Memory
from engine.trace import State
from lessons.moments import Moment, ProbeError, Value, entry, probe

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
