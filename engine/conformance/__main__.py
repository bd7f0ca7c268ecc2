"""The command `python -m engine.conformance WORKLOAD.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from engine.conformance import WorkloadError, run


def main(arguments: list[str]) -> int:
    """The command: exit 0, 1 where nobody reads what it prints, or 2 where the workload is none."""
    if len(arguments) != 1:
        print("usage: python -m engine.conformance WORKLOAD.json", file=sys.stderr)
        return 2
    try:
        for record in run(Path(arguments[0])):
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
