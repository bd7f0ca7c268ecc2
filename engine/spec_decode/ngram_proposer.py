"""Drafts by prompt look-up: what followed, where the text's last tokens stood before.

Box `gpu-runner`. Counterpart in vLLM 0.26.0: `vllm/v1/spec_decode/ngram_proposer.py`. There is no
second model: a text that repeats itself is its own drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.config import EngineConfig


class Proposal(NamedTuple):
    """Drafts for one request, and where they come from."""

    token_ids: tuple[int, ...]
    matched_at: int  # position where its last tokens stood before: of the first of them
    num_matched: int  # how many of the last tokens stood there


class NgramProposer:
    """Looks for the longest end of a text that occurs earlier in it."""

    def __init__(self, min_n: int, max_n: int, num_speculative_tokens: int, max_model_len: int):
        self.min_n = min_n
        self.max_n = max_n
        self.num_speculative_tokens = num_speculative_tokens
        self.max_model_len = max_model_len

    @classmethod
    def of(cls, config: EngineConfig) -> NgramProposer | None:
        """The proposer that an engine's settings ask for, if they ask for any."""
        speculation = config.speculative_config
        if speculation is None:
            return None
        assert speculation.prompt_lookup_min and speculation.prompt_lookup_max
        assert config.max_model_len is not None, "resolve the config first"
        return cls(
            speculation.prompt_lookup_min,
            speculation.prompt_lookup_max,
            speculation.num_speculative_tokens,
            config.max_model_len,
        )

    def propose(self, token_ids: Sequence[int]) -> Proposal | None:
        """What may follow `token_ids` (prompt and output so far, not empty); None: no idea.

        Of the places where as many of the last tokens stand as anywhere, up to `max_n`, the first
        is taken (the place may overlap the end itself). There are no drafts beyond the end of the
        text, nor beyond the model's length.
        """
        most = min(self.num_speculative_tokens, self.max_model_len - len(token_ids))
        if most <= 0:
            return None
        tokens = np.asarray(token_ids)
        ends = np.arange(1, len(tokens))  # of places: each ends before this token
        matched = 0
        while matched < self.max_n:
            longer = ends[ends > matched]
            longer = longer[tokens[longer - 1 - matched] == tokens[-1 - matched]]
            if not len(longer):
                break
            ends, matched = longer, matched + 1
        if matched < self.min_n:
            return None
        end = int(ends[0])
        drafts = tuple(tokens[end : end + most].tolist())
        return Proposal(drafts, end - matched, matched)
