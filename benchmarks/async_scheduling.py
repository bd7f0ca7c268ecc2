"""Two steps at once beside one at a time: a whole engine with its loop, requests in decode.

README.md, "async_scheduling", says what each figure is, and where there is little to gain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, figure
from benchmarks.harness.pairs import by_turns
from engine.async_llm import AsyncLLM, MakeRunner, make_model_runner
from engine.config import EngineConfig, SamplingParams
from engine.core import Runner
from engine.engine_thread import EngineThread
from engine.garbage import keep_what_is_here
from engine.model_loader import LoadedModel, load_model
from engine.model_loader.fetch import DEFAULT_MODEL
from engine.model_loader.tiny import TINY_MODEL
from engine.outputs import ModelRunnerOutput, SchedulerOutput
from engine.records import EXECUTOR_PHASES, Patch, Phase, Record

WARM_STEPS = 3  # the first is the prefill
PROMPT_TOKENS = 32
PAIRS = 8


class Case(NamedTuple):
    """What runs, for how many requests and steps."""

    called: str
    model: str
    make_runner: MakeRunner
    batch: int
    steps: int


class Device(Runner):
    """Stands in for a device of its own: its forward takes 4 ms, and none of the CPU's time."""

    FORWARD_SECONDS = 0.004

    def __init__(self) -> None:
        self.output: SchedulerOutput | None = None

    def prepare_inputs(self, output: SchedulerOutput) -> None:
        """Remember whose turn it is."""
        self.output = output

    def execute_model(self) -> None:
        """Wait, as for a device."""
        time.sleep(self.FORWARD_SECONDS)

    def sample_tokens(self) -> ModelRunnerOutput:
        """The same token for everybody: each prompt is computed in one step."""
        scheduled = () if self.output is None else self.output.scheduled
        return ModelRunnerOutput({entry.request_id: (40,) for entry in scheduled})

    def drop_requests(self, request_ids: set[str]) -> None:
        """Nobody takes a request back."""


CASES = (
    Case("default model", DEFAULT_MODEL, make_model_runner, 4, 16),
    Case("tiny model", TINY_MODEL, make_model_runner, 8, 100),
    Case("stand-in for a device", TINY_MODEL, lambda *_: Device(), 32, 100),
)


class Run(NamedTuple):
    """What a step took of a run, on average."""

    step_ms: float
    overlap_us: float  # in which a phase of each lane was under way
    cpu_ms: float  # of all threads


class Engine:
    """An engine that decodes `batch` requests for `steps` steps, as often as it is asked to."""

    def __init__(self, case: Case, model: LoadedModel, async_scheduling: bool) -> None:
        self.case, self.thread = case, EngineThread()
        self.tokens = WARM_STEPS + case.steps
        blocks = -(-(PROMPT_TOKENS + self.tokens) // 16)
        config = EngineConfig(
            num_gpu_blocks=1 + case.batch * blocks,
            max_num_batched_tokens=case.batch * PROMPT_TOKENS,
            max_num_seqs=case.batch,
            enable_prefix_caching=False,
            async_scheduling=async_scheduling,
        )
        self.llm = AsyncLLM(model, config, self.thread, make_runner=case.make_runner)

    def run(self) -> Run:
        """Decode, and read from the log what a step took once all were in decode."""
        before = self.llm.trace.next_seq
        params = SamplingParams(temperature=0.0, max_tokens=self.tokens, ignore_eos=True)
        ids = [3 + i for i in range(PROMPT_TOKENS)]
        streams = [self.llm.submit(ids, params) for _ in range(self.case.batch)]
        cpu_began = time.process_time()
        self.llm.run()
        for stream in streams:
            for _ in stream:
                pass
        self.llm.pause()
        cpu_ms = (time.process_time() - cpu_began) * 1e3 / self.tokens
        return run_of(self.llm.trace.after(before, limit=10**9)[1], self.case.steps, cpu_ms)


def run_of(records: list[Record], steps: int, cpu_ms: float) -> Run:
    """Of the steps between two that both gave everybody a token."""
    ends = [record for record in records if isinstance(record, Patch)]
    outputs = [end.t_us for end in ends if end.phase is Phase.OUTPUT]
    first, last = outputs[WARM_STEPS - 1], outputs[WARM_STEPS - 1 + steps]
    inside = [end for end in ends if first < end.t_us <= last]
    executor = [interval(end) for end in inside if end.phase in EXECUTOR_PHASES]
    engine = [
        interval(end)
        for end in inside
        if end.phase not in EXECUTOR_PHASES and end.phase is not Phase.COMMAND
    ]
    return Run((last - first) / steps / 1e3, sum(common(engine, executor)) / steps, cpu_ms)


def interval(end: Patch) -> tuple[float, float]:
    """When a phase began and ended, in microseconds."""
    return end.t_us - (end.duration_us or 0.0), end.t_us


def common(some: list[tuple[float, float]], others: list[tuple[float, float]]) -> Iterator[float]:
    """How long each pair of intervals has in common; those of each list follow one another."""
    i = j = 0
    while i < len(some) and j < len(others):
        (a, b), (c, d) = some[i], others[j]
        yield max(0.0, min(b, d) - max(a, c))
        if b < d:
            i += 1
        else:
            j += 1


def measure(effort: Effort) -> list[Figure]:
    """All cases, each with two engines by turns on the same weights."""
    return [item for case in CASES for item in compare(case, effort.samples(PAIRS))]


def compare(case: Case, count: int) -> list[Figure]:
    """One case."""
    model = load_model(case.model)
    one, two = (Engine(case, model, kind) for kind in (False, True))
    one.run(), two.run()  # graphs are captured
    keep_what_is_here()
    pairs = by_turns(one.run, two.run, count)
    for engine in (one, two):
        engine.thread.stop()
    called = case.called
    return [
        figure(f"{called}, one at a time", "steps/s", [1e3 / a.step_ms for a, _ in pairs]),
        figure(f"{called}, two at once", "steps/s", [1e3 / b.step_ms for _, b in pairs]),
        figure(f"{called}, one at a time / two", "x", [a.step_ms / b.step_ms for a, b in pairs]),
        figure(f"{called}, overlap a step", "µs", [b.overlap_us for _, b in pairs]),
        figure(f"{called}, CPU time of two / one", "x", [b.cpu_ms / a.cpu_ms for a, b in pairs]),
    ]
