"""The engine's state as the log has it: plain records of blocks, requests, queues and counters.

`StateRecorder.take_changes` yields, phase by phase, only what differs from what the log said
before; `snapshot` describes everything from the live objects. That both agree at all times is
what makes the page true, and is tested on every workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from engine.block_pool import KVCacheBlock, short_hash
from engine.contiguous import Contiguous
from engine.linked_queue import LinkedQueue
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler
from engine.trace import Changes, State

MAX_FINISHED_REQUESTS = 1_000  # that stay in the state after their end

# The fields of a record that may change and their values, in the same order. None: it has none,
# which is how a JSON Merge Patch says so.
Values = tuple[Any, ...]
BLOCK_FIELDS = ("ref_cnt", "hash", "uncomputed", "prev", "next")
QUEUE_FIELDS = ("length", "head", "tail")
STANDING_FIELDS = (
    "status",
    "num_preemptions",
    "hit_tokens",
    "num_output_placeholders",
    "async_tokens_to_discard",
    "spec_token_ids",
    "num_draft_tokens",
    "prev",
    "next",
    "finish_reason",
    "stop_reason",
)
STATUS = STANDING_FIELDS.index("status")


class Told:
    """What the log says of a request, as far as it may change.

    Its tokens and its block table only grow at their ends, so that their lengths tell what of them
    is new. A table goes as a whole, and does not come back in the same phase.
    """

    __slots__ = ("num_computed_tokens", "num_tokens", "standing", "table_length")

    def __init__(self, request: Request, standing: Values):
        self.num_tokens = request.num_prompt_tokens
        self.num_computed_tokens = 0
        self.table_length = 0
        self.standing = standing


class StateRecorder:
    """Follows one scheduler with its block pool.

    It looks only at what they say was touched, so its work follows what happened in a phase and
    not the size of the pool.
    """

    def __init__(self, scheduler: Scheduler, arriving: dict[str, Request]):
        self.scheduler = scheduler
        self.arriving = arriving  # submitted, not in the scheduler yet
        self.pool = scheduler.kv_cache_manager.block_pool
        self._tables = scheduler.kv_cache_manager.req_to_blocks
        self.finished: dict[str, Request] = {}  # the latest ones, oldest first
        self.forgotten: list[str] = []  # finished ones that the latest changes took out
        self.contiguous = Contiguous(scheduler.config)
        self._moved: list[Request] = []  # new, or of another status than the log has
        # What follows is as the log has it; the header's state is where it begins.
        self._requests: dict[str, Told] = {}
        self.begin_here({})

    def begin_here(self, finished: dict[str, Request]) -> None:
        """Have the log begin where scheduler and pool stand; these requests have ended before."""
        self.finished = finished
        self._blocks = [block_values(block) for block in self.pool.blocks]
        self._queues = self._queue_values()
        self._counters = vars(self.scheduler.counters).copy()
        for request in {**finished, **self.arriving, **self.scheduler.requests}.values():
            told = self._requests[request.request_id] = Told(request, standing_of(request))
            told.num_tokens = request.num_tokens
            told.num_computed_tokens = request.num_computed_tokens
            told.table_length = len(self._tables.get(request.request_id, ()))
        self.pool.touched.clear()
        self.scheduler.touched.clear()
        self.scheduler.progressed.clear()

    def snapshot(self) -> State:
        """The whole state, from the live objects alone."""
        requests = {**self.finished, **self.arriving, **self.scheduler.requests}
        return {
            "blocks": {str(block.block_id): block_record(block) for block in self.pool.blocks},
            "requests": {key: self._whole_request(request) for key, request in requests.items()},
            "queues": {
                name: named(QUEUE_FIELDS, values) for name, values in self._queue_values().items()
            },
            "counters": vars(self.scheduler.counters).copy(),
            "contiguous": self.contiguous.snapshot(),
        }

    def _whole_request(self, request: Request) -> Changes:
        table = self._tables.get(request.request_id, [])
        record = {
            **request_constants(request),
            "num_tokens": request.num_tokens,
            "num_computed_tokens": request.num_computed_tokens,
            **named(STANDING_FIELDS, standing_of(request)),
        }
        if table:
            record["block_table"] = indexed([block.block_id for block in table])
        if request.num_output_tokens:
            record["output_token_ids"] = indexed(request.output_token_ids)
        return record

    def _queue_values(self) -> dict[str, Values]:
        return {
            "free": queue_values(self.pool.free_block_queue, "block_id"),
            "waiting": queue_values(self.scheduler.waiting, "request_id"),
            "running": queue_values(self.scheduler.running, "request_id"),
        }

    # -- changes --------------------------------------------------------------------------------

    def take_changes(self) -> Changes:
        """What changed since the last call, as a JSON Merge Patch."""
        moved = bool(self.pool.touched or self.scheduler.touched)  # else the queues are the same
        self.forgotten = []
        parts = {"counters": self._counter_changes()}
        if moved or self.scheduler.progressed:  # as in two or three of a step's phases
            parts["blocks"] = self._block_changes()
            parts["requests"] = self._request_changes()
            parts["queues"] = self._queue_changes() if moved else {}
            parts["contiguous"] = self._contiguous_changes()
        return {name: changes for name, changes in parts.items() if changes}

    def _block_changes(self) -> Changes:
        changes: Changes = {}
        for block in self.pool.touched:
            values = block_values(block)
            before = self._blocks[block.block_id]
            if values != before:
                changes[str(block.block_id)] = difference(BLOCK_FIELDS, before, values)
                self._blocks[block.block_id] = values
        self.pool.touched.clear()
        return changes

    def _request_changes(self) -> Changes:
        touched, progressed = self.scheduler.touched, self.scheduler.progressed
        changes: Changes = {}
        for request in {**progressed, **touched}:
            record: Changes = {}
            if request in touched:
                record = self._standing_changes(request)
                if request.status is RequestStatus.FINISHED:
                    self.finished[request.request_id] = request
            self._add_progress(request, record)
            if record:
                changes[request.request_id] = record
        touched.clear()
        progressed.clear()
        self._forget_oldest(changes)
        return changes

    def _standing_changes(self, request: Request) -> Changes:
        """What moved of a request; all but its progress where it is new."""
        standing = standing_of(request)
        told = self._requests.get(request.request_id)
        if told is None:
            told = self._requests[request.request_id] = Told(request, standing)
            self._moved.append(request)
            return {
                **request_constants(request),
                "num_tokens": told.num_tokens,
                "num_computed_tokens": told.num_computed_tokens,
                **named(STANDING_FIELDS, standing),
            }
        before, told.standing = told.standing, standing
        if standing[STATUS] is not before[STATUS]:
            self._moved.append(request)
        return {} if standing == before else difference(STANDING_FIELDS, before, standing)

    def _add_progress(self, request: Request, record: Changes) -> None:
        """Write into `record` how far the request has come since the log told it."""
        key, computed, known = request.request_id, request.num_computed_tokens, request.num_tokens
        told = self._requests[key]
        if computed != told.num_computed_tokens:
            record["num_computed_tokens"] = told.num_computed_tokens = computed
        if known != told.num_tokens:
            first = told.num_tokens - request.num_prompt_tokens
            record["output_token_ids"] = indexed(request.all_token_ids[told.num_tokens :], first)
            record["num_tokens"] = told.num_tokens = known
        table = self._tables.get(key, ())
        if len(table) != told.table_length:
            record["block_table"] = table_changes(table, told.table_length)
            told.table_length = len(table)

    def _forget_oldest(self, changes: Changes) -> None:
        """Take the oldest finished requests out of the state where they are too many."""
        too_many = max(0, len(self.finished) - MAX_FINISHED_REQUESTS)
        self.forgotten = list(islice(self.finished, too_many))
        for key in self.forgotten:
            del self.finished[key]
            del self._requests[key]
            changes[key] = None

    def _contiguous_changes(self) -> Changes:
        if not self._moved:
            return {}
        changes = self.contiguous.follow(self._moved)
        self._moved.clear()
        return changes

    def _queue_changes(self) -> Changes:
        before, self._queues = self._queues, self._queue_values()
        return {
            name: difference(QUEUE_FIELDS, before[name], values)
            for name, values in self._queues.items()
            if values != before[name]
        }

    def _counter_changes(self) -> Changes:
        counters = vars(self.scheduler.counters)
        if counters == self._counters:
            return {}
        changes = diff(self._counters, counters)
        self._counters.update(changes)
        return changes


def diff(before: Changes, after: Changes) -> Changes:
    """The JSON Merge Patch that makes `after` out of `before`, both flat; {} where they agree."""
    changes = {key: value for key, value in after.items() if before.get(key) != value}
    for key in before.keys() - after.keys():
        changes[key] = None
    return changes


def difference(fields: Sequence[str], before: Values, after: Values) -> Changes:
    """The JSON Merge Patch from one tuple of values to another."""
    return {field: new for field, old, new in zip(fields, before, after, strict=True) if new != old}


def named(fields: Sequence[str], values: Values) -> Changes:
    """The record that has these values."""
    return {field: value for field, value in zip(fields, values, strict=True) if value is not None}


def indexed(values: Sequence[int], start: int = 0) -> Changes:
    """A list as a JSON object by index, so that one element can change by itself."""
    if len(values) == 1:  # most often
        return {str(start): values[0]}
    return {str(index): value for index, value in enumerate(values, start)}


def table_changes(table: Sequence[KVCacheBlock], told: int) -> Changes | None:
    """A table by index: what is new behind the blocks `told`; None where it went."""
    if not table:
        return None
    return indexed([block.block_id for block in table[told:]], told)


def block_values(block: KVCacheBlock) -> Values:
    """`BLOCK_FIELDS` of a block; `prev` and `next` are its neighbours in the free queue."""
    block_hash, before, after = block.block_hash, block.prev, block.next
    return (
        block.ref_cnt,
        None if block_hash is None else short_hash(block_hash),
        block.uncomputed or None,
        None if before is None else before.block_id,
        None if after is None else after.block_id,
    )


def block_record(block: KVCacheBlock) -> Changes:
    """All that the state has of a block."""
    record = named(BLOCK_FIELDS, block_values(block))
    if block.block_id == 0:
        record["null_block"] = True
    return record


def request_constants(request: Request) -> Changes:
    """What never changes of a request."""
    params = request.sampling_params
    sampling: Changes = {
        name: value for name, value in params.model_dump(mode="json").items() if value is not None
    }
    record: Changes = {
        "prompt_token_ids": request.all_token_ids[: request.num_prompt_tokens],
        "num_prompt_tokens": request.num_prompt_tokens,
        "max_tokens": params.max_tokens,
        "priority": request.priority,
        "sampling": sampling,
    }
    if request.parent:
        record["parent"] = request.parent
    if request.cache_salt:
        record["cache_salt"] = request.cache_salt
    return record


def standing_of(request: Request) -> Values:
    """`STANDING_FIELDS` of a request; `prev` and `next` are its neighbours in its queue."""
    before, after = request.prev, request.next
    return (
        request.status,
        request.num_preemptions,
        request.hit_tokens,
        request.num_output_placeholders or None,
        request.async_tokens_to_discard or None,
        request.spec_token_ids or None,
        request.num_draft_tokens or None,
        None if before is None else before.request_id,
        None if after is None else after.request_id,
        request.finish_reason,
        request.stop_reason,
    )


def queue_values(queue: LinkedQueue[Any], name: str) -> Values:
    """`QUEUE_FIELDS` of a queue: both ends and the length; its members carry the links between."""
    if not queue.length:
        return 0, None, None
    return queue.length, getattr(queue.head, name), getattr(queue.tail, name)
