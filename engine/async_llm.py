"""AsyncLLM: the front end of one engine.

Box `async-engine`. vLLM 0.26.0: `vllm/v1/engine/async_llm.py`. The page and HTTP reach an engine
through this class alone: commands go down, the log comes up. Every method may be called from any
thread; the work itself happens on the process's one engine thread (`engine/engine_loop.py`).
`*_async` twins wait without holding a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.core import EngineCore
from engine.engine_errors import EngineBusy, EngineError, MidStep
from engine.engine_loop import Admit, EngineLoop, EngineStatus
from engine.engine_parts import MakeRunner, make_model_runner
from engine.engine_thread import EngineThread
from engine.events import IntegrityChecked, KVCacheCompared
from engine.input_processor import TOKENIZING, Encoded, Prompt, RequestRefusedError, Submission
from engine.output_processor import RequestStream
from engine.trace import Trace

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel
    from engine.moment import Moment

__all__ = [  # what whoever has a front end needs beside it
    "AsyncLLM",
    "EngineBusy",
    "EngineError",
    "EngineStatus",
    "MakeRunner",
    "MidStep",
    "make_model_runner",
]

T = TypeVar("T")

MIN_RATE, MAX_RATE = 0.01, 1_000.0


class Sent(NamedTuple):
    """A request that the state still has, and who sent it."""

    request_id: str
    source: str
    prompt: str
    num_prompt_tokens: int
    num_output_tokens: int
    is_finished: bool


class AsyncLLM(EngineLoop):
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
        admit: Admit | None = None,
    ):
        """Build the engine, paused unless `running`. Raises ConfigError where it cannot be.

        `pool_share`: its KV cache may take one part in so many of the memory.
        `console`: its start and its periodic line go to Python's logging as well.
        `admit`: raises where requests of a source are not to be taken, on the engine thread.
        """
        thread = thread or EngineThread()
        super().__init__(model, thread, document, make_runner, pool_share, console, admit)
        config = config or EngineConfig()
        self._prepare(config)
        self._in_turn(lambda: self._build(config))
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
            encoded = TOKENIZING.submit(
                lambda: self.admission.inputs.encode_all(submissions)
            ).result()
        except RequestRefusedError as refusal:
            reason = refusal.reason
            self._call(lambda: self._log_refusal(reason))
            raise
        return self._call(lambda: self._submit(encoded, source))

    async def submit_many_async(
        self, submissions: Sequence[Submission], source: str = "http"
    ) -> list[RequestStream]:
        """`submit_many`, without holding a thread while the engine is busy."""
        try:
            encoded = await asyncio.wrap_future(TOKENIZING.submit(self._encode, submissions))
        except RequestRefusedError as refusal:
            reason = refusal.reason
            await self.call_async(lambda: self._log_refusal(reason))
            raise
        future = self.thread.post(lambda: self._submit(encoded, source), self)
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
        return self._call(lambda: self._abort(ids))

    async def abort_async(self, request_ids: str | Iterable[str]) -> list[str]:
        """`abort`, without holding a thread."""
        ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        return await self.call_async(lambda: self._abort(ids))

    def abort_soon(self, request_ids: Iterable[str]) -> None:
        """`abort` without waiting: for clients that are gone."""
        ids = list(request_ids)
        self.thread.post(lambda: self._abort(ids))

    def sent(self) -> list[Sent]:
        """Who sent which requests, in the order in which they came; some of the ended ones too."""
        return self.thread.call(
            lambda: [
                Sent(
                    key,
                    state.source,
                    state.stream.prompt,
                    state.request.num_prompt_tokens,
                    state.request.num_output_tokens,
                    key not in self.outputs.open,
                )
                for key, state in self.outputs.states.items()
            ]
        )

    # -- the loop -------------------------------------------------------------------------------

    def run(self, rate: float | None = None) -> EngineStatus:
        """Run from here on, at `rate` steps a second or as fast as it goes; sleep without work."""
        check_rate(rate)
        return self._call(lambda: self._run(rate))

    def pause(self) -> EngineStatus:
        """Stop where the engine is: between two phases."""
        return self._call(self._pause)

    def step_phase(self, check: bool = False) -> EngineStatus:
        """Pause, and run the next phase alone; then `check_integrity`, if told to."""
        return self._in_turn(lambda: self._step(False, check))

    def step(self, check: bool = False) -> EngineStatus:
        """Pause, and run to the end of the step (a whole one, if none has begun).

        `check_integrity` after each phase, if told to.
        """
        return self._in_turn(lambda: self._step(True, check))

    def check_integrity(self) -> IntegrityChecked:
        """Check all rules of `engine/integrity.py` now, between two phases, and log what came."""
        return self._in_turn(self._check_integrity)

    def compare_kv(self, request_id: str) -> KVCacheCompared | None:
        """Run a request again with K and V in fp32, and log what rounding made of it.

        Between two phases; nothing but the log changes. One that has ended is compared as long as
        the state has it. None: there is no such request. Raises EngineError.
        """
        return self._in_turn(lambda: self._compare_kv(request_id))

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content; False while requests hold blocks."""
        return self._call(self._reset_prefix_cache)

    def reset(self, config: EngineConfig | None = None) -> EngineStatus:
        """Begin again with an empty engine and a new log; None keeps the settings.

        Requests under way end with an error. Raises ConfigError (the old engine is as it was).
        """
        if config is not None:
            self._prepare(config)
        return self._in_turn(lambda: self._reset(config))

    def finish_steps(self) -> EngineStatus:
        """Pause, run to the end of every step that has begun, and begin no other."""
        return self._in_turn(self._finish_steps)

    def take_moment(self) -> Moment:
        """All that another engine needs to go on as this one would; nothing here changes.

        Raises MidStep where a step has begun, MomentError where it is too much.
        """
        return self._in_turn(self._take_moment)

    def restore(self, moment: Moment, past: Trace | None = None) -> EngineStatus:
        """Go on, paused, as the engine would that `take_moment` was called of.

        The log is a new one, or the rest of `past`, that engine's. Requests under way end with an
        error; those of the moment have no client. Raises ConfigError, MomentError among them (the
        old engine is as it was). All that takes long happens on the caller's thread.
        """
        made = self._restored(moment, past)
        return self._in_turn(lambda: self._replace(*made))

    def stay_stopped(self, past: Trace, why: str) -> None:
        """Be what is left of an engine that had stopped: its log. Only a reset makes it work again.

        For an engine that has done nothing yet.
        """
        self.thread.call(lambda: self._stay_stopped(past, why))

    def name_document(self, title: str) -> None:
        """Say in the log, and in those of later resets, beside which document it is looked at."""

        def name() -> None:
            self.document = title
            self.trace.name_document(title)

        self.thread.post(name)

    def rest(self) -> Moment | None:
        """Finish the step under way and end; what another engine needs to go on.

        None where there is nothing to go on from, since it is fresh or has stopped. Raises
        MomentError, EngineError. It has ended.
        """
        return self._in_turn(self._rest)

    def close(self) -> None:
        """End every request; nothing may be asked of the engine afterwards."""
        self.thread.call(self._close)

    def close_soon(self) -> None:
        """`close` without waiting."""
        self.thread.post(self._close)

    # Names for async callers: the same commands, awaited.

    async def call_async(self, function: Callable[[], T]) -> T:
        """Run a command of this engine on its thread and await it."""
        return await asyncio.wrap_future(self.thread.post(function, self))

    async def run_async(self, rate: float | None = None) -> EngineStatus:
        """`run`, awaited."""
        check_rate(rate)
        return await self.call_async(lambda: self._run(rate))

    async def pause_async(self) -> EngineStatus:
        """`pause`, awaited."""
        return await self.call_async(self._pause)

    async def step_async(self, whole_step: bool = True, check: bool = False) -> EngineStatus:
        """`step` or `step_phase`, awaited."""
        return await self._in_turn_async(lambda: self._step(whole_step, check))

    async def check_integrity_async(self) -> IntegrityChecked:
        """`check_integrity`, awaited."""
        return await self._in_turn_async(self._check_integrity)

    async def look_async(self, look: Callable[[EngineCore], T]) -> T:
        """What `look` finds in the engine between two phases; it must change nothing."""
        return await self._in_turn_async(lambda: self._look(look))

    async def compare_kv_async(self, request_id: str) -> KVCacheCompared | None:
        """`compare_kv`, awaited."""
        return await self._in_turn_async(lambda: self._compare_kv(request_id))

    async def reset_async(self, config: EngineConfig | None = None) -> EngineStatus:
        """`reset`, awaited."""
        if config is not None:
            await asyncio.to_thread(self._prepare, config)
        return await self._in_turn_async(lambda: self._reset(config))

    async def finish_steps_async(self) -> EngineStatus:
        """`finish_steps`, awaited."""
        return await self._in_turn_async(self._finish_steps)

    async def take_moment_async(self) -> Moment:
        """`take_moment`, awaited."""
        return await self._in_turn_async(self._take_moment)

    async def restore_async(self, moment: Moment) -> EngineStatus:
        """`restore`, awaited."""
        made = await asyncio.to_thread(self._restored, moment, None)
        return await self._in_turn_async(lambda: self._replace(*made))

    async def reset_prefix_cache_async(self) -> bool:
        """`reset_prefix_cache`, awaited."""
        return await self.call_async(self._reset_prefix_cache)

    # -- on the caller's thread ------------------------------------------------------------------

    def _encode(self, submissions: Sequence[Submission]) -> list[Encoded]:
        return self.admission.inputs.encode_all(submissions)

    async def _in_turn_async(self, function: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.thread.turn(function, self))

    def _call(self, function: Callable[[], T]) -> T:
        return self.thread.call(function, self)

    def _in_turn(self, function: Callable[[], T]) -> T:
        return self.thread.call_in_turn(function, self)

    def _abort_submitted(self, future: Future[list[RequestStream]]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.abort_soon([stream.request_id for stream in future.result()])  # on any thread


def check_rate(rate: float | None) -> None:
    """Raise ConfigError where no loop can run at this rate."""
    if rate is not None and not (MIN_RATE <= rate <= MAX_RATE):  # also false for NaN
        raise ConfigError(
            f"rate: {rate} is no rate; give {MIN_RATE:g} to {MAX_RATE:g} steps a second, or none "
            "to run as fast as it goes",
            field="rate",
        )
