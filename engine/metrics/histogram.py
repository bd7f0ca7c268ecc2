"""A histogram as Prometheus defines it, and the bucket bounds of vLLM 0.26.0.

vLLM: `vllm/v1/metrics/loggers.py` (`PrometheusStatLogger`). Observed on the engine thread step
after step, so it is a list of counts; `engine/metrics/prometheus.py` makes samples of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

FIRST_TOKEN_SECONDS = (
    (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0)
    + (2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
)  # fmt: skip
TOKEN_SECONDS = (
    (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
    + (2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
)  # fmt: skip
REQUEST_SECONDS = (
    (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
    + (120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
)  # fmt: skip
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SAMPLES = (1, 2, 5, 10, 20)


def token_bounds(most: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 and so on up to `most` tokens."""
    bounds: list[int] = []
    decade = 1
    while decade <= most:
        bounds += [factor * decade for factor in (1, 2, 5) if factor * decade <= most]
        decade *= 10
    return tuple(bounds)


class Histogram:
    """How many observations fell at or below each bound. One thread observes, any may read."""

    def __init__(self, bounds: Sequence[float]):
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)  # the last: above all bounds
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value; one that equals a bound is below it."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self._counts)

    def cumulative(self) -> list[int]:
        """Observations at or below each bound, then all of them."""
        return list(accumulate(self._counts))
