"""From logits to tokens (vLLM 0.26.0: `vllm/v1/sample`).

What a request draws depends on its own logits, its seed and how many tokens it has: never on the
batch, nor on a preemption in between.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.config import SamplingParams

FIRST_LOOK = 1024  # so many of the most probable tokens nearly always hold top_p of the mass


class SamplingRow(NamedTuple):
    """What one row of logits is sampled with."""

    params: SamplingParams
    seed: int
    output_index: int  # tokens that the request has generated
    eos_token_ids: tuple[int, ...]


def request_seed(params: SamplingParams, engine_seed: int, request_id: str) -> int:
    """The request's own seed, or one that engine and request id determine."""
    if params.seed is not None:
        return params.seed
    digest = hashlib.blake2b(f"{engine_seed}:{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniform(seed: int, index: int) -> float:
    """The `index`-th number of a seed's stream, in [0, 1)."""
    digest = hashlib.blake2b(struct.pack("<QQ", seed, index), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2.0**53


class Sampler:
    """Chooses a token for each row of logits."""

    def sample(self, logits: Tensor, rows: Sequence[SamplingRow]) -> list[int]:
        """logits is [rows, vocabulary]; it may be written to."""
        for i, row in enumerate(rows):
            forbid_ends(logits[i], row)
        drawn = [i for i, row in enumerate(rows) if not row.params.is_greedy]
        if len(drawn) == len(rows):
            return draw(logits, rows)
        tokens: list[int] = logits.argmax(dim=-1).tolist()
        if drawn:
            chosen = draw(logits[drawn], [rows[i] for i in drawn])
            for i, token in zip(drawn, chosen, strict=True):
                tokens[i] = token
        return tokens


def forbid_ends(logits: Tensor, row: SamplingRow) -> None:
    """Below min_tokens neither EOS nor a stop token can be chosen, not even if EOS is ignored."""
    if row.output_index < row.params.min_tokens:
        ends = {*row.eos_token_ids, *row.params.stop_token_ids}
        logits[[token for token in ends if token < logits.shape[-1]]] = float("-inf")


def draw(logits: Tensor, rows: Sequence[SamplingRow]) -> list[int]:
    """One draw a row, by inversion of its distribution function.

    The function runs over the vocabulary in its own order, not by probability: two improbable
    tokens that change places because another batch rounds differently then change nothing.
    """
    temperature = [[row.params.temperature] for row in rows]
    scaled = logits.double() / torch.tensor(temperature, dtype=torch.float64, device=logits.device)
    for i, row in enumerate(rows):
        keep_top_k(scaled[i], row.params.top_k)
        keep_top_p(scaled[i], row.params.top_p)
    mass = torch.softmax(scaled, dim=-1).cumsum(dim=-1)
    draws = torch.tensor(
        [[uniform(row.seed, row.output_index)] for row in rows],
        dtype=torch.float64,
        device=logits.device,
    )
    whole = mass[:, -1:].contiguous()
    tokens = torch.searchsorted(mass, draws * whole, right=True)
    # A draw that rounds up to all of the mass belongs to the last token that has any.
    last = torch.searchsorted(mass, whole)
    chosen: list[int] = torch.minimum(tokens, last)[:, 0].tolist()
    return chosen


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
