"""What the log costs: steps with it and without it, by turns, eight requests in decode.

README.md, "logging_share", says what counts as logging.
"""

from __future__ import annotations

from benchmarks.engines import Decoding, UnloggedDecoding
from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, Goal, at_most, figure
from benchmarks.harness.pairs import by_turns
from engine.garbage import keep_what_is_here
from engine.model_loader import load_model
from engine.model_loader.fetch import DEFAULT_MODEL
from engine.model_loader.tiny import TINY_MODEL

BATCH = 8
DEFAULT_PAIRS, TINY_PAIRS = 60, 600
GOAL = at_most(5.0)  # percent; of the default model's step


def measure(effort: Effort) -> list[Figure]:
    """On the default model, and on a tiny one whose steps are little but bookkeeping."""
    return [
        *log_cost(DEFAULT_MODEL, "default model", effort.samples(DEFAULT_PAIRS), GOAL),
        *log_cost(TINY_MODEL, "tiny model", effort.samples(TINY_PAIRS), None),
    ]


def log_cost(name: str, called: str, count: int, goal: Goal | None) -> list[Figure]:
    """Two engines by turns, on the same weights."""
    model = load_model(name)
    with_log = Decoding(model, BATCH, count)
    without = UnloggedDecoding(model, BATCH, count)
    keep_what_is_here()  # as the server does
    pairs = by_turns(with_log.step, without.step, count)
    return [
        figure(f"{called}, step with log", "ms", [a.wall for a, _ in pairs]),
        figure(f"{called}, step without log", "ms", [b.wall for _, b in pairs]),
        figure(f"{called}, log's cost a step", "µs", [(a.cpu - b.cpu) * 1e3 for a, b in pairs]),
        figure(
            f"{called}, log's share", "%", [(a.cpu - b.cpu) / a.cpu * 100 for a, b in pairs], goal
        ),
    ]
