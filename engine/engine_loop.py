"""The loop of one engine: its modes, its turns, and how it begins, fails, rests and ends.

Part of box `async-engine`. vLLM 0.26.0: `EngineCoreProc.run_busy_loop` in
`vllm/v1/engine/core.py`. All of it happens on the engine thread, which many engines share: a turn
is a step, or a phase where the engine runs slowly. `AsyncLLM` asks for it from other threads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from engine.admission import Admission, take_back
from engine.async_core import AsyncEngineCore, ExecutorFailed
from engine.config import ConfigError, EngineConfig
from engine.core import EngineCore
from engine.doing import Doing, behind, heard_by
from engine.engine_errors import EngineError, MidStep
from engine.engine_parts import EngineParts, MakeRunner, build_engine
from engine.engine_thread import EngineThread, EngineThreadStopped
from engine.events import (
    EngineFailed,
    IntegrityChecked,
    KVCacheCompared,
    MomentRestored,
    RequestRefused,
)
from engine.input_processor import Encoded, RequestRefusedError
from engine.integrity import LogReader, check_integrity
from engine.kept_log import continue_log
from engine.metrics.periodic_line import PeriodicLine
from engine.metrics.stats import EngineStats
from engine.metrics.stats_line import start_texts
from engine.output_processor import EngineReplaced, OutputProcessor, RequestLost, RequestStream
from engine.reasons import Reason
from engine.records import STEP_PHASES, Phase
from engine.trace import Changes, Trace, error_text

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel
    from engine.moment import Moment

T = TypeVar("T")
Mode = Literal["paused", "running"]
Admit = Callable[[Sequence[Encoded], str, int], None]  # of a source, with so many under way

SHOW_PHASES_UP_TO = 4.0  # steps a second; so slow a run stops between phases, to let one see them

log = logging.getLogger("glassbox")


class EngineStatus(NamedTuple):
    """Where an engine stands."""

    mode: Mode
    rate: float | None  # steps a second; None: as fast as it goes
    next_phase: Phase
    step: int  # that `next_phase` belongs to
    has_work: bool
    failed: str | None  # why it stopped for good, until a reset
    trace_id: str


class Restored(NamedTuple):
    """What an engine was made to be that goes on from where another stood."""

    facts: MomentRestored
    next_id: int  # of a request


class EngineLoop:
    """What an engine does on the engine thread; what has no underscore, any thread may read."""

    def __init__(
        self,
        model: LoadedModel,
        thread: EngineThread,
        document: str,
        make_runner: MakeRunner | None,
        pool_share: int,
        console: bool,
        admit: Admit | None = None,
    ):
        self.model = model
        self.thread = thread
        self.document = document
        self.failed: str | None = None
        self.mode: Mode = "paused"
        self.rate: float | None = None
        self.doing: Doing | None = None  # what takes longer than a step, at the moment
        self._make_runner = make_runner
        self._pool_share = pool_share
        self._console = console
        self._admit = admit
        self._subscribers: list[Callable[[], None]] = []
        self._closed = False
        self._only_log = False  # of an engine that had stopped: there is nothing else of it
        self._lap = 0  # counts runs; a turn of an older run does nothing
        self._turn_queued = False
        self._next_due = 0.0

    # -- reading --------------------------------------------------------------------------------

    @property
    def config(self) -> EngineConfig:
        """The engine's settings, with `max_model_len` filled in."""
        return self.core.config

    @property
    def trace(self) -> Trace:
        """The log; a reset begins another one."""
        return self.core.trace

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has happened since the engine was built."""
        return self.trace.next_seq == self._first_seq

    @property
    def closed(self) -> bool:
        """Whether it was put to rest."""
        return self._closed

    @property
    def num_unfinished(self) -> int:
        """Requests whose stream has not ended."""
        return len(self.outputs.open)

    @property
    def status(self) -> EngineStatus:
        """Where the engine stands, as of its last command or phase."""
        core = self.core
        return EngineStatus(
            self.mode,
            self.rate,
            core.next_phase,
            core.step_index,
            core.has_work(),
            self.failed,
            core.trace.header.trace_id,
        )

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever there is more to read, or a new log.

        Returns what ends the subscription. The callback must only wake somebody up: it runs on the
        engine thread or the executor's.
        """
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def _notify(self) -> None:
        for callback in tuple(self._subscribers):
            callback()

    def _hear(self, doing: Doing | None) -> None:
        """On whichever thread it is done: the readers are told."""
        self.doing = doing
        self._notify()

    def held_up(self, by: Doing | None) -> None:
        """Another engine has the thread, and does that, while something of this one waits."""
        self._hear(behind(by))

    # -- its beginning and its end --------------------------------------------------------------

    def _build(self, config: EngineConfig) -> None:
        """Put a new engine in the place of the old one, which stays where that cannot be."""
        self._take_over(self._parts_of(config), config)

    def _parts_of(self, config: EngineConfig) -> EngineParts:
        with heard_by(self._hear):
            return build_engine(
                self.model,
                config,
                self.thread,
                document=self.document,
                make_runner=self._make_runner,
                pool_share=self._pool_share,
            )

    def _take_over(
        self, parts: EngineParts, config: EngineConfig, restored: Restored | None = None
    ) -> None:
        """Have these parts be the engine; `restored`: what they were made to be."""
        core, outputs, trace = parts.core, parts.outputs, parts.core.trace
        stats = EngineStats(trace, core.config, self.model.name)
        trace.on_phase_end += [stats.read, self._notify]
        if isinstance(core, AsyncEngineCore):  # the executor's lane wakes readers as well
            core.trace.executor.on_phase_end.append(self._notify)
            core.on_executed = lambda: self._tell_executed(core)
            core.hear = self._hear
        self.requested_config = config
        self.core, self.outputs, self.stats = core, outputs, stats
        next_id = restored.next_id if restored is not None else 0
        self.admission = Admission(self.model, core, outputs, next_id)
        self._line = PeriodicLine(core, stats, self.thread, self._sleeps, self._console)
        self._log_reader = LogReader(trace)
        outputs.after_step = self._line.step_ends
        self.failed, self.mode, self.rate = None, "paused", None
        self._only_log = False
        parts.log_start()
        self._first_seq = trace.next_seq
        if restored is not None:
            core.note(restored.facts)
        self._line.print(*start_texts(parts.sized, parts.limited))

    def _prepare(self, config: EngineConfig) -> None:
        """Compile what it will call, on the caller's thread: the engine's is everybody's."""
        if self._make_runner is None:
            from engine.paged_attention import prepare_backend

            with heard_by(self._hear):
                prepare_backend(self.model, config)

    def _reset(self, config: EngineConfig | None) -> EngineStatus:
        self._check_open()
        before = self.outputs, self.core
        self._build(config or self.requested_config)
        return self._let_go(*before, "the engine was reset while this request was under way")

    def _replace(
        self, parts: EngineParts, config: EngineConfig, restored: Restored
    ) -> EngineStatus:
        self._check_open()
        before = self.outputs, self.core
        self._take_over(parts, config, restored)
        why = "the engine was brought back to a saved one while this request was under way"
        return self._let_go(*before, why)

    def _let_go(self, outputs: OutputProcessor, core: EngineCore, why: str) -> EngineStatus:
        """Of the engine that was there before."""
        self._lap += 1
        self._turn_queued = False
        core.hold()
        outputs.fail_all(EngineReplaced(f"{why}; send it again"))
        self._free_soon()
        self._notify()
        return self.status

    def _restored(
        self, moment: Moment, past: Trace | None
    ) -> tuple[EngineParts, EngineConfig, Restored]:
        """What `moment` says, as an engine; on any thread, for it may take seconds.

        `past`: the log of the engine that it was taken of, to be continued.
        """
        from engine.moment_state import config_of, restore_moment

        config = config_of(moment, self.model)
        self._prepare(config)
        if self.model.model.device.type == "cpu":
            parts = self._parts_of(config)
        else:  # a graph may be captured meanwhile, which takes no calls of other threads
            parts = self.thread.call(lambda: self._parts_of(config), self)
        facts = restore_moment(parts.core, parts.outputs, self.model, moment)
        if past is not None:
            continue_log(parts.core, past)
        return parts, config, Restored(facts, moment.state.next_id)

    def _stay_stopped(self, past: Trace, why: str) -> None:
        stood = past.state()["engine"]
        self.core.trace = past
        self.core.step_index, self.core.next_phase = stood["step"], Phase(stood["next_phase"])
        self.failed, self._only_log = why, True
        self._notify()

    def _reset_prefix_cache(self) -> bool:
        self._check_usable()
        return self.core.reset_prefix_cache()

    def _rest(self) -> Moment | None:
        try:
            if self._closed or self.failed is not None or self.is_fresh:
                return None
            with suppress(EngineError):  # it stops on the way
                self._finish_steps()
            return self._take_moment() if self.failed is None else None
        finally:
            self._close()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._lap += 1
        self.core.hold()
        self.outputs.fail_all(EngineReplaced("the engine was put to rest; send the request again"))
        self._free_soon()
        self._notify()

    def _free_soon(self) -> None:
        """An engine's parts refer to each other, so only a collection lets go of its pool."""
        self.thread.collect_soon()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("this engine was put to rest; the session's next use makes a new one")

    def _check_usable(self) -> None:
        self._check_open()
        if self.failed is not None:
            raise EngineError(self.failed)

    # -- requests -------------------------------------------------------------------------------

    def _submit(self, batch: Sequence[Encoded], source: str) -> list[RequestStream]:
        """All checks come before the first request: nothing is half handed in."""
        self._check_usable()
        try:
            self.admission.check(batch)
        except RequestRefusedError as refusal:
            self._log_refusal(refusal.reason)
            raise
        if self._admit is not None:
            open_now = self.outputs.open.values()
            self._admit(batch, source, sum(state.source == source for state in open_now))
        if not self.num_unfinished:
            self._line.wake()
        streams = [self.admission.add(item, source) for item in batch]
        self._queue_turn()
        return streams

    def _log_refusal(self, reason: Reason) -> None:
        self._check_usable()
        self.core.note(RequestRefused(self.admission.new_id()), reason)

    def _abort(self, request_ids: list[str]) -> list[str]:
        self._check_open()
        if self.failed is not None:  # its streams ended when it failed
            return []
        named = [key for wanted in request_ids for key in self.outputs.open_sequences(wanted)]
        return take_back(self.core, self.outputs, named)

    # -- modes and turns ------------------------------------------------------------------------

    def _run(self, rate: float | None) -> EngineStatus:
        self._check_usable()
        self._set_mode("running", rate)
        self._next_due = time.monotonic()
        self._queue_turn()
        return self.status

    def _pause(self) -> EngineStatus:
        self._check_open()
        if self.failed is None:
            self._set_mode("paused", None)
        return self.status

    def _set_mode(self, mode: Mode, rate: float | None) -> None:
        """Enter the mode into the log, and make turns that are queued already do nothing."""
        self._lap += 1
        self._turn_queued = False
        engine: Changes = {}
        if mode != self.mode:
            engine["mode"] = mode
        if rate != self.rate:
            engine["rate"] = rate
        self.mode, self.rate = mode, rate
        if mode == "paused":
            self.core.hold()
        if engine:
            self.core.command({"engine": engine})

    def _by_hand(self, go_on: Callable[[], object]) -> EngineStatus:
        """Pause, and do that."""
        self._check_usable()
        if self.mode == "running":
            self._set_mode("paused", None)
        self._advance(go_on)
        if self.failed is not None:
            raise EngineError(self.failed)
        return self.status

    def _step(self, whole_step: bool, check: bool) -> EngineStatus:
        core = self.core
        plain = core.step if whole_step else core.step_phase
        return self._by_hand(partial(self._step_and_check, whole_step) if check else plain)

    def _step_and_check(self, whole_step: bool) -> None:
        while self.core.step_phase() is not Phase.OUTPUT and whole_step:
            self._check_integrity()
        self._check_integrity()

    def _finish_steps(self) -> EngineStatus:
        self._check_usable()
        self.core.rest()
        return self._by_hand(self.core.finish_steps)

    def _queue_turn(self) -> None:
        """Have the loop's next turn come, unless it is coming, or nothing is to be done."""
        if self.mode != "running" or self._turn_queued or self.core.awaits_executor:
            return
        if not self.status.has_work:
            self._line.await_due()
            return
        self._turn_queued = True
        lap = self._lap
        wait = self._next_due - time.monotonic()
        if self.rate is not None and wait > 0:
            self.thread.later(wait, lambda: self._take_turn(lap), self)
        else:
            self.thread.turn(lambda: self._take_turn(lap), self)

    def _take_turn(self, lap: int) -> None:
        """One step of a running engine; where it runs slowly, one phase."""
        if lap != self._lap or self._closed:
            return
        self._turn_queued = False
        by_phases = self.rate is not None and self.rate <= SHOW_PHASES_UP_TO
        began = time.monotonic()
        went_on = self._advance(self.core.step_phase if by_phases else self.core.run)
        if self.rate is not None and went_on:
            parts = len(STEP_PHASES) if by_phases else 1
            # From when it was due: a late turn does not make the run slower, but a run that
            # cannot keep up does not save up turns either.
            period = 1.0 / (self.rate * parts)
            self._next_due = max(self._next_due + period, began + period / 2)
        if self.failed is None:
            self._queue_turn()

    def _sleeps(self, core: EngineCore) -> bool:
        """Whether that is its core still, and it runs and has nothing to do."""
        runs = core is self.core and self.mode == "running" and not self._closed
        return runs and not core.has_work()

    def _tell_executed(self, core: AsyncEngineCore) -> None:
        """On the executor's thread: a step has run, or the executor has stopped."""
        with suppress(EngineThreadStopped):
            self.thread.post(lambda: self._executed(core))

    def _executed(self, core: AsyncEngineCore) -> None:
        if core is not self.core or self._closed or self.failed is not None:
            return
        if core.failure is not None:
            self._fail(core.failure.__cause__ or core.failure, core.failure.phase)
        else:
            self._queue_turn()

    def _advance(self, go_on: Callable[[], T]) -> T | None:
        """Run a phase, or more of them. What it raises ends the engine, not the process."""
        try:
            with heard_by(self._hear):
                return go_on()
        except ExecutorFailed as failure:
            self._fail(failure.__cause__ or failure, failure.phase)
        except BaseException as error:  # whatever it was, the session hears of it
            self._fail(error, self.core.next_phase)
        return None

    def _fail(self, error: BaseException, phase: Phase) -> None:
        """The log and every client hear of it; only a reset makes the engine work again."""
        log.error("the engine stopped in phase %s", phase, exc_info=error)
        self.failed = (
            f"the engine stopped in the phase `{phase}` ({error_text(error)}); reset it to go on"
        )
        try:
            self.core.note(EngineFailed(self.failed))
            self._set_mode("paused", None)
        except Exception:  # what failed may be the engine's own books
            log.exception("the failed engine could not log its end")
        finally:
            self.mode, self.rate = "paused", None
            self.outputs.fail_all(RequestLost(self.failed))

    # -- looking at it between two phases -------------------------------------------------------

    def _take_moment(self) -> Moment:
        from engine.moment_state import take_moment

        def take(core: EngineCore) -> Moment:
            if not core.between_steps:
                raise MidStep(
                    f"step {core.step_index} is under way (its next phase is "
                    f"`{core.next_phase}`), and a moment is saved between two steps; finish "
                    "the step first"
                )
            return take_moment(core, self.outputs, self.model, self.admission.next_id)

        return self._look(take)

    def _look(self, look: Callable[[EngineCore], T]) -> T:
        self._check_usable()
        self.core.rest()
        try:
            return look(self.core)
        finally:
            self._queue_turn()  # the executor was held

    def _check_integrity(self) -> IntegrityChecked:
        """Also of an engine that failed: there it is most wanted."""
        self._check_open()
        if self._only_log:
            raise EngineError(
                "this engine had stopped before it was put to rest: its log is here, and its books "
                "are not any more; reset it to go on"
            )
        self.core.rest()
        began = time.perf_counter()
        report = check_integrity(self.core, self._log_reader)
        duration_us = (time.perf_counter() - began) * 1e6
        facts = report.facts(self.core.next_phase)
        self.core.note(facts, duration_us=duration_us)
        self._queue_turn()  # the executor was held
        return facts

    def _compare_kv(self, request_id: str) -> KVCacheCompared | None:
        from engine.kv_error import compare_kv  # torch is imported only now

        self._check_usable()
        request = self.core.find_request(request_id)
        if request is None:
            return None
        self.core.rest()
        began = time.perf_counter()
        try:
            facts = compare_kv(self.model, self.core, request)
        except ConfigError:
            raise EngineError("no memory is left for the request's K and V in fp32") from None
        self.core.note(facts, duration_us=(time.perf_counter() - began) * 1e6)
        self._queue_turn()  # the executor was held
        return facts
