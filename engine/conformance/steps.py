"""Synchronous scheduling: the `EngineCore` that the page drives too, one line a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.conformance.driver import Driver, Line
from engine.conformance.workload import MAX_STEPS, Sampler, Workload, WorkloadError
from engine.core import NO_STEP, EngineCore, Runner
from engine.outputs import ModelRunnerOutput, SchedulerOutput
from engine.records import Phase
from engine.request import Request

# Fields of a step that are left out when empty.
SPARSE = frozenset(
    ("added", "aborted_before", "aborted_during", "actions", "preempted", "notified_finished")
    + ("waiting", "sampled", "finished", "hashed", "unhashed", "prefix_queries", "events")
)


@dataclass(slots=True)
class Known:
    """How many tokens the runner knows of a request."""

    num_tokens: int
    num_prompt_tokens: int


class FormulaRunner(Runner):
    """A runner without a model: its tokens come from the sampler's formula.

    Like the real one it knows what it was told and what it sampled itself, which may be ahead of
    what the scheduler has heard.
    """

    def __init__(self, sampler: Sampler):
        self.sampler = sampler
        self.known: dict[str, Known] = {}
        self.output = NO_STEP

    def prepare_inputs(self, output: SchedulerOutput) -> None:
        """Take over who is new or resumed; remember whose turn it is."""
        self.output = output
        for request_id in output.finished_req_ids + output.preempted_req_ids:
            self.known.pop(request_id, None)
        for entry in output.scheduled:
            if (data := entry.data) is not None:
                known = Known(len(data.all_token_ids), data.num_prompt_tokens)
                self.known[entry.request_id] = known

    def execute_model(self) -> None:
        """There is no model."""

    def sample_tokens(self) -> ModelRunnerOutput:
        """A token for each request all of whose known tokens are computed after this step."""
        tokens: dict[str, tuple[int, ...]] = {}
        for entry in self.output.scheduled:
            known = self.known[entry.request_id]
            if entry.num_computed_tokens + entry.num_tokens == known.num_tokens:
                known.num_tokens += 1
                number = known.num_tokens - known.num_prompt_tokens
                tokens[entry.request_id] = (self.sampler.token(entry.request_id, number),)
        return ModelRunnerOutput(tokens)

    def drop_requests(self, request_ids: set[str]) -> None:
        """Not needed: a workload aborts before a step or after its tokens are sampled."""


class Conformance(Driver):
    """Drives one workload and describes each step."""

    engine = "Glassbox EngineCore"

    def __init__(self, workload: Workload, cache_uncomputed_blocks: bool = True):
        super().__init__(workload, cache_uncomputed_blocks)
        self.core = EngineCore(self.config, self._runner(), self.trace)
        self.scheduler = self.core.scheduler

    def _runner(self) -> Runner:
        return FormulaRunner(self.sampler)

    # -- driving --------------------------------------------------------------------------------

    def steps(self) -> Iterator[Line]:
        """One record a step in which something happens; the others pass without a record."""
        last_token = self.last_due
        for step in range(MAX_STEPS):
            if step in self.due or self.scheduler.has_requests():
                record = self.step(step)
                yield record
                last_token = max(step, self.last_due) if record.get("sampled") else last_token
                if step > self.last_due and self._is_stuck(record, step - last_token):
                    self._give_up(step)
            elif step > self.last_due:
                return
        raise WorkloadError(f"no end within {MAX_STEPS} steps")

    def _is_stuck(self, record: Line, without_token: int) -> bool:
        """Whether every step to come would be like this one, or like some of the last."""
        moved = record["scheduled"] or record.get("notified_finished") or record.get("preempted")
        if not moved:
            return self.scheduler.has_requests()
        # A step has a token for somebody, so by then each could have been computed from its start.
        return without_token > self.workload.config.max_model_len * len(self.requests)

    def step(self, step: int) -> Line:
        """Run one step and describe it."""
        seen = len(self.trace.records)
        record: Line = {"step": step, "added": self._add(step)}
        self.core.step_phase()  # arrive
        record["aborted_before"] = self._abort(step, "before")
        record["actions"] = self._act(step)
        self.core.step_phase()  # schedule
        record.update(self._describe_batch(self.core.scheduler_output))
        record.update(self._describe_queues())
        record["free_scheduled"] = self.pool.get_num_free_blocks()
        self._run_to(Phase.UPDATE)
        record["sampled"] = self._describe_sampled(self.core.sampled.sampled_token_ids)
        record["aborted_during"] = self._abort(step, "during")
        before_update = len(self.trace.records)
        self.core.step()
        record.update(self._describe_end(seen, before_update))
        return {key: value for key, value in record.items() if value or key not in SPARSE}

    def _run_to(self, phase: Phase) -> None:
        while self.core.next_phase is not phase:
            self.core.step_phase()

    def _submit(self, request: Request) -> None:
        self.core.add_request(request)

    def _take_back(self, request_id: str) -> list[str]:
        return self.core.abort_requests([request_id])

    def _reset(self, reset_running_requests: bool) -> bool:
        return self.core.reset_prefix_cache(reset_running_requests)

    # -- describing -----------------------------------------------------------------------------

    def _describe_sampled(self, sampled: dict[str, tuple[int, ...]]) -> Line:
        return {key: token for key, (token,) in sampled.items()}

    def _describe_end(self, seen: int, before_update: int) -> Line:
        return {
            "finished": self._describe_finished(self._events_since(before_update)),
            **self._describe_pool(),
            "num_running": len(self.scheduler.running),
            "num_waiting": len(self.scheduler.waiting),
            **self._describe_cache_use(self._events_since(seen)),
        }
