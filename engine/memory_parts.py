"""What the slots of the KV cache are used for: paged, and under each contiguous way.

Part of no box, as `engine/contiguous.py`. It reads the log's state and nothing else. The parts are
those of the PagedAttention paper's figure 2, and add up to the arena, which has as many slots as
the pool can give away.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from engine.config import EngineConfig
from engine.contiguous import WAYS
from engine.trace import Changes, State

PAGED = "paged"
ALL_WAYS = (*WAYS, PAGED)


class Parts(NamedTuple):
    """Slots, by what they are used for; one slot has the keys and values of one token."""

    tokens: int  # a token's, computed or scheduled in this step
    reserved: int  # held, and to be filled where the request goes on for as long as it may
    internal: int  # held, and never to be filled
    external: int  # free, but no gap is long enough for the request that is first in line
    free: int


class Memory:
    """The memory of a moment, divided up each way."""

    def __init__(self, state: State, config: EngineConfig):
        self.requests: State = state["requests"]
        self.pieces: State = state["contiguous"]
        self.free_blocks: int = state["queues"]["free"]["length"]
        self.queues: State = state["queues"]
        self.block_size = config.block_size
        self.size = config.largest_request()
        self.running = [*self._queue("running")]
        self.waiting = [*self._queue("waiting")]

    def _queue(self, name: str) -> Iterator[str]:
        key = self.queues[name].get("head")
        while key is not None:
            yield key
            key = self.requests[key].get("next")

    def fills(self, key: str) -> int:
        """Slots that a request fills where it goes on for as long as it may."""
        length: int = self.pieces["oracle"][key]["length"]
        return length

    def parts(self, way: str) -> Parts:
        """What the slots are used for."""
        return self._paged() if way == PAGED else self._contiguous(self.pieces[way])

    def _contiguous(self, pieces: Changes) -> Parts:
        tokens = reserved = internal = 0
        for key, piece in pieces.items():
            if "start" in piece:
                used, fills, length = self._tokens(key), self.fills(key), piece["length"]
                tokens += min(used, length)
                reserved += max(0, min(fills, length) - used)
                internal += max(0, length - max(used, fills))
        rest = self.size - tokens - reserved - internal
        line = any("start" not in pieces[key] for key in self.running)
        return Parts(tokens, reserved, internal, rest if line else 0, 0 if line else rest)

    def _paged(self) -> Parts:
        """Of blocks that several requests hold, each counts once."""
        tokens: dict[int, int] = {}
        fills: dict[int, int] = {}
        for key in self.running:
            for logical, block in self.requests[key].get("block_table", {}).items():
                before = int(logical) * self.block_size
                tokens[block] = max(tokens.get(block, 0), self._within(self._tokens(key) - before))
                fills[block] = max(fills.get(block, 0), self._within(self.fills(key) - before))
        held, used = len(tokens) * self.block_size, sum(tokens.values())
        filled = sum(max(fills[block], tokens[block]) for block in tokens)
        return Parts(used, filled - used, held - filled, 0, self.size - held)

    def _tokens(self, key: str) -> int:
        tokens: int = self.requests[key]["num_computed_tokens"]
        return tokens

    def _within(self, tokens: int) -> int:
        return max(0, min(self.block_size, tokens))

    def has_room(self, way: str) -> int:
        """How many of the running requests have their memory at this moment."""
        if way == PAGED:
            return len(self.running)
        return sum("start" in self.pieces[way][key] for key in self.running)

    def largest_batch(self, way: str) -> int:
        """How many of the requests known now fit at once: the running, then the waiting ones.

        A contiguous way may lay their pieces side by side. Paged, those that wait need blocks for
        the tokens known of them by now, hits not counted on; they grow later, and then one may be
        preempted.
        """
        if way == PAGED:
            blocks = [self._blocks(self.requests[key]["num_tokens"]) for key in self.waiting]
            more = sum(total <= self.free_blocks for total in accumulate(blocks))
            return len(self.running) + more
        known = [*self.running, *self.waiting]
        lengths = [self.pieces[way][key]["length"] for key in known]
        return sum(total <= self.size for total in accumulate(lengths))

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)
