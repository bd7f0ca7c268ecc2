"""However something of this project is started, idle threads sleep instead of spinning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "first", ["app", "benchmarks.decode", "engine.model_loader", "lessons.stage"]
)
def test_the_wait_policy_is_set_before_torch_is_imported(first: str) -> None:
    code = (
        "import sys, os\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print('policy', os.environ.get('OMP_WAIT_POLICY'))\n"
        "            os._exit(0)\n"
        "sys.meta_path.insert(0, Watch())\n"
        f"import {first}\n"
        "print('policy', os.environ.get('OMP_WAIT_POLICY'))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["policy", "PASSIVE"], done.stderr
