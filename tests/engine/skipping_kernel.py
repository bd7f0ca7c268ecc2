"""A fault planted into the kernels, for the interpreter's process: the walk leaves a block out."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine.kernel_trace.interpret import interpret
from engine.paged_attention.triton import kernels, launch

WALK = "for step in range(first * PARTS, end * PARTS):"
SKIPPING = "for step in range(first * PARTS + PARTS, end * PARTS):"


def interpret_skipping(task: dict[str, Any]) -> dict[str, Any]:
    """`interpret` by kernels that begin their walk a block too late."""
    source = Path(kernels.__file__).read_text(encoding="utf-8")
    assert source.count(WALK) == 1, "the kernels' loop has changed: so must this fault"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "skipping_kernels.py"
        file.write_text(source.replace(WALK, SKIPPING), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("skipping_kernels", file)
        assert spec is not None and spec.loader is not None
        module = sys.modules["skipping_kernels"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        launch.kernels = module
        try:
            return interpret(task)
        finally:
            launch.kernels = kernels
