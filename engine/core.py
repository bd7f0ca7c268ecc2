"""One step of the engine, as phases that it can stop between.

No box of its own: what the map shows between the boxes is this loop. vLLM 0.26.0:
`vllm/v1/engine/core.py` (`EngineCore.step`): schedule, execute, sample, update. Here the same calls
are made one at a time, each logs what it did, and each ends with the patch of what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from engine.config import EngineConfig
from engine.events import Facts, RequestAborted, RequestFinished, RequestSubmitted
from engine.outputs import (
    EngineCoreOutput,
    ModelRunnerOutput,
    ScheduledRequest,
    SchedulerOutput,
    TokenLogprobs,
)
from engine.reasons import ClientAborted, Reason, StopString
from engine.records import STEP_PHASES, Phase
from engine.request import FinishReason, Request, RequestStatus
from engine.scheduler import Scheduler, drop_from
from engine.speculative_scheduler import SpeculativeScheduler
from engine.state import StateRecorder, diff
from engine.trace import Changes, State, Trace, merge_patch

if TYPE_CHECKING:
    from torch import Tensor

NOT_RUN_YET = (Phase.PREPARE, Phase.EXECUTE)  # the next phase while a step can be taken back
NO_STEP = SchedulerOutput((), 0, 0, (), ())
NO_TOKENS = ModelRunnerOutput({})


class RunnerRequest(Protocol):
    """What a runner keeps of a request that it was told of."""

    @property
    def token_ids(self) -> Sequence[int]:
        """Prompt and output so far."""

    @property
    def block_ids(self) -> Sequence[int]:
        """Its block table."""


class Runner(Protocol):
    """What runs the model (`engine/model_runner.py`), or stands in for it.

    A stand-in that keeps nothing of its own inherits what says so.
    """

    def prepare_inputs(self, output: SchedulerOutput) -> None:
        """Build the step's inputs."""

    def execute_model(self) -> None:
        """Run the forward and keep the logits."""

    def sample_tokens(self) -> ModelRunnerOutput:
        """Choose a token for each request whose known tokens are all computed."""

    def drop_requests(self, request_ids: set[str]) -> None:
        """Forget requests in the middle of a step; the rest of the step goes on without them."""

    def pool_bytes(self) -> int:
        """Bytes of the tensors that hold K and V; 0 where there are none."""
        return 0

    def known_requests(self) -> Mapping[str, RunnerRequest]:
        """What it keeps of requests, by id; nothing where it looks at the scheduler's own."""
        return {}

    def take_changes(self) -> Changes:
        """What changed of its part of the state since the last call."""
        return {}

    def snapshot(self) -> State:
        """Its part of the state, whole."""
        return {}

    def save_blocks(self, blocks: Sequence[int]) -> dict[str, Tensor]:
        """What these blocks hold; nothing where there are no tensors."""
        return {}

    def restore_blocks(self, blocks: Sequence[int], saved: Mapping[str, Tensor]) -> None:
        """Have these blocks hold that; ValueError where it does not fit."""
        return

    def rated_prompts(self) -> Mapping[str, list[TokenLogprobs | None]]:
        """What is known of the prompts whose log-probabilities are yet to be told, by request."""
        return {}

    def restore_request(
        self, item: ScheduledRequest, rated: list[TokenLogprobs | None] | None
    ) -> None:
        """Know a running request, which another runner knew."""
        return


class OutputSink(Protocol):
    """What takes the step's outcome to the clients (`engine/output_processor.py`)."""

    def process(self, outputs: list[EngineCoreOutput]) -> list[tuple[str, str, int]]:
        """Emit text; returns (request id, stop string, its index) where a string ended it."""

    def take_changes(self) -> Changes:
        """What changed of its part of the state since the last call."""

    def snapshot(self) -> State:
        """Its part of the state, whole."""

    def forget(self, request_ids: Iterable[str]) -> None:
        """These finished requests have left the state."""


class EngineCore:
    """Owner of scheduler and runner; all calls come from one thread."""

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        trace: Trace,
        output_processor: OutputSink | None = None,
    ):
        self.config = config
        self.runner = runner
        self.trace = trace
        self.output_processor = output_processor
        self.scheduler = self.scheduler_type(config, trace)
        self.arriving: dict[str, Request] = {}  # submitted; the next `arrive` takes them in
        self.next_phase = Phase.ARRIVE
        self.step_index = 0
        self.recorder = StateRecorder(self.scheduler, self.arriving)
        self._engine: Changes = {"mode": "paused"}  # what the front end told about itself
        self._told: Changes = self._engine_record()
        self.scheduler_output = NO_STEP
        self.sampled = NO_TOKENS
        self._results: list[EngineCoreOutput] = []
        self._run: dict[Phase, Callable[[], None]] = {
            Phase.ARRIVE: self._arrive,
            Phase.SCHEDULE: self._schedule,
            Phase.PREPARE: self._prepare,
            Phase.EXECUTE: self._execute,
            Phase.SAMPLE: self._sample,
            Phase.UPDATE: self._update,
            Phase.OUTPUT: self._emit,
        }
        trace.header = trace.header.model_copy(update={"state": self.state()})

    @property
    def scheduler_type(self) -> type[Scheduler]:
        """The kind of scheduler that this engine has."""
        return SpeculativeScheduler if self.config.speculative_config else Scheduler

    # -- the step -------------------------------------------------------------------------------

    def run(self) -> bool:
        """A running engine's turn: a whole step. Returns whether a step's outcome has gone out."""
        self.step()
        return True

    def hold(self) -> None:
        """Nothing more may run by itself; here nothing does."""

    def rest(self) -> None:
        """`hold`, and wait until nothing runs."""

    @property
    def awaits_executor(self) -> bool:
        """Whether the next turn must wait for what runs elsewhere; here nothing does."""
        return False

    @property
    def is_still(self) -> bool:
        """Whether no phase is under way elsewhere, so that state and log may be compared."""
        return True

    def step(self) -> None:
        """Run to the end of the current step, or a whole one from its beginning."""
        while self.step_phase() is not STEP_PHASES[-1]:
            pass

    @property
    def between_steps(self) -> bool:
        """Whether no step has begun that has not ended."""
        return self.next_phase is STEP_PHASES[0]

    def finish_steps(self) -> None:
        """Run to the end of what has begun, and begin nothing."""
        while not self.between_steps:
            self.step_phase()

    def step_phase(self) -> Phase:
        """Run the next phase and return which it was."""
        phase = self.next_phase
        self.trace.begin_phase(self.step_index, phase)
        self._run[phase]()
        if phase is STEP_PHASES[-1]:
            self.next_phase = STEP_PHASES[0]
            self.step_index += 1
        else:
            self.next_phase = STEP_PHASES[STEP_PHASES.index(phase) + 1]
        self._end_phase()
        return phase

    def has_work(self) -> bool:
        """Whether a step would do something; the rest of one that has begun always counts."""
        begun = self.next_phase is not STEP_PHASES[0]
        return begun or bool(self.arriving) or self.scheduler.has_requests()

    def _arrive(self) -> None:
        for request in tuple(self.arriving.values()):
            self.scheduler.add_request(request)
        self.arriving.clear()

    def _schedule(self) -> None:
        self.scheduler_output = self.scheduler.schedule()

    def _prepare(self) -> None:
        self.runner.prepare_inputs(self.scheduler_output)

    def _execute(self) -> None:
        self.runner.execute_model()

    def _sample(self) -> None:
        self.sampled = self.runner.sample_tokens()

    def _update(self) -> None:
        self._results = self.scheduler.update_from_output(self.scheduler_output, self.sampled)

    def _emit(self) -> None:
        results, self._results = self._results, []
        self.scheduler_output, self.sampled = NO_STEP, NO_TOKENS
        if self.output_processor is None:
            return
        for request_id, stop, index in self.output_processor.process(results):
            request = self.scheduler.requests.get(request_id)
            if request is not None:
                self.scheduler.finish_request(request, stop, StopString(index))

    # -- commands, at any moment between two phases -----------------------------------------------

    def add_request(self, request: Request, source: str = "") -> None:
        """Accept a request; the next step's `arrive` puts it into the waiting queue."""
        self.begin_command()
        self.arriving[request.request_id] = request
        self.scheduler.touched[request] = None
        self.trace.event(
            RequestSubmitted(
                request.request_id,
                request.num_prompt_tokens,
                request.sampling_params.max_tokens,
                source,
            )
        )
        self._end_phase()

    def abort_requests(self, request_ids: Iterable[str]) -> list[str]:
        """Take requests back; returns those that were there to be taken back.

        Where their step is scheduled and has not run, it runs without them.
        """
        known = [
            key
            for key in dict.fromkeys(request_ids)
            if key in self.scheduler.requests or key in self.arriving
        ]
        if not known:
            return []
        self.begin_command()
        if self.next_phase in NOT_RUN_YET:
            self._drop(self.scheduler.withdraw(self.scheduler_output, known))
        for key in known:
            if key in self.arriving:
                self._abort_arriving(self.arriving.pop(key))
            else:
                self.scheduler.abort_request(self.scheduler.requests[key])
        self._end_phase()
        return known

    def _abort_arriving(self, request: Request) -> None:
        self.trace.event(RequestAborted(request.request_id, request.status), ClientAborted())
        request.status = RequestStatus.FINISHED
        request.finish_reason = FinishReason.ABORT
        self.scheduler.counters.requests_finished += 1
        self.scheduler.touched[request] = None
        self.trace.event(
            RequestFinished(request.request_id, FinishReason.ABORT, 0), ClientAborted()
        )

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached content; see `Scheduler.reset_prefix_cache`."""
        self.begin_command()
        done = self.scheduler.reset_prefix_cache(reset_running_requests)
        if reset_running_requests:
            # Whoever is in the step that is under way was preempted: nothing of it counts.
            self._drop(drop_from(self.scheduler_output, set(self.scheduler.requests)))
        self._end_phase()
        return done

    def _drop(self, output: SchedulerOutput) -> None:
        """Go on with the step as `output`, which has fewer requests than it began with."""
        kept = {entry.request_id for entry in output.scheduled}
        gone = {entry.request_id for entry in self.scheduler_output.scheduled} - kept
        if not gone:
            return
        if self.next_phase is not Phase.PREPARE:  # before it the runner knows nothing of the step
            self.runner.drop_requests(gone)
        self.scheduler_output = output
        self.sampled = self.sampled.only(kept)

    # -- what scheduler and runner have yet to hear of each other ---------------------------------

    @property
    def not_run(self) -> list[SchedulerOutput]:
        """Batches whose forward has not run."""
        return [self.scheduler_output] if self.next_phase in NOT_RUN_YET else []

    def num_tokens_with_kv(self, request: Request) -> int:
        """Tokens of a running request whose K and V are there.

        `num_computed_tokens` counts those of batches that have not run, and drafts.
        """
        starts = (
            item.num_computed_tokens
            for output in self.not_run
            for item in output.scheduled
            if item.request_id == request.request_id
        )
        return min(request.num_computed_tokens, request.num_tokens, *starts)

    @property
    def unprepared(self) -> list[SchedulerOutput]:
        """Batches that the runner knows nothing of yet."""
        return [self.scheduler_output] if self.next_phase is Phase.PREPARE else []

    def untold_requests(self) -> set[str]:
        """Requests that were admitted, preempted or finished since the runner's last `prepare`."""
        scheduler = self.scheduler
        untold = {*scheduler.preempted_req_ids, *scheduler.finished_req_ids}
        for output in self.unprepared:
            untold.update(output.preempted_req_ids, output.finished_req_ids)
            untold.update(entry.request_id for entry in output.scheduled if entry.data is not None)
        return untold

    def num_untold_blocks(self, request_id: str) -> int:
        """Blocks at the end of a request's table that the runner knows nothing of."""
        return sum(
            len(entry.new_block_ids)
            for output in self.unprepared
            for entry in output.scheduled
            if entry.request_id == request_id
        )

    def sampled_ahead(self, request_id: str) -> tuple[int, ...]:
        """Tokens of a request that the runner has and the scheduler is yet to hear of."""
        if self.next_phase is not Phase.UPDATE:
            return ()
        return self.sampled.sampled_token_ids.get(request_id, ())

    def find_request(self, request_id: str) -> Request | None:
        """A request by its id; one that has ended as long as the state has it."""
        return (
            self.scheduler.requests.get(request_id)
            or self.arriving.get(request_id)
            or self.recorder.finished.get(request_id)
        )

    def command(self, changes: Changes) -> None:
        """Log what the front end says of itself, under "engine": its mode, its rate."""
        self.begin_command()
        merge_patch(self._engine, changes.get("engine", {}))
        self._end_phase()

    def note(
        self, facts: Facts, reason: Reason | None = None, duration_us: float | None = None
    ) -> None:
        """Log what happened beside the steps."""
        self.begin_command()
        self.trace.event(facts, reason, duration_us)
        self.command({})

    def restored(self, step: int, finished: dict[str, Request]) -> None:
        """Scheduler, runner and clients are those of a saved moment: the log begins with them.

        `step` is the next one; `finished` are requests that the state remembers.
        """
        self.step_index = step
        self.recorder.begin_here(finished)
        self._told = self._engine_record()
        self.trace.header = self.trace.header.model_copy(update={"state": self.state()})

    # -- the log --------------------------------------------------------------------------------

    def state(self) -> State:
        """The whole state, from the live objects."""
        state = self.recorder.snapshot()
        merge_patch(state, self.runner.snapshot())
        if self.output_processor is not None:
            merge_patch(state, self.output_processor.snapshot())
        state["engine"] = self._engine_record()
        return state

    def _engine_record(self) -> Changes:
        return {**self._engine, "next_phase": str(self.next_phase), "step": self.step_index}

    def begin_command(self) -> None:
        """Events from here on belong to a command, whose patch `command` makes."""
        self.trace.begin_phase(self.step_index, Phase.COMMAND)

    def _end_phase(self) -> None:
        changes = self._take_changes()
        merge_records(changes, self.runner.take_changes())
        self.trace.end_phase(changes)

    def _take_changes(self) -> Changes:
        """What changed since the last call, but for the runner's part."""
        changes = self.recorder.take_changes()
        if self.output_processor is not None:
            merge_records(changes, self.output_processor.take_changes())
            self.output_processor.forget(self.recorder.forgotten)
        record = self._engine_record()
        difference = diff(self._told, record)
        if difference:
            changes["engine"] = difference
            self._told = record
        return changes


def merge_records(changes: Changes, more: Changes) -> None:
    """Join two patches that set different keys of the same records."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(changes.get(key), dict):
            merge_records(changes[key], value)
        elif key not in changes:
            changes[key] = value
