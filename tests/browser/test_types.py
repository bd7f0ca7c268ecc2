"""The types of the page's modules hold, where the TypeScript compiler is there to say so.

The page has no build step and needs no Node; `// @ts-check` is held to here and in editors.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ASSETS = Path(__file__).parents[2] / "views" / "assets"
# The bootstrap is a component's script, without imports of its own.
MODULES = [p for p in sorted(ASSETS.rglob("*.js")) if p.name != "bootstrap.js"]


def compiler() -> list[str] | None:
    """The command that runs an installed compiler; nothing is fetched."""
    if shutil.which("tsc"):
        return ["tsc"]
    if not shutil.which("npx"):
        return None
    command = ["npx", "--no-install", "tsc"]
    found = subprocess.run([*command, "--version"], cwd=ASSETS, capture_output=True, text=True)
    return command if found.returncode == 0 and found.stdout.startswith("Version") else None


def test_every_module_passes_the_type_check() -> None:
    command = compiler()
    if command is None:
        pytest.skip("no TypeScript compiler is installed (npm install --global typescript)")
    done = subprocess.run(
        [*command, "--project", "jsconfig.json"], cwd=ASSETS, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_every_module_asks_for_the_type_check_and_keeps_to_the_line_length() -> None:
    for path in MODULES:
        lines = path.read_text().splitlines()
        assert lines[0] == "// @ts-check", path
        long = [number for number, line in enumerate(lines, 1) if len(line) > 100]
        assert long == [], path
