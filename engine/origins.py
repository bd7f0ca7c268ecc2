"""What a log says of an event's past: who cached that content, who holds it, who is ahead.

Part of no box, and vLLM keeps nothing like it. It reads a log once, from its beginning, and writes
down for each event the numbers that the event alone does not have, as they stood when it happened.
`engine/why.py` tells them. The page does the same over its records
(`views/assets/core/origins.js`), and a test compares the two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.events import (
    AdmissionStopped,
    BlockEvicted,
    BlocksAllocated,
    BlocksCached,
    BlocksFreed,
    BlocksHit,
    BlocksUncached,
    PrefixCacheReset,
    PrefixLookedUp,
    RequestArrived,
    RequestFinished,
    RequestPassedOver,
    RequestPreempted,
    RequestScheduled,
    TokenAppended,
)
from engine.reasons import DoesNotFit, FirstMiss, PreemptedThisStep
from engine.records import Event, Patch, Phase, Record

if TYPE_CHECKING:
    from engine.trace import Changes, State, TraceHeader

Numbers = dict[str, Any]  # numbers and names, and tuples of them


class Content(NamedTuple):
    """What a block has cached, and who entered it ("" where the log does not go back so far)."""

    hash: str
    parent: str
    request: str
    logical: int  # the block's place in that request's table
    step: int


class Lost(NamedTuple):
    """Content that no block had any more."""

    content: Content
    how: str  # "evicted", "uncached" or "reset"
    step: int
    to: str  # the request that the block went to


class Standing(NamedTuple):
    """How a request stands from a record on."""

    seq: int
    status: str  # "waiting", "running" or "gone"
    step: int


class Origins:
    """The past of each event of a log."""

    def __init__(self, header: TraceHeader, records: Iterable[Record]):
        self.block_size = int(header.config.get("block_size", 1))
        self.numbers: dict[int, Numbers] = {}  # by sequence number, where there are any
        self.events: defaultdict[int, list[Event]] = defaultdict(list)  # by step
        self.standings: defaultdict[str, list[Standing]] = defaultdict(list)
        self._ahead: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)  # (seq, who)
        self._schedule_ends: dict[int, int] = {}  # the record that ends a step's `schedule`
        # As of the record that was read last. Dicts without values are sets that keep an order.
        self._running: set[str] = set()
        self._content: dict[int, Content] = {}  # by block
        self._copies: defaultdict[str, dict[int, None]] = defaultdict(dict)  # blocks of a hash
        self._following: defaultdict[str, dict[int, None]] = defaultdict(dict)  # of a parent's hash
        self._lost: dict[str, Lost] = {}
        self._holders: defaultdict[int, dict[str, None]] = defaultdict(dict)  # of a block
        self._unused_since: dict[int, int] = {}  # of a block: when its last holder let go
        self._computed: dict[str, int] = {}  # tokens that a request had when it was preempted
        self._own_hits: dict[str, int] = {}  # blocks of its own content at its latest look-up
        self._given: dict[str, tuple[int, int]] = {}  # a request's latest share: step, tokens
        self._victims: tuple[int, tuple[str, ...]] = (-1, ())  # of which step
        self._prompts: dict[str, list[int]] = {}
        self._salts: dict[str, str] = {}
        self._outputs: defaultdict[str, list[int]] = defaultdict(list)
        self._begin(header.state, header.base_seq - 1)
        for record in records:
            if isinstance(record, Patch):
                self._take_patch(record)
            else:
                self._take_event(record)

    def standing(self, request: str, seq: int) -> Standing | None:
        """How a request stood at a record; None before it came."""
        history = self.standings.get(request, [])
        place = bisect_right(history, seq, key=itemgetter(0))
        return history[place - 1] if place else None

    def place_in_queue(self, request: str, event: Event) -> Numbers:
        """How many are ahead of a waiting request, and for how many steps it has waited.

        The queue is the one that the step's `schedule` left.
        """
        standing = self.standing(request, event.seq)
        assert standing is not None
        seq = self._schedule_ends.get(event.step, event.seq)
        count, other = 0, self._who_is_ahead(request, seq)
        while other and count < len(self._ahead):
            count, other = count + 1, self._who_is_ahead(other, seq)
        return {"ahead": count, "waited": event.step - standing.step}

    def _who_is_ahead(self, request: str, seq: int) -> str:
        history = self._ahead.get(request, [])
        place = bisect_right(history, seq, key=itemgetter(0))
        return history[place - 1][1] if place else ""

    # -- reading --------------------------------------------------------------------------------

    def _begin(self, state: State, seq: int) -> None:
        """Take the state before the first record: who holds what is known, its past is not."""
        step = state.get("engine", {}).get("step", 0)
        for key, request in state.get("requests", {}).items():
            self._take_request(key, request, seq)
            self._outputs[key].extend(request.get("output_token_ids", {}).values())
            status = request["status"]
            if status == "running":
                self._stand(key, seq, "running", step)
                self._running.add(key)
            elif status in ("waiting", "preempted"):
                self._stand(key, seq, "waiting", step)
            for block in request.get("block_table", {}).values():
                self._holders[block][key] = None
        for key, block in state.get("blocks", {}).items():
            if "hash" in block:
                self._enter(int(key), Content(block["hash"], "?", "", 0, step))

    def _take_patch(self, patch: Patch) -> None:
        for key, changes in patch.changes.get("requests", {}).items():
            if changes is not None:
                self._take_request(key, changes, patch.seq)
        if patch.phase is Phase.SCHEDULE:
            self._schedule_ends[patch.step] = patch.seq

    def _take_request(self, key: str, changes: Changes, seq: int) -> None:
        if "prompt_token_ids" in changes:
            self._prompts[key] = changes["prompt_token_ids"]
            self._salts[key] = changes.get("cache_salt", "")
        if "prev" in changes or key not in self._ahead:
            self._ahead[key].append((seq, changes.get("prev") or ""))

    def _take_event(self, event: Event) -> None:
        self.events[event.step].append(event)
        take = TAKE.get(type(event.facts))
        numbers = take(self, event, event.facts) if take else None
        if numbers:
            self.numbers[event.seq] = numbers

    def _stand(self, request: str, seq: int, status: str, step: int) -> None:
        self.standings[request].append(Standing(seq, status, step))

    # -- requests -------------------------------------------------------------------------------

    def _waits(self, event: Event, facts: RequestArrived) -> None:
        self._stand(facts.request, event.seq, "waiting", event.step)

    def _share(self, event: Event, facts: RequestScheduled) -> Numbers | None:
        """First shares tell the seat, and what a resumed request still had."""
        self._given[facts.request] = event.step, facts.num_tokens
        if facts.kind == "running":
            return None
        self._running.add(facts.request)
        numbers = {"seat": len(self._running), **self._waited(event, facts.request)}
        if facts.kind == "resumed":
            numbers["computed"] = self._computed.get(facts.request, 0)
            numbers["own_hits"] = self._own_hits.get(facts.request, 0) * self.block_size
        self._stand(facts.request, event.seq, "running", event.step)
        return numbers

    def _preempted(self, event: Event, facts: RequestPreempted) -> Numbers | None:
        """What this step had given it already, and takes back."""
        self._running.discard(facts.request)
        self._computed[facts.request] = facts.num_computed_tokens
        self._stand(facts.request, event.seq, "waiting", event.step)
        if facts.by:
            step, victims = self._victims
            others = victims if step == event.step else ()
            self._victims = event.step, (*others, facts.request)
        step, given = self._given.get(facts.request, (-1, 0))
        return {"taken_back": given} if step == event.step else None

    def _stopped(self, event: Event, facts: AdmissionStopped) -> Numbers:
        numbers = self._waited(event, facts.request)
        if isinstance(event.reason, DoesNotFit):
            numbers["short"] = event.reason.needs + event.reason.watermark - event.reason.free
        return {**numbers, **self._whose_fault(event)}

    def _passed_over(self, event: Event, facts: RequestPassedOver) -> Numbers:
        return self._whose_fault(event)

    def _finished(self, event: Event, facts: RequestFinished) -> None:
        self._running.discard(facts.request)
        self._stand(facts.request, event.seq, "gone", event.step)

    def _waited(self, event: Event, request: str) -> Numbers:
        standing = self.standing(request, event.seq)
        return {} if standing is None else {"waited": event.step - standing.step}

    def _whose_fault(self, event: Event) -> Numbers:
        """Who was preempted, where that is why nobody gets anything any more."""
        if not isinstance(event.reason, PreemptedThisStep):
            return {}
        step, victims = self._victims
        return {"victims": victims if step == event.step else ()}

    def _appended(self, event: Event, facts: TokenAppended) -> None:
        self._outputs[facts.request].append(facts.token)

    def _tokens(self, request: str, index: int) -> list[int]:
        """The tokens of a full block of a request's table; [] where the log has not all of them."""
        prompt, output = self._prompts.get(request, []), self._outputs.get(request, [])
        first, last = index * self.block_size, (index + 1) * self.block_size
        inner = max(0, first - len(prompt)), max(0, last - len(prompt))
        tokens = [*prompt[first:last], *output[slice(*inner)]]
        return tokens if len(tokens) == self.block_size else []

    # -- blocks ---------------------------------------------------------------------------------

    def _looked_up(self, event: Event, facts: PrefixLookedUp) -> Numbers:
        sources: dict[str, int] = {}
        for block in facts.hit_blocks:
            content = self._content.get(block)
            name = content.request if content else ""
            sources[name] = sources.get(name, 0) + 1
        self._own_hits[facts.request] = sources.get(facts.request, 0)
        numbers: Numbers = {"sources": tuple(sources.items())} if sources else {}
        if isinstance(event.reason, FirstMiss):
            numbers |= self._missed(facts, event.reason)
        return numbers

    def _missed(self, facts: PrefixLookedUp, reason: FirstMiss) -> Numbers:
        """What became of the content that missed, or where the nearest cached content differs."""
        lost = self._lost.get(reason.hash)
        if lost is not None:
            return {
                "miss": lost.how,
                "cached_by": lost.content.request,
                "cached_step": lost.content.step,
                "lost_step": lost.step,
                "lost_to": lost.to,
            }
        before = self._content.get(facts.hit_blocks[-1]) if facts.hit_blocks else None
        following = self._following.get(before.hash if before else "", {})
        return self._parting(facts.request, reason.block, following) or {"miss": "new"}

    def _parting(self, request: str, index: int, following: Iterable[int]) -> Numbers:
        """The first token that differs from the cached block that has most tokens in common.

        Content of another salt is no nearer for having some; it has to have them all.
        """
        tokens, salt = self._tokens(request, index), self._salts.get(request)
        most, nearest, theirs = -1, -1, tokens
        for block in following:
            content = self._content[block]
            others = self._tokens(content.request, content.logical)
            same = num_common(tokens, others)
            may_hit = self._salts.get(content.request) == salt or same == len(tokens)
            if others and may_hit and same > most:
                most, nearest, theirs = same, block, others
        if not tokens or nearest < 0:
            return {}
        numbers = {"other": self._content[nearest].request, "block": nearest}
        if most == len(tokens):
            return {"miss": "salted", **numbers}
        return {
            "miss": "parted",
            "position": index * self.block_size + most,
            "token": tokens[most],
            "other_token": theirs[most],
            **numbers,
        }

    def _hit(self, event: Event, facts: BlocksHit) -> Numbers:
        held_by = self._hold(facts.request, facts.blocks)
        return {"holders": tuple(held_by)} if held_by else {}

    def _allocated(self, event: Event, facts: BlocksAllocated) -> None:
        self._hold(facts.request, facts.blocks)

    def _hold(self, request: str, blocks: Iterable[int]) -> dict[str, None]:
        """A request takes blocks; returns who held some of them before."""
        others: dict[str, None] = {}
        for block in blocks:
            others |= self._holders[block]
            self._holders[block][request] = None
        return others

    def _freed(self, event: Event, facts: BlocksFreed) -> Numbers:
        others: dict[str, None] = {}
        for block in facts.blocks:
            self._holders[block].pop(facts.request, None)
            others |= self._holders[block]
        for block in facts.returned:
            self._unused_since[block] = event.step
        kept = sum(block in self._content for block in facts.returned)
        return {"kept": kept, "holders": tuple(others)}

    def _evicted(self, event: Event, facts: BlockEvicted) -> Numbers:
        content = self._content.get(facts.block)
        numbers: Numbers = {}
        if content is not None:
            numbers = {
                "cached_by": content.request,
                "cached_step": content.step,
                "logical": content.logical,
            }
            self._leave(facts.block, "evicted", event.step, facts.request)
        if facts.block in self._unused_since:
            numbers["unused_since"] = self._unused_since[facts.block]
        return numbers

    def _cached(self, event: Event, facts: BlocksCached) -> Numbers:
        copies: dict[int, None] = {}
        parent = facts.parent
        items = zip(facts.blocks, facts.hashes, strict=False)
        for index, (block, block_hash) in enumerate(items, facts.first_index):
            copies |= self._copies[block_hash]
            self._enter(block, Content(block_hash, parent, facts.request, index, event.step))
            parent = block_hash
        return {"copies": tuple(copies)} if copies else {}

    def _uncached(self, event: Event, facts: BlocksUncached) -> None:
        for block in facts.blocks:
            self._leave(block, "uncached", event.step, "")

    def _reset(self, event: Event, facts: PrefixCacheReset) -> Numbers | None:
        if not facts.done:
            return None
        blocks = tuple(self._content)
        for block in blocks:
            self._leave(block, "reset", event.step, "")
        return {"blocks": blocks}

    def _enter(self, block: int, content: Content) -> None:
        self._leave(block, "replaced", content.step, "")  # never, but in a log that is none
        self._content[block] = content
        self._copies[content.hash][block] = None
        self._following[content.parent][block] = None

    def _leave(self, block: int, how: str, step: int, to: str) -> None:
        content = self._content.pop(block, None)
        if content is None:
            return
        self._copies[content.hash].pop(block, None)
        self._following[content.parent].pop(block, None)
        if not self._copies[content.hash]:
            self._lost[content.hash] = Lost(content, how, step, to)


def num_common(tokens: list[int], others: list[int]) -> int:
    """How many tokens two blocks have in common at their beginning."""
    pairs = zip(tokens, others, strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(tokens), len(others))
    )


TAKE: dict[type[Any], Callable[[Origins, Event, Any], Numbers | None]] = {
    RequestArrived: Origins._waits,
    RequestScheduled: Origins._share,
    RequestPassedOver: Origins._passed_over,
    RequestPreempted: Origins._preempted,
    AdmissionStopped: Origins._stopped,
    RequestFinished: Origins._finished,
    TokenAppended: Origins._appended,
    PrefixLookedUp: Origins._looked_up,
    BlocksHit: Origins._hit,
    BlocksAllocated: Origins._allocated,
    BlockEvicted: Origins._evicted,
    BlocksCached: Origins._cached,
    BlocksUncached: Origins._uncached,
    BlocksFreed: Origins._freed,
    PrefixCacheReset: Origins._reset,
}
