"""Each decision carries its reason with the numbers behind it."""

from __future__ import annotations

import hashlib
from array import array
from typing import Any

import pytest

from engine.conformance import EOS_TOKEN_ID, Conformance, Workload, load_workload
from engine.events import (
    AdmissionStopped,
    AllocationFailed,
    BatchScheduled,
    BlockEvicted,
    BlocksAllocated,
    BlocksHit,
    BlocksLeftUncomputed,
    BlocksUncached,
    PrefixLookedUp,
    RequestArrived,
    RequestFinished,
    RequestPassedOver,
    RequestPreempted,
    RequestScheduled,
)
from engine.outputs import ModelRunnerOutput, TokenLogprobs
from engine.reasons import (
    BlockNotFull,
    BudgetLeft,
    BudgetSpent,
    ChunkingOff,
    DoesNotFit,
    FirstMiss,
    Fits,
    FreeQueueHead,
    LastRunning,
    LastTokenNeeded,
    LongPrefillThreshold,
    LowestPriority,
    MaxTokensReached,
    ModelLengthReached,
    NeverComputed,
    PreemptedThisStep,
    Reason,
    SeatsFull,
    WholeRequest,
)
from engine.records import Event
from tests.engine.workloads import workload_path

REQUEST = {"id": "r0", "prompt_token_ids": [5, 6, 7], "max_tokens": 9}


def run(requests: list[dict[str, Any]], **config: Any) -> Conformance:
    for index, spec in enumerate(requests):
        spec.setdefault("id", f"r{index}")
        spec.setdefault("max_tokens", 2)
        if isinstance(spec.get("prompt_token_ids"), int):
            length = spec["prompt_token_ids"]
            spec["prompt_token_ids"] = [1000 * index + n for n in range(length)]
    workload = {"name": "w", "config": {"block_size": 4, **config}, "requests": requests}
    conformance = Conformance(Workload.model_validate(workload))
    list(conformance.steps())
    return conformance


def reasons(conformance: Conformance, kind: type[Any]) -> list[tuple[str, Reason | None]]:
    return [
        (record.facts.request, record.reason)
        for record in conformance.trace.records
        if isinstance(record, Event) and isinstance(record.facts, kind)
    ]


def hash_of(tokens: list[int], block: int, block_size: int = 4) -> str:
    """The hash of a logical block, as the log shows it."""
    digest = b""
    for start in range(0, (block + 1) * block_size, block_size):
        content = array("q", tokens[start : start + block_size]).tobytes()
        digest = hashlib.sha256(digest + content).digest()
    return digest[:8].hex()


def test_chunked_by_the_budget() -> None:
    done = run([{"prompt_token_ids": 20}], max_num_batched_tokens=16)
    assert reasons(done, RequestScheduled)[:2] == [
        ("r0", BudgetLeft(20, 16)),
        ("r0", WholeRequest(4)),
    ]


def test_chunked_by_the_threshold() -> None:
    done = run([{"prompt_token_ids": 20}], long_prefill_token_threshold=12)
    assert reasons(done, RequestScheduled)[0] == ("r0", LongPrefillThreshold(20, 12))


def test_kept_waiting_by_the_seats() -> None:
    done = run([{"prompt_token_ids": 3}, {"prompt_token_ids": 3}], max_num_seqs=1)
    assert ("r1", SeatsFull(1, 1)) in reasons(done, AdmissionStopped)


def test_kept_waiting_by_the_budget() -> None:
    done = run([{"prompt_token_ids": 8}, {"prompt_token_ids": 8}], max_num_batched_tokens=8)
    assert reasons(done, AdmissionStopped)[0] == ("r1", BudgetSpent(8))


def test_kept_waiting_with_chunking_off() -> None:
    done = run(
        [{"prompt_token_ids": 8}, {"prompt_token_ids": 20}],
        max_num_batched_tokens=24,
        enable_chunked_prefill=False,
    )
    assert reasons(done, AdmissionStopped)[0] == ("r1", ChunkingOff(20, 16))


def test_kept_waiting_by_the_pool() -> None:
    done = run([{"prompt_token_ids": 8}, {"prompt_token_ids": 20}], num_gpu_blocks=7)
    assert reasons(done, AllocationFailed)[0] == ("r1", DoesNotFit(5, 4, 0))
    assert reasons(done, AdmissionStopped)[0] == ("r1", DoesNotFit(5, 4, 0))


def test_the_watermark_counts_only_beside_others() -> None:
    done = run([{"prompt_token_ids": 8}, {"prompt_token_ids": 8}], num_gpu_blocks=10, watermark=0.6)
    assert reasons(done, AllocationFailed)[0] == ("r1", DoesNotFit(2, 7, 6))


def test_preempted_as_the_last_running() -> None:
    requests = [{"prompt_token_ids": 8, "max_tokens": 8} for _ in range(3)]
    requests[2] |= {"arrival_step": 1, "prompt_token_ids": 3}
    done = run(requests, num_gpu_blocks=6)
    victim = reasons(done, RequestPreempted)[0]
    assert victim == ("r1", LastRunning(2))
    assert ("r1", PreemptedThisStep(1)) in reasons(done, AdmissionStopped)


def test_preempted_as_the_lowest_in_priority_gives_its_tokens_back() -> None:
    done = run(
        [
            {"prompt_token_ids": 8, "max_tokens": 8, "priority": 5},
            {"prompt_token_ids": 8, "max_tokens": 8},
        ],
        num_gpu_blocks=6,
        policy="priority",
    )
    assert ("r0", LowestPriority(5, 2, 1)) in reasons(done, RequestPreempted)


@pytest.mark.parametrize(("policy", "ahead"), [("fcfs", [0, 1, 2, 3]), ("priority", [0, 0, 1, 1])])
def test_who_joins_the_queue_tells_how_many_are_ahead(policy: str, ahead: list[int]) -> None:
    requests = [{"prompt_token_ids": 4, "priority": p} for p in (3, 1, 2, 1)]
    done = run(requests, num_gpu_blocks=9, max_num_seqs=1, policy=policy)
    facts = [r.facts for r in done.trace.records if isinstance(r, Event)]
    assert [f.ahead for f in facts if isinstance(f, RequestArrived)] == ahead


def test_a_victim_tells_how_many_wait_ahead_of_it() -> None:
    def victims(policy: str) -> list[tuple[str, int]]:
        requests = [{"prompt_token_ids": 8, "max_tokens": 8, "priority": p} for p in (1, 2, 0)]
        requests[2] |= {"arrival_step": 2, "prompt_token_ids": 12}
        done = run(requests, num_gpu_blocks=7, max_num_seqs=2, policy=policy)
        facts = [r.facts for r in done.trace.records if isinstance(r, Event)]
        return [(f.request, f.ahead) for f in facts if isinstance(f, RequestPreempted)]

    assert victims("fcfs")[0] == ("r1", 0)
    assert victims("priority")[0] == ("r1", 1)  # behind r2, which is more urgent and has no seat


def test_of_equal_priority_the_one_that_arrived_last_is_preempted() -> None:
    requests = [{"prompt_token_ids": 8, "max_tokens": 8, "priority": p} for p in (0, 1, 1)]
    done = run(requests, num_gpu_blocks=8, policy="priority")
    facts = [r.facts for r in done.trace.records if isinstance(r, Event)]
    victims = [f for f in facts if isinstance(f, RequestPreempted)]
    assert victims[0] == RequestPreempted("r2", "r1", 1, 0, 8, 0)
    assert reasons(done, RequestPreempted)[0] == ("r2", LowestPriority(1, 3, 2))


def test_content_that_a_victim_will_not_compute_is_dropped_with_the_reason() -> None:
    workload, _ = load_workload(workload_path("27-priority-victim-in-step"))
    done = Conformance(workload, cache_uncomputed_blocks=False)
    list(done.steps())
    preempted = [r.facts for r in done.trace.records if isinstance(r, Event)]
    computed = next(f.num_computed_tokens for f in preempted if isinstance(f, RequestPreempted))
    assert reasons(done, BlocksUncached) == [("low", NeverComputed(computed))]


def test_blocks_left_uncomputed_are_told_of_until_they_go() -> None:
    """A victim's tokens of this step are taken back; the blocks they would have filled stay."""
    workload = load_workload(workload_path("27-priority-victim-in-step"))[0]
    conformance = Conformance(workload)
    uncomputed: list[set[str]] = []
    for _ in conformance.steps():
        blocks = conformance.core.state()["blocks"]
        uncomputed.append({key for key, block in blocks.items() if block.get("uncomputed")})
    facts = [r.facts for r in conformance.trace.records if isinstance(r, Event)]
    left = [f for f in facts if isinstance(f, BlocksLeftUncomputed)]
    hits = [f for f in facts if isinstance(f, BlocksHit)]
    assert left == [BlocksLeftUncomputed("low", hits[0].uncomputed)] and hits[0].uncomputed
    assert not uncomputed[0] and set(map(str, left[0].blocks)) in uncomputed
    pool = conformance.pool
    pool.get_new_blocks(pool.get_num_free_blocks(), "other")
    assert not any(block.uncomputed for block in pool.blocks)


def test_the_prefix_walk_says_where_it_ended() -> None:
    same = list(range(9))
    other = same[:4] + [77] * 8
    done = run(
        [
            {"prompt_token_ids": same},
            {"prompt_token_ids": same, "arrival_step": 1},
            {"prompt_token_ids": other, "arrival_step": 2},
            {"prompt_token_ids": same[:8], "arrival_step": 3},
        ]
    )
    assert reasons(done, PrefixLookedUp) == [
        ("r0", FirstMiss(0, hash_of(same, 0))),
        ("r1", BlockNotFull(2, 1)),
        ("r2", FirstMiss(1, hash_of(other, 1))),
        ("r3", LastTokenNeeded(4)),
    ]


def test_blocks_are_given_where_they_fit() -> None:
    """At admission the whole sequence must, though a chunk of it needs less; later the step."""
    done = run(
        [{"prompt_token_ids": 20, "max_tokens": 1}], num_gpu_blocks=9, max_num_batched_tokens=16
    )
    assert reasons(done, BlocksAllocated) == [("r0", Fits(5, 8, 0)), ("r0", Fits(1, 4, 0))]


def test_an_evicted_block_names_whom_it_goes_to() -> None:
    requests = [{"prompt_token_ids": list(range(9)), "max_tokens": 1}]
    requests += [{"prompt_token_ids": 16, "max_tokens": 1, "arrival_step": 2}]
    done = run(requests, num_gpu_blocks=6)
    events = [record for record in done.trace.records if isinstance(record, Event)]
    evicted = [event for event in events if isinstance(event.facts, BlockEvicted)]
    assert [event.facts for event in evicted] == [BlockEvicted(2, hash_of(list(range(9)), 1), "r1")]
    assert evicted[0].reason == FreeQueueHead(2)


def test_running_requests_behind_a_spent_budget_are_told() -> None:
    specs = [{"id": f"r{n}", "prompt_token_ids": [n, n], "max_tokens": 9} for n in range(3)]
    conformance = Conformance(Workload.model_validate({"name": "w", "requests": specs}))
    conformance.step(0)
    scheduler = conformance.scheduler
    scheduler.config = scheduler.config.model_copy(update={"max_num_batched_tokens": 1})
    conformance.step(1)
    assert reasons(conformance, RequestPassedOver) == [("r1", BudgetSpent(1))]
    facts = [r.facts for r in conformance.trace.records if isinstance(r, Event)]
    assert RequestPassedOver("r1", behind=1) in facts


def test_running_requests_behind_one_that_preempts_itself_are_told() -> None:
    specs = [
        {"prompt_token_ids": 7, "max_tokens": 9, "priority": 5},
        {"prompt_token_ids": 7, "max_tokens": 9, "arrival_step": 1},
        {"prompt_token_ids": 6, "max_tokens": 9, "arrival_step": 1},
    ]
    done = run(specs, num_gpu_blocks=7, policy="priority")
    told = [r for r in done.trace.records if isinstance(r, Event) and r.step == 2]
    kinds = (RequestPreempted, RequestPassedOver, RequestScheduled)
    assert [(e.facts, e.reason) for e in told if isinstance(e.facts, kinds)] == [
        (RequestPreempted("r0", "r0", 1, 0, 8, 0), LowestPriority(5, 3, 1)),
        (RequestPassedOver("r1", behind=1), PreemptedThisStep(1)),
    ]


def test_a_single_token_left_of_a_recomputed_prompt_is_no_decode() -> None:
    done = run([{"prompt_token_ids": 5}], max_num_batched_tokens=4)
    batches = [r.facts for r in done.trace.records if isinstance(r, Event)]
    found = [(b.prefill_tokens, b.decode_tokens) for b in batches if isinstance(b, BatchScheduled)]
    assert found == [(4, 0), (1, 0), (0, 1), (0, 0)]


def test_the_end_by_length() -> None:
    done = run([{"prompt_token_ids": 3, "max_tokens": 3}])
    assert reasons(done, RequestFinished) == [("r0", MaxTokensReached(3))]
    done = run([{"prompt_token_ids": 3, "max_tokens": 99}], max_model_len=8)
    assert reasons(done, RequestFinished) == [("r0", ModelLengthReached(8))]


def test_min_tokens_beyond_the_models_length_ends_all_the_same() -> None:
    done = run([{"prompt_token_ids": 3, "max_tokens": 9, "min_tokens": 9}], max_model_len=8)
    assert reasons(done, RequestFinished) == [("r0", ModelLengthReached(8))]
    assert done.requests["r0"].finish_reason == "length"


def test_logprobs_of_tokens_behind_a_stop_are_cut_with_them() -> None:
    conformance = Conformance(Workload.model_validate({"name": "w", "requests": [REQUEST]}))
    conformance.core.add_request(conformance._request(0, conformance.workload.requests[0]))
    conformance.core.step_phase()
    scheduler = conformance.scheduler
    told = tuple(TokenLogprobs(token, -1.0, 1, ()) for token in (7, EOS_TOKEN_ID, 9))
    sampled = ModelRunnerOutput(
        {"r0": (7, EOS_TOKEN_ID, 9)}, {"r0": told}, {"r0": (None, told[0], told[0])}
    )
    (output,) = scheduler.update_from_output(scheduler.schedule(), sampled)
    assert output.new_token_ids == (7, EOS_TOKEN_ID)
    assert output.logprobs == told[:2]
    assert output.prompt_logprobs == (None, told[0], told[0])
