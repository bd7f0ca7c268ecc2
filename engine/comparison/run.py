"""One run of a workload on a fresh engine, a step at a time on the thread of all engines.

Each step is a turn like those of other engines, so none of them waits longer than for one step,
and no two forwards ever fight for the cores.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from engine.admission import make_request, take_back
from engine.comparison.figures import RunStats
from engine.comparison.workload import MAX_STEPS, Workload, WorkloadRequest
from engine.config import ConfigError, EngineConfig
from engine.doing import Doing, Hear, behind, heard_by
from engine.engine_parts import MakeRunner, build_engine
from engine.engine_thread import EngineThread
from engine.events import GraphCaptured
from engine.input_processor import Encoded, InputProcessor, check_logit_bias
from engine.output_processor import RequestStream
from engine.records import STEP_PHASES, Event
from engine.request import Request
from engine.trace import MAX_RECORDS, error_text

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

T = TypeVar("T")


class RunError(RuntimeError):
    """A run that did not come to its end; the message says where, and what would help."""


class Cancelled(Exception):
    """Somebody took the comparison back."""


class Progress(NamedTuple):
    """How far a run is."""

    step: int
    finished: int  # requests
    requests: int
    share: float  # of all tokens that it may be about; who ended early has had all of theirs


class Output(NamedTuple):
    """What became of a request."""

    tokens: tuple[int, ...]
    text: str
    finish_reason: str
    preemptions: int
    cached_tokens: int  # of its prompt, at its first admission


class Run:
    """A fresh engine and the workload that it is given."""

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig,
        workload: Workload,
        thread: EngineThread,
        *,
        pool_share: int = 1,
        document: str = "",
        make_runner: MakeRunner | None = None,
        hear: Hear = lambda doing: None,
    ):
        """`hear` is told what takes long, on the engines' thread."""
        self.model = model
        self.asked = config
        self.workload = workload
        self.thread = thread
        self.waited = 0.0  # seconds in which other engines had their turn
        self.worked = 0.0  # seconds of its own turns, and in how many of them it had a core
        self.computed = 0.0
        self._pool_share = pool_share
        self._document = document
        self._make_runner = make_runner
        self._hear = hear
        self._coming = deque(sorted(workload.requests, key=lambda r: r.arrival_step))
        self._commands = deque(workload.commands)
        self._order = {request.id: place for place, request in enumerate(workload.requests)}
        self.requests: dict[str, Request] = {}

    # -- from the comparison's thread -------------------------------------------------------------

    def execute(self, tell: Callable[[Progress], None], cancelled: Callable[[], bool]) -> None:
        """Run to the end. Raises ConfigError, RunError, or Cancelled."""
        self.thread.call_in_turn(partial(self._heard, self._build), self)
        going_on = True
        while going_on:
            if cancelled():
                raise Cancelled
            asked = time.perf_counter()
            turn = partial(self._heard, partial(self._turn, asked))
            going_on = self.thread.call_in_turn(turn, self)
            tell(self.progress)

    def held_up(self, by: Doing | None) -> None:
        """Another engine has the thread while this one waits for its turn."""
        self._hear(behind(by))

    def close(self) -> None:
        """Let go of the engine and its pool; the log and the figures stay."""
        for name in ("core", "outputs"):  # not there where it could not be built
            self.__dict__.pop(name, None)
        self.thread.collect_soon()

    @property
    def progress(self) -> Progress:
        """How far it is."""
        requests = self.requests.values()
        done = sum(request.finish_reason is not None for request in requests)
        share = sum(map(tokens_done, requests)) / self.workload.num_tokens
        return Progress(self.core.step_index, done, len(self.workload.requests), share)

    @property
    def captured_graphs(self) -> int:
        """Graphs that this run was the first to need: its times have their capture in them."""
        return sum(
            isinstance(record, Event)
            and isinstance(record.facts, GraphCaptured)
            and not record.facts.shared
            for record in self.trace.records
        )

    def results(self) -> dict[str, Output]:
        """What became of each request, in the workload's order."""
        return {key: self._output(key) for key in self._order}

    def _output(self, key: str) -> Output:
        request, state = self.requests[key], self.outputs.states.get(key)
        return Output(
            tuple(request.output_token_ids),
            "".join(state.output_pieces) if state is not None else "",
            str(request.finish_reason or ""),
            request.num_preemptions,
            request.num_cached_tokens,
        )

    # -- on the engine thread -------------------------------------------------------------------

    def _heard(self, act: Callable[[], T]) -> T:
        with heard_by(self._hear):
            return act()

    def _build(self) -> None:
        """As `AsyncLLM` builds its engine, with a log that forgets nothing."""
        parts = build_engine(
            self.model,
            self.asked,
            self.thread,
            document=self._document,
            make_runner=self._make_runner,
            pool_share=self._pool_share,
            max_records=sys.maxsize,
        )
        self.core, self.outputs, self.trace = parts.core, parts.outputs, parts.core.trace
        self.config = self.core.config
        check_requests(self.workload, self.model, self.config)
        self.stats = RunStats(self.trace, self.config, self.model.name)
        self.trace.on_phase_end.append(self.stats.end_phase)
        parts.log_start()

    def _turn(self, asked: float) -> bool:
        """One step; whether there is more to do."""
        began, cpu_began = time.perf_counter(), time.thread_time()
        self.waited += began - asked
        core = self.core
        try:
            phase = None
            while phase is not STEP_PHASES[-1]:
                self._feed()
                phase = core.step_phase()
        except Exception as error:
            raise RunError(
                f"the engine stopped in the phase `{core.next_phase}` of step {core.step_index} "
                f"({error_text(error)})"
            ) from error
        self.worked += time.perf_counter() - began
        self.computed += time.thread_time() - cpu_began
        if len(self.trace.records) > MAX_RECORDS:
            raise RunError(
                f"at step {core.step_index} its log has more than {MAX_RECORDS:,} records; compare "
                "on fewer requests, or on shorter ones"
            )
        more = bool(self._coming) or core.has_work()
        if more and core.step_index >= MAX_STEPS:
            raise RunError(
                f"it has not ended after {MAX_STEPS:,} steps; compare on fewer requests or tokens, "
                "or give a step more of them"
            )
        return more

    def _feed(self) -> None:
        """Hand in what is due at this point of the step."""
        step, phase = self.core.step_index, self.core.next_phase
        if phase is STEP_PHASES[0]:
            while self._coming and self._coming[0].arrival_step <= step:
                self._add(self._coming.popleft())
        here = (step, STEP_PHASES.index(phase))
        while self._commands:
            command = self._commands[0]
            if (command.step, STEP_PHASES.index(command.before)) > here:
                return
            self._commands.popleft()
            if command.op == "abort":
                take_back(self.core, self.outputs, [command.request])
            else:
                self.core.reset_prefix_cache()

    def _add(self, asked: WorkloadRequest) -> None:
        item = encoded(asked, str(self.model.tokenizer.decode(list(asked.prompt_token_ids))))
        arrival = float(self._order[asked.id])
        request = make_request(self.model, self.config, asked.id, item, arrival, asked.parent)
        self.requests[asked.id] = request
        stream = RequestStream(asked.id, item.text, item.token_ids)
        self.outputs.add_request(request, "workload", stream)
        self.core.add_request(request, "workload")


def encoded(asked: WorkloadRequest, text: str = "") -> Encoded:
    """A workload's request as admission takes it."""
    ids = list(asked.prompt_token_ids)
    return Encoded(text, ids, asked.sampling, asked.priority, asked.cache_salt)


def tokens_done(request: Request) -> int:
    """Tokens of its prompt and output that are dealt with."""
    if request.finish_reason is not None:
        return request.num_prompt_tokens + request.sampling_params.max_tokens
    return max(request.num_computed_tokens, request.num_tokens * (request.num_output_tokens > 0))


def check_requests(workload: Workload, model: LoadedModel, config: EngineConfig) -> None:
    """ConfigError where an engine of these settings cannot serve a request of the workload.

    What `AsyncLLM` asks of requests that are handed in, asked of all at once.
    """
    longest = (config.max_model_len or 0) - 1
    for request in workload.requests:
        if len(request.prompt_token_ids) > longest:
            raise ConfigError(
                f"max_model_len {config.max_model_len}: the prompt of {request.id} has "
                f"{len(request.prompt_token_ids)} tokens, and may have {longest} at most; raise "
                f"{config.pool_set_by}, block_size or max_model_len"
            )
        check_logit_bias(request.sampling, model.vocab_size)
    batch = [encoded(request) for request in workload.requests]
    InputProcessor(model, config).check_prompt_logprobs(batch, untold=0)
