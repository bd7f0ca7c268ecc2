"""Scheduling ahead of the tokens: the rules one by one, and what must hold on any workload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from engine.conformance import (
    EOS_TOKEN_ID,
    AsyncConformance,
    Conformance,
    Workload,
    WorkloadError,
    load_workload,
)
from engine.events import BatchScheduled, RequestPassedOver, TokenDropped
from engine.reasons import LastTokenInFlight, ModelLengthReached, MovedUp, Reason, ResetRequested
from engine.records import Event
from engine.request import RequestStatus
from tests.engine.watch import Watch
from tests.engine.workloads import ASYNC_FOLDER, RECORDED_ASYNC, workload_path, workloads

CONFIG = {"block_size": 2, "num_gpu_blocks": 12, "max_model_len": 20, "max_num_seqs": 4}
REQUEST: dict[str, Any] = {"id": "a", "prompt_token_ids": [1, 2, 3], "max_tokens": 4}


def drive(
    *requests: dict[str, Any], reset_at: int | None = None, **config: Any
) -> AsyncConformance:
    """A driver of these requests, with a reset of the cache in cycle `reset_at`."""
    config = {**CONFIG, **config, "async_scheduling": True}
    workload: dict[str, Any] = {"name": "w", "config": config, "requests": requests}
    if reset_at is not None:
        reset = {"step": reset_at, "op": "reset_prefix_cache", "reset_running_requests": True}
        workload["actions"] = [reset]
    return AsyncConformance(Workload.model_validate(workload))


def events(driver: AsyncConformance, kind: type[Any]) -> list[tuple[Any, Reason | None]]:
    return [
        (record.facts, record.reason)
        for record in driver.trace.records
        if isinstance(record, Event) and isinstance(record.facts, kind)
    ]


def watch(driver: AsyncConformance) -> None:
    Watch(driver.trace, driver.scheduler, driver.core.state)


# --- the rules ---------------------------------------------------------------------------------


def test_a_token_in_flight_has_a_placeholder() -> None:
    driver = drive(REQUEST)
    list(driver.cycle(0))
    request = driver.requests["a"]
    assert request.num_output_placeholders == 1
    lines = list(driver.cycle(1))
    assert [line["placeholders"] for line in lines] == [{"a": 2}, {"a": 1}]
    assert driver.core.state()["requests"]["a"]["num_output_placeholders"] == 1
    assert request.num_computed_tokens == 4  # one of them not known yet
    batches = [facts for facts, _ in events(driver, BatchScheduled)]
    assert [(batch.prefill_tokens, batch.decode_tokens) for batch in batches] == [(3, 0), (0, 1)]


def test_a_chunk_of_a_prompt_has_none() -> None:
    driver = drive(REQUEST, max_num_batched_tokens=2)
    (first,) = [line for line in driver.cycle(0) if line["kind"] == "schedule"]
    second, update = driver.cycle(1)
    assert "placeholders" not in first and second["placeholders"] == {"a": 1}
    assert "sampled" not in update


def test_the_end_by_max_tokens_is_foreseen() -> None:
    driver = drive(REQUEST)
    lines = list(driver.steps())
    assert events(driver, RequestPassedOver) == [
        (RequestPassedOver("a", 0), LastTokenInFlight(max_tokens=4))
    ]
    assert sum(line.get("total_tokens", 0) for line in lines) == 3 + 3
    assert driver.dropped == {}


def test_whose_end_is_foreseen_holds_nobody_up() -> None:
    driver = drive(REQUEST, {**REQUEST, "id": "b"}, max_num_batched_tokens=12)
    list(driver.steps())
    passed = [facts for facts, _ in events(driver, RequestPassedOver)]
    assert passed == [RequestPassedOver("a", behind=0), RequestPassedOver("b", behind=0)]


def test_the_end_of_the_models_length_is_foreseen() -> None:
    driver = drive({**REQUEST, "max_tokens": 50}, max_model_len=6)
    list(driver.steps())
    assert driver.requests["a"].num_tokens == 6
    assert {reason for _, reason in events(driver, RequestPassedOver)} == {ModelLengthReached(6)}
    assert driver.dropped == {}


def test_min_tokens_beyond_the_models_length_end_with_length() -> None:
    driver = drive({**REQUEST, "max_tokens": 50, "min_tokens": 50}, max_model_len=6)
    list(driver.steps())
    assert driver.requests["a"].finish_reason == "length"


def test_what_was_scheduled_behind_an_eos_is_dropped() -> None:
    driver = drive({**REQUEST, "eos_at": 2})
    list(driver.steps())
    request = driver.requests["a"]
    assert request.output_token_ids[1:] == [EOS_TOKEN_ID]
    token = driver.sampler.token("a", 3)
    assert events(driver, TokenDropped) == [(TokenDropped("a", token), None)]
    assert request.num_output_placeholders == 0
    assert driver.pool.get_num_free_blocks() == len(driver.pool.blocks) - 1


def test_a_reset_makes_tokens_in_flight_void() -> None:
    driver = drive(REQUEST, reset_at=2)
    lines = driver.steps()
    reset = next(line for line in lines if "actions" in line)
    assert reset["discard"] == {"a": 1} and "placeholders" not in reset
    assert driver.core.state()["requests"]["a"]["async_tokens_to_discard"] == 1
    list(lines)
    token = driver.sampler.token("a", 2)
    assert events(driver, TokenDropped) == [(TokenDropped("a", token), ResetRequested())]
    request = driver.requests["a"]
    assert request.output_token_ids == [driver.sampler.token("a", n) for n in range(1, 5)]


def test_a_preempted_requests_token_still_comes_and_may_end_it() -> None:
    other = {"id": "b", "prompt_token_ids": [4, 5], "max_tokens": 9, "eos_at": 2}
    driver = drive({**REQUEST, "max_tokens": 9}, other, num_gpu_blocks=5)
    for cycle in range(10):
        lines = list(driver.cycle(cycle))
        preempted = any("b" in line.get("preempted", ()) for line in lines)
        if preempted:
            break
    assert preempted and lines[-1]["finished"] == [["b", "stop", None]]
    assert driver.requests["b"].output_token_ids[-1] == EOS_TOKEN_ID
    assert driver.requests["b"].status is RequestStatus.FINISHED
    assert not driver.scheduler.waiting


def test_the_place_of_a_victim_that_got_nothing_is_skipped() -> None:
    """vLLM walks the running list by number, and makes up for a victim only if it had tokens."""
    later = {"arrival_step": 1, "max_tokens": 9, "prompt_token_ids": [4, 5]}
    others = [{**later, "id": name} for name in ("asker", "skipped", "asked")]
    last = {**REQUEST, "prompt_token_ids": [1, 2, 3, 6], "priority": 1}
    driver = drive(last, *others, policy="priority", num_gpu_blocks=11, enable_prefix_caching=False)
    list(driver.steps())
    assert [e for e in events(driver, RequestPassedOver) if e[1] == MovedUp("a")] == [
        (RequestPassedOver("skipped", behind=0), MovedUp("a"))
    ]


def test_an_update_caches_what_is_known_to_be_computed() -> None:
    driver = drive({**REQUEST, "max_tokens": 3})  # 3 + 3 tokens, 5 of them computed: 2 full blocks
    lines = list(driver.steps())
    hashed = [(line["kind"], line["cycle"]) for line in lines if line.get("hashed")]
    assert hashed == [("schedule", 0), ("schedule", 2)]
    driver = drive({**REQUEST, "max_tokens": 2})  # the second block is full as the last token comes
    hashed = [(line["kind"], line["cycle"]) for line in driver.steps() if line.get("hashed")]
    assert hashed == [("schedule", 0), ("update", 2)]


# --- on any workload ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDED_ASYNC)
def test_the_fold_is_the_state_on_every_recorded_workload(name: str) -> None:
    driver = AsyncConformance(load_workload(workload_path(name, ASYNC_FOLDER))[0])
    watch(driver)
    assert sum(1 for _ in driver.steps()) > 1


def asynchronous(workload: Workload) -> Workload:
    config = workload.config.model_copy(update={"async_scheduling": True})
    return workload.model_copy(update={"config": config})


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads())
def test_the_fold_is_the_state_and_nothing_leaks(workload: Workload) -> None:
    driver = AsyncConformance(asynchronous(workload))
    watch(driver)
    try:
        list(driver.steps())
    except WorkloadError as error:
        assume("awaits no output" not in str(error))
        raise
    assert driver.pool.get_num_free_blocks() == len(driver.pool.blocks) - 1
    assert not driver.scheduler.requests and not driver.scheduler.finished_req_ids
    assert all(request.finish_reason for request in driver.requests.values())
    assert not any(request.num_output_placeholders for request in driver.requests.values())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads())
def test_the_output_is_that_of_synchronous_scheduling(workload: Workload) -> None:
    requests = [spec.model_copy(update={"abort_step": None}) for spec in workload.requests]
    workload = workload.model_copy(update={"requests": requests})
    synchronous, driver = Conformance(workload), AsyncConformance(asynchronous(workload))
    list(synchronous.steps())
    list(driver.steps())
    for key, request in synchronous.requests.items():
        other = driver.requests[key]
        assert other.all_token_ids == request.all_token_ids
        assert other.finish_reason == request.finish_reason
        assert other.stop_reason == request.stop_reason
