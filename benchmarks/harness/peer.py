"""A Python with vLLM, in a process of its own that answers commands: JSON, a line each."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OURS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


class PeerProcess:
    """Runs one of this package's modules, which reads commands until its input ends."""

    def __init__(self, python: str, module: str, **environment: str) -> None:
        # How OpenMP's threads wait is this project's choice for its own engine.
        inherited = {k: v for k, v in os.environ.items() if k not in OURS}
        self.process = subprocess.Popen(
            [python, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**inherited, **environment},
        )

    def ask(self, command: str, **arguments: Any) -> Any:
        """What it answers; RuntimeError where it has ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            print(json.dumps([command, arguments]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("vLLM's side has ended; what it said last stands above")
        return json.loads(answer)

    def end(self) -> None:
        """Its input ends, and so does it."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
