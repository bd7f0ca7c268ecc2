"""Schedule and update beside vLLM 0.26.0's own scheduler, on the same workloads.

README.md, "beside_vllm", says what is compared and how.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import NamedTuple, Protocol

from benchmarks.harness.clock import Clock
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, Goal, at_most, figure, not_measured
from benchmarks.harness.pairs import by_turns
from benchmarks.harness.peer import PeerProcess
from benchmarks.scheduler import (
    ADMISSIONS,
    DECODE_STEPS,
    EXACT_POOL,
    LARGE_POOL,
    PRESSURE_POOL,
    PRESSURE_REQUESTS,
    PRESSURE_STEPS,
    PRESSURE_WARM_STEPS,
    PROMPT_TOKENS,
    PROMPTS,
    Modelless,
    some_prompts,
)
from engine.garbage import keep_what_is_here

LIMITS = ("num_gpu_blocks", "max_num_batched_tokens", "max_num_seqs", "max_model_len")
TURN = 10  # steps of one side before it is the other's turn
GOAL = at_most(1.0)


class Step(NamedTuple):
    """What one step took, in microseconds, and what it did: the same on both sides."""

    cpu: float  # of the scheduler's thread
    wall: float
    num_tokens: int
    running: int
    waiting: int


class Side(Protocol):
    """A scheduler with its requests."""

    def add(self, prompts: list[list[int]], max_tokens: int) -> list[float]:
        """Make a request for each prompt and hand it in; the time it took, CPU and wall."""

    def steps(self, count: int) -> list[Step]:
        """Schedule and update, so many times."""

    def settle(self) -> None:
        """What was made so far is no garbage to look for."""


class Ours:
    """Glassbox's scheduler with its log."""

    def __init__(self, num_gpu_blocks: int) -> None:
        self.engine = Modelless(num_gpu_blocks)

    def add(self, prompts: list[list[int]], max_tokens: int) -> list[float]:
        """The next step takes them in."""
        clock = Clock()
        clock.go()
        self.engine.add(prompts, max_tokens)
        clock.stop()
        return clock.read()

    def steps(self, count: int) -> list[Step]:
        """Whole steps, of which what decides is timed."""
        return [self._step() for _ in range(count)]

    def _step(self) -> Step:
        cpu, wall = self.engine.timed_step().read()
        given = self.engine.runner.output.total_num_scheduled_tokens
        scheduler = self.engine.core.scheduler
        return Step(cpu, wall, given, len(scheduler.running), len(scheduler.waiting))

    def settle(self) -> None:
        """As the server does."""
        keep_what_is_here()


class Theirs:
    """vLLM's, in a process of its own (`vllm_side.py`)."""

    def __init__(self, python: str) -> None:
        self.peer = PeerProcess(python, "benchmarks.vllm_side")

    def begin(self, limits: dict[str, int]) -> None:
        """Make a new scheduler."""
        self.peer.ask("begin", **limits)

    def add(self, prompts: list[list[int]], max_tokens: int) -> list[float]:
        """A request's hashes are made with it."""
        took: list[float] = self.peer.ask("add", prompts=prompts, max_tokens=max_tokens)
        return took

    def steps(self, count: int) -> list[Step]:
        """`schedule` and `update_from_output` alone."""
        return [Step(*step) for step in self.peer.ask("steps", count=count)]

    def settle(self) -> None:
        """As vLLM's engine does."""
        self.peer.ask("settle")

    def end(self) -> None:
        """Its input ends, and so does it."""
        self.peer.end()


Workload = Callable[[Side], Callable[[], list[Step]]]  # a side's next sample, after a beginning


def measure(effort: Effort) -> list[Figure]:
    """Decode, admission and pressure; nothing where no vLLM is named."""
    if not effort.peer:
        note = "not run: --peer PYTHON names a Python that has vLLM 0.26.0; README.md tells how"
        return [not_measured("ours / vLLM's", "x", note)]
    turns, admissions = effort.samples(DECODE_STEPS // TURN), effort.samples(ADMISSIONS)
    theirs = Theirs(effort.peer)
    beside = partial(compare, theirs)
    try:
        return [
            *beside("1 running", LARGE_POOL, decode(1, turns), turns),
            *beside("32 running", LARGE_POOL, decode(32, turns), turns, GOAL),
            *beside("256 running", LARGE_POOL, decode(256, turns), turns, GOAL),
            *beside("256 prompts, no hits", LARGE_POOL, admission(known=False), admissions),
            *beside("256 prompts, hits", LARGE_POOL, admission(known=True), admissions),
            *beside("256 prompts, evicting", EXACT_POOL, admission(known=False), admissions),
            *beside("pressure", PRESSURE_POOL, pressure, effort.samples(PRESSURE_STEPS)),
        ]
    finally:
        theirs.end()


def decode(batch: int, turns: int) -> Workload:
    """Steps of `batch` requests that each get a token."""

    def begin(side: Side) -> Callable[[], list[Step]]:
        side.add(some_prompts(0, batch, 64), max_tokens=64 + turns * TURN)
        side.steps(4)
        return lambda: side.steps(TURN)

    return begin


def admission(*, known: bool) -> Workload:
    """Taking 256 prompts in, `known` or not: from making their requests to their first token."""

    def begin(side: Side) -> Callable[[], list[Step]]:
        firsts = itertools.repeat(0) if known else itertools.count(0, PROMPTS)

        def admit() -> list[Step]:
            cpu, wall = side.add(some_prompts(next(firsts), PROMPTS, PROMPT_TOKENS), max_tokens=2)
            step, _ = side.steps(2)  # with the second one they end
            return [step._replace(cpu=cpu + step.cpu, wall=wall + step.wall)]

        admit()  # fills the cache
        return admit

    return begin


def pressure(side: Side) -> Callable[[], list[Step]]:
    """Steps that evict and preempt, and to which somebody new comes for each that ended."""
    numbers = itertools.count()
    here = 0

    def next_step() -> list[Step]:
        nonlocal here
        for number in itertools.islice(numbers, PRESSURE_REQUESTS - here):
            side.add(some_prompts(number, 1, 64), max_tokens=32 + number * 37 % 64)
        (step,) = side.steps(1)
        here = step.running + step.waiting
        return [step]

    for _ in range(PRESSURE_WARM_STEPS):
        next_step()
    return next_step


def compare(
    theirs: Theirs,
    name: str,
    num_gpu_blocks: int,
    workload: Workload,
    count: int,
    goal: Goal | None = None,
) -> list[Figure]:
    """Both sides by turns, with the same limits."""
    ours = Ours(num_gpu_blocks)
    config = ours.engine.core.config
    theirs.begin({name: getattr(config, name) for name in LIMITS})
    our_next, their_next = workload(ours), workload(theirs)
    for side in (ours, theirs):
        side.settle()
    pairs = [paired(name, *pair) for pair in by_turns(our_next, their_next, count)]
    return [
        figure(f"{name}, with log", "µs", [a.cpu for a, _ in pairs]),
        figure(f"{name}, vLLM's", "µs", [b.cpu for _, b in pairs]),
        figure(f"{name}, ours / vLLM's", "x", [a.cpu / b.cpu for a, b in pairs], goal),
        figure(f"{name}, the same by the wall", "x", [a.wall / b.wall for a, b in pairs]),
    ]


class Mean(NamedTuple):
    """Of the steps of a turn, in microseconds."""

    cpu: float
    wall: float


def paired(name: str, ours: list[Step], theirs: list[Step]) -> tuple[Mean, Mean]:
    """What a step of each took, if both did the same."""
    if [step[2:] for step in ours] != [step[2:] for step in theirs]:
        raise RuntimeError(f"{name}: the two schedulers did not decide the same")
    return mean(ours), mean(theirs)


def mean(steps: list[Step]) -> Mean:
    """Of their times."""
    return Mean(fmean(step.cpu for step in steps), fmean(step.wall for step in steps))
