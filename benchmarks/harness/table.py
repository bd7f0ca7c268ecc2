"""Reports in words and columns, for the console."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from benchmarks.harness.figures import Figure
from benchmarks.harness.machine import Machine
from benchmarks.harness.report import Outcome, Report

NAME, UNIT, NUMBER, SPREAD, COUNT, GOAL = 52, 4, 7, 17, 4, 7
WIDTH = NAME + UNIT + NUMBER + SPREAD + COUNT + GOAL + 20


def machine_lines(machine: Machine) -> Iterator[str]:
    """The machine, in two lines."""
    yield (
        f"{machine.cpu}, {machine.cores} cores, {machine.threads} threads, "
        f"{machine.memory_bytes / 1e9:.0f} GB, load {machine.load} before the run, "
        f"yardstick {machine.yardstick_ms} ms"
    )
    yield (
        f"commit {machine.commit or 'unknown'}, Python {machine.python}, torch {machine.torch}, "
        f"{machine.chromium or 'no browser'}"
    )


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """One benchmark's figures under its title."""
    yield f"{outcome.name}: {outcome.title} ({outcome.seconds:.0f} s)"
    if outcome.error:
        yield f"  could not run: {outcome.error}"
        return
    yield (
        f"  {'':{NAME}} {'':{UNIT}} {'value':>{NUMBER}}  {'quartiles':^{SPREAD}} "
        f"{'n':>{COUNT}}  {'goal':{GOAL}}"
    )
    for figure in outcome.figures:
        yield from figure_lines(figure)


def figure_lines(figure: Figure) -> Iterator[str]:
    """One figure, and below it what there is to say of it."""
    value = "-" if figure.value is None else number(figure.value)
    spread = ""
    if figure.quartiles is not None and figure.samples > 1:
        spread = f"{number(figure.quartiles[0])} .. {number(figure.quartiles[1])}"
    goal = "" if figure.goal is None else str(figure.goal)
    verdict = "" if figure.verdict == "none" else figure.verdict
    yield (
        f"  {figure.name:{NAME}} {figure.unit:{UNIT}} {value:>{NUMBER}}  {spread:^{SPREAD}} "
        f"{figure.samples:>{COUNT}}  {goal:{GOAL}} {verdict}"
    ).rstrip()
    yield from textwrap.wrap(
        figure.note, WIDTH, initial_indent="      ", subsequent_indent="      "
    )


def closing_lines(report: Report) -> Iterator[str]:
    """How many goals were met, and which were not."""
    figures = [(o.name, f) for o in report.outcomes for f in o.figures if f.goal is not None]
    met = sum(figure.verdict == "met" for _, figure in figures)
    yield f"{met} of {len(figures)} goals met"
    for name, figure in figures:
        if figure.verdict != "met":
            yield f"  {figure.verdict}: {name}, {figure.name} ({figure.goal})"
    for outcome in report.outcomes:
        if outcome.error:
            yield f"  could not run: {outcome.name}"
    if report.quick:
        yield "This was a quick run: it shows that the benchmarks work, and measures little."


def number(value: float) -> str:
    """Three or four digits that matter."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"
