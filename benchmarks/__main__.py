"""`python -m benchmarks`: runs benchmarks, prints their figures, writes them to a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.harness.compare import comparison_lines
from benchmarks.harness.effort import Effort
from benchmarks.harness.report import RESULTS, Outcome, ReportError, load_report
from benchmarks.harness.runner import run
from benchmarks.harness.table import closing_lines, machine_lines, outcome_lines

# In the order in which they run; a new benchmark is one more module and one more name.
NAMES = (
    "start",
    "logging_share",
    "scheduler",
    "old_ways",
    "async_scheduling",
    "speculation",
    "beside_vllm",
    "decode",
    "throughput",
    "replay",
    "inductor",
    "attention",
    "dtypes",
    "weights",
    "highlight",
    "playback",
    "seek",
    "following",
    "page_load",
    "page_memory",
    "memory",
    "viewers",
    "soak",
    "gpu",
)
BENCHMARKS = {name: f"benchmarks.{name}" for name in NAMES}


def main(arguments: list[str], benchmarks: dict[str, str] = BENCHMARKS) -> int:
    """0 where all ran, whatever they found; 1 where one could not; 2 for wrong arguments."""
    options = parse(arguments, list(benchmarks))
    if options.compare:
        return compare(*options.compare)
    wanted = options.names or list(benchmarks)
    modules = [module for name, module in benchmarks.items() if name in wanted]
    report = run(modules, Effort(options.quick, options.peer), tell)
    print("\n".join([*machine_lines(report.machine), "", *closing_lines(report)]))
    print(f"written to {report.save(options.results)}")
    return int(report.failed)


def parse(arguments: list[str], names: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it works")
    parser.add_argument(
        "--peer",
        default="",
        metavar="PYTHON",
        help="a Python with vLLM, for what stands beside it",
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the file goes"
    )
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="two files of results"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no benchmark is named {unknown[0]!r}; there are {', '.join(names)}")
    return options


def tell(news: Outcome | str) -> None:
    """Say what runs now, and what came out of it."""
    if isinstance(news, str):
        print(f"measuring {news} ...", flush=True)
    else:
        print("\n".join([*outcome_lines(news), ""]), flush=True)


def compare(before: Path, after: Path) -> int:
    """Print two runs side by side."""
    try:
        lines = comparison_lines(load_report(before), load_report(after))
    except ReportError as error:
        print(f"glassbox: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
