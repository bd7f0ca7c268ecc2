"""What passes between the parts: scheduler -> runner -> scheduler -> front end -> client.

vLLM 0.26.0: `vllm/v1/core/sched/output.py`, `vllm/v1/outputs.py`, `vllm/outputs.py`.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from engine.config import SamplingParams

T = TypeVar("T")
ScheduledKind = Literal["new", "resumed", "running"]


class TokenLogprobs(NamedTuple):
    """How probable a token was to the model, before anything that sampling does to its logits.

    Natural logarithms of probabilities. `rank` is 1 where no token was more probable; tokens as
    probable as this one count as ahead of it, as in vLLM.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]  # (token id, logprob) of the most probable, best first


PromptLogprobs = tuple[TokenLogprobs | None, ...]  # by prompt token; nothing predicts the first


class NewRequestData(NamedTuple):
    """What the runner has to be told of a request once, when it is admitted or resumed."""

    all_token_ids: tuple[int, ...]  # prompt and, after a preemption, the output so far
    num_prompt_tokens: int
    sampling_params: SamplingParams


class ScheduledRequest(NamedTuple):
    """One request's share of a step."""

    request_id: str
    kind: ScheduledKind
    num_tokens: int  # given to it in this step
    num_computed_tokens: int  # before this step; a prefix hit counts
    new_block_ids: tuple[int, ...]  # taken from the pool for it in this step
    hit_block_ids: tuple[int, ...]  # its prefix hit; empty for `running`
    data: NewRequestData | None  # for `new` and `resumed`
    draft_token_ids: tuple[int, ...] = ()  # the last of its tokens; -1: padding

    @property
    def admitted_block_ids(self) -> tuple[int, ...]:
        """The block table a `new` or `resumed` request begins with."""
        return self.hit_block_ids + self.new_block_ids


class SchedulerOutput(NamedTuple):
    """The decisions of one step, in scheduling order."""

    scheduled: tuple[ScheduledRequest, ...]
    total_num_scheduled_tokens: int
    num_common_prefix_blocks: int
    preempted_req_ids: tuple[str, ...]  # since the last step's end
    finished_req_ids: tuple[str, ...]  # finished or aborted since the last `schedule`


class ModelRunnerOutput(NamedTuple):
    """The tokens of one step, for each request whose known tokens are all computed now.

    One token a request, and one more for each of its drafts that was accepted.
    """

    sampled_token_ids: dict[str, tuple[int, ...]]  # by request id, in scheduling order
    logprobs: dict[str, tuple[TokenLogprobs, ...]] = {}  # of these tokens, where asked for
    prompt_logprobs: dict[str, PromptLogprobs] = {}  # where asked for, with the first token
    draft_token_ids: dict[str, tuple[int, ...]] = {}  # proposed for the next step, by request id

    def only(self, request_ids: AbstractSet[str]) -> ModelRunnerOutput:
        """The part of it that these requests have."""

        def kept(items: dict[str, T]) -> dict[str, T]:
            return {key: item for key, item in items.items() if key in request_ids}

        tokens, logprobs, prompt_logprobs, drafts = self
        return ModelRunnerOutput(kept(tokens), kept(logprobs), kept(prompt_logprobs), kept(drafts))

    def rated(self, outputs: list[EngineCoreOutput]) -> list[EngineCoreOutput]:
        """`outputs` with how probable their tokens are, where that was asked for."""
        if not self.logprobs and not self.prompt_logprobs:
            return outputs
        return [
            item._replace(
                logprobs=self._logprobs_of(item),
                prompt_logprobs=self.prompt_logprobs.get(item.request_id),
            )
            for item in outputs
        ]

    def _logprobs_of(self, item: EngineCoreOutput) -> tuple[TokenLogprobs, ...] | None:
        logprobs = self.logprobs.get(item.request_id)
        return None if logprobs is None else logprobs[: len(item.new_token_ids)]


class EngineCoreOutput(NamedTuple):
    """What one request got in one step."""

    request_id: str
    new_token_ids: tuple[int, ...]
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: tuple[TokenLogprobs, ...] | None = None  # of each new token, where asked for
    prompt_logprobs: PromptLogprobs | None = None  # with the first tokens, where asked for


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What the client sees of one request after one step: a delta of text, never taken back."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    stop_reason: int | str | None
    index: int = 0  # which of the request's n sequences
    logprobs: tuple[TokenLogprobs, ...] | None = None  # of each new token, where asked for
