"""A benchmark that measures nothing, for the test of what the runner makes of one.

This is its second paragraph.
"""

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_least, at_most, figure, not_measured


def measure(effort: Effort) -> list[Figure]:
    """Figures of each kind."""
    return [
        figure("walk", "ms", [4.0, 1.0, 2.0, 3.0, 5.0], at_most(3.0)),
        figure("speed-up", "x", [1.5], at_least(2.0), note="too little"),
        figure("count", "", [float(effort.samples(100))]),
        not_measured("flight", "s", "it has no wings", at_most(1.0)),
    ]
