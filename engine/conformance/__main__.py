"""The commands `python -m engine.conformance WORKLOAD.json` and `... dispatch CASES.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from engine.conformance import WorkloadError, run
from engine.conformance.dispatch import answer_cases


def main(arguments: list[str]) -> int:
    """The command: exit 0, 1 where nobody reads what it prints, or 2 where the workload is none."""
    dispatch = arguments[:1] == ["dispatch"]
    paths = arguments[1:] if dispatch else arguments
    if len(paths) != 1:
        print(
            "usage: python -m engine.conformance WORKLOAD.json\n"
            "       python -m engine.conformance dispatch CASES.json",
            file=sys.stderr,
        )
        return 2
    try:
        if dispatch:
            lines = ",\n".join(map(json.dumps, answer_cases(Path(paths[0]))))
            print(f"[\n{lines}\n]")
        else:
            for record in run(Path(paths[0])):
                print(json.dumps(record, separators=(",", ":")))
        sys.stdout.flush()
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
