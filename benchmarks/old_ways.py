"""What the KV memory is used for: reserved in one piece a request, in three ways, and paged.

README.md, "old_ways", says what each figure is and how it compares with the paper's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, figure
from benchmarks.scheduler import StandIn, trace_header
from engine.config import EngineConfig, SamplingParams
from engine.contiguous import WAYS, Arena, piece_lengths
from engine.core import EngineCore
from engine.memory_parts import PAGED, Memory, Parts
from engine.request import Request
from engine.trace import Trace

# The paper's: OPT-13B on a 40 GB A100 has some 15,700 slots; its longest request has 2,048 tokens.
LONGEST = 2_048
CONFIG = EngineConfig(
    num_gpu_blocks=983, max_model_len=LONGEST, max_num_batched_tokens=2_048, max_num_seqs=256
)
MEAN_PROMPT, MEAN_OUTPUT = 161, 338  # as in its ShareGPT trace; how they spread is assumed here
SEED, UNFINISHED = 7, 100  # far more than fit: some always wait
WARM_STEPS, SAMPLES, STEPS_BETWEEN = 400, 100, 10

NAMES = {"max": "maximum", "pow2": "power of two", "oracle": "true length", "paged": "paged"}
PAPER = {  # its figure 2, in percent
    "max": "20.4 tokens, 13.3 reserved, 57.3 internal, 8.9 external",
    "pow2": "26.8 tokens, 17.9 reserved, 13.6 internal, 41.6 external",
    "oracle": "38.2 tokens, 25.2 reserved, 36.6 external",
    "paged": "96.3 tokens",
}


class Lengths:
    """Prompts and outputs: many short ones and a few long ones, the same for each way."""

    def __init__(self) -> None:
        self.chance = random.Random(SEED)

    def next(self) -> tuple[int, int]:
        """Tokens of a prompt and of its output; together no more than a request may have."""
        prompt = min(self.length(MEAN_PROMPT), LONGEST // 2)
        return prompt, min(self.length(MEAN_OUTPUT), LONGEST - prompt)

    def length(self, mean: int) -> int:
        """At least one token."""
        return 1 + round(self.chance.expovariate(1 / (mean - 1)))


class PagedLoad:
    """The engine, which always has more requests than fit. Each ends by its max_tokens alone."""

    def __init__(self) -> None:
        runner = StandIn()
        self.core = EngineCore(CONFIG, runner, Trace(trace_header(CONFIG)))
        self.requests = runner.requests = self.core.scheduler.requests
        self.lengths = Lengths()
        self.count = 0

    def step(self) -> None:
        """Run a step, with as many unfinished requests as ever."""
        while len(self.requests) + len(self.core.arriving) < UNFINISHED:
            prompt, output = self.lengths.next()
            tokens = [1_000 + self.count, *range(prompt - 1)]  # no two prompts begin alike
            params = SamplingParams(max_tokens=output, ignore_eos=True)
            self.core.add_request(Request(f"r{self.count}", tokens, params))
            self.count += 1
        self.core.step()

    def memory(self) -> Memory:
        """What the log would say now."""
        return Memory(self.core.recorder.snapshot(), CONFIG)


class Piece(NamedTuple):
    """What a request of a contiguous way has, and which steps it runs in."""

    start: int
    length: int
    prompt: int
    fills: int
    admitted: int  # in this step its prompt is computed, in each later one a token


class ContiguousLoad:
    """A system that reserves one piece a request, on its own clock.

    A step computes a prompt whole, and a token of each request that runs.
    """

    def __init__(self, way: str) -> None:
        self.place = WAYS.index(way)
        self.arena = Arena(CONFIG.largest_request())
        self.lengths = Lengths()
        self.first = self.lengths.next()  # in line
        self.running: list[Piece] = []
        self.clock = 0

    def step(self) -> None:
        """Let go of those that have all their tokens; admit whoever finds a gap, in order."""
        self.clock += 1
        for piece in self.running:
            if self.tokens(piece) > piece.fills:
                self.arena.give_back(piece.start, piece.length)
        self.running = [piece for piece in self.running if self.tokens(piece) <= piece.fills]
        while self.admit():
            self.first = self.lengths.next()

    def admit(self) -> bool:
        """Whether the first in line found a gap."""
        prompt, output = self.first
        params = SamplingParams(max_tokens=output)
        lengths = piece_lengths(Request("", [0] * prompt, params), LONGEST)
        start = self.arena.take(lengths[self.place])
        if start is None:
            return False
        fills = prompt + output - 1
        self.running.append(Piece(start, lengths[self.place], prompt, fills, self.clock))
        return True

    def tokens(self, piece: Piece) -> int:
        """Slots of a piece that are filled."""
        return piece.prompt + self.clock - piece.admitted

    def parts(self) -> Parts:
        """Somebody always waits, so all that is free is of no use."""
        tokens = sum(self.tokens(piece) for piece in self.running)
        fills = sum(piece.fills for piece in self.running)
        held = sum(piece.length for piece in self.running)
        return Parts(tokens, fills - tokens, held - fills, CONFIG.largest_request() - held, 0)


def measure(effort: Effort) -> list[Figure]:
    """Each way on its own clock; then the three beside the engine, on the engine's."""
    count = effort.samples(SAMPLES)
    figures = []
    for way in WAYS:
        load = ContiguousLoad(way)
        seen = [(load.parts(), len(load.running)) for _ in moments(load.step, count)]
        figures += way_figures(way, [parts for parts, _ in seen], [n for _, n in seen])
    engine = PagedLoad()
    memories = [engine.memory() for _ in moments(engine.step, count)]
    paged = [memory.parts(PAGED) for memory in memories]
    figures += way_figures(PAGED, paged, [memory.has_room(PAGED) for memory in memories])
    return figures + [line for way in WAYS for line in beside_figures(way, memories)]


def moments(step: Callable[[], None], count: int) -> Iterator[None]:
    """So many moments of a load that has come into its swing."""
    for _ in range(WARM_STEPS):
        step()
    for _ in range(count):
        for _ in range(STEPS_BETWEEN):
            step()
        yield


def way_figures(way: str, parts: list[Parts], requests: Sequence[float]) -> list[Figure]:
    """One way's share of each part, and how many requests run at once."""
    name = NAMES[way]
    shares = [
        figure(f"{name}, {part}", "%", [share(each, part) for each in parts])
        for part in Parts._fields
    ]
    note = f"the paper: {PAPER[way]}"
    return [*shares, figure(f"{name}, requests at once", "", requests, note=note)]


def beside_figures(way: str, memories: list[Memory]) -> list[Figure]:
    """The same as the page shows it: a request holds its piece while the engine runs it."""
    name = f"{NAMES[way]}, beside the engine"
    tokens = [share(memory.parts(way), "tokens") for memory in memories]
    rooms = [float(memory.has_room(way)) for memory in memories]
    return [figure(f"{name}, tokens", "%", tokens), figure(f"{name}, have room", "", rooms)]


def share(parts: Parts, part: str) -> float:
    """A part in percent of the whole."""
    slots: int = getattr(parts, part)
    return slots / sum(parts) * 100
