"""A benchmark that cannot run."""

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure


def measure(effort: Effort) -> list[Figure]:
    """Never returns."""
    raise RuntimeError("no browser is here")
