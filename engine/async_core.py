"""Two steps at once: the next one is decided while the model runs the last one.

No box of its own, as `engine/core.py`. vLLM 0.26.0: `vllm/v1/engine/core.py`
(`EngineCore.step_with_batch_queue`), with two batches in flight.

The phases of a step are shared out between two lanes. The engine lane has arrive, schedule, update
and output; it schedules a second step before it awaits the first one's tokens. The executor lane
has prepare, execute and sample of each step, in the order in which they were scheduled. In an
engine that runs, each has a thread. Stepped by hand, both are walked a phase at a time, and the
engine lane goes first wherever it can.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress

from engine.async_scheduler import AsyncScheduler
from engine.config import EngineConfig
from engine.core import NO_TOKENS, NOT_RUN_YET, EngineCore, OutputSink, Runner
from engine.doing import Doing, Hear, behind, heard_by, wait_and_tell
from engine.engine_thread import EngineThread, EngineThreadStopped
from engine.outputs import SchedulerOutput
from engine.records import STEP_PHASES, Phase
from engine.request import Request
from engine.trace import Changes, State
from engine.two_lanes import TwoLaneTrace


class ExecutorFailed(Exception):
    """A phase of the executor lane raised; `__cause__` has the error."""

    def __init__(self, phase: Phase):
        super().__init__(f"the executor stopped in the phase `{phase}`")
        self.phase = phase


class StepInFlight:
    """A step from its batch on until its outcome has gone out."""

    __slots__ = ("index", "is_executed", "next_phase", "output", "sampled")

    def __init__(self, index: int, output: SchedulerOutput):
        self.index = index
        self.output = output
        self.sampled = NO_TOKENS
        self.next_phase = Phase.PREPARE
        self.is_executed = False  # and the log says so: the engine lane may go on with it


class AsyncEngineCore(EngineCore):
    """An `EngineCore` with an `AsyncScheduler`, whose steps overlap.

    Calls come from one thread. Only `_execute_ahead` is the executor's: it shares with the others
    the runner and the steps that wait for it, and only where `_released` lets it.
    """

    scheduler_type = AsyncScheduler
    scheduler: AsyncScheduler
    trace: TwoLaneTrace

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        trace: TwoLaneTrace,
        output_processor: OutputSink | None = None,
        executor: EngineThread | None = None,
    ):
        self.in_flight: deque[StepInFlight] = deque()  # oldest first
        super().__init__(config, runner, trace, output_processor)
        self.on_executed: Callable[[], None] = lambda: None  # on the executor's thread
        self.hear: Hear = lambda doing: None  # on that thread, too: what takes long there
        self.failure: ExecutorFailed | None = None
        self._position = Phase.ARRIVE  # of the engine lane; there a cycle begins
        self._num_scheduled = 0  # steps
        self._finishing = False  # no more steps are begun
        self._progress: Changes = {}  # of steps in flight, for the engine lane's next patch
        self._to_execute: deque[StepInFlight] = deque()
        self._executor = executor or EngineThread("executor")
        self._hand_over = threading.Lock()  # of what follows
        self._released = False  # the executor may go on by itself
        self._job: Future[None] | None = None  # of the executor, at work or in its queue
        self._execute_lane: dict[Phase, Callable[[StepInFlight], None]] = {
            Phase.PREPARE: self._prepare_step,
            Phase.EXECUTE: self._execute_step,
            Phase.SAMPLE: self._sample_step,
        }

    # -- both lanes -----------------------------------------------------------------------------

    def run(self) -> bool:
        """Let the executor go, and run the engine lane until an outcome went out or it must wait.

        Returns whether it went out.
        """
        self._release()
        while not self._is_blocked:
            if self._engine_phase() is Phase.OUTPUT:
                return True
        return False

    def step(self) -> None:
        """Run a phase at a time until the outcome of some step has gone out."""
        while self.step_phase() is not Phase.OUTPUT:
            pass

    @property
    def between_steps(self) -> bool:
        """Whether none is in flight, and none has begun."""
        return not self.in_flight and self.next_phase is Phase.ARRIVE

    def finish_steps(self) -> None:
        """Run to the end of the steps in flight, and of one whose `arrive` has run."""
        self._finishing = True
        try:
            self._say_what_is_next()
            super().finish_steps()
        finally:
            self._finishing = False

    def restored(self, step: int, finished: dict[str, Request]) -> None:
        """As in `EngineCore`; no step is in flight."""
        self._num_scheduled = step
        super().restored(step, finished)

    def step_phase(self) -> Phase:
        """Run one phase alone: of the engine lane, or where that must wait, of the executor's."""
        self._stop_executor()
        return self._executor_phase() if self._is_blocked else self._engine_phase()

    @property
    def _is_blocked(self) -> bool:
        """Whether the engine lane waits for tokens."""
        return self.next_phase is Phase.UPDATE and not self.in_flight[0].is_executed

    @property
    def awaits_executor(self) -> bool:
        """Whether the next turn must wait for the executor, which will call `on_executed`."""
        return self._is_blocked and self._job is not None

    @property
    def is_still(self) -> bool:
        """Whether the executor is at rest."""
        return self._job is None

    @property
    def not_run(self) -> list[SchedulerOutput]:
        """Batches whose forward has not run."""
        return [step.output for step in self.in_flight if step.next_phase in NOT_RUN_YET]

    @property
    def unprepared(self) -> list[SchedulerOutput]:
        """Batches that the runner knows nothing of yet."""
        return [step.output for step in self.in_flight if step.next_phase is Phase.PREPARE]

    def sampled_ahead(self, request_id: str) -> tuple[int, ...]:
        """Tokens of a request that the runner has and the scheduler is yet to hear of."""
        run = [step for step in self.in_flight if step.next_phase is Phase.UPDATE]
        return tuple(
            token for step in run for token in step.sampled.sampled_token_ids.get(request_id, ())
        )

    # -- the engine lane ------------------------------------------------------------------------

    def _engine_phase(self) -> Phase:
        phase = self.next_phase
        self.trace.begin_phase(self.step_index, phase)
        self._run[phase]()
        self._end_phase()
        if phase is Phase.SCHEDULE:
            self._to_execute.append(self.in_flight[-1])
            self._feed_executor()
        return phase

    def _arrive(self) -> None:
        super()._arrive()
        self._position = Phase.SCHEDULE

    def _schedule(self) -> None:
        output = self.scheduler.schedule()
        step = StepInFlight(self._num_scheduled, output)
        self.in_flight.append(step)
        self._progress[str(step.index)] = str(step.next_phase)
        self._num_scheduled += 1
        fills = self.scheduler.fills(output, len(self.in_flight))
        self._position = Phase.ARRIVE if fills else Phase.UPDATE

    def _update(self) -> None:
        step = self.in_flight[0]
        self._results = self.scheduler.update_from_output(step.output, step.sampled)
        step.next_phase = self._position = Phase.OUTPUT
        self._progress[str(step.index)] = str(step.next_phase)

    def _emit(self) -> None:
        super()._emit()
        step = self.in_flight.popleft()
        self._progress[str(step.index)] = None
        self._position = Phase.ARRIVE

    def _say_what_is_next(self) -> None:
        """Where a cycle begins, that depends on whether there is anything to schedule."""
        begins = self._position is Phase.ARRIVE
        goes_on = self._can_schedule and not self._finishing
        awaits = begins and bool(self.in_flight) and not goes_on
        self.next_phase = Phase.UPDATE if awaits else self._position
        is_newest = self.next_phase in (Phase.ARRIVE, Phase.SCHEDULE)
        self.step_index = self._num_scheduled if is_newest else self.in_flight[0].index

    @property
    def _can_schedule(self) -> bool:
        return bool(self.arriving) or self.scheduler.has_requests()

    def _end_phase(self) -> None:
        self._say_what_is_next()
        changes = self._take_changes()
        if self._progress:
            changes.setdefault("engine", {})["in_flight"] = self._progress
            self._progress = {}
        self.trace.end_phase(changes)

    def state(self) -> State:
        """The whole state, from the live objects; while the executor is still."""
        state = super().state()
        state["engine"]["in_flight"] = {
            str(step.index): str(step.next_phase) for step in self.in_flight
        }
        return state

    # -- the executor lane ----------------------------------------------------------------------

    def _executor_phase(self) -> Phase:
        """The next phase of the oldest step that has not run; whatever it raises is a failure."""
        step = self._to_execute[0]
        phase = step.next_phase
        try:
            self._execute_phase(step, phase)
        except BaseException as error:
            self.failure = ExecutorFailed(phase)
            raise self.failure from error
        return phase

    def _execute_phase(self, step: StepInFlight, phase: Phase) -> None:
        lane = self.trace.executor
        lane.begin_phase(step.index, phase)
        self._execute_lane[phase](step)
        changes = self.runner.take_changes()
        step.next_phase = STEP_PHASES[STEP_PHASES.index(phase) + 1]
        changes["engine"] = {"in_flight": {str(step.index): str(step.next_phase)}}
        lane.end_phase(changes)
        if phase is Phase.SAMPLE:
            self._to_execute.popleft()
            step.is_executed = True

    def _prepare_step(self, step: StepInFlight) -> None:
        self.runner.prepare_inputs(step.output)

    def _execute_step(self, step: StepInFlight) -> None:
        self.runner.execute_model()

    def _sample_step(self, step: StepInFlight) -> None:
        step.sampled = self.runner.sample_tokens()

    def _execute_ahead(self) -> None:
        """On the executor's thread: run a step, and queue up again where there is another one."""
        try:
            with heard_by(self.hear):
                while self._released and self._executor_phase() is not Phase.SAMPLE:
                    pass
        except ExecutorFailed:
            pass  # `failure` has it, for the engine's thread
        finally:
            with self._hand_over:
                self._job = self._post_job()
            self.on_executed()

    def held_up(self, by: Doing | None) -> None:
        """Another engine has the executor while a step of this one waits for it."""
        self.hear(behind(by))

    def _feed_executor(self) -> None:
        """Have the executor run what is there for it, unless it does already."""
        with self._hand_over:
            if self._job is None:
                self._job = self._post_job()

    def _post_job(self) -> Future[None] | None:
        if not self._released or not self._to_execute or self.failure is not None:
            return None
        with suppress(EngineThreadStopped):
            return self._executor.post(self._execute_ahead, self)
        return None

    def _release(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._released = True
        self._feed_executor()

    def hold(self) -> None:
        """The executor begins no phase any more; one that is under way ends."""
        self._released = False

    def _stop_executor(self) -> None:
        self.rest()
        if self.failure is not None:
            raise self.failure

    def rest(self) -> None:
        """Hold, and wait until the phase under way has ended; the next turn goes on."""
        with self._hand_over:
            self._released = False
            job = self._job
        if job is not None:
            if job.cancel():
                self._job = None
            else:
                # The executor tells this engine; whoever waits for the engine's thread hears it so.
                wait_and_tell(
                    lambda seconds: not wait([job], seconds).not_done,
                    lambda: self._executor.doing,
                )
