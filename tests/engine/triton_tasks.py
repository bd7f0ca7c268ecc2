"""What the tests have the interpreter's process do: functions that run in there."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine.paged_attention.triton import worker


def tell(task: dict[str, Any]) -> dict[str, Any]:
    """Where this runs."""
    from engine.paged_attention.triton.kernels import paged_decode_kernel

    return {
        "pid": os.getpid(),
        "interprets": type(paged_decode_kernel).__name__ == "InterpretedFunction",
        "transformers": "transformers" in sys.modules,
        "doubled": task["numbers"] * 2,
    }


def fail(task: dict[str, Any]) -> dict[str, Any]:
    """Raise as the interpreter does: errors about errors, long ones."""
    try:
        raise ValueError("the cause\nand much more")
    except ValueError as error:
        raise RuntimeError("x" * 10_000) from error


def leave(task: dict[str, Any]) -> dict[str, Any]:
    """End the process before it has answered."""
    print("last words", file=sys.stderr, flush=True)
    if "signal" in task:
        os.kill(os.getpid(), task["signal"])
    os._exit(task["status"])


def rest_at_once(task: dict[str, Any]) -> dict[str, Any]:
    """Wait for nothing after this answer."""
    worker.IDLE_SECONDS = 0.0
    return {}


def attend_broken(task: dict[str, Any]) -> dict[str, Any]:
    """`interpret.attend`, by kernels in whose source `old` is `new`."""
    from engine.paged_attention.triton import interpret, kernels, launch

    source = Path(kernels.__file__).read_text()
    assert task["old"] in source, task["old"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "broken_kernels.py")  # a file: Triton reads the source of functions
        path.write_text(source.replace(task["old"], task["new"]))
        spec = importlib.util.spec_from_file_location("broken_kernels", path)
        assert spec is not None and spec.loader is not None
        broken = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(broken)
        vars(launch)["kernels"] = broken
        try:
            return interpret.attend(task["task"])
        finally:
            vars(launch)["kernels"] = kernels
