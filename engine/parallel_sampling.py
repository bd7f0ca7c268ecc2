"""A request of n sequences as n requests (vLLM 0.26.0: `vllm/v1/engine/parallel_sampling.py`).

Part of box `async-engine`. Scheduler and runner know nothing of it: the children share the blocks
of their prompt as any requests do, by what is cached when they are admitted.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.config import SamplingParams


class Sequence(NamedTuple):
    """One of the sequences: the id and the parameters of the request that generates it."""

    request_id: str
    params: SamplingParams


def sequences(request_id: str, params: SamplingParams) -> list[Sequence]:
    """The n requests of a request, in the order in which they are handed in.

    A single one keeps its id. Of several each has its own seed, counted on from the one that was
    given; without one their ids make their seeds differ.
    """
    if params.n == 1:
        return [Sequence(request_id, params)]
    return [
        Sequence(f"{index}_{request_id}", child_params(params, index)) for index in range(params.n)
    ]


def child_params(params: SamplingParams, index: int) -> SamplingParams:
    """The parameters of one of several sequences."""
    seed = None if params.seed is None else params.seed + index
    return params.model_copy(update={"n": 1, "seed": seed})
