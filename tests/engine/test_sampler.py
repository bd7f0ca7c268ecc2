"""Sampling: the distribution is right, and a draw depends on request, seed and index alone."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import MinPLogitsWarper, RepetitionPenaltyLogitsProcessor

from engine.config import SamplingParams
from engine.sampler import (
    Sampled,
    Sampler,
    SamplingRow,
    TokenCounts,
    change_logits,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    request_seed,
    token_logprobs,
    uniform,
)

EOS = (2,)
SEED_OF_A = 16_563_745_722_614_342_077  # for ever: a saved trace can be run again


def row(
    seed: int = 0,
    index: int = 0,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    **params: Any,
) -> SamplingRow:
    given = SamplingParams(**params)
    counts = TokenCounts(prompt, output) if given.has_penalties else None
    return SamplingRow(given, seed, index, EOS, counts)


def sampled(logits: torch.Tensor, *rows: SamplingRow) -> list[Sampled]:
    return Sampler().sample(logits, rows)


def sample(logits: torch.Tensor, *rows: SamplingRow) -> list[int]:
    return [one.token for one in sampled(logits, *rows)]


def random_logits(rows: int, size: int = 50, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 2


def kept(logits: torch.Tensor) -> set[int]:
    return set(torch.isfinite(logits).nonzero().flatten().tolist())


def test_greedy_takes_the_largest() -> None:
    logits = random_logits(4)
    greedy = [row(temperature=0.0), row(temperature=9e-6), row(temperature=0.0), row(top_k=1)]
    assert sample(logits, *greedy) == logits.argmax(-1).tolist()


def test_frequencies_follow_the_softmax() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    count = 20_000
    rows = [row(seed=5, index=i, temperature=0.7) for i in range(count)]
    drawn = Counter(sample(logits.expand(count, 4), *rows))
    expected = torch.softmax(logits[0] / 0.7, dim=-1)
    for token in range(4):
        assert drawn[token] / count == pytest.approx(float(expected[token]), abs=0.01)


def test_a_draw_is_the_same_in_any_batch() -> None:
    logits = random_logits(6)
    rows = [
        row(seed=1, index=3),
        row(temperature=0.0),
        row(seed=2, index=0, top_p=0.8),
        row(seed=2, index=0, top_k=5),
        row(seed=3, index=9, top_k=7, top_p=0.5, temperature=2.0),
        row(seed=1, index=4),
    ]
    together = sample(logits, *rows)
    assert together == [sample(logits[i : i + 1], rows[i])[0] for i in range(6)]
    backwards = sample(logits.flip(0), *rows[::-1])
    assert together == backwards[::-1]


def test_rounding_of_the_logits_does_not_change_a_draw() -> None:
    """Another batch rounds otherwise; improbable tokens then change their order."""
    logits = random_logits(1, 2_000) * 0.1  # nearly flat: a thousand near ties
    noise = random_logits(1, 2_000, seed=1) * 1e-7
    rows = [row(seed=s, top_p=top_p) for s in range(150) for top_p in (1.0, 0.95)]
    one = [sample(logits, r)[0] for r in rows]
    other = [sample(logits + noise, r)[0] for r in rows]
    assert sum(a != b for a, b in zip(one, other, strict=True)) <= 1


def test_seed_and_index_both_matter() -> None:
    assert len({uniform(s, i) for s in range(30) for i in range(30)}) == 900
    assert all(0.0 <= uniform(s, 0) < 1.0 for s in (0, 1, 2**63 - 1))


def test_negative_and_large_seeds_draw_too() -> None:
    logits = random_logits(1)
    drawn = [sample(logits, row(seed=seed))[0] for seed in (-(2**63), -3, 2**63 + 14)]
    assert len(set(drawn)) > 1


def test_seed_of_a_request() -> None:
    own = SamplingParams(seed=11)
    assert request_seed(own, 0, "a") == request_seed(own, 1, "b") == 11
    none = SamplingParams()
    seeds = {request_seed(none, s, r) for s in (0, 1) for r in ("a", "b")}
    assert len(seeds) == 4
    assert request_seed(none, 0, "a") == request_seed(none, 0, "a") == SEED_OF_A


@pytest.mark.parametrize("top_k", [1, 3, 49, 50, 51, 0])
def test_top_k(top_k: int) -> None:
    logits = random_logits(1)[0]
    expected = set(logits.argsort(descending=True)[: top_k or None].tolist())
    keep_top_k(logits, top_k)
    assert kept(logits) == expected


def test_top_k_keeps_what_equals_the_last() -> None:
    logits = torch.tensor([1.0, 3.0, 1.0, 0.0])
    keep_top_k(logits, 2)
    assert kept(logits) == {0, 1, 2}


@pytest.mark.parametrize("size", [50, 3_000])  # beyond FIRST_LOOK too
@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.9, 0.999, 1.0])
def test_top_p_is_the_smallest_set_with_the_mass(size: int, top_p: float) -> None:
    logits = random_logits(1, size)[0].double() * 0.2
    probability = torch.softmax(logits, -1)
    keep_top_p(logits, top_p)
    chosen = kept(logits)
    assert probability[sorted(chosen)].sum() >= top_p - 1e-12
    if top_p < 1:
        least = min(chosen, key=lambda t: float(probability[t]))
        assert probability[sorted(chosen - {least})].sum() < top_p
        assert all(
            float(probability[t]) <= float(probability[least]) for t in set(range(size)) - chosen
        )


def test_top_p_counts_the_mass_that_top_k_left() -> None:
    logits = torch.tensor([[2.0, 1.9, 1.8, 1.7, 1.6]])
    rows = [row(seed=s, top_k=2, top_p=0.5) for s in range(60)]
    # Of two tokens the first has more than half; of all five it would have a quarter.
    assert set(sample(logits.expand(60, 5), *rows)) == {0}


def test_a_forbidden_token_is_never_drawn() -> None:
    logits = random_logits(1, 30)
    rows = [row(seed=s, top_k=4, temperature=2.0) for s in range(900)]
    allowed = set(logits[0].topk(4).indices.tolist())
    assert set(sample(logits.expand(900, 30), *rows)) == allowed


def test_extreme_temperatures() -> None:
    logits = random_logits(1) * 50
    best = int(logits.argmax())
    assert sample(logits, row(temperature=0.01)) == [best]
    assert 0 <= sample(logits, row(temperature=2.0))[0] < 50


def test_below_min_tokens_no_end_is_chosen() -> None:
    logits = torch.tensor([[0.0, 1.0, 9.0, 8.0, 2.0]])
    ends: dict[str, Any] = {"temperature": 0.0, "stop_token_ids": (3, 70_000), "min_tokens": 2}
    assert sample(logits, row(index=1, **ends)) == [4]
    assert sample(logits, row(index=2, **ends)) == [2]
    assert sample(logits, row(index=1, ignore_eos=True, **ends)) == [4]


# --- bias and penalties ------------------------------------------------------------------------


def penalized(logits: torch.Tensor, prompt: list[int], output: list[int], **params: Any) -> Any:
    return change_logits(logits, [row(prompt=prompt, output=output, **params)])


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 10.0])
def test_repetition_is_that_of_transformers(penalty: float) -> None:
    logits, prompt, output = random_logits(1), [3, 4, 4, 9], [9, 7, 7, 11]
    expected = RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([prompt + output]),  # type: ignore[arg-type]
        logits.clone(),  # type: ignore[arg-type]
    )
    changed = penalized(logits, prompt, output, repetition_penalty=penalty)
    torch.testing.assert_close(changed, expected)


def test_frequency_and_presence_count_the_output_alone() -> None:
    logits, prompt, output = random_logits(1), [3, 4, 4, 9], [9, 7, 7, 11, 7]
    expected = logits.clone()
    for token in set(output):
        expected[0, token] -= 0.5 * output.count(token) + 1.25
    changed = penalized(logits, prompt, output, frequency_penalty=0.5, presence_penalty=1.25)
    torch.testing.assert_close(changed, expected)


def test_bias_comes_before_repetition_and_that_before_the_others() -> None:
    logits = torch.tensor([[-1.0, 1.0, 2.0]])
    changed = penalized(
        logits,
        [0],
        [1],
        logit_bias={0: 3.0},
        repetition_penalty=2.0,
        frequency_penalty=0.5,
        presence_penalty=0.25,
    )
    # (-1 + 3) / 2, where the bias made it positive; 1 / 2 - 0.5 - 0.25
    assert changed.tolist() == [[1.0, -0.25, 2.0]]


def test_counts_grow_as_if_they_were_counted_anew() -> None:
    rng = random.Random(0)
    prompt, output = [rng.randrange(20) for _ in range(30)], list[int]()
    counts = TokenCounts(prompt, output)
    for _ in range(60):
        output.append(rng.randrange(30))
        counts.add(output[-1])
        assert counts.in_output == TokenCounts(prompt, output).in_output
    assert {token for token in counts.in_output if token not in output} <= set(prompt)
    assert all(counts.in_output[token] == output.count(token) for token in counts.in_output)


@pytest.mark.parametrize("penalty", [1e-300, 1e300])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_penalty_makes_an_infinity(penalty: float, temperature: float) -> None:
    logits = torch.tensor([[3.0, -3.0, 0.0, 1.0]])
    given = row(prompt=[0, 1, 2, 3], repetition_penalty=penalty, temperature=temperature)
    assert change_logits(logits, [given]).isfinite().all()
    assert sample(logits, given)[0] in range(4)


def test_a_penalty_or_a_bias_changes_a_greedy_choice() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    assert sample(logits, row(temperature=0.0, output=[2], presence_penalty=1.5)) == [1]
    assert sample(logits, row(temperature=0.0, logit_bias={0: 2.5})) == [0]
    assert logits.tolist() == [[1.0, 2.0, 3.0]]


def test_what_is_forbidden_stays_forbidden() -> None:
    logits = torch.tensor([[0.0, 1.0, 9.0, 2.0]])
    biased = row(temperature=0.0, min_tokens=1, logit_bias={2: 100.0}, output=[2])
    assert sample(logits, biased) == [3]


@pytest.mark.parametrize("min_p", [0.0, 0.02, 0.3, 0.999, 1.0])
def test_min_p_is_that_of_transformers(min_p: float) -> None:
    logits = random_logits(1)
    expected = MinPLogitsWarper(min_p)(None, logits.clone())  # type: ignore[arg-type]
    keep_min_p(logits[0], min_p)
    assert kept(logits[0]) == kept(expected[0])


def test_min_p_comes_after_the_temperature_and_before_top_k_and_top_p() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    # e^-1 = 0.37 of the largest is less than 0.5; at temperature 2 it is e^-0.5 = 0.61.
    drawn = [set(sample(logits.expand(99, 3), *rows)) for rows in rows_with_min_p(1.0, 2.0)]
    assert drawn == [{0}, {0, 1}]
    # 0.62 of the mass of what min_p left, and half of all of it.
    rows = [row(seed=s, temperature=2.0, min_p=0.5, top_p=0.6) for s in range(99)]
    assert set(sample(logits.expand(99, 3), *rows)) == {0}


def rows_with_min_p(*temperatures: float) -> list[list[SamplingRow]]:
    return [[row(seed=s, temperature=t, min_p=0.5) for s in range(99)] for t in temperatures]


# --- any batch ---------------------------------------------------------------------------------


def random_row(rng: random.Random, size: int) -> SamplingRow:
    """Every parameter at its default, or at random."""

    def maybe(value: Any, default: Any) -> Any:
        return value if rng.random() < 0.4 else default

    return row(
        seed=rng.randrange(5),
        index=rng.randrange(4),
        prompt=[rng.randrange(size) for _ in range(rng.randrange(9))],
        output=[rng.randrange(size) for _ in range(rng.randrange(9))],
        temperature=maybe(0.0, rng.choice([0.3, 1.0, 2.0])),
        top_p=maybe(rng.uniform(0.1, 1.0), 1.0),
        top_k=maybe(rng.randrange(1, size), 0),
        min_p=maybe(rng.random(), 0.0),
        min_tokens=maybe(2, 0),
        repetition_penalty=maybe(rng.uniform(0.5, 2.0), 1.0),
        presence_penalty=maybe(rng.uniform(-2.0, 2.0), 0.0),
        frequency_penalty=maybe(rng.uniform(-2.0, 2.0), 0.0),
        logit_bias=maybe({rng.randrange(size): rng.uniform(-9, 9)}, None),
        logprobs=maybe(rng.randrange(20), None),
    )


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_asked_the_batch_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    logits = random_logits(8, seed=seed)
    before = logits.clone()
    rows = [random_row(rng, 50) for _ in range(8)]
    together = sampled(logits, *rows)
    order = rng.sample(range(8), rng.randrange(1, 9))
    others = sampled(logits[order], *(rows[i] for i in order))
    for i, other in zip(order, others, strict=True):
        one = together[i]
        assert (one.token, one.candidates.token_ids) == (other.token, other.candidates.token_ids)
        assert one.candidates.drawn_from == pytest.approx(other.candidates.drawn_from)
        assert (one.logprobs is None) == (other.logprobs is None)
    assert torch.equal(logits, before)


# --- what is told of a choice ------------------------------------------------------------------


def test_logprobs_are_those_of_the_model_before_anything_is_done_to_them() -> None:
    logits = random_logits(3)
    expected = logits.double().log_softmax(-1)
    rows = [
        row(temperature=0.0, logprobs=3, logit_bias={7: 100.0}),
        row(seed=1, temperature=2.0, logprobs=0),
        row(seed=1),
    ]
    first, second, third = sampled(logits, *rows)
    assert first.token == 7 and first.logprobs is not None
    assert first.logprobs.token_id == 7
    assert first.logprobs.logprob == pytest.approx(float(expected[0, 7]), abs=1e-5)
    assert first.logprobs.rank == 1 + int((logits[0] > logits[0, 7]).sum())
    best = logits[0].argsort(descending=True)[:3].tolist()
    assert [token for token, _ in first.logprobs.top] == best
    assert [value for _, value in first.logprobs.top] == pytest.approx(
        expected[0, best].tolist(), abs=1e-5
    )
    assert second.logprobs is not None and second.logprobs.top == ()
    assert third.logprobs is None


def test_a_rank_counts_those_that_are_as_probable() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]] * 4)
    told = token_logprobs(logits, [0, 1, 2, 3], 1)
    assert [one.rank for one in told] == [3, 2, 2, 4]
    assert [one.token_id for one in told] == [0, 1, 2, 3]


def test_more_logprobs_than_there_are_tokens() -> None:
    told = token_logprobs(torch.zeros(1, 3), [0], 20)[0]
    assert sorted(token for token, _ in told.top) == [0, 1, 2]


def test_the_candidates_are_the_most_probable_and_the_chosen_one() -> None:
    logits = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0]])
    model = logits.double().softmax(-1)[0]
    greedy = sampled(logits, row(temperature=0.0))[0].candidates
    assert greedy.token_ids == (0, 1, 2, 3, 4)
    assert greedy.probabilities == pytest.approx(model[:5].tolist(), rel=1e-5)
    assert greedy.drawn_from == ()
    forced = sampled(logits, row(temperature=0.0, logit_bias={6: 50.0}))[0].candidates
    assert forced.token_ids == (0, 1, 2, 3, 4, 6)
    assert forced.probabilities[-1] == pytest.approx(float(model[6]), rel=1e-5)


def test_candidates_say_what_the_token_was_drawn_from() -> None:
    logits = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0]])
    rows = [
        row(temperature=0.0),
        row(temperature=2.0, top_k=2),
        row(temperature=1.0, logit_bias={1: 1.0}, top_p=0.5),
    ]
    _, two, biased = (one.candidates for one in sampled(logits.expand(3, 7), *rows))
    half = torch.tensor([2.5, 2.0]).softmax(-1).tolist()
    assert two.drawn_from == pytest.approx((*half, 0.0, 0.0, 0.0))
    assert biased.drawn_from == pytest.approx((0.5, 0.5, 0.0, 0.0, 0.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_other_dtypes(dtype: torch.dtype) -> None:
    logits = random_logits(3).to(dtype)
    rows = [row(temperature=0.0), row(seed=3, top_p=0.9), row(seed=4, logprobs=2)]
    assert sample(logits, *rows) == sample(logits.float(), *rows)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(value: float, temperature: float) -> None:
    logits = random_logits(2)
    logits[1, 7] = value
    with pytest.raises(RuntimeError, match="no numbers; try another dtype"):
        sample(logits, row(), row(temperature=temperature))
    logits[1, 7] = -math.inf  # a token that cannot come
    assert len(sample(logits, row(), row(temperature=temperature))) == 2
