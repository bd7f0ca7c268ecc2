"""AsyncLLM: the front end of one engine, and the owner of its loop.

Box `async-engine`. vLLM 0.26.0: `vllm/v1/engine/async_llm.py`. The page and HTTP reach an engine
through this class alone: commands go down, the log comes up. Every method may be called from any
thread; the work itself happens on the process's one engine thread. `*_async` twins wait without
holding a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar
from weakref import WeakMethod

from engine.async_core import AsyncEngineCore, ExecutorFailed
from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.core import EngineCore, Runner
from engine.engine_thread import EngineThread, EngineThreadStopped
from engine.events import (
    STEP_PHASES,
    EngineFailed,
    IntegrityChecked,
    KVCacheCompared,
    MemorySized,
    Phase,
    Reason,
    RequestRefused,
    SpecDecodingLogged,
    StatsLogged,
)
from engine.input_processor import (
    TOKENIZING,
    Encoded,
    InputProcessor,
    Prompt,
    RequestRefusedError,
    Submission,
    check_logit_bias,
)
from engine.integrity import LogReader, check_integrity
from engine.metrics.stats import EngineStats
from engine.metrics.stats_line import StatsLine, start_texts, stats_text
from engine.output_processor import OutputProcessor, RequestLost, RequestStream
from engine.parallel_sampling import sequences
from engine.request import Request
from engine.trace import Changes, EventLog, Trace, error_text
from engine.trace_header import trace_header
from engine.two_lanes import TwoLaneTrace

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

T = TypeVar("T")
Mode = Literal["paused", "running"]
MakeRunner = Callable[["LoadedModel", EngineConfig, EventLog], Runner]

SHOW_PHASES_UP_TO = 4.0  # steps a second; so slow a run stops between phases, to let one see them
MIN_RATE, MAX_RATE = 0.01, 1_000.0
MAX_UNFINISHED = 512  # requests an engine holds at once; each of n sequences is one

log = logging.getLogger("glassbox")


class EngineError(RuntimeError):
    """The engine cannot do what was asked now; the message says why and what would help."""


class EngineBusy(EngineError):
    """More requests than the engine holds at once."""


class EngineStatus(NamedTuple):
    """Where an engine stands."""

    mode: Mode
    rate: float | None  # steps a second; None: as fast as it goes
    next_phase: Phase
    step: int  # that `next_phase` belongs to
    has_work: bool
    failed: str | None  # why it stopped for good, until a reset
    trace_id: str


class AsyncLLM:
    """One engine with its log: submit, abort, step, run, pause, reset, subscribe."""

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig | None = None,
        thread: EngineThread | None = None,
        *,
        running: bool = False,
        document: str = "",
        make_runner: MakeRunner | None = None,
        pool_share: int = 1,
        console: bool = False,
    ):
        """Build the engine, paused unless `running`. Raises ConfigError where it cannot be.

        `pool_share`: its KV cache may take one part in so many of the memory.
        `console`: its start and its periodic line go to Python's logging as well.
        """
        self.model = model
        self.thread = thread or EngineThread()
        self.document = document
        self.failed: str | None = None
        self.mode: Mode = "paused"
        self.rate: float | None = None
        self._make_runner = make_runner or make_model_runner
        self._pool_share = pool_share
        self._console = console
        self._subscribers: list[Callable[[], None]] = []
        self._closed = False
        self._lap = 0  # counts runs; a turn of an older run does nothing
        self._turn_queued = False
        self._next_due = 0.0
        self._next_id = 0
        self.thread.call(lambda: self._build(config or EngineConfig()))
        if running:
            self.run()

    # -- requests -------------------------------------------------------------------------------

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        source: str = "page",
        priority: int = 0,
        cache_salt: str = "",
    ) -> RequestStream:
        """Hand a request in; its output comes through the stream, which always ends.

        Raises ConfigError (field "prompt" or "messages"), RequestRefusedError, EngineError.
        """
        asked = Submission(prompt, params or SamplingParams(), priority, cache_salt)
        return self.submit_many([asked], source)[0]

    async def submit_async(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        source: str = "http",
        priority: int = 0,
        cache_salt: str = "",
    ) -> RequestStream:
        """`submit`, without holding a thread while the engine is busy."""
        asked = Submission(prompt, params or SamplingParams(), priority, cache_salt)
        return (await self.submit_many_async([asked], source))[0]

    def submit_many(
        self, submissions: Sequence[Submission], source: str = "page"
    ) -> list[RequestStream]:
        """Hand several requests in at one moment: all of them, or none where one cannot be."""
        try:
            encoded = TOKENIZING.submit(lambda: self.inputs.encode_all(submissions)).result()
        except RequestRefusedError as refusal:
            reason = refusal.reason
            self.thread.call(lambda: self._log_refusal(reason))
            raise
        return self.thread.call(lambda: self._submit(encoded, source))

    async def submit_many_async(
        self, submissions: Sequence[Submission], source: str = "http"
    ) -> list[RequestStream]:
        """`submit_many`, without holding a thread while the engine is busy."""
        try:
            encoded = await asyncio.wrap_future(
                TOKENIZING.submit(lambda: self.inputs.encode_all(submissions))
            )
        except RequestRefusedError as refusal:
            reason = refusal.reason
            await self.call_async(lambda: self._log_refusal(reason))
            raise
        future = self.thread.post(lambda: self._submit(encoded, source))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # The client left before the engine took its requests: take them back when it has.
            future.add_done_callback(self._abort_submitted)
            raise

    def abort(self, request_ids: str | Iterable[str]) -> list[str]:
        """Take requests back, between whatever two phases the engine is.

        The id of a request of n sequences stands for all of them. Returns the ids that were there
        to be taken back.
        """
        ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        return self.thread.call(lambda: self._abort(ids))

    async def abort_async(self, request_ids: str | Iterable[str]) -> list[str]:
        """`abort`, without holding a thread."""
        ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        return await self.call_async(lambda: self._abort(ids))

    def abort_soon(self, request_ids: Iterable[str]) -> None:
        """`abort` without waiting: for clients that are gone."""
        ids = list(request_ids)
        self.thread.post(lambda: self._abort(ids))

    # -- the loop -------------------------------------------------------------------------------

    def run(self, rate: float | None = None) -> EngineStatus:
        """Run from here on, at `rate` steps a second or as fast as it goes; sleep without work."""
        check_rate(rate)
        return self.thread.call(lambda: self._run(rate))

    def pause(self) -> EngineStatus:
        """Stop where the engine is: between two phases."""
        return self.thread.call(self._pause)

    def step_phase(self, check: bool = False) -> EngineStatus:
        """Pause, and run the next phase alone; then `check_integrity`, if told to."""
        return self._in_turn(lambda: self._by_hand(whole_step=False, check=check))

    def step(self, check: bool = False) -> EngineStatus:
        """Pause, and run to the end of the step (a whole one, if none has begun).

        `check_integrity` after each phase, if told to.
        """
        return self._in_turn(lambda: self._by_hand(whole_step=True, check=check))

    def check_integrity(self) -> IntegrityChecked:
        """Check all rules of `engine/integrity.py` now, between two phases, and log what came."""
        return self.thread.call(self._check_integrity)

    def compare_kv(self, request_id: str) -> KVCacheCompared | None:
        """Run a request again with K and V in fp32, and log what rounding made of it.

        Between two phases; nothing but the log changes. One that has ended is compared as long as
        the state has it. None: there is no such request. Raises EngineError.
        """
        return self._in_turn(lambda: self._compare_kv(request_id))

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content; False while requests hold blocks."""
        return self.thread.call(self._reset_prefix_cache)

    def reset(self, config: EngineConfig | None = None) -> EngineStatus:
        """Begin again with an empty engine and a new log; None keeps the settings.

        Requests under way end with an error. Raises ConfigError (the old engine is as it was).
        """
        return self.thread.call(lambda: self._reset(config))

    def name_document(self, title: str) -> None:
        """Say in the log, and in those of later resets, beside which document it is looked at."""

        def name() -> None:
            self.document = title
            self.trace.name_document(title)

        self.thread.post(name)

    def close(self) -> None:
        """End every request; nothing may be asked of the engine afterwards."""
        self.thread.call(self._close)

    def close_soon(self) -> None:
        """`close` without waiting."""
        self.thread.post(self._close)

    # Names for async callers: the same commands, awaited.

    async def call_async(self, function: Callable[[], T]) -> T:
        """Run a command of this engine on its thread and await it."""
        return await asyncio.wrap_future(self.thread.post(function))

    async def run_async(self, rate: float | None = None) -> EngineStatus:
        """`run`, awaited."""
        check_rate(rate)
        return await self.call_async(lambda: self._run(rate))

    async def pause_async(self) -> EngineStatus:
        """`pause`, awaited."""
        return await self.call_async(self._pause)

    async def step_async(self, whole_step: bool = True, check: bool = False) -> EngineStatus:
        """`step` or `step_phase`, awaited."""
        turn = self.thread.turn(lambda: self._by_hand(whole_step, check))
        return await asyncio.wrap_future(turn)

    async def check_integrity_async(self) -> IntegrityChecked:
        """`check_integrity`, awaited."""
        return await self.call_async(self._check_integrity)

    async def look_async(self, look: Callable[[EngineCore], T]) -> T:
        """What `look` finds in the engine between two phases; it must change nothing."""
        return await self.call_async(lambda: self._look(look))

    async def compare_kv_async(self, request_id: str) -> KVCacheCompared | None:
        """`compare_kv`, awaited."""
        return await asyncio.wrap_future(self.thread.turn(lambda: self._compare_kv(request_id)))

    async def reset_async(self, config: EngineConfig | None = None) -> EngineStatus:
        """`reset`, awaited."""
        return await self.call_async(lambda: self._reset(config))

    async def reset_prefix_cache_async(self) -> bool:
        """`reset_prefix_cache`, awaited."""
        return await self.call_async(self._reset_prefix_cache)

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

    # -- on the engine thread -------------------------------------------------------------------

    def _build(self, config: EngineConfig) -> None:
        """Replace the engine by a new one; whatever fails leaves the old one in place."""
        from engine.memory_budget import size_memory  # torch is imported only now

        began = time.perf_counter()
        model, resolved, facts, reason = size_memory(self.model, config, self._pool_share)
        took_us = (time.perf_counter() - began) * 1e6 if facts.profiled_tokens else None
        make_core = self._make_async_core if resolved.async_scheduling else self._make_core
        core, outputs = make_core(model, resolved)
        trace = core.trace
        stats = EngineStats(trace, resolved, self.model.name)
        trace.on_phase_end += [stats.read, self._notify]
        self.requested_config = config
        self.inputs = InputProcessor(self.model, resolved)
        self.core, self.outputs, self.stats = core, outputs, stats
        self._stats_line, self._line_awaited = StatsLine(stats), False
        self._log_reader = LogReader(trace)
        outputs.after_step = self._step_ends
        self.failed, self.mode, self.rate = None, "paused", None
        self._next_id = 0
        facts = facts._replace(pool_bytes=core.runner.pool_bytes())
        self._log_command(facts, reason, took_us)
        self._first_seq = trace.next_seq
        self._print(*start_texts(facts, reason))

    def _make_core(
        self, model: LoadedModel, config: EngineConfig
    ) -> tuple[EngineCore, OutputProcessor]:
        trace = Trace(trace_header(model, config, self.document))
        runner = self._make_runner(model, config, trace)
        outputs = OutputProcessor(self.model.tokenizer, trace)
        return EngineCore(config, runner, trace, outputs), outputs

    def _make_async_core(
        self, model: LoadedModel, config: EngineConfig
    ) -> tuple[EngineCore, OutputProcessor]:
        """What logs in the executor lane writes into that lane, and wakes readers as well."""
        trace = TwoLaneTrace(trace_header(model, config, self.document))
        runner = self._make_runner(model, config, trace.executor)
        outputs = OutputProcessor(self.model.tokenizer, trace)
        core = AsyncEngineCore(config, runner, trace, outputs, self.thread.executor)
        trace.executor.on_phase_end.append(self._notify)
        core.on_executed = lambda: self._tell_executed(core)
        return core, outputs

    def _notify(self) -> None:
        for callback in tuple(self._subscribers):
            callback()

    def _submit(self, batch: Sequence[Encoded], source: str) -> list[RequestStream]:
        """All checks come before the first request: nothing is half handed in."""
        self._check_usable()
        wanted = sum(item.params.n for item in batch)
        if wanted > MAX_UNFINISHED:
            raise ConfigError(
                f"n: {wanted} sequences at once, and an engine holds {MAX_UNFINISHED} at most; "
                "lower n, or send fewer prompts together"
            )
        if self.num_unfinished + wanted > MAX_UNFINISHED:
            raise EngineBusy(
                f"the engine holds at most {MAX_UNFINISHED} unfinished requests, and has "
                f"{self.num_unfinished} of them; try again when some ended"
            )
        self.inputs.check_prompt_logprobs(batch, self.outputs.untold_prompt_tokens())
        for place, item in enumerate(batch, start=1):
            self._check_request(item, place, len(batch))
        if not self.num_unfinished:
            self._stats_line.wake()
        streams = [self._add(item, source) for item in batch]
        self._queue_turn()
        return streams

    def _check_request(self, item: Encoded, place: int, number: int) -> None:
        check_logit_bias(item.params, self.model.vocab_size)
        refusal = self.inputs.why_refused(len(item.token_ids))  # a reset may have come in between
        if refusal is not None:
            self._log_refusal(refusal.reason)
            raise refusal.within(place, number)

    def _log_refusal(self, reason: Reason) -> None:
        self._check_usable()
        self._log_command(RequestRefused(self._new_id()), reason)

    def _add(self, item: Encoded, source: str) -> RequestStream:
        """Hand in the request, or the n requests of its n sequences."""
        key, arrival_time = self._new_id(), time.time()
        several = item.params.n > 1
        room = (self.config.max_model_len or 0) - len(item.token_ids)
        asked = item.params.model_copy(
            update={"max_tokens": min(item.params.max_tokens, room)}  # as vLLM's server does it
        )
        stream = RequestStream(key, item.text, item.token_ids, item.params.n)
        for index, (request_id, params) in enumerate(sequences(key, asked)):
            request = Request(
                request_id,
                item.token_ids,
                params,
                self.model.eos_token_ids,
                item.priority,
                # One after the other. In vLLM 0.26.0 they arrive together, and of such the first
                # is preempted first: in a small pool they take turns at that for ever.
                arrival_time + index * 1e-6,
                parent=key if several else "",
                cache_salt=item.cache_salt,
            )
            self.outputs.add_request(request, source, stream, index)
            self.core.add_request(request, source)
        return stream

    def _new_id(self) -> str:
        self._next_id += 1
        return f"r{self._next_id - 1}"

    def _abort(self, request_ids: list[str]) -> list[str]:
        self._check_open()
        if self.failed is not None:  # its streams ended when it failed
            return []
        named = [key for wanted in request_ids for key in self.outputs.open_sequences(wanted)]
        aborted = self.core.abort_requests(named)
        if aborted:
            self._begin_command()
            self.outputs.abort(aborted)
            self.core.command({})
        return aborted

    def _abort_submitted(self, future: Future[list[RequestStream]]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.abort_soon([stream.request_id for stream in future.result()])  # on any thread

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

    def _in_turn(self, function: Callable[[], T]) -> T:
        return self.thread.turn(function).result()

    def _by_hand(self, whole_step: bool, check: bool) -> EngineStatus:
        self._check_usable()
        if self.mode == "running":
            self._set_mode("paused", None)
        if check:
            self._advance(lambda: self._step_and_check(whole_step))
        else:
            self._advance(self.core.step if whole_step else self.core.step_phase)
        if self.failed is not None:
            raise EngineError(self.failed)
        return self.status

    def _step_and_check(self, whole_step: bool) -> None:
        while self.core.step_phase() is not Phase.OUTPUT and whole_step:
            self._check_integrity()
        self._check_integrity()

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
        self.core.rest()
        began = time.perf_counter()
        report = check_integrity(self.core, self._log_reader)
        duration_us = (time.perf_counter() - began) * 1e6
        facts = report.facts(self.core.next_phase)
        self._log_command(facts, duration_us=duration_us)
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
        self._log_command(facts, duration_us=(time.perf_counter() - began) * 1e6)
        self._queue_turn()  # the executor was held
        return facts

    def _queue_turn(self) -> None:
        """Have the loop's next turn come, unless it is coming, or nothing is to be done."""
        if self.mode != "running" or self._turn_queued or self.core.awaits_executor:
            return
        if not self.status.has_work:
            self._await_line()
            return
        self._turn_queued = True
        lap = self._lap
        wait = self._next_due - time.monotonic()
        if self.rate is not None and wait > 0:
            self.thread.later(wait, lambda: self._take_turn(lap))
        else:
            self.thread.turn(lambda: self._take_turn(lap))

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

    def _advance(self, go_on: Callable[[], T]) -> T | None:
        """Run a phase, or more of them. What it raises ends the engine, not the process."""
        try:
            return go_on()
        except ExecutorFailed as failure:
            self._fail(failure.__cause__ or failure, failure.phase)
        except Exception as error:
            self._fail(error, self.core.next_phase)
        return None

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

    def _step_ends(self) -> None:
        """In a step's last phase, when its outcome has gone out: the periodic line may be due."""
        if not self._stats_line.seconds_left:
            self.stats.end_step()
            for line in self._take_lines():
                self.trace.event(line)

    def _await_line(self) -> None:
        """An engine that sleeps owes the line of what it did last."""
        if self._line_awaited:
            return
        self._line_awaited = True
        # Weakly: a timer must not keep the pool of an engine that was put to rest meanwhile.
        line_due, trace_id = WeakMethod(self._line_due), self.trace.header.trace_id
        self.thread.later(
            self._stats_line.seconds_left, lambda: (due := line_due()) and due(trace_id)
        )

    def _line_due(self, trace_id: str) -> None:
        """On while there is something to say; one that works again logs it with its steps."""
        if trace_id != self.trace.header.trace_id:  # of the engine before a reset
            return
        self._line_awaited = False
        if self.mode != "running" or self._closed or self.core.has_work():
            return
        if self._stats_line.seconds_left:  # a step has logged it meanwhile
            self._await_line()
            return
        lines = self._take_lines()
        for line in lines:
            self._log_command(line)
        if lines:
            self._await_line()

    def _take_lines(self) -> list[StatsLogged | SpecDecodingLogged]:
        lines = self._stats_line.take()
        self._print(*map(stats_text, lines))
        return lines

    def _print(self, *lines: str) -> None:
        if self._console:
            for line in lines:
                log.info(line)

    def _fail(self, error: BaseException, phase: Phase) -> None:
        """The log and every client hear of it; only a reset makes the engine work again."""
        log.error("the engine stopped in phase %s", phase, exc_info=error)
        self.failed = (
            f"the engine stopped in the phase `{phase}` ({error_text(error)}); reset it to go on"
        )
        try:
            self._log_command(EngineFailed(self.failed))
            self._set_mode("paused", None)
        except Exception:  # what failed may be the engine's own books
            log.exception("the failed engine could not log its end")
        finally:
            self.mode, self.rate = "paused", None
            self.outputs.fail_all(RequestLost(self.failed))

    def _log_command(
        self,
        facts: MemorySized
        | RequestRefused
        | StatsLogged
        | SpecDecodingLogged
        | EngineFailed
        | IntegrityChecked
        | KVCacheCompared,
        reason: Reason | None = None,
        duration_us: float | None = None,
    ) -> None:
        """Log what happened here and not in the core."""
        self._begin_command()
        self.trace.event(facts, reason, duration_us)
        self.core.command({})

    def _begin_command(self) -> None:
        """Events from here on belong to a command, whose patch `core.command` makes."""
        self.trace.begin_phase(self.core.step_index, Phase.COMMAND)

    def _reset(self, config: EngineConfig | None) -> EngineStatus:
        self._check_open()
        before, core = self.outputs, self.core
        self._build(config or self.requested_config)
        self._lap += 1
        self._turn_queued = False
        core.hold()
        before.fail_all(RequestLost("the engine was reset while this request was under way"))
        self._free_soon()
        self._notify()
        return self.status

    def _reset_prefix_cache(self) -> bool:
        self._check_usable()
        return self.core.reset_prefix_cache()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._lap += 1
        self.core.hold()
        self.outputs.fail_all(RequestLost("the engine was put to rest"))
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


def check_rate(rate: float | None) -> None:
    """Raise ConfigError where no loop can run at this rate."""
    if rate is not None and not (MIN_RATE <= rate <= MAX_RATE):  # also false for NaN
        raise ConfigError(
            f"rate: {rate} is no rate; give {MIN_RATE:g} to {MAX_RATE:g} steps a second, or none "
            "to run as fast as it goes",
            field="rate",
        )


def make_model_runner(model: LoadedModel, config: EngineConfig, trace: EventLog) -> Runner:
    """The runner that really runs the model; torch is imported only now."""
    from engine.model_runner import ModelRunner

    return ModelRunner(model, config, trace)
