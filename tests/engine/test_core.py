"""A step as phases: the fold of the log is the state, and the step can be taken back midway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from engine.conformance import Conformance, Workload, driver_of, load_workload
from engine.core import EngineCore
from engine.events import BlocksUncached, RequestPreempted, TokenDropped
from engine.reasons import UncomputedDependency
from engine.records import Event, Patch, Phase
from engine.trace import TraceError, check_patch
from tests.engine.watch import Watch
from tests.engine.workloads import (
    RECORDED,
    RECORDED_SPEC,
    SPEC_FOLDER,
    drafted_workloads,
    workload_path,
    workloads,
)


def watch(core: EngineCore) -> None:
    Watch.of(core)


@pytest.mark.parametrize(
    "path",
    [workload_path(name) for name in RECORDED]
    + [workload_path(name, SPEC_FOLDER) for name in RECORDED_SPEC],
    ids=lambda path: path.stem,
)
def test_the_fold_is_the_state_on_every_recorded_workload(path: Path) -> None:
    conformance = driver_of(load_workload(path)[0])
    watch(conformance.core)
    assert sum(1 for _ in conformance.steps()) > 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads() | drafted_workloads())
def test_the_fold_is_the_state_and_nothing_leaks(workload: Workload) -> None:
    conformance = driver_of(workload)
    watch(conformance.core)
    list(conformance.steps())
    assert conformance.pool.get_num_free_blocks() == len(conformance.pool.blocks) - 1
    assert all(request.finish_reason for request in conformance.requests.values())


def test_a_snapshot_that_poses_as_a_patch_is_refused() -> None:
    conformance = Conformance(load_workload(workload_path("01-single"))[0])
    state = conformance.core.state()
    with pytest.raises(TraceError, match="which it was before"):
        check_patch(state, conformance.core.state())


def test_a_patch_follows_what_happened_and_not_the_pool() -> None:
    sizes = []
    for num_gpu_blocks in (64, 4096):
        workload = load_workload(workload_path("01-single"))[0]
        workload.config.num_gpu_blocks = num_gpu_blocks
        conformance = Conformance(workload)
        list(conformance.steps())
        records = conformance.trace.records
        sizes.append(sum(len(str(r.changes)) for r in records if isinstance(r, Patch)))
    assert sizes[1] < sizes[0] * 1.1  # a few more digits in the block ids


def two_requests(same_prefix: bool = False, **config: Any) -> Conformance:
    first = list(range(10, 19))
    second = first if same_prefix else list(range(50, 59))
    workload = {
        "name": "two",
        "config": {"block_size": 4, "num_gpu_blocks": 32, **config},
        "requests": [
            {"id": "a", "prompt_token_ids": first, "max_tokens": 4},
            {"id": "b", "prompt_token_ids": second, "max_tokens": 4},
        ],
    }
    conformance = Conformance(Workload.model_validate(workload))
    watch(conformance.core)
    conformance._add(0)
    return conformance


def run_to(core: EngineCore, phase: Phase) -> None:
    while core.next_phase is not phase:
        core.step_phase()


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.EXECUTE])
def test_an_abort_before_the_forward_takes_the_request_out_of_it(phase: Phase) -> None:
    conformance = two_requests()
    core = conformance.core
    dropped: list[set[str]] = []
    core.runner.drop_requests = dropped.append  # type: ignore[method-assign]
    run_to(core, phase)
    assert core.abort_requests(["a"]) == ["a"]
    assert [entry.request_id for entry in core.scheduler_output.scheduled] == ["b"]
    assert core.scheduler_output.total_num_scheduled_tokens == 9
    assert dropped == ([] if phase is Phase.PREPARE else [{"a"}])
    # What was to be computed for it is not promised to anybody.
    assert any(isinstance(e.facts, BlocksUncached) for e in events(core))
    assert all(block.block_hash is None for block in core_free_blocks(core))


def core_free_blocks(core: EngineCore) -> list[Any]:
    return list(core.scheduler.kv_cache_manager.block_pool.free_block_queue)


def events(core: EngineCore) -> list[Event]:
    return [record for record in core.trace.records if isinstance(record, Event)]


def test_who_built_on_an_aborted_request_is_computed_again() -> None:
    conformance = two_requests(same_prefix=True)
    core = conformance.core
    run_to(core, Phase.EXECUTE)
    assert core.scheduler_output.scheduled[1].hit_block_ids == (1, 2)  # filled by `a` in this step
    core.abort_requests(["a"])
    assert core.scheduler_output.scheduled == ()
    preempted = [e for e in events(core) if isinstance(e.facts, RequestPreempted)]
    assert [e.facts.request for e in preempted] == ["b"]
    assert preempted[0].reason == UncomputedDependency(1)
    core.step()
    core.step()
    assert conformance.requests["b"].num_output_tokens == 1
    assert conformance.requests["b"].hit_tokens == 0


@pytest.mark.parametrize("phase", [Phase.SAMPLE, Phase.UPDATE])
def test_an_abort_after_the_forward_loses_the_token_only(phase: Phase) -> None:
    conformance = two_requests()
    core = conformance.core
    run_to(core, phase)
    core.abort_requests(["a"])
    core.step()
    assert [e.facts.request for e in events(core) if isinstance(e.facts, TokenDropped)] == ["a"]
    assert conformance.requests["a"].num_output_tokens == 0
    assert conformance.requests["b"].num_output_tokens == 1
    assert conformance.pool.cached  # it was computed, so it stays cached


def test_an_abort_at_the_door() -> None:
    conformance = two_requests()
    core = conformance.core
    assert core.abort_requests(["a", "unknown", "a"]) == ["a"]  # who is named twice ends once
    core.step()
    assert list(core.scheduler.requests) == ["b"]
    assert core.state()["requests"]["a"]["finish_reason"] == "abort"
    assert core.state()["counters"]["requests_finished"] == 1


def test_reset_in_mid_step_drops_the_step() -> None:
    conformance = two_requests()
    core = conformance.core
    run_to(core, Phase.UPDATE)
    assert core.reset_prefix_cache() is False
    assert core.reset_prefix_cache(reset_running_requests=True) is True
    core.step()
    assert [r.num_output_tokens for r in conformance.requests.values()] == [0, 0]
    core.step()
    assert [r.num_output_tokens for r in conformance.requests.values()] == [1, 1]


def test_has_work_counts_the_step_that_reports_the_end() -> None:
    conformance = two_requests()
    core = conformance.core
    assert core.has_work()
    steps = 0
    while core.has_work():
        core.step()
        steps += 1
    assert steps == 5  # four tokens, and the empty step that reports the finished ids
