"""Runs benchmarks one after the other, each in a process of its own."""

from __future__ import annotations

import importlib
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure
from benchmarks.harness.machine import this_machine
from benchmarks.harness.report import Outcome, Report


def run(
    modules: Sequence[str], effort: Effort, tell: Callable[[Outcome | str], None] = lambda _: None
) -> Report:
    """Run the benchmarks in these modules; `tell` hears which one begins, and what became of it."""
    started_at, machine = datetime.now(UTC), this_machine()
    outcomes = []
    for module in modules:
        tell(module.rpartition(".")[2])
        outcome = run_one(module, effort)
        tell(outcome)
        outcomes.append(outcome)
    return Report(
        started_at=started_at, quick=effort.quick, machine=machine, outcomes=tuple(outcomes)
    )


def run_one(module: str, effort: Effort) -> Outcome:
    """Run one benchmark; whatever it raises, even its process's end, is its outcome's error."""
    began = time.perf_counter()
    title, error = "", ""
    figures: list[Figure] = []
    try:
        title = title_of(module)
        # What one benchmark leaves behind (models, threads, a large heap) must not slow the next.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
            figures = process.submit(measure, module, effort).result()
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}".strip().splitlines()[0]
        traceback.print_exc()
    return Outcome(
        name=module.rpartition(".")[2],
        title=title,
        seconds=round(time.perf_counter() - began, 1),
        figures=tuple(figures),
        error=error,
    )


def title_of(module: str) -> str:
    """The first line of the module's description."""
    return (importlib.import_module(module).__doc__ or module).strip().splitlines()[0].rstrip(".")


def measure(module: str, effort: Effort) -> list[Figure]:
    """In the benchmark's own process: let it measure."""
    figures: list[Figure] = importlib.import_module(module).measure(effort)
    return figures
