"""The recorded workloads reproduce in every field."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.conformance import Conformance, WorkloadError, load_workload, run
from engine.reasons import LastRunning, Reason
from engine.request import Request
from engine.scheduler import Scheduler
from tests.engine.conformance_rules import RULES, difference
from tests.engine.workloads import (
    ASYNC_FOLDER,
    FOLDER,
    RECORDED,
    RECORDED_ASYNC,
    RECORDED_SPEC,
    SPEC_FOLDER,
    workload_path,
)


def recorded_lines(name: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "traces" / f"{name}.jsonl").open()]


def first_difference(name: str, folder: Path = FOLDER) -> str | None:
    """Where our trace of a workload leaves the recorded one, and the rule that this breaks."""
    recorded = recorded_lines(name, folder)
    ours = [json.loads(json.dumps(line)) for line in run(workload_path(name, folder))]
    for line in (recorded[0], ours[0]):
        line.pop("engine")
    return difference(recorded, ours)


@pytest.mark.parametrize("name", RECORDED)
def test_every_field_is_as_recorded(name: str) -> None:
    assert (found := first_difference(name)) is None, found


@pytest.mark.parametrize("name", RECORDED_ASYNC)
def test_every_field_is_as_recorded_with_async_scheduling(name: str) -> None:
    assert (found := first_difference(name, ASYNC_FOLDER)) is None, found


@pytest.mark.parametrize("name", RECORDED_SPEC)
def test_every_field_is_as_recorded_with_drafts(name: str) -> None:
    assert (found := first_difference(name, SPEC_FOLDER)) is None, found


def test_a_difference_is_told_with_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_of(scheduler: Scheduler) -> tuple[Request, Reason]:
        assert scheduler.running.head is not None
        return scheduler.running.head, LastRunning(len(scheduler.running))

    monkeypatch.setattr(Scheduler, "_choose_victim", first_of)
    found = first_difference("09-preempt-recompute")
    assert found is not None and "field preempted.0: expected 'r" in found
    assert "rule: who runs and finds no blocks preempts: under fcfs the last" in found


def test_every_recorded_field_has_its_rule() -> None:
    def names(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(names, value))
        return set(value).union(*map(names, value.values())) if isinstance(value, dict) else set()

    lines = [line for name in RECORDED for line in recorded_lines(name)]
    lines += [line for name in RECORDED_ASYNC for line in recorded_lines(name, ASYNC_FOLDER)]
    lines += [line for name in RECORDED_SPEC for line in recorded_lines(name, SPEC_FOLDER)]
    by_id = ("config", "requests", "sampled", "placeholders", "discard")  # keys that are no fields
    by_id += ("computed", "proposed")
    for line in lines:
        for key in by_id:
            line.pop(key, None)
    assert {*by_id, "output_tokens", *names(lines)} - set(RULES) <= {"engine"}


def test_uncomputed_blocks_leave_the_cache_by_default() -> None:
    """vLLM 0.26.0 keeps them: the recorded trace has them among the hashed ones."""
    assert EngineConfig().cache_uncomputed_blocks is False
    name = "27-priority-victim-in-step"
    workload, _ = load_workload(workload_path(name))
    ours = list(Conformance(workload, cache_uncomputed_blocks=False).steps())
    found = difference(recorded_lines(name)[1:-1], ours)
    assert found is not None and "field hashed" in found


def test_the_command_prints_json_lines() -> None:
    command = [sys.executable, "-m", "engine.conformance", str(workload_path("01-single"))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert json.loads(lines[0])["trace_schema"] == 1
    assert json.loads(lines[-1])["end"] is True


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"config": {"block_sise": 4}}, "config.block_sise"),
        ({"requests": []}, "requests"),
        ({"config": {"num_gpu_blocks": 1}}, "config.num_gpu_blocks"),
        ({"config": {"watermark": float("nan")}}, "config.watermark: must be less than 1"),
        ({"config": None}, "config: "),
        ({"config": {"async_scheduling": True, "num_speculative_tokens": 1}}, "config: drafts are"),
        ({"config": {"spec_method": "eagle"}}, "config: spec_method says nothing without"),
        ({"config": {"num_speculative_tokens": 0}}, "num_speculative_tokens: must be 1 or more"),
        (
            {"actions": [{"step": 10**9, "op": "reset_prefix_cache"}]},
            "actions.0.step: must be less",
        ),
        ({"requests": [{"id": "a", "prompt_token_ids": [1]}]}, "requests.0.max_tokens"),
        (
            {"requests": [{"id": "a", "prompt_token_ids": [1] * 300, "max_tokens": 1}]},
            "requests.0.prompt_token_ids: 300 tokens",
        ),
    ],
)
def test_a_wrong_workload_is_named_with_its_path(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    workload = {"name": "w", "requests": [{"id": "a", "prompt_token_ids": [1], "max_tokens": 1}]}
    path = tmp_path / "w.json"
    path.write_text(json.dumps({**workload, **change}))
    with pytest.raises(WorkloadError, match=named):
        load_workload(path)


def test_a_wrong_workload_ends_the_command_with_2(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text("{")
    command = [sys.executable, "-m", "engine.conformance", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "w.json" in done.stderr


def write_workload(path: Path, config: dict[str, Any], **request: Any) -> Path:
    asked = {"id": "a", "prompt_token_ids": [1], "max_tokens": 1, **request}
    path.write_text(json.dumps({"name": "w", "config": config, "requests": [asked]}))
    return path


@pytest.mark.parametrize(
    ("request_fields", "named"),
    [
        ({"stop_at": 1}, "requests.0: .*stop_at needs stop_token_ids"),
        ({"prompt_token_ids": [2**64]}, "requests.0.prompt_token_ids.0: must be less than"),
        ({"stop_token_ids": [2**64]}, "requests.0.stop_token_ids.0: must be less than"),
        ({"min_tokens": -1}, "requests.0.min_tokens: must be 0 or more"),
        ({"max_tokens": float("nan")}, "requests.0.max_tokens: must be a number"),
        ({"arrival_time": float("inf")}, "requests.0.arrival_time: must be a number"),
        ({"arrival_step": 2**62}, "requests.0.arrival_step: must be less than 100000"),
        ({"abort_step": -1}, "requests.0.abort_step: must be 0 or more"),
        ({"id": "\ud800"}, "value: invalid JSON"),
        ({"min_tokens": 2}, "requests.0.min_tokens: 2 is more than max_tokens"),
        ({"stop_token_ids": list(range(65))}, "requests.0.stop_token_ids: must have 64 at most"),
    ],
)
def test_a_wrong_request_is_named_with_its_path(
    tmp_path: Path, request_fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(WorkloadError, match=named):
        load_workload(write_workload(tmp_path / "w.json", {}, **request_fields))


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("reserve", [True, False])  # never admitted; admitted again and again
def test_a_request_that_never_ends_is_told_soon(
    tmp_path: Path, reserve: bool, async_scheduling: bool
) -> None:
    config = {"num_gpu_blocks": 3, "scheduler_reserve_full_isl": reserve, "max_model_len": 100}
    config["max_num_batched_tokens"] = 16
    config["async_scheduling"] = async_scheduling
    path = write_workload(tmp_path / "w.json", config, prompt_token_ids=[1] * 90)
    lines: list[dict[str, Any]] = []
    with pytest.raises(WorkloadError, match=r"w\.json: .*cannot hold a; raise config.num_gpu"):
        for line in run(path):
            lines.append(line)
    calls = 2 if async_scheduling else 1  # a step has one line, a cycle one for each call
    assert len(lines) <= calls * (3 if reserve else 104)


def test_an_abort_while_nothing_is_awaited_is_named(tmp_path: Path) -> None:
    config = {"async_scheduling": True}
    path = write_workload(tmp_path / "w.json", config, abort_step=0, abort_phase="during")
    with pytest.raises(WorkloadError, match=r"w\.json: requests.0.abort_phase: cycle 0 awaits no"):
        list(run(path))


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    command = [sys.executable, "-m", "engine.conformance", str(workload_path("01-single"))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 1
