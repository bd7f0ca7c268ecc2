"""Drafts: what is given, cut, padded and taken back, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from engine.conformance import Conformance, Workload, driver_of
from engine.events import (
    AdmissionStopped,
    BlocksAllocated,
    DraftsDropped,
    DraftsScheduled,
    DraftsSettled,
    PrefixLookedUp,
    RequestScheduled,
    TokenDropped,
)
from engine.reasons import (
    BudgetLeft,
    Fits,
    LastHitGivenUp,
    LastRunning,
    LongPrefillThreshold,
    PaddedToUniform,
    PaddingDoesNotFit,
    Reason,
    WholeRequest,
)
from engine.records import Event

PADDED = [
    {"prompt_token_ids": [5, 6, 7], "max_tokens": 9},
    {"prompt_token_ids": [8], "arrival_step": 2, "max_tokens": 9},
]


def run(requests: list[dict[str, Any]], **config: Any) -> Conformance:
    """A workload in blocks of 4, with three drafts at most; all are right but for `accept`."""
    for index, spec in enumerate(requests):
        spec.setdefault("id", f"r{index}")
    drafts = {"num_speculative_tokens": 3, "accept": (0, 3), "block_size": 4}
    workload = {"name": "w", "config": {**drafts, **config}, "requests": requests}
    driver = driver_of(Workload.model_validate(workload))
    assert isinstance(driver, Conformance)
    list(driver.steps())
    assert all(request.finish_reason for request in driver.requests.values())
    return driver


def told(driver: Conformance, kind: type[Any]) -> list[tuple[int, Any, Reason | None]]:
    return [
        (record.step, record.facts, record.reason)
        for record in driver.trace.records
        if isinstance(record, Event) and isinstance(record.facts, kind)
    ]


def request(max_tokens: int, **more: Any) -> dict[str, Any]:
    return {"prompt_token_ids": [5, 6, 7], "max_tokens": max_tokens, **more}


def test_all_drafts_accepted_make_four_tokens_a_step() -> None:
    driver = run([request(9, sample_seed=1)], accept=(3, 0))
    shares = [facts.num_tokens for _, facts, _ in told(driver, RequestScheduled)]
    assert shares == [3, 4, 4]  # the prompt, then the last token and its drafts
    assert [
        (facts.num_drafts, facts.num_accepted, facts.num_computed_tokens)
        for _, facts, _ in told(driver, DraftsSettled)
    ] == [(3, 3, 7), (3, 3, 11)]
    assert driver.requests["r0"].num_output_tokens == 9


def test_rejected_drafts_count_no_more_and_their_blocks_stay() -> None:
    driver = run([request(3)], accept=(0, 0), num_gpu_blocks=65)
    _, settled, _ = told(driver, DraftsSettled)[0]
    assert (settled.num_drafts, settled.num_accepted) == (3, 0)
    assert settled.num_computed_tokens == 4  # the prompt and the first token
    _, _, reason = told(driver, RequestScheduled)[1]
    assert reason == WholeRequest(4)


def test_max_tokens_is_met_exactly_and_what_is_behind_it_is_dropped() -> None:
    driver = run([request(3, sample_seed=1)], accept=(3, 0))
    assert driver.requests["r0"].num_output_tokens == 3
    assert len(told(driver, TokenDropped)) == 2
    # Settled before the stop was looked for: what lies behind it was accepted all the same.
    assert [facts.num_accepted for _, facts, _ in told(driver, DraftsSettled)] == [3]


@pytest.mark.parametrize(
    ("config", "reason", "cut"),
    [
        ({"long_prefill_token_threshold": 2}, LongPrefillThreshold(4, 2), 2),
        ({"max_num_batched_tokens": 3}, BudgetLeft(4, 3), 1),
    ],
)
def test_a_limit_cuts_drafts_from_the_end(config: dict[str, int], reason: Reason, cut: int) -> None:
    driver = run([request(3)], **config)
    _, facts, why = next(item for item in told(driver, DraftsScheduled))
    assert (facts.cut, len(facts.tokens), why) == (cut, 3 - cut, reason)


def test_a_preempted_request_loses_its_drafts() -> None:
    requests = [{"prompt_token_ids": [n, 6, 7, 8], "max_tokens": 12} for n in range(2)]
    driver = run(requests, num_gpu_blocks=7, max_model_len=24, accept=(0, 0))
    (step, facts, reason), *_ = told(driver, DraftsDropped)
    assert (facts.request, facts.num_drafts, reason) == ("r1", 3, LastRunning(2))
    resumed = [
        item.num_tokens
        for when, item, _ in told(driver, RequestScheduled)
        if item.kind == "resumed" and when > step
    ]
    assert resumed and driver.requests["r1"].num_output_tokens == 12


def test_a_new_request_that_wants_one_token_is_padded_beside_decodes() -> None:
    driver = run([dict(spec) for spec in PADDED])
    facts, reason = next(
        (facts, reason)
        for _, facts, reason in told(driver, DraftsScheduled)
        if facts.request == "r1"
    )
    assert (facts.tokens, facts.cut, reason) == ((-1, -1, -1), 0, PaddedToUniform(3))
    settled = next(f for _, f, _ in told(driver, DraftsSettled) if f.request == "r1")
    assert (settled.num_accepted, settled.num_computed_tokens) == (0, 1)


def test_padding_that_does_not_fit_waits_though_its_token_would() -> None:
    driver = run([dict(spec) for spec in PADDED], max_num_batched_tokens=7)
    (_, facts, reason), *_ = told(driver, AdmissionStopped)
    assert facts.request == "r1" and reason == PaddingDoesNotFit(4, 3, 0, 256)


def test_a_limit_cuts_padding_too() -> None:
    """vLLM 0.26.0 gives fewer tokens than it later takes off: -1 computed for this prompt."""
    driver = run([dict(spec) for spec in PADDED], long_prefill_token_threshold=2)
    facts = next(f for _, f, _ in told(driver, DraftsScheduled) if f.request == "r1")
    settled = next(f for _, f, _ in told(driver, DraftsSettled) if f.request == "r1")
    assert facts.tokens == (-1,) and settled.num_computed_tokens == 1


def test_eagle_gives_up_the_last_block_that_hits() -> None:
    prompts = [
        {"prompt_token_ids": list(range(13)), "max_tokens": 1, "arrival_step": n} for n in (0, 2)
    ]
    hits = {
        method: [
            (facts.hit_tokens, reason)
            for _, facts, reason in told(
                run([dict(p) for p in prompts], spec_method=method), PrefixLookedUp
            )
        ][-1]
        for method in ("eagle", "ngram")
    }
    assert hits["ngram"][0] == 12
    assert hits["eagle"] == (8, LastHitGivenUp(2))


def test_a_drafter_with_kv_of_its_own_has_slots_for_what_it_will_draft() -> None:
    taken = {
        method: len(told(run([request(2)], spec_method=method), BlocksAllocated)[0][1].blocks)
        for method in ("ngram", "eagle", "draft_model")
    }
    assert taken == {"ngram": 1, "eagle": 2, "draft_model": 2}  # of 4, for 3 tokens and 3 drafts
    reason = told(run([request(2)], spec_method="eagle"), BlocksAllocated)[0][2]
    assert reason == Fits(2, 63, 0, lookahead=3)
    near_the_end = run([request(9)], spec_method="eagle", max_model_len=8, num_gpu_blocks=9)
    lookaheads = [why.lookahead for _, _, why in told(near_the_end, BlocksAllocated)]  # type: ignore[union-attr]
    assert lookaheads == [3]  # two blocks are all that the model's length takes
