"""Asynchronous scheduling: an `AsyncScheduler` in the cycle of a core with two batches in flight.

vLLM 0.26.0: `vllm/v1/engine/core.py` (`EngineCore.step_with_batch_queue`). The next batch is
scheduled before the oldest one's tokens are awaited; one line a call on the scheduler.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from engine.async_scheduler import AsyncScheduler
from engine.conformance.driver import MAX_STEPS, Driver, Line
from engine.conformance.workload import Workload, WorkloadError
from engine.events import Event, Phase, TokenDropped
from engine.outputs import ModelRunnerOutput, SchedulerOutput
from engine.request import Request
from engine.state import StateRecorder

# Fields of a line that are left out when empty.
SPARSE = frozenset(
    ("added", "aborted", "actions", "preempted", "notified_finished", "sampled", "dropped")
    + ("finished", "waiting", "placeholders", "discard", "in_flight", "hashed", "unhashed")
    + ("prefix_queries", "events")
)


class Batch(NamedTuple):
    """A batch in flight. Its tokens are a formula, and so are there at once."""

    number: int
    output: SchedulerOutput
    sampled: ModelRunnerOutput


class AsyncConformance(Driver):
    """Drives one workload and describes each call."""

    engine = "Glassbox AsyncScheduler"
    scheduler: AsyncScheduler

    def __init__(self, workload: Workload):
        super().__init__(workload)
        self.scheduler = AsyncScheduler(self.config, self.trace)
        self.recorder = StateRecorder(self.scheduler, {})
        state = self.recorder.snapshot()
        self.trace.header = self.trace.header.model_copy(update={"state": state})
        self.in_flight: deque[Batch] = deque()  # oldest first
        self.num_batches = 0
        self.dropped: Counter[str] = Counter()  # tokens of a request that were not used
        self._described = 0  # records of the log up to the last update

    # -- driving --------------------------------------------------------------------------------

    def steps(self) -> Iterator[Line]:
        """The lines of all cycles; one in which nothing is to be done has none."""
        last_token = self.last_due
        for cycle in range(MAX_STEPS):
            moved = False
            for line in self.cycle(cycle):
                yield line
                moved = moved or self._moves(line)
                last_token = max(cycle, self.last_due) if line.get("sampled") else last_token
            if cycle > self.last_due:
                if not self.in_flight and not self.scheduler.has_requests():
                    return
                if not moved or self._is_too_long(cycle - last_token):
                    self._give_up(cycle)
        raise WorkloadError(f"{self.workload.name}: no end within {MAX_STEPS} cycles")

    def _moves(self, line: Line) -> bool:
        """Whether the next cycle may be another than the one that has this line."""
        news = any(line.get(key) for key in ("scheduled", "notified_finished", "preempted"))
        return news or any(batch.output.scheduled for batch in self.in_flight)

    def _is_too_long(self, without_token: int) -> bool:
        """Whether each request could have been computed from its start, a token a cycle."""
        return without_token > self.workload.config.max_model_len * len(self.requests)

    def cycle(self, number: int) -> Iterator[Line]:
        """Run one cycle and describe its calls."""
        yield from self._input(number, "before")
        if self.scheduler.has_requests():
            batch = self._schedule(number)
            yield self._describe_schedule(number, batch)
            if self.scheduler.fills(batch.output, len(self.in_flight)):
                self._refuse_abort_during(number)
                return
        if self.in_flight:
            yield from self._input(number, "during")
            yield self._update(number)

    def _input(self, cycle: int, phase: str) -> Iterator[Line]:
        self.trace.begin_phase(cycle, Phase.COMMAND)
        begin = phase == "before"
        line: Line = {
            "added": self._add(cycle) if begin else [],
            "aborted": self._abort(cycle, phase),
            "actions": self._act(cycle) if begin else [],
        }
        if any(line.values()):
            self.trace.end_phase(self.recorder.take_changes())
            yield self._line("input", cycle, line)

    def _submit(self, request: Request) -> None:
        self.scheduler.add_request(request)

    def _take_back(self, request_id: str) -> list[str]:
        request = self.scheduler.requests.get(request_id)
        if request is None:
            return []
        self.scheduler.abort_request(request)
        return [request_id]

    def _reset(self, reset_running_requests: bool) -> bool:
        return self.scheduler.reset_prefix_cache(reset_running_requests)

    def _refuse_abort_during(self, cycle: int) -> None:
        for index, spec in enumerate(self.workload.requests):
            if spec.abort_step == cycle and spec.abort_phase == "during":
                self._refuse(f"requests.{index}.abort_phase: cycle {cycle} awaits no output")

    def _refuse(self, message: str) -> NoReturn:
        raise WorkloadError(f"{self.workload.name}: {message}")

    def _schedule(self, cycle: int) -> Batch:
        self.trace.begin_phase(cycle, Phase.SCHEDULE)
        output = self.scheduler.schedule()
        self.trace.end_phase(self.recorder.take_changes())
        batch = Batch(self.num_batches, output, self._sample(output))
        self.num_batches += 1
        self.in_flight.append(batch)
        return batch

    def _sample(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """A token for each request that is not in mid-prefill, and so has a placeholder now."""
        tokens: dict[str, tuple[int, ...]] = {}
        for entry in output.scheduled:
            key, request = entry.request_id, self.requests[entry.request_id]
            if request.num_output_placeholders:
                number = request.num_output_tokens + request.num_output_placeholders
                tokens[key] = (self.sampler.token(key, number),)
        return ModelRunnerOutput(tokens)

    def _update(self, cycle: int) -> Line:
        batch = self.in_flight.popleft()
        before = len(self.trace.records)
        self.trace.begin_phase(cycle, Phase.UPDATE)
        self.scheduler.update_from_output(batch.output, batch.sampled)
        self.trace.end_phase(self.recorder.take_changes())
        return self._describe_update(cycle, batch, before)

    # -- describing -----------------------------------------------------------------------------

    def _describe_schedule(self, cycle: int, batch: Batch) -> Line:
        line = {"batch": batch.number, **self._describe_batch(batch.output)}
        return self._line("schedule", cycle, line)

    def _describe_update(self, cycle: int, batch: Batch, before: int) -> Line:
        sampled = batch.sampled.sampled_token_ids
        events = self._events_since(before)
        line: Line = {
            "batch": batch.number,
            "sampled": {key: token for key, (token,) in sampled.items()},
            "dropped": self._describe_dropped(list(sampled), events),
            "finished": self._describe_finished(events),
        }
        line = self._line("update", cycle, line)
        cache_use = self._describe_cache_use(self._events_since(self._described))
        self._described = len(self.trace.records)
        line.update((key, value) for key, value in cache_use.items() if value)
        return line

    def _describe_dropped(self, order: list[str], events: list[Event]) -> list[list[str]]:
        """Ids in the order of the batch; a reset is the only reason that is logged."""
        dropped = [
            [event.facts.request, "finished" if event.reason is None else "discarded"]
            for event in events
            if isinstance(event.facts, TokenDropped)
        ]
        self.dropped.update(key for key, _ in dropped)
        return sorted(dropped, key=lambda item: order.index(item[0]))

    def _line(self, kind: str, cycle: int, fields: Line) -> Line:
        """`fields` and the state after the call."""
        requests = (*self.scheduler.running, *self.scheduler.waiting)
        placeholders = {r.request_id: r.num_output_placeholders for r in requests}
        discard = {r.request_id: r.async_tokens_to_discard for r in requests}
        line: Line = {
            "kind": kind,
            "cycle": cycle,
            **fields,
            **self._describe_queues(),
            "placeholders": {key: count for key, count in placeholders.items() if count},
            "discard": {key: count for key, count in discard.items() if count},
            "in_flight": [batch.number for batch in self.in_flight],
            **self._describe_pool(),
        }
        return {key: value for key, value in line.items() if value or key not in SPARSE}

    def summary(self) -> Line:
        """What became of each request."""
        return {
            key: {**item, "dropped": self.dropped[key]} for key, item in super().summary().items()
        }
