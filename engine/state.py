"""The engine's state as the log has it: plain records of blocks, requests, queues and counters.

`StateRecorder.take_changes` yields, phase by phase, only what differs from what the log said
before; `snapshot` describes everything from the live objects. That both agree at all times is
what makes the page true, and is tested on every workload.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from engine.block_pool import KVCacheBlock, short_hash
from engine.linked_queue import LinkedQueue
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler
from engine.trace import Changes, State

MAX_FINISHED_REQUESTS = 1_000  # that stay in the state after their end


class StateRecorder:
    """Follows one scheduler with its block pool.

    It looks only at what they say was touched, so its work follows what happened in a phase and
    not the size of the pool.
    """

    def __init__(self, scheduler: Scheduler, arriving: dict[str, Request]):
        self.scheduler = scheduler
        self.arriving = arriving  # submitted, not in the scheduler yet
        self.manager = scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.finished: dict[str, Request] = {}  # the latest ones, oldest first
        self._blocks: dict[int, Changes] = {}  # as the log has them
        self._requests: dict[str, Changes] = {}
        self._tables: dict[str, list[int]] = {}
        self._outputs: dict[str, int] = {}  # output tokens told
        self._rest: dict[str, Changes] = {}
        self.take_changes()  # everything is new to the recorder; the header's state has it

    def snapshot(self) -> State:
        """The whole state, from the live objects alone."""
        requests = {**self.finished, **self.arriving, **self.scheduler.requests}
        state: State = {
            "blocks": {str(block.block_id): block_record(block) for block in self.pool.blocks},
            "requests": {key: self._whole_request(request) for key, request in requests.items()},
            **self._queues_and_counters(),
        }
        return state

    def _whole_request(self, request: Request) -> Changes:
        table = self.manager.req_to_blocks.get(request.request_id, [])
        record = {**request_constants(request), **request_record(request)}
        if table:
            record["block_table"] = indexed([block.block_id for block in table])
        if request.num_output_tokens:
            record["output_token_ids"] = indexed(request.output_token_ids)
        return record

    # -- changes --------------------------------------------------------------------------------

    def take_changes(self) -> Changes:
        """What changed since the last call, as a JSON Merge Patch."""
        changes: Changes = {}
        blocks = self._block_changes()
        if blocks:
            changes["blocks"] = blocks
        requests = self._request_changes()
        if requests:
            changes["requests"] = requests
        for name, record in self._queues_and_counters().items():
            difference = diff(self._rest.get(name, {}), record)
            if difference:
                changes[name] = difference
                self._rest[name] = record
        return changes

    def _block_changes(self) -> Changes:
        changes: Changes = {}
        for block in self.pool.touched:
            record = block_record(block)
            difference = diff(self._blocks.get(block.block_id, {}), record)
            if difference:
                changes[str(block.block_id)] = difference
                self._blocks[block.block_id] = record
        self.pool.touched.clear()
        return changes

    def _request_changes(self) -> Changes:
        changes: Changes = {}
        for request in self.scheduler.touched:
            difference = self._one_request(request)
            if difference:
                changes[request.request_id] = difference
            if request.status is RequestStatus.FINISHED:
                self.finished[request.request_id] = request
        self.scheduler.touched.clear()
        while len(self.finished) > MAX_FINISHED_REQUESTS:
            self._forget(next(iter(self.finished)), changes)
        return changes

    def _one_request(self, request: Request) -> Changes:
        key = request.request_id
        record = request_record(request)
        before = self._requests.get(key)
        if before is None:
            changes = {**request_constants(request), **record}
        else:
            changes = diff(before, record)
        self._requests[key] = record
        table = [block.block_id for block in self.manager.req_to_blocks.get(key, [])]
        if table != self._tables.get(key, []):
            changes["block_table"] = self._table_changes(key, table)
        told = self._outputs.get(key, 0)
        new_tokens = request.all_token_ids[request.num_prompt_tokens + told :]
        if new_tokens:
            changes["output_token_ids"] = indexed(new_tokens, told)
            self._outputs[key] = told + len(new_tokens)
        return changes

    def _table_changes(self, key: str, table: list[int]) -> Changes | None:
        """A table by index: it grows at its end, and goes as a whole (None)."""
        before = self._tables.pop(key, [])
        if not table:
            return None
        self._tables[key] = table
        return diff(indexed(before), indexed(table))

    def _forget(self, key: str, changes: Changes) -> None:
        del self.finished[key]
        del self._requests[key]
        self._outputs.pop(key, None)
        changes[key] = None

    def _queues_and_counters(self) -> dict[str, Changes]:
        return {
            "queues": {
                "free": queue_record(self.pool.free_block_queue, "block_id"),
                "waiting": queue_record(self.scheduler.waiting, "request_id"),
                "running": queue_record(self.scheduler.running, "request_id"),
            },
            "counters": asdict(self.scheduler.counters),
        }


def diff(before: Changes, after: Changes) -> Changes:
    """The JSON Merge Patch that makes `after` out of `before`; {} where they are equal."""
    changes: Changes = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = diff(old, value)
            if inner:
                changes[key] = inner
        elif value != old:
            changes[key] = value
    for key in before:
        if key not in after:
            changes[key] = None
    return changes


def indexed(values: list[int], start: int = 0) -> Changes:
    """A list as a JSON object by index, so that one element can change by itself."""
    return {str(index): value for index, value in enumerate(values, start)}


def block_record(block: KVCacheBlock) -> Changes:
    """`prev` and `next` are its neighbours in the free queue."""
    record: Changes = {"ref_cnt": block.ref_cnt}
    if block.block_id == 0:
        record["null_block"] = True
    if block.block_hash is not None:
        record["hash"] = short_hash(block.block_hash)
    if block.prev is not None:
        record["prev"] = block.prev.block_id
    if block.next is not None:
        record["next"] = block.next.block_id
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
    return record


def request_record(request: Request) -> Changes:
    """What changes of a request; `prev` and `next` are its neighbours in its queue."""
    record: Changes = {
        "status": str(request.status),
        "num_tokens": request.num_tokens,
        "num_computed_tokens": request.num_computed_tokens,
        "num_preemptions": request.num_preemptions,
        "hit_tokens": request.hit_tokens,
    }
    if request.prev is not None:
        record["prev"] = request.prev.request_id
    if request.next is not None:
        record["next"] = request.next.request_id
    if request.finish_reason is not None:
        record["finish_reason"] = str(request.finish_reason)
    if request.stop_reason is not None:
        record["stop_reason"] = request.stop_reason
    return record


def queue_record(queue: LinkedQueue[Any], name: str) -> Changes:
    """Both ends and the length of a queue; its members carry the links between."""
    record: Changes = {"length": len(queue)}
    if queue.head is not None and queue.tail is not None:
        record["head"] = getattr(queue.head, name)
        record["tail"] = getattr(queue.tail, name)
    return record
