"""The command line: exit status 0, 1 or 2, and never a traceback."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.views.document.samples import OURS, ROOT, SEED, text_of, with_value
from views.architecture import load_document, main
from views.document.diagnostics import has_errors


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "views.architecture", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def status(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return main([str(path)])


def test_no_errors_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SEED)]) == 0
    assert main([str(OURS)]) == 0
    assert "0 errors" in capsys.readouterr().out


def test_errors_are_1_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = with_value("connections", 0, "to", "nobody")
    assert status(tmp_path / "a.json", text_of(document).encode()) == 1
    assert "error id/unknown $.connections[0].to [nobody]" in capsys.readouterr().out


def test_what_cannot_be_read_is_2(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2
    assert main([str(tmp_path / "missing.json")]) == 2
    assert status(tmp_path / "latin1.json", b'{"a": "\xe4"}') == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_2(tmp_path: Path) -> None:
    path = tmp_path / "locked.json"
    path.write_text("{}", "utf-8")
    path.chmod(0)
    assert main([str(path)]) == 2


def test_a_file_without_permission_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert main([str(tmp_path / "locked.json")]) == 2


def test_the_module_runs_and_ends_with_its_status(tmp_path: Path) -> None:
    assert run(str(SEED)).returncode == 0
    assert run(str(tmp_path)).returncode == 2
    assert run().returncode == 2
    broken = tmp_path / "broken.json"
    broken.write_text('{"\\u00e4\\u2192": NaN}', "utf-8")
    result = run(str(broken))
    assert result.returncode == 1
    assert "Traceback" not in result.stdout + result.stderr


def test_a_terminal_that_is_not_utf8_gets_escapes(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text_of(with_value("components", 0, "→\udcff", 1)), "utf-8")
    assert run(str(path), PYTHONIOENCODING="ascii").returncode == 1
    path.write_text(text_of(with_value("components", 0, "→", 1)), "utf-8")
    result = run(str(path), PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (1, "")
    assert "\\u2192" in result.stdout


def judge(path: Path, data: bytes) -> None:
    """Run the command; a document that passes must also be drawable."""
    assert status(path, data) in (0, 1, 2)
    result = load_document(path)
    assert result.ok != has_errors(result.diagnostics)
    if result.ok:
        json.dumps(result.to_page(), allow_nan=False)


FUZZ = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)


@FUZZ
@given(data=st.binary())
def test_random_bytes_never_end_in_a_traceback(tmp_path: Path, data: bytes) -> None:
    judge(tmp_path / "fuzz.json", data)


@FUZZ
@given(value=VALUES)
def test_random_json_never_ends_in_a_traceback(tmp_path: Path, value: Any) -> None:
    judge(tmp_path / "fuzz.json", json.dumps(value).encode())


def places(value: Any, location: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the location of everything inside a value."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    found = [location] if location else []
    for key, child in items:
        found += places(child, (*location, key))
    return found


DOCUMENTS = [json.loads(path.read_text("utf-8")) for path in (SEED, OURS)]
NUMBERS = st.sampled_from([0, -1, 1, 0.5, 7, 300, 9e3, 4e4, -4e4, 1e5, 1e308, 10**400])


@FUZZ
@given(data=st.data())
def test_a_mutated_document_never_ends_in_a_traceback(tmp_path: Path, data: Any) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    for _ in range(data.draw(st.integers(1, 4))):
        *parents, last = data.draw(st.sampled_from(places(document)))
        place = document
        for step in parents:
            place = place[step]
        other = data.draw(st.sampled_from(places(document)))
        change = data.draw(st.sampled_from(["drop", "number", "value", "copy", "rename"]))
        if change == "drop":
            del place[last]
        elif change == "rename" and isinstance(place, dict):
            place[data.draw(st.text())] = place.pop(last)
        elif change == "copy":
            moved: Any = copy.deepcopy(document)
            for step in other:
                moved = moved[step]
            place[last] = moved
        else:
            place[last] = data.draw(NUMBERS if change == "number" else VALUES)
        if not places(document):
            break
    judge(tmp_path / "fuzz.json", json.dumps(document).encode("utf-8", "surrogatepass"))


@FUZZ
@given(data=st.data())
def test_a_cut_document_never_ends_in_a_traceback(tmp_path: Path, data: Any) -> None:
    text = SEED.read_bytes()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    judge(tmp_path / "fuzz.json", text[:start] + data.draw(st.binary(max_size=4)) + text[end:])
