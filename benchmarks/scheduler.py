"""What a step costs beside the model: schedule, update and their log, with nothing to compute.

README.md, "scheduler", says what each figure is.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from benchmarks.engines import NoTrace, UnloggedCore
from benchmarks.harness.clock import Clock
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_most, figure
from benchmarks.harness.pairs import by_turns
from engine.config import EngineConfig, SamplingParams
from engine.core import EngineCore, Runner
from engine.garbage import keep_what_is_here
from engine.outputs import ModelRunnerOutput, SchedulerOutput
from engine.records import Phase
from engine.request import Request
from engine.trace import SCHEMA_VERSION, Trace, TraceHeader

MAX_MODEL_LEN = 4_096
LARGE_POOL, SMALL_POOL = 65_536, 64  # blocks of 16 tokens
BATCHES, DECODE_STEPS = (1, 32, 256), 200
SMALL_BATCH, SMALL_STEPS = 4, 150  # the small pool holds them to the end

PROMPTS, PROMPT_TOKENS, ADMISSIONS = 256, 128, 20  # all in one step: the most a step may have
EXACT_POOL = 1 + PROMPTS * (PROMPT_TOKENS // 16 + 1)

PRESSURE_POOL, PRESSURE_REQUESTS = 1_600, 288  # the seats are 256, so some always wait
PRESSURE_WARM_STEPS, PRESSURE_STEPS = 100, 150

BACKLOG, FEW = 5_000, 1  # requests that wait behind 32 running ones
GOAL = at_most(1.2)
DECIDING = (Phase.ARRIVE, Phase.SCHEDULE, Phase.UPDATE)


class StandIn(Runner):
    """Samples the same token for everybody, and has no model."""

    requests: dict[str, Request]

    def prepare_inputs(self, output: SchedulerOutput) -> None:
        """Remember whose turn it is."""
        self.output = output

    def execute_model(self) -> None:
        """There is no model."""

    def sample_tokens(self) -> ModelRunnerOutput:
        """A token for each request whose known tokens are all computed."""
        tokens: dict[str, tuple[int, ...]] = {}
        for entry in self.output.scheduled:
            computed = entry.num_computed_tokens + entry.num_tokens
            if computed == self.requests[entry.request_id].num_tokens:
                tokens[entry.request_id] = (7,)
        return ModelRunnerOutput(tokens)

    def drop_requests(self, request_ids: set[str]) -> None:
        """Nobody takes a request back."""


class Modelless:
    """An engine that only decides, with its log or without."""

    def __init__(
        self, num_gpu_blocks: int, *, seats: int = max(BATCHES), logged: bool = True
    ) -> None:
        config = EngineConfig(
            num_gpu_blocks=num_gpu_blocks,
            max_num_batched_tokens=PROMPTS * PROMPT_TOKENS,
            max_num_seqs=seats,
            max_model_len=min(MAX_MODEL_LEN, (num_gpu_blocks - 1) * 16),
        )
        runner = StandIn()
        if logged:
            self.core = EngineCore(config, runner, Trace(trace_header(config)))
        else:
            self.core = UnloggedCore(config, runner, NoTrace(trace_header(config)))
        self.runner = runner
        runner.requests = self.core.scheduler.requests
        self.count = 0  # of requests so far

    def add(self, prompts: list[list[int]], max_tokens: int) -> None:
        """Hand in a request for each prompt."""
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        for prompt in prompts:
            self.core.add_request(Request(f"r{self.count}", prompt, params))
            self.count += 1

    def decode(self, batch: int, num_prompt_tokens: int, max_tokens: int, steps: int) -> None:
        """Let requests run for some steps, the first of which is their prefill."""
        self.add(some_prompts(0, batch, num_prompt_tokens), max_tokens)
        for _ in range(steps):
            self.core.step()

    def step(self) -> float:
        """Run a step; the microseconds of this thread that its decisions took."""
        return self.timed_step().cpu

    def timed_step(self) -> Clock:
        """Run a step; how long its decisions took, whatever is logged of them included."""
        clock, phase = Clock(), None
        while phase is not Phase.OUTPUT:
            if self.core.next_phase in DECIDING:
                clock.go()
                phase = self.core.step_phase()
                clock.stop()
            else:
                phase = self.core.step_phase()
        return clock

    def whole_step(self) -> float:
        """Run a step; the microseconds of this thread that all of it took."""
        began = time.thread_time()
        self.core.step()
        return (time.thread_time() - began) * 1e6

    def admit(self, first: int) -> float:
        """What the step took that admits prompts; they are gone afterwards."""
        self.add(some_prompts(first, PROMPTS, PROMPT_TOKENS), max_tokens=2)
        took = self.step()
        assert len(self.core.scheduler.running) == PROMPTS
        while self.core.has_work():
            self.core.step()
        return took

    def admit_known(self) -> float:
        """The same prompts each time: all but the last block of each is cached."""
        return self.admit(0)

    def admit_new(self) -> float:
        """Other prompts each time."""
        return self.admit(self.count)

    def admit_to_empty(self) -> float:
        """Other prompts each time, and nothing is cached."""
        assert self.core.reset_prefix_cache()
        return self.admit_new()

    def step_under_pressure(self) -> float:
        """What a step took to which somebody new has come for each request that ended."""
        while len(self.core.scheduler.requests) + len(self.core.arriving) < PRESSURE_REQUESTS:
            self.add(some_prompts(self.count, 1, 64), max_tokens=32 + self.count * 37 % 64)
        return self.step()


class WithAndWithout(NamedTuple):
    """The same engine twice: with its log, and without."""

    logged: Modelless
    silent: Modelless

    @classmethod
    def of(cls, num_gpu_blocks: int) -> WithAndWithout:
        """Both with a pool of this size."""
        return cls(Modelless(num_gpu_blocks), Modelless(num_gpu_blocks, logged=False))


def measure(effort: Effort) -> list[Figure]:
    """Decode, admission, pressure; then what the cost follows, and what it does not."""
    return [
        *[line for batch in BATCHES for line in decode(batch, effort.samples(DECODE_STEPS))],
        *admission(effort.samples(ADMISSIONS)),
        *pressure(effort.samples(PRESSURE_STEPS)),
        growth(effort.samples(DECODE_STEPS)),
        pool_size(effort.samples(SMALL_STEPS)),
        backlog(effort.samples(DECODE_STEPS)),
    ]


def decode(batch: int, count: int) -> list[Figure]:
    """Steps of `batch` requests that each get a token."""
    both = WithAndWithout.of(LARGE_POOL)
    for engine in both:
        engine.decode(batch, 64, 64 + 2 * count, steps=4)
    keep_what_is_here()
    pairs = by_turns(both.logged.step, both.silent.step, count)
    whole = by_turns(both.logged.whole_step, both.silent.whole_step, count)
    figures = [
        *log_figures(f"{batch} running", pairs),
        *log_figures(f"{batch} running, whole step", whole),
    ]
    if batch == max(BATCHES):
        slowest = max(a for a, _ in pairs)
        figures.append(figure(f"{batch} running, slowest with log", "µs", [slowest]))
    return figures


def admission(count: int) -> list[Figure]:
    """Steps that admit 256 prompts, with and without hits, and with evictions."""
    roomy, exact = WithAndWithout.of(2 * EXACT_POOL), WithAndWithout.of(EXACT_POOL)
    figures = []
    for name, both, admit in (
        ("256 prompts, no hits", roomy, Modelless.admit_to_empty),
        ("256 prompts, hits", roomy, Modelless.admit_known),
        ("256 prompts, evicting", exact, Modelless.admit_new),
    ):
        for engine in both:
            admit(engine)  # fills the cache
        keep_what_is_here()
        pairs = by_turns(partial(admit, both.logged), partial(admit, both.silent), count)
        figures += log_figures(name, pairs)
    return figures


def pressure(count: int) -> list[Figure]:
    """Steps in which requests come, end and evict, and more want to run than the pool holds."""
    both = WithAndWithout.of(PRESSURE_POOL)
    for engine in both:
        for _ in range(PRESSURE_WARM_STEPS):
            engine.step_under_pressure()
    keep_what_is_here()
    logged, silent = both.logged.step_under_pressure, both.silent.step_under_pressure
    return log_figures("pressure", by_turns(logged, silent, count))


def growth(count: int) -> Figure:
    """Whether twice the requests cost twice the time."""
    many, few = Modelless(LARGE_POOL), Modelless(LARGE_POOL)
    many.decode(256, 64, 64 + count, steps=4)
    few.decode(32, 64, 64 + count, steps=4)
    keep_what_is_here()
    pairs = by_turns(many.step, few.step, count)
    samples = [(a / 256) / (b / 32) for a, b in pairs]
    return figure("cost a request, 256 running / 32", "x", samples, GOAL)


def pool_size(count: int) -> Figure:
    """Whether the pool's size matters."""
    large, small = Modelless(LARGE_POOL), Modelless(SMALL_POOL)
    for engine in (large, small):
        engine.decode(SMALL_BATCH, 64, 64 + count, steps=4)
    keep_what_is_here()
    pairs = by_turns(large.step, small.step, count)
    return figure("pool of 65,536 blocks / 64", "x", [a / b for a, b in pairs], GOAL)


def backlog(count: int) -> Figure:
    """Whether it matters how many wait."""
    seats = 32
    long, short = Modelless(LARGE_POOL, seats=seats), Modelless(LARGE_POOL, seats=seats)
    for engine, waiting in ((long, BACKLOG), (short, FEW)):
        engine.decode(seats + waiting, 64, 64 + count, steps=4)
    keep_what_is_here()
    pairs = by_turns(long.step, short.step, count)
    return figure("5,000 waiting behind 32 / 1", "x", [a / b for a, b in pairs], GOAL)


def log_figures(name: str, pairs: list[tuple[float, float]]) -> list[Figure]:
    """A step with its log, and without."""
    return [
        figure(f"{name}, with log", "µs", [a for a, _ in pairs]),
        figure(f"{name}, without log", "µs", [b for _, b in pairs]),
    ]


def some_prompts(first: int, count: int, num_tokens: int) -> list[list[int]]:
    """Prompts that differ from their first token on; the `first` names the others."""
    return [[1_000 + first + number, *range(num_tokens - 1)] for number in range(count)]


def trace_header(config: EngineConfig) -> TraceHeader:
    """Of a log without a model."""
    return TraceHeader(
        schema_version=SCHEMA_VERSION,
        trace_id="benchmark",
        config=config.model_dump(mode="json"),
        model={},
        document="",
        versions={},
        started_at=0.0,
        state={},
    )
