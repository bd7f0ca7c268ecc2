"""Decode steps and a long prefill of the default model: beside vLLM, and beside the memory.

README.md, "decode", says what is compared and how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch

from benchmarks.engines import PROMPT_TOKENS, WARM_STEPS, Decoding
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, Goal, at_least, at_most, figure, not_measured
from benchmarks.harness.pairs import by_turns
from benchmarks.harness.peer import PeerProcess
from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.events import ModulesTimed
from engine.model_loader import LoadedModel, fetch_default_model, load_model
from engine.model_loader.fetch import DEFAULT_MODEL
from engine.records import Event

BATCHES = (1, 8, 16)
TURNS, TURN = 12, 8  # samples, and steps a sample; a turn's first step only warms up
LONG_PROMPT, PREFILLS = 512, 8
LONG_TOKENS = [100 + 7 * i for i in range(LONG_PROMPT)]
NO_SLOWER, PREFILL_GOAL = at_most(1.0), at_most(1.3)  # of vLLM's eager mode
SHARE_GOAL = at_least(0.4)
# Of the engine's kinds of modules. Activations stand with the linear layers of the MLP.
LINEARS = ("qkv_proj", "o_proj", "mlp", "lm_head")


class Ours:
    """Glassbox, as its server runs it, or eagerly."""

    def __init__(self, model: LoadedModel, batch: int, turns: int, *, eager: bool) -> None:
        self.engine = Decoding(model, batch, turns * TURN + 1, enforce_eager=eager)

    def turn(self) -> float:
        """Milliseconds of a step: the median of a turn's."""
        return median([self.engine.step().wall for _ in range(TURN)][1:])

    def profile(self) -> dict[str, list[float]]:
        """Milliseconds of each kind in each forward so far."""
        found: dict[str, list[float]] = {"linears": [], "attention": [], "other operations": []}
        for record in self.engine.trace.records:
            if isinstance(record, Event) and isinstance(record.facts, ModulesTimed):
                timed = record.facts
                spent = dict(zip(timed.kinds, timed.durations_us, strict=True))
                linears = sum(spent.get(kind, 0.0) for kind in LINEARS)
                attention = spent.get("attention", 0.0)
                rest = sum(spent.values()) - linears - attention
                for kind, value in zip(found, (linears, attention, rest), strict=True):
                    found[kind].append(value / 1e3)
        return found


class Theirs:
    """vLLM in a process of its own."""

    def __init__(self, python: str, folder: str, *, eager: bool) -> None:
        module = "benchmarks.vllm_model_side"
        threads = torch.get_num_threads()
        bind = {"VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}"}
        self.peer = PeerProcess(python, module, **bind, **intel_openmp(python))
        self.threads = self.peer.ask("begin", folder=folder, eager=eager)["threads"]

    def decode(self, prompts: list[list[int]], turns: int) -> None:
        """Begin with as many steps before as ours has."""
        self.peer.ask("add", prompts=prompts, max_tokens=1 + WARM_STEPS + turns * TURN)
        self.peer.ask("steps", count=WARM_STEPS)

    def turn(self) -> float:
        """As `Ours.turn`."""
        times: list[float] = self.peer.ask("steps", count=TURN)
        return median(times[1:])

    def prefill(self, prompt: list[int]) -> float:
        """Milliseconds of the one step of a request."""
        self.peer.ask("add", prompts=[prompt], max_tokens=1)
        took: float = self.peer.ask("steps", count=1)[0]
        return took


def intel_openmp(python: str) -> dict[str, str]:
    """The environment by which vLLM's documentation has it run fastest, where that is installed.

    The waiting is what vLLM sets for its worker processes (`vllm/utils/ompmultiprocessing.py`).
    """
    library = Path(python).absolute().parents[1] / "lib" / "libiomp5.so"
    if not library.exists():
        return {}
    return {"LD_PRELOAD": str(library), "KMP_BLOCKTIME": "5", "KMP_TPAUSE": "0"}


def measure(effort: Effort) -> list[Figure]:
    """The memory, then vLLM's two modes, one after the other."""
    model = load_model(DEFAULT_MODEL)
    turns, prefills = effort.samples(TURNS), effort.samples(PREFILLS)
    figures = beside_memory(model, turns) + [
        each for batch in BATCHES for each in where_it_goes(model, batch, turns)
    ]
    if not effort.peer:
        note = "not run: --peer PYTHON names a Python that has vLLM 0.26.0; README.md tells how"
        return [*figures, not_measured("ours / vLLM's", "x", note)]
    for eager in (True, False):
        try:
            figures += beside_vllm(model, effort.peer, turns, prefills, eager=eager)
        except RuntimeError as error:
            if eager:
                raise
            figures.append(not_measured("ours / vLLM's, compiled", "x", str(error)))
    return figures


# --- the memory --------------------------------------------------------------------------------


def beside_memory(model: LoadedModel, turns: int) -> list[Figure]:
    """A step at batch 1, and reading as many bytes as it has to, by turns."""
    ours = Ours(model, 1, turns, eager=False)
    numbers = torch.ones(model.read_bytes // 4)
    numbers.sum()

    def read() -> float:
        took = []
        for _ in range(TURN):
            began = time.perf_counter()
            numbers.sum()
            took.append((time.perf_counter() - began) * 1e3)
        return median(took[1:])

    pairs = by_turns(read, ours.turn, turns)
    tokens = PROMPT_TOKENS + WARM_STEPS + turns * TURN // 2
    cache = ours.engine.core.runner.kv_cache.spec.bytes_per_token * tokens  # type: ignore[attr-defined]
    more = (model.read_bytes + cache) / numbers.nbytes
    return [
        figure("reading the weights once", "ms", [a for a, _ in pairs]),
        figure("read bandwidth", "GB/s", [numbers.nbytes / a / 1e6 for a, _ in pairs]),
        figure("decode, batch 1", "ms", [b for _, b in pairs]),
        figure("of the bandwidth, batch 1", "x", [a * more / b for a, b in pairs], SHARE_GOAL),
    ]


def where_it_goes(model: LoadedModel, batch: int, turns: int) -> list[Figure]:
    """A step by kind; what no forward takes is Python, sampling included."""
    ours = Ours(model, batch, turns, eager=False)
    steps = [ours.engine.step().wall for _ in range(turns * TURN)]
    kinds = ours.profile()
    forwards = [sum(each) for each in zip(*kinds.values(), strict=True)][-len(steps) :]
    rest = [step - forward for step, forward in zip(steps, forwards, strict=True)]
    return [
        figure(f"batch {batch}, {kind}", "ms", values[-len(steps) :])
        for kind, values in {**kinds, "sampling and Python": rest}.items()
    ]


# --- vLLM --------------------------------------------------------------------------------------


def beside_vllm(
    model: LoadedModel, python: str, turns: int, prefills: int, *, eager: bool
) -> list[Figure]:
    """All cells against one of vLLM's modes. The goals are of its eager one."""
    mode = "eager" if eager else "compiled"
    theirs = Theirs(python, str(fetch_default_model(lambda _: None)), eager=eager)
    try:
        if theirs.threads != torch.get_num_threads():
            raise RuntimeError(f"vLLM runs {theirs.threads} threads, not {torch.get_num_threads()}")
        figures = []
        for batch in BATCHES:
            ours = Ours(model, batch, turns, eager=False)
            prompts = [r.all_token_ids for r in ours.engine.core.scheduler.requests.values()]
            theirs.decode([ids[:PROMPT_TOKENS] for ids in prompts], turns)
            pairs = by_turns(ours.turn, theirs.turn, turns)
            theirs.peer.ask("finish")
            figures += compared(f"batch {batch}", mode, pairs, NO_SLOWER if eager else None)
        pairs = by_turns(prefilling(model), lambda: theirs.prefill(LONG_TOKENS), prefills + 1)[1:]
        goal = PREFILL_GOAL if eager else None
        return figures + compared(f"prefill of {LONG_PROMPT}", mode, pairs, goal)
    finally:
        theirs.peer.end()


def compared(
    name: str, mode: str, pairs: Sequence[tuple[float, float]], goal: Goal | None
) -> list[Figure]:
    """Both, and the ratio of each pair."""
    return [
        figure(f"{name}, ours", "ms", [a for a, _ in pairs]),
        figure(f"{name}, vLLM's {mode}", "ms", [b for _, b in pairs]),
        figure(f"{name}, ours / vLLM's {mode}", "x", [a / b for a, b in pairs], goal),
    ]


def prefilling(model: LoadedModel) -> Callable[[], float]:
    """The engine's step for a long prompt, anew each time: nothing is cached."""
    config = EngineConfig(max_num_batched_tokens=LONG_PROMPT, enable_prefix_caching=False)
    llm = AsyncLLM(model, config)

    def step() -> float:
        llm.submit(LONG_TOKENS, SamplingParams(max_tokens=1, ignore_eos=True))
        began = time.perf_counter()
        llm.step()
        return (time.perf_counter() - began) * 1e3

    return step
