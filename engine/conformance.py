"""A declared workload in, the engine's decisions out, in the form recorded from vLLM 0.26.0.

`python -m engine.conformance WORKLOAD.json` prints the trace as JSON Lines. It drives the same
`EngineCore` as the page does; a sampler that is a formula stands in for the model, since decisions
depend on token ids and lengths only. What a step did is read from the log.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine.block_pool import short_hash
from engine.config import ConfigError, EngineConfig, SamplingParams, TokenId, describe
from engine.core import EngineCore
from engine.events import (
    BlockEvicted,
    BlocksCached,
    Event,
    Phase,
    PrefixCacheReset,
    PrefixLookedUp,
    RequestFinished,
)
from engine.outputs import ModelRunnerOutput, ScheduledRequest, SchedulerOutput
from engine.request import Request
from engine.trace import SCHEMA_VERSION, Changes, Trace, TraceHeader

TRACE_SCHEMA = 1
EOS_TOKEN_ID = 2
FREE_HEAD = 32
MAX_STEPS = 100_000
# Fields of a step that are left out when empty.
SPARSE = frozenset(
    ("added", "aborted_before", "aborted_during", "actions", "preempted", "notified_finished")
    + ("waiting", "sampled", "finished", "hashed", "unhashed", "prefix_queries", "events")
)


class WorkloadError(ValueError):
    """A workload that is none; the message has a line for each place that is wrong."""


class WorkloadConfig(BaseModel):
    """The engine's side of a workload; names and defaults are the recorder's."""

    model_config = ConfigDict(extra="forbid")

    block_size: int = 16
    num_gpu_blocks: int = 64
    max_num_batched_tokens: int = 64
    max_num_seqs: int = 8
    max_model_len: int = 256
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: Literal[False] = False

    def engine_config(self) -> EngineConfig:
        """The same as this engine names it."""
        values = self.model_dump(exclude={"policy", "async_scheduling"})
        return EngineConfig.parse({**values, "scheduling_policy": self.policy})


class WorkloadRequest(BaseModel):
    """One request: when it comes, what it asks for, and what its output will be."""

    model_config = ConfigDict(extra="forbid")

    id: str
    arrival_step: int = Field(default=0, ge=0)
    prompt_token_ids: list[TokenId] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    priority: int = 0
    arrival_time: float | None = None
    abort_step: int | None = None
    abort_phase: Literal["before", "during"] = "before"
    eos_at: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    stop_token_ids: list[int] = []
    stop_at: int | None = None
    sample_seed: int | None = None

    @model_validator(mode="after")
    def _a_stop_has_its_token(self) -> WorkloadRequest:
        if self.stop_at is not None and not self.stop_token_ids:
            raise ValueError("stop_at needs stop_token_ids, whose first is the token it stops at")
        return self

    def sampling_params(self) -> SamplingParams:
        """The same as this engine names it; raises ConfigError."""
        return SamplingParams.parse(
            {
                "temperature": 0.0,
                "max_tokens": self.max_tokens,
                "min_tokens": self.min_tokens,
                "ignore_eos": self.ignore_eos,
                "stop_token_ids": tuple(self.stop_token_ids),
            }
        )


class WorkloadAction(BaseModel):
    """Something done to the scheduler before a step is scheduled."""

    model_config = ConfigDict(extra="forbid")

    step: int = Field(ge=0)
    op: Literal["reset_prefix_cache"]
    reset_running_requests: bool = False


class Workload(BaseModel):
    """A whole workload file."""

    model_config = ConfigDict(extra="forbid")

    name: str
    about: str = ""
    config: WorkloadConfig = WorkloadConfig()
    requests: list[WorkloadRequest] = Field(min_length=1)
    actions: list[WorkloadAction] = []

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Workload:
        ids = [request.id for request in self.requests]
        if len(set(ids)) != len(ids):
            raise ValueError("two requests have the same id")
        return self


def load_workload(path: Path) -> tuple[Workload, str]:
    """The workload and its file's SHA-256; `WorkloadError` where it is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        workload = Workload.model_validate_json(data)
    except ValidationError as error:
        raise WorkloadError(f"{path}: {describe(error)}") from None
    try:
        workload.config.engine_config()
    except ConfigError as error:
        raise WorkloadError(f"{path}: config.{error}") from None
    limit = workload.config.max_model_len
    for index, request in enumerate(workload.requests):
        if len(request.prompt_token_ids) >= limit:
            raise WorkloadError(
                f"{path}: requests.{index}.prompt_token_ids: {len(request.prompt_token_ids)} "
                f"tokens; a prompt must be shorter than max_model_len ({limit})"
            )
        try:
            request.sampling_params()
        except ConfigError as error:
            raise WorkloadError(f"{path}: requests.{index}.{error}") from None
    return workload, hashlib.sha256(data).hexdigest()


class FormulaRunner:
    """Stands in for the model: the n-th token of a request is a formula of its seed and n."""

    def __init__(self, workload: Workload, requests: dict[str, Request]):
        self.specs = {spec.id: (index, spec) for index, spec in enumerate(workload.requests)}
        self.requests = requests
        self.output: SchedulerOutput | None = None

    def prepare_inputs(self, output: SchedulerOutput) -> None:
        """Remember whose turn it is."""
        self.output = output

    def execute_model(self) -> None:
        """There is no model."""

    def sample_tokens(self) -> ModelRunnerOutput:
        """A token for each request all of whose known tokens are computed after this step."""
        assert self.output is not None
        tokens: dict[str, tuple[int, ...]] = {}
        for entry in self.output.scheduled:
            request = self.requests[entry.request_id]
            if entry.num_computed_tokens + entry.num_tokens == request.num_tokens:
                number = request.num_output_tokens + 1
                tokens[entry.request_id] = (self.token(entry.request_id, number),)
        return ModelRunnerOutput(tokens)

    def drop_requests(self, request_ids: set[str]) -> None:
        """Not needed: a workload aborts before a step or after its tokens are sampled."""

    def take_changes(self) -> Changes:
        """It has no state."""
        return {}

    def snapshot(self) -> Changes:
        """It has no state."""
        return {}

    def token(self, request_id: str, number: int) -> int:
        """The `number`-th output token (from 1) of a request."""
        index, spec = self.specs[request_id]
        if spec.eos_at == number:
            return EOS_TOKEN_ID
        if spec.stop_at == number:
            return spec.stop_token_ids[0]
        seed = index if spec.sample_seed is None else spec.sample_seed
        return 1000 + (seed * 7919 + number * 104729) % 40009


class Conformance:
    """Drives one workload and describes each step."""

    def __init__(self, workload: Workload):
        self.workload = workload
        config = workload.config.engine_config()
        self.requests: dict[str, Request] = {}
        self.trace = Trace(
            TraceHeader(
                schema_version=SCHEMA_VERSION,
                trace_id=workload.name,
                config=config.model_dump(),
                model={},
                document="",
                versions={},
                started_at=0.0,
                state={},
            ),
            max_records=sys.maxsize,  # a step is described from its own records
        )
        self.core = EngineCore(config, FormulaRunner(workload, self.requests), self.trace)
        self.scheduler = self.core.scheduler
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.aliases: dict[str, int] = {}
        self.hashes: dict[int, str] = {}  # block id -> hash at the last step's end

    # -- driving --------------------------------------------------------------------------------

    def steps(self) -> Iterator[dict[str, Any]]:
        """One record a step in which something happens; the others pass without a record."""
        specs, actions = self.workload.requests, self.workload.actions
        due = {spec.arrival_step for spec in specs} | {action.step for action in actions}
        last_due = max(due | {spec.abort_step or 0 for spec in specs})
        last_token = last_due
        for step in range(MAX_STEPS):
            if step in due or self.scheduler.has_requests():
                record = self.step(step)
                yield record
                last_token = max(step, last_due) if record.get("sampled") else last_token
                if step > last_due and self._is_stuck(record, step - last_token):
                    self._give_up(step)
            elif step > last_due:
                return
        raise WorkloadError(f"{self.workload.name}: no end within {MAX_STEPS} steps")

    def _is_stuck(self, record: dict[str, Any], without_token: int) -> bool:
        """Whether every step to come would be like this one, or like some of the last."""
        moved = record["scheduled"] or record.get("notified_finished") or record.get("preempted")
        if not moved:
            return self.scheduler.has_requests()
        # A step has a token for somebody, so by then each could have been computed from its start.
        return without_token > self.workload.config.max_model_len * len(self.requests)

    def _give_up(self, step: int) -> NoReturn:
        stuck = [*self.scheduler.running, *self.scheduler.waiting]
        raise WorkloadError(
            f"{self.workload.name}: step {step}: no more tokens will come, for the pool cannot "
            f"hold {' or '.join(request.request_id for request in stuck)}; raise "
            f"config.num_gpu_blocks ({self.workload.config.num_gpu_blocks}) or block_size"
        )

    def step(self, step: int) -> dict[str, Any]:
        """Run one step and describe it."""
        seen = len(self.trace.records)
        record: dict[str, Any] = {"step": step, "added": self._add(step)}
        self.core.step_phase()  # arrive
        record["aborted_before"] = self._abort(step, "before")
        record["actions"] = self._act(step)
        self.core.step_phase()  # schedule
        output = self.core.scheduler_output
        record.update(self._describe_schedule(output))
        self._run_to(Phase.UPDATE)
        sampled = self.core.sampled.sampled_token_ids
        record["sampled"] = {key: token for key, (token,) in sampled.items()}
        record["aborted_during"] = self._abort(step, "during")
        before_update = len(self.trace.records)
        self.core.step()
        record.update(self._describe_end(seen, before_update))
        return {key: value for key, value in record.items() if value or key not in SPARSE}

    def _run_to(self, phase: Phase) -> None:
        while self.core.next_phase is not phase:
            self.core.step_phase()

    def _add(self, step: int) -> list[str]:
        added = []
        for index, spec in enumerate(self.workload.requests):
            if spec.arrival_step == step:
                request = self._request(index, spec)
                self.requests[spec.id] = request
                self.core.add_request(request)
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
                aborted += self.core.abort_requests([spec.id])
        return aborted

    def _act(self, step: int) -> list[dict[str, Any]]:
        done = []
        for action in self.workload.actions:
            if action.step == step:
                ok = self.core.reset_prefix_cache(action.reset_running_requests)
                done.append({"op": action.op, "ok": ok})
        return done

    # -- describing -----------------------------------------------------------------------------

    def _describe_schedule(self, output: SchedulerOutput) -> dict[str, Any]:
        return {
            "scheduled": [self._describe_entry(entry) for entry in output.scheduled],
            "total_tokens": output.total_num_scheduled_tokens,
            "preempted": sorted(output.preempted_req_ids),
            "notified_finished": sorted(output.finished_req_ids),
            "num_common_prefix_blocks": output.num_common_prefix_blocks,
            "running": [request.request_id for request in self.scheduler.running],
            "waiting": [request.request_id for request in self.scheduler.waiting],
            "free_scheduled": self.pool.get_num_free_blocks(),
        }

    def _describe_entry(self, entry: ScheduledRequest) -> dict[str, Any]:
        table = self.scheduler.kv_cache_manager.req_to_blocks[entry.request_id]
        item: dict[str, Any] = {
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

    def _describe_end(self, seen: int, before_update: int) -> dict[str, Any]:
        hashed, unhashed = self._hash_changes()
        events = [r for r in self.trace.records[seen:] if isinstance(r, Event)]
        finished = [r for r in self.trace.records[before_update:] if isinstance(r, Event)]
        free = [block.block_id for block in self.pool.free_block_queue]
        return {
            "finished": [
                [e.facts.request, e.facts.finish_reason, self._stop_reason(e.facts.request)]
                for e in finished
                if isinstance(e.facts, RequestFinished)
            ],
            "hashed": hashed,
            "unhashed": unhashed,
            "free": len(free),
            "free_head": free[:FREE_HEAD],
            "num_running": len(self.scheduler.running),
            "num_waiting": len(self.scheduler.waiting),
            "prefix_queries": prefix_queries(events),
            "events": [item for event in events for item in self._kv_events(event)],
        }

    def _stop_reason(self, request_id: str) -> int | str | None:
        return self.requests[request_id].stop_reason

    def _hash_changes(self) -> tuple[list[list[int]], list[int]]:
        now = {
            block.block_id: short_hash(block.block_hash)
            for block in self.pool.blocks
            if block.block_hash is not None
        }
        before, self.hashes = self.hashes, now
        hashed = [
            [block_id, self.alias(value)]
            for block_id, value in now.items()
            if before.get(block_id) != value
        ]
        return hashed, sorted(set(before) - set(now))

    def _kv_events(self, event: Event) -> Iterator[dict[str, Any]]:
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

    def summary(self) -> dict[str, Any]:
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


def run(path: Path) -> Iterator[dict[str, Any]]:
    """All lines of the trace of a workload file."""
    workload, digest = load_workload(path)
    yield {
        "trace_schema": TRACE_SCHEMA,
        "workload": workload.name,
        "workload_sha256": digest,
        "engine": "Glassbox EngineCore",
        "config": workload.config.model_dump(),
    }
    conformance = Conformance(workload)
    steps = 0
    for record in conformance.steps():
        steps += 1
        yield record
    yield {"end": True, "steps": steps, "requests": conformance.summary()}


def main(arguments: list[str]) -> int:
    """The command: exit 0, 1 where nobody reads what it prints, or 2 where the workload is none."""
    if len(arguments) != 1:
        print("usage: python -m engine.conformance WORKLOAD.json", file=sys.stderr)
        return 2
    try:
        for record in run(Path(arguments[0])):
            print(json.dumps(record, separators=(",", ":")))
        sys.stdout.flush()
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
