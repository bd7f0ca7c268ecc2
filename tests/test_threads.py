"""However something of this project is started, idle threads sleep instead of spinning on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def found_by_torch(first: str, **given: str) -> list[str]:
    """What both variables are when torch is imported, after `first` was asked for."""
    code = (
        "import sys, os\n"
        f"def tell(): print(*[os.environ.get(name) for name in {NAMES}], flush=True)\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            tell()\n"
        "            os._exit(0)\n"
        "sys.meta_path.insert(0, Watch())\n"
        f"import {first}\n"
        "tell()\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in NAMES} | given
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "first", ["app", "benchmarks.decode", "engine.model_loader", "lessons.stage"]
)
def test_the_wait_policy_is_set_before_torch_is_imported(first: str) -> None:
    assert found_by_torch(first) == ["PASSIVE", "1000"]


def test_who_says_how_to_wait_is_heard() -> None:
    assert found_by_torch("engine", GOMP_SPINCOUNT="5000") == ["PASSIVE", "5000"]
    assert found_by_torch("engine", OMP_WAIT_POLICY="ACTIVE") == ["ACTIVE", "None"]
