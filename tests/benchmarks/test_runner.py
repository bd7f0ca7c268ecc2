"""What the benchmarks' runner writes, says and returns. Nothing here is timed."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.harness.pairs import by_turns
from benchmarks.harness.table import number

ROOT = Path(__file__).resolve().parents[2]
FAKES = {"fakes": "tests.benchmarks.fakes"}
WITH_BROKEN = {**FAKES, "broken": "tests.benchmarks.broken"}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run."""
    folder = tmp_path_factory.mktemp("results")
    assert main(["--results", str(folder)], FAKES) == 0
    (path,) = folder.iterdir()
    return path


def read(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def test_the_file_says_what_was_found_and_whether_it_is_enough(result: Path) -> None:
    report = read(result)
    assert report["schema_version"] == 1 and report["quick"] is False
    (outcome,) = report["outcomes"]
    assert outcome["name"] == "fakes" and outcome["error"] == ""
    assert outcome["title"].startswith("A benchmark that measures nothing")
    walk, speed_up, count, flight = outcome["figures"]
    assert walk == {
        "name": "walk",
        "unit": "ms",
        "value": 3.0,
        "samples": 5,
        "median": 3.0,
        "quartiles": [2.0, 4.0],
        "goal": {"bound": "at most", "limit": 3.0},
        "note": "",
        "verdict": "met",
    }
    assert (speed_up["verdict"], speed_up["note"]) == ("missed", "too little")
    assert speed_up["quartiles"] == [1.5, 1.5]
    assert (count["verdict"], count["goal"], count["value"]) == ("none", None, 100.0)
    assert (flight["verdict"], flight["value"], flight["samples"]) == ("not measured", None, 0)


def test_the_file_says_on_which_machine_and_of_which_code(result: Path) -> None:
    report = read(result)
    machine = report["machine"]
    for name in ("cpu", "system", "python", "torch", "transformers", "streamlit"):
        assert machine[name], name
    assert machine["cores"] >= 1 and machine["threads"] >= 1 and machine["memory_bytes"] > 1e8
    assert {"commit", "chromium", "load"} <= machine.keys() and machine["yardstick_ms"] > 0
    assert report["started_at"][:2] == "20"


def test_a_benchmark_that_cannot_run_is_named_and_leaves_the_others_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--quick", "--results", str(tmp_path)], WITH_BROKEN) == 1
    (path,) = tmp_path.iterdir()
    fakes, broken = read(path)["outcomes"]
    assert fakes["error"] == "" and fakes["figures"][2]["value"] == 10.0
    assert broken["error"] == "RuntimeError: no browser is here" and broken["figures"] == []
    said = capfd.readouterr().out
    assert "could not run: RuntimeError: no browser is here" in said
    assert "1 of 3 goals met" in said and "missed: fakes, speed-up (>= 2)" in said
    assert "not measured: fakes, flight (<= 1)" in said


def test_only_what_is_named_runs_and_a_wrong_name_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fakes", "--results", str(tmp_path)], WITH_BROKEN) == 0
    with pytest.raises(SystemExit) as ended:
        main(["flight"], WITH_BROKEN)
    assert ended.value.code == 2
    assert "no benchmark is named 'flight'; there are fakes, broken" in capsys.readouterr().err


def test_two_runs_are_compared_figure_by_figure(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = read(result)
    walk = report["outcomes"][0]["figures"][0]
    walk.update(value=6.0, median=6.0, quartiles=[5.5, 6.5])
    report["machine"].update(cores=64, yardstick_ms=2 * report["machine"]["yardstick_ms"])
    after = tmp_path / "after.json"
    after.write_text(json.dumps(report))
    assert main(["--compare", str(result), str(after)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("  walk")]
    assert line.split() == ["walk", "ms", "3", "6", "2.00x", "apart"]
    assert any(line.startswith("beware: cores was") for line in lines)
    assert "beware: the machine was 2.00 times as slow then" in lines
    assert any(line.split() == ["flight", "s", "-", "-"] for line in lines)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 1}'])
def test_what_is_no_result_is_refused_in_a_line(
    text: str, result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(text)
    assert main(["--compare", str(result), str(wrong)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "wrong.json: not the result of a run" in said


def test_each_benchmark_is_there_and_explained() -> None:
    readme = (ROOT / "benchmarks" / "README.md").read_text()
    for name, module in BENCHMARKS.items():
        assert callable(importlib.import_module(module).measure)
        assert f"\n### {name}\n" in readme


def test_turns_alternate() -> None:
    order: list[str] = []
    pairs = by_turns(lambda: order.append("a") or 1, lambda: order.append("b") or 2, 3)
    assert "".join(order) == "abbaab" and pairs == [(1, 2)] * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1,234"),
        (123.4, "123"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.0, "0"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_have_the_digits_that_matter(value: float, text: str) -> None:
    assert number(value) == text
