"""What both forms of a trace have in common: feeding a scheduler, and describing what it did."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

from engine.block_pool import BlockPool, short_hash
from engine.conformance.workload import (
    EOS_TOKEN_ID,
    Sampler,
    Workload,
    WorkloadError,
    WorkloadRequest,
)
from engine.events import (
    BlockEvicted,
    BlocksCached,
    PrefixCacheReset,
    PrefixLookedUp,
    RequestFinished,
)
from engine.outputs import ScheduledRequest, SchedulerOutput
from engine.records import Event
from engine.request import Request
from engine.scheduler import Scheduler
from engine.trace import SCHEMA_VERSION, Trace, TraceHeader

FREE_HEAD = 32
Line = dict[str, Any]  # of a trace


class Driver(ABC):
    """One workload with a scheduler of its own, whose log it reads."""

    engine: ClassVar[str]  # as the trace's first line names it
    trace_type: ClassVar[type[Trace]] = Trace
    scheduler: Scheduler

    def __init__(self, workload: Workload, cache_uncomputed_blocks: bool = True):
        """vLLM 0.26.0 always keeps uncomputed blocks in the cache; without it values are right."""
        self.workload = workload
        self.config = workload.config.engine_config(cache_uncomputed_blocks)
        self.requests: dict[str, Request] = {}
        self.trace = self.trace_type(
            TraceHeader(
                schema_version=SCHEMA_VERSION,
                trace_id=workload.name,
                config=self.config.model_dump(),
                model={},
                document="",
                versions={},
                started_at=0.0,
                state={},
            ),
            max_records=sys.maxsize,  # a step is described from its own records
        )
        self.sampler = Sampler(workload)
        self.aliases: dict[str, int] = {}
        self.hashes: dict[int, str] = {}  # block id -> hash when last described
        specs, actions = workload.requests, workload.actions
        # Steps in which something comes, and the last one for which anything is declared.
        self.due = {spec.arrival_step for spec in specs} | {action.step for action in actions}
        self.last_due = max(self.due | {spec.abort_step or 0 for spec in specs})

    @property
    def pool(self) -> BlockPool:
        """The scheduler's blocks."""
        return self.scheduler.kv_cache_manager.block_pool

    @abstractmethod
    def steps(self) -> Iterator[Line]:
        """All lines of the trace but its first and its last."""

    # -- feeding --------------------------------------------------------------------------------

    @abstractmethod
    def _submit(self, request: Request) -> None:
        """Give a new request to the scheduler."""

    @abstractmethod
    def _take_back(self, request_id: str) -> list[str]:
        """Abort a request; [] where it is unknown or finished."""

    @abstractmethod
    def _reset(self, reset_running_requests: bool) -> bool:
        """Reset the prefix cache."""

    def _add(self, step: int) -> list[str]:
        added = []
        for index, spec in enumerate(self.workload.requests):
            if spec.arrival_step == step:
                request = self._request(index, spec)
                self.requests[spec.id] = request
                self._submit(request)
                added.append(spec.id)
        return added

    def _request(self, index: int, spec: WorkloadRequest) -> Request:
        arrival = float(index) if spec.arrival_time is None else spec.arrival_time
        return Request(
            spec.id,
            spec.prompt_token_ids,
            spec.sampling_params(),
            (EOS_TOKEN_ID,),
            spec.priority,
            arrival,
        )

    def _abort(self, step: int, phase: str) -> list[str]:
        aborted: list[str] = []
        for spec in self.workload.requests:
            if spec.abort_step == step and spec.abort_phase == phase:
                aborted += self._take_back(spec.id)
        return aborted

    def _act(self, step: int) -> list[Line]:
        done = []
        for action in self.workload.actions:
            if action.step == step:
                ok = self._reset(action.reset_running_requests)
                done.append({"op": action.op, "ok": ok})
        return done

    def _give_up(self, step: int) -> NoReturn:
        stuck = [*self.scheduler.running, *self.scheduler.waiting]
        raise WorkloadError(
            f"step {step}: no more tokens will come, for the pool cannot "
            f"hold {' or '.join(request.request_id for request in stuck)}; raise "
            f"config.num_gpu_blocks ({self.workload.config.num_gpu_blocks}) or block_size"
        )

    # -- describing -----------------------------------------------------------------------------

    def _events_since(self, seen: int) -> list[Event]:
        return [record for record in self.trace.records[seen:] if isinstance(record, Event)]

    def _describe_batch(self, output: SchedulerOutput) -> Line:
        return {
            "scheduled": [self._describe_entry(entry) for entry in output.scheduled],
            "total_tokens": output.total_num_scheduled_tokens,
            "preempted": sorted(output.preempted_req_ids),
            "notified_finished": sorted(output.finished_req_ids),
            "num_common_prefix_blocks": output.num_common_prefix_blocks,
        }

    def _describe_entry(self, entry: ScheduledRequest) -> Line:
        table = self.scheduler.kv_cache_manager.req_to_blocks[entry.request_id]
        item: Line = {
            "id": entry.request_id,
            "kind": entry.kind,
            "num_tokens": entry.num_tokens,
            "num_computed": entry.num_computed_tokens,
            "new_blocks": list(entry.new_block_ids),
            "blocks": [block.block_id for block in table],
        }
        if entry.kind != "running":
            item["hit_tokens"] = entry.num_computed_tokens
        return item

    def _describe_queues(self) -> Line:
        return {
            "running": [request.request_id for request in self.scheduler.running],
            "waiting": [request.request_id for request in self.scheduler.waiting],
        }

    def _describe_pool(self) -> Line:
        now = {
            block.block_id: short_hash(block.block_hash)
            for block in self.pool.blocks
            if block.block_hash is not None
        }
        before, self.hashes = self.hashes, now
        free = [block.block_id for block in self.pool.free_block_queue]
        return {
            "hashed": [
                [block_id, self.alias(value)]
                for block_id, value in now.items()
                if before.get(block_id) != value
            ],
            "unhashed": sorted(set(before) - set(now)),
            "free": len(free),
            "free_head": free[:FREE_HEAD],
        }

    def _describe_finished(self, events: list[Event]) -> list[list[Any]]:
        return [
            [
                event.facts.request,
                event.facts.finish_reason,
                self.requests[event.facts.request].stop_reason,
            ]
            for event in events
            if isinstance(event.facts, RequestFinished)
        ]

    def _describe_cache_use(self, events: list[Event]) -> Line:
        return {
            "prefix_queries": prefix_queries(events),
            "events": [item for event in events for item in self._kv_events(event)],
        }

    def _kv_events(self, event: Event) -> Iterator[Line]:
        match event.facts:
            case BlocksCached() as facts:
                yield {
                    "type": "BlockStored",
                    "parent": self.alias(facts.parent) if facts.parent else None,
                    "hashes": [self.alias(value) for value in facts.hashes],
                    "num_tokens": len(facts.hashes) * self.workload.config.block_size,
                }
            case BlockEvicted() as facts:
                yield {"type": "BlockRemoved", "hashes": [self.alias(facts.hash)]}
            case PrefixCacheReset(done=True):
                yield {"type": "AllBlocksCleared"}

    def alias(self, block_hash: str) -> int:
        """A block hash as the trace writes it: a number, counted from 1 at first use."""
        return self.aliases.setdefault(block_hash, len(self.aliases) + 1)

    def summary(self) -> Line:
        """What became of each request."""
        return {
            key: {
                "output_tokens": request.num_output_tokens,
                "preemptions": request.num_preemptions,
                "reason": request.finish_reason,
            }
            for key, request in self.requests.items()
        }


def prefix_queries(events: list[Event]) -> list[int]:
    """Look-ups, tokens looked for and tokens hit, of new and then of preempted requests."""
    totals = [0] * 6
    for event in events:
        if isinstance(event.facts, PrefixLookedUp):
            first = 3 if event.facts.preempted else 0
            totals[first] += 1
            totals[first + 1] += event.facts.num_tokens
            totals[first + 2] += event.facts.hit_tokens
    return totals if any(totals) else []
