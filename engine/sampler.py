"""From logits to tokens (vLLM 0.26.0: `vllm/v1/sample`).

In vLLM's order: what the model said is noted; logit_bias, penalties and min_tokens change the
logits; the largest is taken, or temperature, min_p, top_k and top_p make the distribution that the
token is drawn from.

What a request draws depends on its own logits and tokens, its seed and how many tokens it has:
never on the batch, nor on a preemption in between.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple

import torch
from torch import Tensor

from engine.config import SamplingParams
from engine.outputs import TokenLogprobs

FIRST_LOOK = 1024  # so many of the most probable tokens nearly always hold top_p of the mass
NUM_CANDIDATES = 5  # shown of each choice, beside the chosen token
LARGEST = torch.finfo(torch.float32).max


class TokenCounts:
    """Which tokens a request has, for its penalties: kept up to date, never counted anew."""

    def __init__(self, prompt_token_ids: Sequence[int], output_token_ids: Sequence[int]):
        self.in_output = dict.fromkeys(prompt_token_ids, 0)  # by token of prompt and output
        for token in output_token_ids:
            self.add(token)

    def add(self, token: int) -> None:
        """One more token of the output."""
        self.in_output[token] = self.in_output.get(token, 0) + 1

    def followed_by(self, tokens: Sequence[int]) -> TokenCounts:
        """What they would be with more tokens of the output; these stay as they are."""
        counts = TokenCounts((), ())
        counts.in_output = self.in_output.copy()
        for token in tokens:
            counts.add(token)
        return counts


class SamplingRow(NamedTuple):
    """What one row of logits is sampled with."""

    params: SamplingParams
    seed: int
    output_index: int  # tokens that the request has generated
    eos_token_ids: tuple[int, ...]
    counts: TokenCounts | None = None  # where there are penalties
    draft: int | None = None  # proposed for this place, to be shown among the candidates


class Candidates(NamedTuple):
    """The tokens that stood to be chosen: the model's most probable, the chosen one, a draft."""

    token_ids: tuple[int, ...]  # by probability to the model, the most probable first
    probabilities: tuple[float, ...]  # the model's own
    drawn_from: tuple[float, ...]  # in what the token was drawn from, 0: forbidden; () if greedy

    def chances(self, token: int) -> tuple[float, float | None]:
        """Of one of them: the model's own probability, and that in what was drawn from."""
        place = self.token_ids.index(token)
        return self.probabilities[place], self.drawn_from[place] if self.drawn_from else None


class Sampled(NamedTuple):
    """The token that was chosen for one row."""

    token: int
    candidates: Candidates
    logprobs: TokenLogprobs | None  # where the request asks for them


class Draws(NamedTuple):
    """The tokens drawn for some rows, and the distributions that they were drawn from."""

    tokens: list[int]
    probabilities: Tensor  # [rows, vocabulary], float64


def request_seed(params: SamplingParams, engine_seed: int, request_id: str) -> int:
    """The request's own seed, or one that engine and request id determine."""
    if params.seed is not None:
        return params.seed
    digest = hashlib.blake2b(f"{engine_seed}:{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniform(seed: int, index: int) -> float:
    """The `index`-th number of a seed's stream, in [0, 1)."""
    digest = hashlib.blake2b(struct.pack("<QQ", seed % 2**64, index), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2.0**53


class Sampler:
    """Chooses a token for each row of logits."""

    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
        """One token a row. logits is [rows, vocabulary], of any float dtype; it stays as it is."""
        raw = logits.float()
        changed = change_logits(raw, rows)
        drawn = [i for i, row in enumerate(rows) if not row.params.is_greedy]
        if not drawn:
            return describe(raw, rows, changed.argmax(dim=-1).tolist())
        if len(drawn) == len(rows):
            draws = draw(changed, rows)
            return describe(raw, rows, draws.tokens, drawn, draws.probabilities)
        draws = draw(changed[drawn], [rows[i] for i in drawn])
        tokens: list[int] = changed.argmax(dim=-1).tolist()
        for i, token in zip(drawn, draws.tokens, strict=True):
            tokens[i] = token
        return describe(raw, rows, tokens, drawn, draws.probabilities)


# --- what the model said -----------------------------------------------------------------------


def token_logprobs(logits: Tensor, tokens: Sequence[int], count: int) -> list[TokenLogprobs]:
    """Of one token a row, beside the row's `count` most probable ones. logits: [rows, vocabulary].

    Ranks are counted as in vLLM: `vllm/v1/sample/ops/logprobs.py`.
    """
    found = most_probable(logits, tokens, count)
    each = zip(tokens, found.own, ranks(logits, tokens), found.top, strict=True)
    return [TokenLogprobs(*one) for one in each]


class MostProbable(NamedTuple):
    """Log-probabilities of one token a row, and of the row's most probable tokens."""

    own: list[float]
    top: list[tuple[tuple[int, float], ...]]  # (token id, logprob), best first


def most_probable(logits: Tensor, tokens: Sequence[int], count: int) -> MostProbable:
    """The `count` most probable tokens of each row, and what `tokens` have themselves.

    Raises RuntimeError where logits are no numbers: nothing true could be said of such a choice.
    """
    whole = logits.logsumexp(dim=-1, keepdim=True)
    if not whole.isfinite().all():
        raise RuntimeError("the model's logits are infinite or no numbers; try another dtype")
    own = logits.gather(1, column(tokens, logits)) - whole
    values, ids = logits.topk(min(count, logits.shape[-1]), dim=-1)
    pairs = zip(ids.tolist(), (values - whole).tolist(), strict=True)
    return MostProbable(own[:, 0].tolist(), [tuple(zip(*pair, strict=True)) for pair in pairs])


def ranks(logits: Tensor, tokens: Sequence[int]) -> list[int]:
    """How many tokens of its row are at least as probable as each of `tokens`, itself included."""
    at_least: list[int] = (logits >= logits.gather(1, column(tokens, logits))).sum(dim=-1).tolist()
    return at_least


def column(tokens: Sequence[int], logits: Tensor) -> Tensor:
    """Token ids as an index into rows of logits."""
    return torch.tensor(tokens, dtype=torch.int64, device=logits.device)[:, None]


def describe(
    raw: Tensor,
    rows: Sequence[SamplingRow],
    tokens: list[int],
    drawn: Sequence[int] = (),
    probabilities: Tensor | None = None,
) -> list[Sampled]:
    """The chosen tokens with what stood to be chosen.

    `probabilities` [drawn, vocabulary] is what the tokens of the rows `drawn` were drawn from.
    """
    asked = [row.params.logprobs for row in rows]
    found = most_probable(raw, tokens, max(NUM_CANDIDATES, *(count or 0 for count in asked)))
    at = ranks(raw, tokens) if any(count is not None for count in asked) else []
    of_drafts = draft_logprobs(raw, rows)
    shown = [
        candidates(found.top[i], ((token, found.own[i]), *of_drafts.get(i, ())))
        for i, token in enumerate(tokens)
    ]
    chances = chances_of([[token for token, _ in shown[i]] for i in drawn], probabilities)
    drawn_from = dict(zip(drawn, chances, strict=True))
    sampled = []
    for i, (token, count) in enumerate(zip(tokens, asked, strict=True)):
        own, top = found.own[i], found.top[i]
        logprobs = None if count is None else TokenLogprobs(token, own, at[i], top[:count])
        ids, values = zip(*shown[i], strict=True)
        stood = Candidates(ids, tuple(map(math.exp, values)), drawn_from.get(i, ()))
        sampled.append(Sampled(token, stood, logprobs))
    return sampled


def draft_logprobs(
    raw: Tensor, rows: Sequence[SamplingRow]
) -> dict[int, tuple[tuple[int, float], ...]]:
    """The draft of each row that has one, with its log-probability, by the number of the row."""
    drafts = {i: row.draft for i, row in enumerate(rows) if row.draft is not None}
    if not drafts:
        return {}
    found = most_probable(raw[list(drafts)], list(drafts.values()), 0)
    return {i: ((draft, own),) for (i, draft), own in zip(drafts.items(), found.own, strict=True)}


def candidates(
    top: tuple[tuple[int, float], ...], more: Sequence[tuple[int, float]]
) -> list[tuple[int, float]]:
    """The first of `top`, and after them those of `more` that are none of them: pairs of token
    and log-probability."""
    shown = list(top[:NUM_CANDIDATES])
    for token, logprob in more:
        if all(token != other for other, _ in shown):
            shown.append((token, logprob))
    return shown


def chances_of(
    token_ids: Sequence[Sequence[int]], probabilities: Tensor | None
) -> list[tuple[float, ...]]:
    """What some tokens of each row have in `probabilities` [rows, vocabulary]: one look for all."""
    if probabilities is None:
        return []
    rows = [row for row, ids in enumerate(token_ids) for _ in ids]
    found = iter(probabilities[rows, list(chain.from_iterable(token_ids))].tolist())
    return [tuple(islice(found, len(ids))) for ids in token_ids]


# --- what the request wants otherwise ----------------------------------------------------------


def change_logits(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """logits with bias, penalties and min_tokens: a copy, unless no row has any of them."""
    changed = logits
    for i, row in enumerate(rows):
        below_min = row.output_index < row.params.min_tokens
        if not (row.params.logit_bias or row.counts or below_min):
            continue
        if changed is logits:
            changed = logits.clone()
        if row.params.logit_bias:
            add_bias(changed[i], row.params.logit_bias)
        if row.counts is not None:
            penalize(changed[i], row.params, row.counts)
        if below_min:
            forbid_ends(changed[i], row)
    return changed


def add_bias(logits: Tensor, bias: dict[int, float]) -> None:
    """Add to single tokens' logits, in place. All ids must be in the vocabulary."""
    logits[list(bias)] += torch.tensor(list(bias.values()), device=logits.device)


def penalize(logits: Tensor, params: SamplingParams, counts: TokenCounts) -> None:
    """Make tokens that prompt or output have less likely (or more), in place.

    Repetition: positive logits are divided by it and negative ones multiplied, of prompt and
    output alike. Frequency is subtracted as often as the output has the token, presence once.
    What would leave float32 stays at its end, so that no penalty makes an infinity.
    """
    tokens = list(counts.in_output)
    times = torch.tensor(list(counts.in_output.values()), device=logits.device).double()
    values = logits[tokens].double()
    by = params.repetition_penalty
    values = torch.where(values > 0, values / by, values * by)
    values -= params.frequency_penalty * times
    values -= params.presence_penalty * (times > 0)
    logits[tokens] = values.clamp(-LARGEST, LARGEST).float()


def forbid_ends(logits: Tensor, row: SamplingRow) -> None:
    """Neither EOS nor a stop token can be chosen, not even if EOS is ignored; in place.

    (vLLM does it before bias and penalties; they leave what is forbidden forbidden.)
    """
    ends = {*row.eos_token_ids, *row.params.stop_token_ids}
    logits[[token for token in ends if token < logits.shape[-1]]] = float("-inf")


# --- the draw ----------------------------------------------------------------------------------


def draw(logits: Tensor, rows: Sequence[SamplingRow]) -> Draws:
    """One draw a row, by inversion of its distribution function.

    The function runs over the vocabulary in its own order, not by probability: two improbable
    tokens that change places because another batch rounds differently then change nothing.
    """
    temperature = [[row.params.temperature] for row in rows]
    scaled = logits.double() / torch.tensor(temperature, dtype=torch.float64, device=logits.device)
    for row, own in zip(rows, scaled.unbind(), strict=True):
        keep_min_p(own, row.params.min_p)
        keep_top_k(own, row.params.top_k)
        keep_top_p(own, row.params.top_p)
    probabilities = torch.softmax(scaled, dim=-1)
    mass = probabilities.cumsum(dim=-1)
    draws = torch.tensor(
        [[uniform(row.seed, row.output_index)] for row in rows],
        dtype=torch.float64,
        device=logits.device,
    )
    whole = mass[:, -1:].contiguous()
    tokens = torch.searchsorted(mass, draws * whole, right=True)
    # A draw that rounds up to all of the mass belongs to the last token that has any.
    last = torch.searchsorted(mass, whole)
    return Draws(torch.minimum(tokens, last)[:, 0].tolist(), probabilities)


def keep_min_p(logits: Tensor, min_p: float) -> None:
    """Forbid what has less than `min_p` times the probability of the largest, in place."""
    if min_p > 0.0:
        logits[logits < logits.max() + math.log(min_p)] = float("-inf")


def keep_top_k(logits: Tensor, top_k: int) -> None:
    """Forbid all but the `top_k` largest (and those equal to the last of them), in place."""
    if 0 < top_k < logits.shape[0]:
        logits[logits < logits.topk(top_k).values[-1]] = float("-inf")


def keep_top_p(logits: Tensor, top_p: float) -> None:
    """Forbid all but the smallest set of most probable tokens with `top_p` of the mass, in place.

    A token stays if those before it hold less than `top_p`; so the first always stays.
    """
    if top_p >= 1.0:
        return
    probabilities = torch.softmax(logits, dim=-1)
    size = logits.shape[0]
    for count in (min(FIRST_LOOK, size), size):
        values, tokens = probabilities.topk(count)
        before = values.cumsum(0) - values
        kept = tokens[before < top_p]
        if len(kept) < count:
            break
    allowed = logits[kept]
    logits.fill_(float("-inf"))
    logits[kept] = allowed
