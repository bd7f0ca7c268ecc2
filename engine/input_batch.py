"""What the runner knows of its requests, and how a step's share of them becomes rows.

Box `gpu-runner`. Counterpart in vLLM 0.26.0: `vllm/v1/worker/gpu_input_batch.py`, and
`_prepare_inputs` of `vllm/v1/worker/gpu_model_runner.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.config import SamplingParams
from engine.events import InputsPrepared
from engine.outputs import NewRequestData, ScheduledRequest, TokenLogprobs
from engine.sampler import TokenCounts, request_seed


@dataclass(slots=True)
class CachedRequestState:
    """What the runner knows of a request, so that it is told only what changes."""

    token_ids: list[int]  # prompt and output
    num_prompt_tokens: int
    block_ids: list[int]  # logical index -> physical block
    sampling_params: SamplingParams
    seed: int
    counts: TokenCounts | None  # where there are penalties
    prompt_logprobs: list[TokenLogprobs | None] | None  # so far; None: not wanted, or told

    @classmethod
    def of(
        cls, item: ScheduledRequest, data: NewRequestData, engine_seed: int
    ) -> CachedRequestState:
        """A request that is admitted or resumed."""
        tokens, num_prompt = data.all_token_ids, data.num_prompt_tokens
        params = data.sampling_params
        counts = None
        if params.has_penalties:
            counts = TokenCounts(tokens[:num_prompt], tokens[num_prompt:])
        # Whoever is resumed with output was told of its prompt with the first of it.
        untold = params.prompt_logprobs is not None and len(tokens) == num_prompt
        return cls(
            token_ids=list(tokens),
            num_prompt_tokens=num_prompt,
            block_ids=list(item.admitted_block_ids),
            sampling_params=params,
            seed=request_seed(params, engine_seed, item.request_id),
            counts=counts,
            prompt_logprobs=[None] if untold else None,
        )

    def append(self, token: int) -> None:
        """A token was generated."""
        self.token_ids.append(token)
        if self.counts is not None:
            self.counts.add(token)


class SampledRows(NamedTuple):
    """A request that gets tokens in this step, and its rows among the logits that are kept.

    There is a row for the token behind those known, and one behind each draft.
    """

    request_id: str
    draft_token_ids: tuple[int, ...]
    logits_row: int  # the first

    @property
    def logits_rows(self) -> range:
        """All of them."""
        return range(self.logits_row, self.logits_row + 1 + len(self.draft_token_ids))


class PromptRows(NamedTuple):
    """Rows among the logits that are kept that say how probable tokens of a prompt are."""

    request_id: str
    first: int  # position of the first row's token, which predicts the next one
    num_rows: int
    logits_row: int


class InputBatch(NamedTuple):
    """A step's rows, and what is wanted of them."""

    rows: InputsPrepared
    logits_to_keep: tuple[int, ...]  # rows: of prompts first, then to sample from
    prompt_rows: tuple[PromptRows, ...]
    sampled: tuple[SampledRows, ...]


def make_batch(
    scheduled: tuple[ScheduledRequest, ...],
    requests: Mapping[str, CachedRequestState],
    block_size: int,
) -> InputBatch:
    """The batch of `scheduled`, which has one request at least."""
    rows = flatten(scheduled, requests, block_size)
    prompt_rows, kept = choose_prompt_rows(scheduled, requests, rows)
    sampled = list[SampledRows]()
    for item, end, seq_len in zip(scheduled, rows.query_start_loc[1:], rows.seq_lens, strict=True):
        drafts = item.draft_token_ids
        if seq_len == len(requests[item.request_id].token_ids) + len(drafts):
            sampled.append(SampledRows(item.request_id, drafts, len(kept)))
            kept.extend(range(end - 1 - len(drafts), end))
    return InputBatch(rows, tuple(kept), prompt_rows, tuple(sampled))


def flatten(
    scheduled: tuple[ScheduledRequest, ...],
    requests: Mapping[str, CachedRequestState],
    block_size: int,
) -> InputsPrepared:
    """One row a token, the rows of a request next to each other, its drafts last.

    K and V of drafts go to their slots like all others. Where a draft is rejected, its request has
    no token there: nobody reads that slot before the token that comes there has overwritten it.
    """
    starts, seq_lens = [0], list[int]()
    input_ids, positions, slots = list[int](), list[int](), list[int]()
    for item in scheduled:
        state = requests[item.request_id]
        first, end = item.num_computed_tokens, item.num_computed_tokens + item.num_tokens
        drafts = item.draft_token_ids
        known = state.token_ids[first : end - len(drafts)]
        if len(known) + len(drafts) < item.num_tokens or end > len(state.block_ids) * block_size:
            raise RuntimeError(
                f"{item.request_id}: tokens {first} to {end} are scheduled, but it has "
                f"{len(state.token_ids)} tokens, {len(drafts)} drafts and "
                f"{len(state.block_ids)} blocks"
            )
        starts.append(starts[-1] + item.num_tokens)
        seq_lens.append(end)
        input_ids.extend(known)
        input_ids.extend(max(draft, 0) for draft in drafts)  # padding is some token
        positions.extend(range(first, end))
        slots.extend(slots_of(first, end, state.block_ids, block_size))
    return InputsPrepared(
        requests=tuple(item.request_id for item in scheduled),
        query_start_loc=tuple(starts),
        seq_lens=tuple(seq_lens),
        input_ids=tuple(input_ids),
        positions=tuple(positions),
        slot_mapping=tuple(slots),
    )


def slots_of(first: int, end: int, block_ids: Sequence[int], block_size: int) -> Iterator[int]:
    """Where K and V of tokens `first` to `end` of a request lie, block by block."""
    while first < end:
        index, offset = divmod(first, block_size)
        slot, count = block_ids[index] * block_size + offset, min(end - first, block_size - offset)
        yield from range(slot, slot + count)
        first += count


def choose_prompt_rows(
    scheduled: tuple[ScheduledRequest, ...],
    requests: Mapping[str, CachedRequestState],
    rows: InputsPrepared,
) -> tuple[tuple[PromptRows, ...], list[int]]:
    """The rows that predict tokens of prompts which somebody asked about: whose, and which."""
    chosen, kept = list[PromptRows](), list[int]()
    for item, start, end in zip(scheduled, rows.query_start_loc[:-1], rows.seq_lens, strict=True):
        state = requests[item.request_id]
        if state.prompt_logprobs is None:
            continue
        first = item.num_computed_tokens
        num_rows = max(0, min(end, state.num_prompt_tokens - 1) - first)
        chosen.append(PromptRows(item.request_id, first, num_rows, len(kept)))
        kept.extend(range(start, start + num_rows))
    return tuple(chosen), kept
