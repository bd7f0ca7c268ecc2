"""Replay against eager: decode steps of both by turns, on the default model and a launch-bound one.

README.md, "replay", says why there are two models.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import NamedTuple

from benchmarks.engines import Decoding
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
LAUNCH_BOUND_PAIRS, DEFAULT_PAIRS = 150, 30
GOAL = at_least(1.3)  # on the launch-bound model


class Decode(NamedTuple):
    """One decode step."""

    step_ms: float
    forward_ms: float
    replayed: bool


def measure(effort: Effort) -> list[Figure]:
    """Both models, each batch size that is captured."""
    launch_bound = launch_bound_model()
    default = load_model(DEFAULT_MODEL)
    figures = []
    for batch in BATCHES:
        count = effort.samples(LAUNCH_BOUND_PAIRS)
        figures += compare(launch_bound, f"launch-bound, batch {batch}", batch, count, GOAL)
    for batch in BATCHES:
        count = effort.samples(DEFAULT_PAIRS)
        figures += compare(default, f"default model, batch {batch}", batch, count, None)
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
    """An engine that may replay beside one that may not; they share the weights."""
    eager = Decoding(model, batch, count, enforce_eager=True)
    graph = Decoding(model, batch, count)
    gc.collect()
    pairs = by_turns(lambda: decode(eager), lambda: decode(graph), count)
    pairs = [(a, b) for a, b in pairs if b.replayed]
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


def decode(engine: Decoding) -> Decode:
    """Run one step and read in its log how it ran."""
    step_ms = engine.step().wall
    return Decode(step_ms, engine.forward_ms(), engine.dispatch().mode != CudagraphMode.NONE)
