"""A request and its states (vLLM 0.26.0: `vllm/v1/request.py`)."""

from __future__ import annotations

from enum import StrEnum

from engine.config import SamplingParams


class RequestStatus(StrEnum):
    """Where a request stands. `submitted` is ours: accepted, but no step has begun since."""

    SUBMITTED = "submitted"
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended, as vLLM and the OpenAI API name it."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class Request:
    """One prompt and what became of it. Token lists hold vocabulary ids."""

    __slots__ = (
        "all_token_ids",
        "arrival_time",
        "async_tokens_to_discard",
        "block_hashes",
        "cache_salt",
        "eos_token_ids",
        "finish_reason",
        "hit_tokens",
        "is_prefill_chunk",
        "next",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_draft_tokens",
        "num_output_placeholders",
        "num_preemptions",
        "num_prompt_tokens",
        "num_tokens",
        "parent",
        "prev",
        "priority",
        "request_id",
        "sampling_params",
        "spec_token_ids",
        "status",
        "stop_reason",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        sampling_params: SamplingParams,
        eos_token_ids: tuple[int, ...] = (),
        priority: int = 0,
        arrival_time: float = 0.0,
        parent: str = "",
        cache_salt: str = "",
    ):
        self.request_id = request_id
        self.sampling_params = sampling_params
        self.eos_token_ids = eos_token_ids
        self.priority = priority
        self.arrival_time = arrival_time
        self.parent = parent  # id of the request of n sequences that this is one of
        self.cache_salt = cache_salt  # cached blocks are shared under the same one alone; "": none
        self.num_prompt_tokens = len(prompt_token_ids)
        self.all_token_ids = list(prompt_token_ids)  # grows by `append_output_token` alone
        self.num_tokens = self.num_prompt_tokens  # known: prompt and output so far
        self.num_computed_tokens = 0  # with those of batches in flight
        self.num_output_placeholders = 0  # tokens that batches in flight will deliver
        self.spec_token_ids: list[int] = []  # drafted for its next step; no tokens of it yet
        self.num_draft_tokens = 0  # in the step under way, counted as computed
        self.is_prefill_chunk = False  # with its last step, known tokens were left to compute
        self.async_tokens_to_discard = 0  # in flight and void: the cache was reset
        self.num_preemptions = 0
        self.hit_tokens = 0  # prefix hit at the latest admission
        self.num_cached_tokens = 0  # at the first one; later hits are on what it computed itself
        self.block_hashes: list[bytes] = []  # of the full blocks of all_token_ids
        self.status = RequestStatus.SUBMITTED
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.prev: Request | None = None
        self.next: Request | None = None

    @property
    def skip_reading_prefix_cache(self) -> bool:
        """Whether all of the prompt is computed: each of its tokens' logits are wanted."""
        return self.sampling_params.prompt_logprobs is not None

    def append_output_token(self, token: int) -> None:
        """Know one token more."""
        self.all_token_ids.append(token)
        self.num_tokens += 1

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        """The tokens generated so far (a copy)."""
        return self.all_token_ids[self.num_prompt_tokens :]
