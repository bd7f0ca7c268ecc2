"""Engines to measure: a batch of requests in decode, with its log or without."""

from __future__ import annotations

import time
from math import ceil
from typing import Any, NamedTuple

from engine.config import EngineConfig, SamplingParams
from engine.core import EngineCore
from engine.events import Facts, StepDispatched
from engine.model_loader import LoadedModel
from engine.model_runner import ModelRunner
from engine.output_processor import OutputProcessor, RequestStream
from engine.reasons import Reason
from engine.records import CODE_OF_REASON, Event, Patch, Phase
from engine.request import Request
from engine.trace import Changes, Trace
from engine.trace_header import trace_header

PROMPT_TOKENS = 32
WARM_STEPS = 4  # the first is the prefill


class StepTime(NamedTuple):
    """What a step took, in milliseconds."""

    wall: float
    cpu: float  # of the engine's thread: what else the machine does is left out


class Dispatched(NamedTuple):
    """How a step ran, and the code of the reason where that is eagerly."""

    mode: str
    reason: str


class Decoding:
    """An engine whose `batch` requests are all in decode, and go on for `steps` steps."""

    trace_type: type[Trace] = Trace
    core_type: type[EngineCore] = EngineCore

    def __init__(self, model: LoadedModel, batch: int, steps: int, **settings: Any) -> None:
        """`settings` are the engine's, beside those that follow from the rest."""
        tokens = PROMPT_TOKENS + WARM_STEPS + steps
        config = EngineConfig(
            num_gpu_blocks=1 + batch * ceil(tokens / 16),
            max_num_batched_tokens=batch * PROMPT_TOKENS,
            max_num_seqs=batch,
            **settings,
        )
        self._build(model, config)
        self._hand_in_decodes(batch, WARM_STEPS + steps)
        for _ in range(WARM_STEPS):
            self.core.step()

    def _build(self, model: LoadedModel, config: EngineConfig) -> None:
        self.model, self.config = model, config.resolve(model.max_model_len)
        self.trace = self.trace_type(trace_header(model, self.config))
        self.outputs = OutputProcessor(model.tokenizer, self.trace)
        runner = ModelRunner(model, self.config, self.trace)
        self.core = self.core_type(self.config, runner, self.trace, self.outputs)

    def _hand_in_decodes(self, batch: int, max_tokens: int) -> None:
        for number in range(batch):
            ids = self._ids(number * PROMPT_TOKENS, PROMPT_TOKENS)
            hand_in(self.core, self.outputs, self.model, f"r{number}", ids, max_tokens)

    def _ids(self, first: int, count: int) -> list[int]:
        """So many token ids; other ones for another `first`, and so no block is shared."""
        return [3 + (first + i) % (self.model.vocab_size - 3) for i in range(count)]

    def step(self) -> StepTime:
        """Run a step; how long it took."""
        began, cpu_began = time.perf_counter(), time.thread_time()
        self.core.step()
        cpu = time.thread_time() - cpu_began
        return StepTime((time.perf_counter() - began) * 1e3, cpu * 1e3)

    def forward_ms(self) -> float:
        """How long the last step's phase `execute` took, as its log has it."""
        for record in reversed(self.trace.records):
            if isinstance(record, Patch) and record.phase is Phase.EXECUTE:
                return (record.duration_us or 0.0) / 1e3
        raise AssertionError("no step has run")

    def dispatch(self) -> Dispatched:
        """How the last step ran, as its log has it."""
        for record in reversed(self.trace.records):
            if isinstance(record, Event) and isinstance(record.facts, StepDispatched):
                why = "" if record.reason is None else CODE_OF_REASON[type(record.reason)]
                return Dispatched(record.facts.mode, why)
        raise AssertionError("no step has run")


class Chunking(Decoding):
    """An engine each of whose steps has `rows` rows: a token of each of `decodes` requests, and a
    chunk of a prompt that goes on for `steps` steps.
    """

    def __init__(
        self, model: LoadedModel, decodes: int, rows: int, steps: int, **settings: Any
    ) -> None:
        filling = ceil(decodes * PROMPT_TOKENS / rows)
        prompt = (rows - decodes) * (WARM_STEPS + steps)
        tokens = PROMPT_TOKENS + filling + WARM_STEPS + steps
        config = EngineConfig(
            num_gpu_blocks=1 + ceil((prompt + 1) / 16) + decodes * ceil(tokens / 16),
            max_num_batched_tokens=rows,
            max_num_seqs=decodes + 1,
            cudagraph_capture_sizes=(rows,),
            **settings,
        )
        self._build(model, config)
        self._hand_in_decodes(decodes, tokens - PROMPT_TOKENS)
        for _ in range(filling):
            self.core.step()
        ids = self._ids(decodes * PROMPT_TOKENS, prompt)
        hand_in(self.core, self.outputs, model, "prompt", ids, 1)
        for _ in range(WARM_STEPS):
            self.core.step()


class NoTrace(Trace):
    """Keeps nothing."""

    def begin_phase(self, step: int, phase: Phase) -> None:
        """Nothing will belong to it."""

    def event(
        self, facts: Facts, reason: Reason | None = None, duration_us: float | None = None
    ) -> None:
        """Drop it."""

    def end_phase(self, changes: Changes) -> None:
        """Drop them."""


class UnloggedCore(EngineCore):
    """Never asks its parts what changed; only keeps what they would tell from piling up."""

    def _end_phase(self) -> None:
        self.scheduler.touched.clear()
        self.scheduler.progressed.clear()
        self.recorder.pool.touched.clear()
        if self.output_processor is not None:
            self.output_processor.take_changes()


class UnloggedDecoding(Decoding):
    """The same without its log: no events, no patches, no books of what changed.

    What stays is written where things happen: making the facts of events, and reading the clock.
    """

    trace_type = NoTrace
    core_type = UnloggedCore


def hand_in(
    core: EngineCore,
    outputs: OutputProcessor,
    model: LoadedModel,
    request_id: str,
    token_ids: list[int],
    max_tokens: int,
) -> None:
    """Hand a greedy request in that goes on to its `max_tokens`; nobody reads its text."""
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    request = Request(request_id, token_ids, params, model.eos_token_ids)
    stream = RequestStream(request_id, "", token_ids)
    outputs.add_request(request, "benchmark", stream)
    core.add_request(request, "benchmark")
