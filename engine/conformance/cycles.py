"""Asynchronous scheduling: the `AsyncEngineCore` that the page drives too, one line a call.

The calls are those on its scheduler. vLLM 0.26.0: `vllm/v1/engine/core.py`
(`EngineCore.step_with_batch_queue`). A cycle schedules a batch if it can, and awaits the oldest
one's tokens unless there is room for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NoReturn

from engine.async_core import AsyncEngineCore, StepInFlight
from engine.conformance.driver import Driver, Line
from engine.conformance.steps import FormulaRunner
from engine.conformance.workload import MAX_STEPS, Workload, WorkloadError
from engine.events import TokenDropped
from engine.records import Event, Phase
from engine.request import Request
from engine.two_lanes import TwoLaneTrace

# Fields of a line that are left out when empty.
SPARSE = frozenset(
    ("added", "aborted", "actions", "preempted", "notified_finished", "sampled", "dropped")
    + ("finished", "waiting", "placeholders", "discard", "in_flight", "hashed", "unhashed")
    + ("prefix_queries", "events")
)


class AsyncConformance(Driver):
    """Drives one workload and describes each call."""

    engine = "Glassbox AsyncEngineCore"
    trace_type = TwoLaneTrace
    trace: TwoLaneTrace

    def __init__(self, workload: Workload, cache_uncomputed_blocks: bool = True):
        super().__init__(workload, cache_uncomputed_blocks)
        self.core = AsyncEngineCore(self.config, FormulaRunner(self.sampler), self.trace)
        self.scheduler = self.core.scheduler
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
                if not self.core.in_flight and not self.scheduler.has_requests():
                    return
                if not moved or self._is_too_long(cycle - last_token):
                    self._give_up(cycle)
        raise WorkloadError(f"no end within {MAX_STEPS} cycles")

    def _moves(self, line: Line) -> bool:
        """Whether the next cycle may be another than the one that has this line."""
        news = any(line.get(key) for key in ("scheduled", "notified_finished", "preempted"))
        return news or any(batch.output.scheduled for batch in self.core.in_flight)

    def _is_too_long(self, without_token: int) -> bool:
        """Whether each request could have been computed from its start, a token a cycle."""
        return without_token > self.workload.config.max_model_len * len(self.requests)

    def cycle(self, number: int) -> Iterator[Line]:
        """Run one cycle and describe its calls."""
        added = self._add(number)
        schedules = self.core.next_phase is Phase.ARRIVE and self.core.has_work()
        if schedules:
            self.core.step_phase()  # arrive
        yield from self._input(number, "before", added)
        if schedules:
            self.core.step_phase()  # schedule
            yield self._describe_schedule(number, self.core.in_flight[-1])
            if self.core.next_phase is Phase.ARRIVE:
                self._refuse_abort_during(number)
                return
        if self.core.in_flight:
            yield from self._input(number, "during", [])
            yield self._update(number)

    def _input(self, cycle: int, phase: str, added: list[str]) -> Iterator[Line]:
        line: Line = {
            "added": added,
            "aborted": self._abort(cycle, phase),
            "actions": self._act(cycle) if phase == "before" else [],
        }
        if any(line.values()):
            yield self._line("input", cycle, line)

    def _submit(self, request: Request) -> None:
        self.core.add_request(request)

    def _take_back(self, request_id: str) -> list[str]:
        return self.core.abort_requests([request_id])

    def _reset(self, reset_running_requests: bool) -> bool:
        return self.core.reset_prefix_cache(reset_running_requests)

    def _refuse_abort_during(self, cycle: int) -> None:
        for index, spec in enumerate(self.workload.requests):
            if spec.abort_step == cycle and spec.abort_phase == "during":
                self._refuse(f"requests.{index}.abort_phase: cycle {cycle} awaits no output")

    def _refuse(self, message: str) -> NoReturn:
        raise WorkloadError(message)

    def _update(self, cycle: int) -> Line:
        batch, before = self.core.in_flight[0], len(self.trace.records)
        self.core.step()
        return self._describe_update(cycle, batch, before)

    # -- describing -----------------------------------------------------------------------------

    def _describe_schedule(self, cycle: int, batch: StepInFlight) -> Line:
        line = {"batch": batch.index, **self._describe_batch(batch.output)}
        return self._line("schedule", cycle, line)

    def _describe_update(self, cycle: int, batch: StepInFlight, before: int) -> Line:
        sampled = batch.sampled.sampled_token_ids
        events = self._events_since(before)
        line: Line = {
            "batch": batch.index,
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
            "in_flight": [batch.index for batch in self.core.in_flight],
            **self._describe_pool(),
        }
        return {key: value for key, value in line.items() if value or key not in SPARSE}

    def summary(self) -> Line:
        """What became of each request."""
        return {
            key: {**item, "dropped": self.dropped[key]} for key, item in super().summary().items()
        }
