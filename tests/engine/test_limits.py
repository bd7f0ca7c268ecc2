"""Limits that the environment sets, and what is said of values that are none."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.limits import limit


@pytest.mark.parametrize(("given", "value"), [("", 5), (" 7 ", 7), ("1", 1), ("10", 10)])
def test_a_setting_or_the_default(
    given: str, value: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GLASSBOX_SOME", given)
    assert limit("SOME", 5, most=10) == value and not caplog.records
    monkeypatch.delenv("GLASSBOX_SOME")
    assert limit("SOME", 5) == 5


@pytest.mark.parametrize("given", ["0", "-1", "11", "ten", "1.5", "²"])
def test_what_is_no_limit_is_said(
    given: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GLASSBOX_SOME", given)
    with caplog.at_level(logging.WARNING, "glassbox"):
        assert limit("SOME", 5, most=10) == 5
    assert "GLASSBOX_SOME" in caplog.text and "from 1 to 10; it stays at 5" in caplog.text


def test_each_limit_has_its_setting() -> None:
    """Read as the server starts."""
    wanted = {
        "MAX_ENGINES": "sessions.MAX_ENGINES",
        "MAX_SESSIONS": "sessions.MAX_SESSIONS",
        "IDLE_MINUTES": "sessions.IDLE_SECONDS // 60",
        "MAX_RECORDS": "trace.MAX_RECORDS",
        "MAX_REQUESTS": "admission.MAX_UNFINISHED",
        "MAX_TOKENS": "admission.MAX_TOKENS",
        "MAX_STEP_TOKENS": "engine_parts.MAX_STEP_TOKENS",
        "MAX_COMPARISONS": "comparisons.MAX_AT_ONCE",
        "MAX_BODY_MB": "guard.ANY_BODY.num_bytes >> 20",
        "MAX_TRACE_MB": "guard.BODIES['/api/export'].num_bytes >> 20",
        "MAX_MOMENT_MB": "guard.BODIES['/api/engine/restore'].num_bytes >> 20",
        "KEPT_MOMENTS_MB": "kept_moments.most_kept_bytes() >> 20",
    }
    environ = {f"GLASSBOX_{name}": str(number) for number, name in enumerate(wanted, start=11)}
    code = (
        "from engine import admission, engine_parts, kept_moments, sessions, trace\n"
        "from engine.api import guard\n"
        "from engine.comparison import comparisons\n"
        f"print({', '.join(wanted.values())})"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True
    )
    assert told.stdout.split() == list(environ.values()), told.stderr
    hosting = (Path(__file__).parents[2] / "docs/hosting/README.md").read_text()
    for name in environ:
        assert f"| `{name}` |" in hosting, name


def test_every_setting_is_known_here() -> None:
    """Who adds a limit adds it above, and to the page on hosting."""
    root = Path(__file__).parents[2] / "engine"
    asked = {
        name
        for file in root.rglob("*.py")
        for name in re.findall(r'limit\(\s*"(\w+)"', file.read_text("utf-8"))
    }
    here = Path(__file__).read_text("utf-8")
    assert asked and all(f'"{name}"' in here for name in asked), asked
