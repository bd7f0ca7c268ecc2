"""Sampling: the distribution is right, and a draw depends on request, seed and index alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from engine.config import SamplingParams
from engine.sampler import Sampler, SamplingRow, keep_top_k, keep_top_p, request_seed, uniform

EOS = (2,)
SEED_OF_A = 16_563_745_722_614_342_077  # for ever: a saved trace can be run again


def row(seed: int = 0, index: int = 0, **params: Any) -> SamplingRow:
    return SamplingRow(SamplingParams(**params), seed, index, EOS)


def sample(logits: torch.Tensor, *rows: SamplingRow) -> list[int]:
    return Sampler().sample(logits.clone(), rows)


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
    rows = [row(seed=s, top_k=4, temperature=5.0) for s in range(300)]
    allowed = set(logits[0].topk(4).indices.tolist())
    assert set(sample(logits.expand(300, 30), *rows)) == allowed


def test_extreme_temperatures() -> None:
    logits = random_logits(1) * 50
    best = int(logits.argmax())
    assert sample(logits, row(temperature=1.1e-5)) == [best]
    assert 0 <= sample(logits, row(temperature=100.0))[0] < 50


def test_below_min_tokens_no_end_is_chosen() -> None:
    logits = torch.tensor([[0.0, 1.0, 9.0, 8.0, 2.0]])
    ends: dict[str, Any] = {"temperature": 0.0, "stop_token_ids": (3, 70_000), "min_tokens": 2}
    assert sample(logits, row(index=1, **ends)) == [4]
    assert sample(logits, row(index=2, **ends)) == [2]
    assert sample(logits, row(index=1, ignore_eos=True, **ends)) == [4]
