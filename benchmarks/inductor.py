"""Lists compiled by inductor beside lists as recorded: decode steps of both by turns.

README.md, "inductor", says what is counted.
"""

from __future__ import annotations

import gc

from benchmarks.engines import Decoding
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, figure, not_measured
from benchmarks.harness.pairs import by_turns
from benchmarks.replay import launch_bound_model, step
from engine.config import ConfigError
from engine.events import GraphCaptured
from engine.model_loader import LoadedModel, load_model
from engine.model_loader.fetch import DEFAULT_MODEL
from engine.records import Event

BATCH = 8
PAIRS = 60


def measure(effort: Effort) -> list[Figure]:
    """Both models of the benchmark `replay`, one size each: every size is compiled anew."""
    count = effort.samples(PAIRS)
    return [
        *compare("launch-bound", launch_bound_model(), count),
        *compare("default model", load_model(DEFAULT_MODEL), count),
    ]


def compare(called: str, model: LoadedModel, count: int) -> list[Figure]:
    """An engine of each kind; they share the weights."""
    recorded = Decoding(model, BATCH, count)
    ratio = f"{called}, as recorded / compiled"
    try:
        compiled = Decoding(model, BATCH, count, compilation_backend="inductor")
    except ConfigError as error:  # no compiler
        return [not_measured(ratio, "x", str(error))]
    gc.collect()
    pairs = by_turns(lambda: step(recorded), lambda: step(compiled), count)
    pairs = [(a, b) for a, b in pairs if a.mode == b.mode == "FULL"]
    if not pairs:
        why = f"no step was replayed: {compiled.dispatch().reason}"
        return [not_measured(ratio, "x", why)]
    figures = []
    for kind, engine in (("as recorded", recorded), ("compiled", compiled)):
        seconds, facts = capture_of(engine)
        figures += [
            figure(f"{called}, {kind}, capture", "s", [seconds]),
            figure(f"{called}, {kind}, operations", "", [facts.replayed]),
        ]
    return [
        *figures,
        figure(f"{called}, as recorded, forward", "ms", [a.forward_ms for a, _ in pairs]),
        figure(f"{called}, compiled, forward", "ms", [b.forward_ms for _, b in pairs]),
        figure(ratio, "x", [a.forward_ms / b.forward_ms for a, b in pairs]),
    ]


def capture_of(engine: Decoding) -> tuple[float, GraphCaptured]:
    """How long the engine's graph of a whole forward took, and what it is."""
    for record in engine.trace.records:
        if isinstance(record, Event) and isinstance(record.facts, GraphCaptured):
            return (record.duration_us or 0.0) / 1e6, record.facts
    raise AssertionError("a step was replayed, and so its graph is in the log")
