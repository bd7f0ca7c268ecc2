"""Two runs side by side: figures of the same name, and the second divided by the first."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness.figures import Figure
from benchmarks.harness.report import Report
from benchmarks.harness.table import NAME, NUMBER, UNIT, number

PACE = 1.15  # between two measurements of the yardstick: beyond, the machine was not as fast
OTHER = ("cpu", "cores", "threads", "torch", "chromium")  # what makes two runs incomparable


def comparison_lines(before: Report, after: Report) -> Iterator[str]:
    """A line for each figure that both have."""
    yield f"{before.machine.commit} at {before.started_at:%Y-%m-%d %H:%M}, then"
    yield f"{after.machine.commit} at {after.started_at:%Y-%m-%d %H:%M}"
    yield from differences(before, after)
    old = named_figures(before)
    for outcome in after.outcomes:
        both = [(old.get((outcome.name, f.name)), f) for f in outcome.figures]
        pairs = [(a, b) for a, b in both if a is not None]
        if pairs:
            yield f"{outcome.name}: {outcome.title}"
            yield (
                f"  {'':{NAME}} {'':{UNIT}} {'before':>{NUMBER}} {'after':>{NUMBER}} {'ratio':>7}"
            )
        for a, b in pairs:
            yield figure_line(a, b)


def differences(before: Report, after: Report) -> Iterator[str]:
    """Why the two runs may differ besides the code."""
    for name in OTHER:
        a, b = getattr(before.machine, name), getattr(after.machine, name)
        if a != b:
            yield f"beware: {name} was {a}, then {b}"
    paces = sorted((before.machine.yardstick_ms, after.machine.yardstick_ms))
    if 0 < paces[0] < paces[1] / PACE:
        slower = "then" if paces[1] == after.machine.yardstick_ms else "first"
        yield f"beware: the machine was {paces[1] / paces[0]:.2f} times as slow {slower}"
    for report in (before, after):
        if report.quick:
            yield f"beware: {report.started_at:%H:%M} was a quick run"


def named_figures(report: Report) -> dict[tuple[str, str], Figure]:
    """By benchmark and name."""
    return {(o.name, f.name): f for o in report.outcomes for f in o.figures}


def figure_line(before: Figure, after: Figure) -> str:
    """Both values; "apart" where the middle halves of the samples do not touch."""
    a, b = before.value, after.value
    ratio = f"{b / a:.2f}x" if a and b is not None else ""
    apart = "apart" if are_apart(before, after) else ""
    return (
        f"  {after.name:{NAME}} {after.unit:{UNIT}} {'-' if a is None else number(a):>{NUMBER}} "
        f"{'-' if b is None else number(b):>{NUMBER}} {ratio:>7} {apart}"
    ).rstrip()


def are_apart(before: Figure, after: Figure) -> bool:
    """Whether the difference is more than the samples' own spread."""
    a, b = before.quartiles, after.quartiles
    if a is None or b is None or min(before.samples, after.samples) < 2:
        return False
    return a[1] < b[0] or b[1] < a[0]
