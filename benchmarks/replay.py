"""Replay against eager: steps of both by turns, on the default model and a launch-bound one.

README.md, "replay", says why there are two models.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import NamedTuple

from benchmarks.engines import Chunking, Decoding
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, Goal, at_least, figure, not_measured
from benchmarks.harness.pairs import by_turns
from engine.cuda_graph import CudagraphMode
from engine.model_loader import LoadedModel, load_model
from engine.model_loader.fetch import DEFAULT_MODEL
from engine.model_loader.loader import WeightBytes
from engine.model_loader.tiny import TINY_MODEL, tiny_llama

BATCHES = (1, 2, 4, 8)
LAUNCH_BOUND_LAYERS = 30
LAUNCH_BOUND_PAIRS, DEFAULT_PAIRS = 60, 30
ROWS, DECODES_BESIDE_CHUNK = 16, (0, 4)  # of the steps with a chunk of a prompt
GOAL = at_least(1.3)  # on the launch-bound model


class Step(NamedTuple):
    """One step, as its log has it."""

    step_ms: float
    forward_ms: float
    mode: str


def measure(effort: Effort) -> list[Figure]:
    """Both models: each batch size of decodes that is captured, then prompts and mixed batches."""
    cases = (
        ("launch-bound", launch_bound_model(), LAUNCH_BOUND_PAIRS, GOAL),
        ("default model", load_model(DEFAULT_MODEL), DEFAULT_PAIRS, None),
    )
    figures = []
    for name, model, pairs, goal in cases:
        count = effort.samples(pairs)
        for batch in BATCHES:
            figures += compare(model, f"{name}, batch {batch}", batch, count, goal)
        for decodes in DECODES_BESIDE_CHUNK:
            called = f"{name}, prompt {ROWS - decodes}, decodes {decodes}"
            figures += compare_pieces(model, called, decodes, count)
    return figures


def launch_bound_model() -> LoadedModel:
    """Many layers with little to compute in each: the calls cost more than the arithmetic."""
    tiny = load_model(TINY_MODEL)
    model = tiny_llama(num_layers=LAUNCH_BOUND_LAYERS)
    weights = WeightBytes.of(model)._asdict()
    return replace(tiny, model=model, num_layers=LAUNCH_BOUND_LAYERS, **weights)


def compare(
    model: LoadedModel, called: str, batch: int, count: int, goal: Goal | None
) -> list[Figure]:
    """Decodes: an engine that may replay beside one that may not; they share the weights."""
    eager = Decoding(model, batch, count, enforce_eager=True)
    graph = Decoding(model, batch, count)
    return compare_engines(called, eager, graph, CudagraphMode.FULL, count, goal)


def compare_pieces(model: LoadedModel, called: str, decodes: int, count: int) -> list[Figure]:
    """The same for steps with a chunk of a prompt, which replay pieces."""
    eager = Chunking(model, decodes, ROWS, count, enforce_eager=True)
    graph = Chunking(model, decodes, ROWS, count)
    return compare_engines(called, eager, graph, CudagraphMode.PIECEWISE, count, None)


def compare_engines(
    called: str,
    eager: Decoding,
    graph: Decoding,
    mode: CudagraphMode,
    count: int,
    goal: Goal | None,
) -> list[Figure]:
    """Both by turns, in the steps in which `graph` replays in this mode."""
    gc.collect()
    pairs = by_turns(lambda: step(eager), lambda: step(graph), count)
    pairs = [(a, b) for a, b in pairs if b.mode == mode]
    if not pairs:
        why = f"no step was replayed: {graph.dispatch().reason}"
        return [not_measured(f"{called}, eager forward / replay", "x", why, goal)]
    forwards = [a.forward_ms / b.forward_ms for a, b in pairs]
    steps = [a.step_ms / b.step_ms for a, b in pairs]
    return [
        figure(f"{called}, eager forward", "ms", [a.forward_ms for a, _ in pairs]),
        figure(f"{called}, replay", "ms", [b.forward_ms for _, b in pairs]),
        figure(f"{called}, eager forward / replay", "x", forwards, goal),
        figure(f"{called}, the same for whole steps", "x", steps),
    ]


def step(engine: Decoding) -> Step:
    """Run one step and read in its log how it ran."""
    step_ms = engine.step().wall
    return Step(step_ms, engine.forward_ms(), engine.dispatch().mode)
