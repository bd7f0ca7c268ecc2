"""Which drafts of a request the model would have written itself.

Box `gpu-runner`. Counterpart in vLLM 0.26.0: `vllm/v1/sample/rejection_sampler.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.sampler import Sampled


def verify(draft_token_ids: Sequence[int], chosen: Sequence[Sampled]) -> list[Sampled]:
    """What a request gets of a step: its accepted drafts, and one token more.

    `chosen[i]` was chosen by the model behind `draft_token_ids[:i]`; there is one more than drafts.
    A draft is accepted where it is what was chosen. The first that is not ends it, and what was
    chosen in its place is kept; where there is none, the last one chosen is a bonus. Padding (-1)
    is never chosen.

    This is rejection sampling. It accepts a draft x with probability min(1, p(x) / q(x)), and draws
    from where p is more than q otherwise. A look-up is certain of its draft, q(x) = 1, so that
    these are p(x), and p without x. Drawing once from p and comparing does both with one number:
    no token is more or less likely than without drafts. The number is the one that the request's
    seed has for this place of its output, so that even the text stays the same. (vLLM draws anew.)
    """
    accepted = 0
    while accepted < len(draft_token_ids) and chosen[accepted].token == draft_token_ids[accepted]:
        accepted += 1
    return list(chosen[: accepted + 1])
