"""`python -m engine.export TRACE --to perfetto|csv`: a saved log for other programs.

`perfetto` writes a trace for https://ui.perfetto.dev (steps, phases and requests over time), `csv`
a zip file of tables for a spreadsheet. TRACE is a .jsonl file that the page saved.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.export.formats import KINDS, Format, written
from engine.file_kinds import HEAD_BYTES, TRACE, explained
from engine.terminal import escaped
from engine.trace import Trace, TraceError

TRACE_START = b'{"kind":"header"}'  # what cannot be read is not said to be something else


def main() -> int:
    """Write the file beside the trace, or where `--output` says; 1 where it cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace file (.jsonl)")
    parser.add_argument("--to", choices=["perfetto", "csv"], required=True, help="its new form")
    parser.add_argument(
        "--output", type=Path, help="the file to write; without it, one beside TRACE is replaced"
    )
    asked = parser.parse_args()
    form = Format(asked.to)
    target = asked.output or asked.trace.with_suffix(KINDS[form].suffix)
    try:
        log = Trace.load(asked.trace)
    except TraceError as error:
        return failed(asked.trace, explained(str(error), start_of(asked.trace), TRACE))
    unfinished = target.with_name(f"{target.name}.part")
    try:
        with unfinished.open("wb") as file:
            file.writelines(written(log, form))
        unfinished.replace(target)
    except TraceError as error:
        unfinished.unlink()
        return failed(asked.trace, str(error))
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        return failed(target, f"cannot be written ({error.strerror})")
    print(escaped(str(target)))
    return 0


def failed(path: Path, why: str) -> int:
    """Say why there is no file."""
    print(escaped(f"{path}: {why.removeprefix(f'{path}: ')}"), file=sys.stderr)
    return 1


def start_of(path: Path) -> bytes:
    """As much of a file as tells what it is."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return TRACE_START


if __name__ == "__main__":
    sys.exit(main())
