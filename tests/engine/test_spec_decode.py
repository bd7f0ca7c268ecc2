"""Speculative decoding: what is proposed, what of it is kept, and that no text changes by it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from engine.config import EngineConfig, SamplingParams
from engine.events import DraftsProposed, DraftsVerified, StepDispatched, TokenSampled
from engine.model_runner import ModelRunner
from engine.outputs import ModelRunnerOutput, NewRequestData, ScheduledRequest, SchedulerOutput
from engine.reasons import UniformDecode
from engine.records import Event
from engine.rejection_sampler import verify
from engine.sampler import Candidates, Sampled, Sampler, SamplingRow, TokenCounts
from engine.spec_decode.ngram_proposer import NgramProposer, Proposal
from tests.engine.test_model_runner import Engine, random_prompt
from tests.engine.tiny_configs import VOCAB, plain_greedy, tiny
from tests.engine.traces import make_trace

# --- proposals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "sizes", "expected"),
    [
        ([1, 2, 3, 9, 1, 2, 3], (2, 3), Proposal((9, 1, 2), 0, 3)),
        # Longest first, however early a shorter one stands.
        ([3, 5, 2, 3, 6, 2, 3], (1, 3), Proposal((6, 2, 3), 2, 2)),
        # Of those as long, the first.
        ([1, 2, 7, 1, 2, 8, 1, 2], (2, 2), Proposal((7, 1, 2), 0, 2)),
        # No longer than the most: then the first place is another one.
        ([2, 3, 6, 1, 2, 3, 7, 1, 2, 3], (1, 2), Proposal((6, 1, 2), 0, 2)),
        # It may overlap the end; then there is little behind it.
        ([4, 4, 4], (1, 5), Proposal((4,), 0, 2)),
        ([1, 2, 3, 4], (1, 5), None),
        ([1, 2, 3, 9, 8, 3], (2, 5), None),  # one token is too short a match
        ([1], (1, 5), None),
    ],
)
def test_what_followed_the_longest_match_is_proposed(
    tokens: list[int], sizes: tuple[int, int], expected: Proposal | None
) -> None:
    assert NgramProposer(*sizes, 3, 100).propose(tokens) == expected


def test_proposals_end_with_the_models_length() -> None:
    tokens = [1, 2, 3, 4, 1, 2]
    assert NgramProposer(1, 2, 4, 8).propose(tokens) == Proposal((3, 4), 0, 2)
    assert NgramProposer(1, 2, 4, 6).propose(tokens) is None


def naive_proposal(
    tokens: list[int], low: int, high: int, most: int, max_len: int
) -> Proposal | None:
    for size in range(high, low - 1, -1):
        for start in range(len(tokens) - size):
            if tokens[start : start + size] == tokens[-size:]:
                follows = tokens[start + size :][: min(most, max_len - len(tokens))]
                return Proposal(tuple(follows), start, size) if follows else None
    return None


def test_proposals_equal_a_naive_search() -> None:
    rng = random.Random(3)
    for _ in range(2_000):
        tokens = [rng.randrange(rng.choice([2, 4, 9])) for _ in range(rng.randrange(1, 30))]
        low = rng.randrange(1, 4)
        sizes = (low, low + rng.randrange(4))
        more = (rng.randrange(1, 6), len(tokens) + rng.randrange(5))
        assert NgramProposer(*sizes, *more).propose(tokens) == naive_proposal(tokens, *sizes, *more)


# --- what is kept ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drafts", "chosen", "kept"),
    [
        ((), [5], [5]),
        ((5, 6), [5, 6, 7], [5, 6, 7]),  # with a bonus
        ((5, 6), [5, 8, 7], [5, 8]),
        ((5, 6), [4, 6, 7], [4]),  # what fits behind a rejected draft does not count
        ((5, -1, 6), [5, 6, 6, 7], [5, 6]),
    ],
)
def test_drafts_are_kept_up_to_the_first_that_was_not_chosen(
    drafts: Sequence[int], chosen: list[int], kept: list[int]
) -> None:
    outcome = verify(drafts, [Sampled(token, Candidates((), (), ()), None) for token in chosen])
    assert [sampled.token for sampled in outcome] == kept


def chi_square(counts: Counter[int], expected: list[float]) -> float:
    """Of counted tokens against their probabilities; what cannot be must not have come."""
    total = sum(counts.values())
    assert not [token for token in counts if expected[token] == 0]
    return sum(
        (counts[token] - total * p) ** 2 / (total * p) for token, p in enumerate(expected) if p
    )


def test_a_verified_token_has_the_distribution_it_has_without_drafts() -> None:
    """At each place, given what stands before: by 3,000 seeds, always the same ones."""
    params = SamplingParams(temperature=0.7, top_k=6)
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(5))
    drafts = (int(logits[0].argmax()), int(logits[1].argmax()))
    requests = range(3_000)
    rows = [SamplingRow(params, seed, place, ()) for seed in requests for place in range(3)]
    chosen = Sampler().sample(logits.repeat(len(requests), 1), rows)
    outcomes = [verify(drafts, chosen[3 * i : 3 * i + 3]) for i in requests]
    for place in range(3):
        scaled = (logits[place] / 0.7).tolist()
        sixth = sorted(scaled)[-6]
        weights = [torch.tensor(x).exp().item() if x >= sixth else 0.0 for x in scaled]
        expected = [weight / sum(weights) for weight in weights]
        got = Counter(kept[place].token for kept in outcomes if len(kept) > place)
        assert got.total() > 300
        assert chi_square(got, expected) < 35  # of 5 degrees of freedom: once in 700,000 times
        if place < 2:  # a draft is accepted as often as it is probable
            accepted = sum(len(kept) > place + 1 for kept in outcomes)
            assert accepted == got[drafts[place]]


def test_a_draft_stands_among_the_candidates_however_improbable() -> None:
    logits = torch.arange(20.0)[None]
    row = SamplingRow(SamplingParams(temperature=0.0), 0, 0, (), draft=3)
    shown = Sampler().sample(logits, [row])[0].candidates
    assert shown.token_ids == (19, 18, 17, 16, 15, 3)
    probability, drawn_from = shown.chances(3)
    assert probability == pytest.approx(logits.softmax(-1)[0, 3].item(), rel=1e-5)
    assert drawn_from is None


def test_counts_of_a_draft_leave_the_requests_own_alone() -> None:
    counts = TokenCounts([1, 2], [2, 3])
    assert counts.followed_by([3, 4]).in_output == {1: 0, 2: 1, 3: 2, 4: 1}
    assert counts.in_output == {1: 0, 2: 1, 3: 1}


# --- the runner --------------------------------------------------------------------------------

SPECULATION = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2}


class Told:
    """A runner that is told what to verify, as a scheduler would tell it."""

    def __init__(self, prompt: list[int], **params: Any):
        config = EngineConfig.parse({"block_size": 4, "speculative_config": SPECULATION})
        model = tiny("llama")
        settings = config.resolve(model.max_model_len)
        self.trace = make_trace(settings)
        self.runner = ModelRunner(model, settings, self.trace)
        self.params = SamplingParams.parse({"temperature": 0.0} | params)
        self.tokens = list(prompt)
        self.num_prompt = len(prompt)
        self.computed = 0

    def step(self, *drafts: int) -> tuple[int, ...]:
        """A whole step: everything known, and these drafts."""
        data = None
        if self.computed == 0:
            data = NewRequestData(tuple(self.tokens), self.num_prompt, self.params)
        item = ScheduledRequest(
            "r",
            "running" if data is None else "new",
            len(self.tokens) - self.computed + len(drafts),
            self.computed,
            () if data is None else tuple(range(1, 20)),
            (),
            data,
            drafts,
        )
        self.runner.prepare_inputs(SchedulerOutput((item,), item.num_tokens, 0, (), ()))
        self.runner.execute_model()
        self.output: ModelRunnerOutput = self.runner.sample_tokens()
        new = self.output.sampled_token_ids["r"]
        self.computed = len(self.tokens) + len(new) - 1  # the rest is rolled back
        self.tokens += new
        return new

    def facts(self, kind: type[Any]) -> list[Any]:
        return [
            record.facts
            for record in self.trace.records
            if isinstance(record, Event) and isinstance(record.facts, kind)
        ]


PROMPT = [9, 8, 7, 6, 5, 9, 8]


def test_the_runner_keeps_what_the_model_would_have_written() -> None:
    """Right drafts, wrong ones, padding; what stood in the slots of rejected ones does no harm."""
    told = Told(PROMPT)
    right = plain_greedy(tiny("llama"), PROMPT, 20)
    wrong = [(token + 1) % VOCAB for token in right]
    assert told.step() == (right[0],)
    assert told.step(*right[1:4]) == tuple(right[1:5])  # all three, and a bonus
    assert told.step(right[5], wrong[6], right[7]) == tuple(right[5:7])
    assert told.step(*wrong[7:10]) == (right[7],)
    assert told.step(right[8], -1, -1) == tuple(right[8:10])
    assert told.step() == (right[10],)
    assert told.step(*right[11:14]) == tuple(right[11:15])
    assert told.runner.requests["r"].token_ids == told.tokens == [*PROMPT, *right[:15]]

    verified = told.facts(DraftsVerified)
    assert [fact.num_accepted for fact in verified] == [3, 1, 0, 1, 3]
    assert [fact.position - len(PROMPT) for fact in verified] == [1, 5, 7, 8, 11]
    assert [len(fact.probabilities) for fact in verified] == [3, 2, 1, 1, 3]  # of those judged
    assert all(fact.drawn_from == () for fact in verified)
    assert verified[3].texts[1:] == ("", "")
    assert [fact.token for fact in told.facts(TokenSampled)] == right[:15]


def test_proposals_come_from_the_runners_own_tokens() -> None:
    """The first step's token is forced to be one that stood there before."""
    told = Told(PROMPT, logit_bias={7: 100.0})
    told.step()
    assert told.output.draft_token_ids == {"r": (6, 5, 9)}
    assert told.facts(DraftsProposed) == [
        DraftsProposed("r", (6, 5, 9), told.runner._texts((6, 5, 9)), 8, 1, 2)
    ]


@pytest.mark.parametrize(
    "params",
    [
        {"presence_penalty": 1.5, "frequency_penalty": 0.7, "repetition_penalty": 1.3},
        {"min_tokens": 9, "logit_bias": {2: 4.0, 11: 3.0}, "stop_token_ids": [11]},
        {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 4},
        {"temperature": 1.3, "presence_penalty": 2.0, "repetition_penalty": 0.7, "logprobs": 3},
    ],
)
def test_what_a_request_asks_for_holds_at_every_place_of_its_drafts(params: Any) -> None:
    """Drafts that are right now and then: text and log-probabilities are those without any."""
    plain, told, rng = Told(PROMPT, **params), Told(PROMPT, **params), random.Random(1)
    plain_logprobs, told_logprobs = list[Any](), list[Any]()
    for _ in range(24):
        plain.step()
        plain_logprobs += plain.output.logprobs.get("r", ())
    right, accepted = plain.tokens, 0
    while len(told.tokens) < len(right) - 4:
        place = len(told.tokens)
        drafts = [token if rng.random() < 0.8 else 3 for token in right[place : place + 3]]
        accepted += len(told.step(*(drafts if told.computed else ()))) - 1
        told_logprobs += told.output.logprobs.get("r", ())
    assert accepted > 8
    assert told.tokens == right[: len(told.tokens)]
    for mine, other in zip(told_logprobs, plain_logprobs, strict=False):
        assert mine.token_id == other.token_id and mine.rank == other.rank
        assert mine.logprob == pytest.approx(other.logprob, abs=1e-4)
    assert bool(told_logprobs) == ("logprobs" in params)


# --- under the real scheduler ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_greedy_text_is_the_naive_loops_whatever_happens(seed: int) -> None:
    """Preemption, chunks, prefix hits, aborts and resets, at any phase, with drafts in between."""
    model, rng = tiny("llama"), random.Random(seed)
    engine = Engine(
        model,
        block_size=4,
        num_gpu_blocks=16,
        max_num_batched_tokens=rng.randrange(6, 24),
        max_num_seqs=4,
        max_model_len=40,
        enforce_eager=seed % 2 == 0,
        speculative_config=SPECULATION | {"prompt_lookup_min": 1, "prompt_lookup_max": 3},
    )
    prompts: dict[str, list[int]] = {}
    for i in range(9):
        key, phrase = f"r{i}", random_prompt(rng, rng.randrange(1, 5))
        prompts[key] = (phrase * 12)[: rng.randrange(3, 18)]
        logprobs = 1 if i % 3 == 0 else None
        engine.add(key, prompts[key], max_tokens=rng.randrange(1, 20), prompt_logprobs=logprobs)
        for _ in range(rng.randrange(12)):
            engine.core.step_phase()
        if i == 6:
            engine.core.reset_prefix_cache(reset_running_requests=True)
        if i == 4:
            engine.core.abort_requests(["r3", "r4"])
    outputs = engine.run()
    verified = engine.facts(DraftsVerified)
    assert sum(fact.num_accepted for fact in verified) > 3
    assert any(fact.num_accepted < len(fact.drafts) for fact in verified)
    for key, prompt in prompts.items():
        assert outputs[key] == plain_greedy(model, prompt, len(outputs[key])), key
        if key not in ("r3", "r4"):
            limit = engine.requests[key].sampling_params.max_tokens
            assert len(outputs[key]) == min(limit, 40 - len(prompt))


def test_a_stop_among_accepted_drafts_ends_the_text_there() -> None:
    model = tiny("llama")
    right = plain_greedy(model, PROMPT, 12)
    place = next(i for i in range(4, 12) if i % 4 and right[i] not in right[:i])
    engine = Engine(model, block_size=4, speculative_config=SPECULATION)
    engine.runner.proposer = Oracle([*PROMPT, *right])
    engine.add("r", PROMPT, stop_token_ids=[right[place]])
    assert engine.run()["r"] == right[: place + 1]
    assert {fact.num_accepted for fact in engine.facts(DraftsVerified)} == {3}
    assert not engine.runner.requests


class Oracle(NgramProposer):
    """Knows the text; at times, only the first of three tokens."""

    def __init__(self, text: list[int], wrong: int = 0):
        super().__init__(1, 1, 3, 512)
        self.text = text
        self.wrong = wrong  # at every place that is a multiple of it; 0: never

    def propose(self, token_ids: Sequence[int]) -> Proposal | None:
        drafts = self.text[len(token_ids) : len(token_ids) + 3]
        if self.wrong and len(token_ids) % self.wrong == 0:
            drafts = [*drafts[:1], *((draft + 1) % VOCAB for draft in drafts[1:])]
        return Proposal(tuple(drafts), 0, 1) if drafts else None


@pytest.mark.parametrize("wrong", [0, 2])
def test_drawn_text_is_the_same_with_drafts(wrong: int) -> None:
    """A seed gives one text: with right drafts, with some wrong ones, and without any."""
    model = tiny("llama")
    params = {"temperature": 0.9, "top_p": 0.95, "seed": 11, "max_tokens": 30}
    plain = Engine(model, block_size=4)
    plain.add("r", PROMPT, **params)
    text = plain.run()["r"]
    more = {"speculative_config": SPECULATION, "cudagraph_mode": "FULL_DECODE_ONLY"}
    engine = Engine(model, block_size=4, **more)
    engine.runner.proposer = Oracle([*PROMPT, *text], wrong)
    engine.add("r", PROMPT, **params)
    assert engine.run()["r"] == text
    verified = engine.facts(DraftsVerified)
    assert any(fact.num_accepted < len(fact.drafts) for fact in verified) == bool(wrong)
    assert all(len(fact.drawn_from) == len(fact.probabilities) > 0 for fact in verified)
    assert engine.core.step_index < plain.core.step_index
    # Three drafts and the token before them are a decode of its own length, which has a graph.
    taken = {(e.facts.mode, e.facts.num_tokens, e.reason) for e in engine.events(StepDispatched)}
    assert ("FULL", 4, UniformDecode(1, 4)) in taken
