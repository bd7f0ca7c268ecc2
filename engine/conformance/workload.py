"""The schema of a workload file, and what follows from it alone: requests and their tokens."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine.config import ConfigError, EngineConfig, SamplingParams, TokenId, describe

EOS_TOKEN_ID = 2
MAX_STEPS = 100_000

# Of a workload's config, what there is only with drafts.
SPECULATION = ("num_speculative_tokens", "spec_method", "accept", "draft_len")

Step = Annotated[int, Field(ge=0, lt=MAX_STEPS)]


class WorkloadError(ValueError):
    """A workload that is none; the message has a line for each place that is wrong."""


class WorkloadConfig(BaseModel):
    """The engine's side of a workload; names and defaults are the recorder's."""

    model_config = ConfigDict(extra="forbid")

    block_size: int = 16
    num_gpu_blocks: int = Field(default=64, ge=2)  # a recorded pool has its size
    max_num_batched_tokens: int = 64
    max_num_seqs: int = 8
    max_model_len: int = 256
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = False
    # With drafts: how many, for what kind of drafter, and how `Drafter` makes them.
    num_speculative_tokens: int | None = None
    spec_method: Literal["ngram", "draft_model", "eagle"] = "ngram"
    accept: tuple[int, int] = (1, 1)
    draft_len: tuple[int, int] | None = None

    @model_validator(mode="after")
    def _drafts_are_synchronous(self) -> WorkloadConfig:
        if self.num_speculative_tokens is None:
            if named := [name for name in SPECULATION[1:] if name in self.model_fields_set]:
                raise ValueError(f"{named[0]} says nothing without num_speculative_tokens")
        elif self.async_scheduling:
            raise ValueError("drafts are described with synchronous scheduling only")
        return self

    def described(self) -> dict[str, Any]:
        """As a trace's first line has it: what drafts are made of only where there are any."""
        plain = self.num_speculative_tokens is None
        return self.model_dump(exclude=set(SPECULATION) if plain else None)

    def engine_config(self, cache_uncomputed_blocks: bool) -> EngineConfig:
        """The same as this engine names it, with the one setting that vLLM does not have."""
        values = self.model_dump(exclude={"policy", *SPECULATION})
        values["scheduling_policy"] = self.policy
        if self.num_speculative_tokens is not None:
            values["speculative_config"] = {
                "method": self.spec_method,
                "num_speculative_tokens": self.num_speculative_tokens,
            }
        return EngineConfig.parse({**values, "cache_uncomputed_blocks": cache_uncomputed_blocks})


class WorkloadRequest(BaseModel):
    """One request: when it comes, what it asks for, and what its output will be."""

    model_config = ConfigDict(extra="forbid")

    id: str
    arrival_step: Step = 0
    prompt_token_ids: list[TokenId] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    priority: int = 0
    arrival_time: float | None = Field(default=None, allow_inf_nan=False)
    abort_step: Step | None = None
    abort_phase: Literal["before", "during"] = "before"
    eos_at: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    stop_token_ids: list[int] = []
    stop_at: int | None = None
    sample_seed: int | None = None

    @model_validator(mode="after")
    def _a_stop_has_its_token(self) -> WorkloadRequest:
        if self.stop_at is not None and not self.stop_token_ids:
            raise ValueError("stop_at needs stop_token_ids, whose first is the token it stops at")
        return self

    def sampling_params(self) -> SamplingParams:
        """The same as this engine names it; raises ConfigError."""
        return SamplingParams.parse(
            {
                "temperature": 0.0,
                "max_tokens": self.max_tokens,
                "min_tokens": self.min_tokens,
                "ignore_eos": self.ignore_eos,
                "stop_token_ids": tuple(self.stop_token_ids),
            }
        )


class WorkloadAction(BaseModel):
    """Something done to the scheduler before a step is scheduled."""

    model_config = ConfigDict(extra="forbid")

    step: Step
    op: Literal["reset_prefix_cache"]
    reset_running_requests: bool = False


class Workload(BaseModel):
    """A whole workload file."""

    model_config = ConfigDict(extra="forbid")

    name: str
    about: str = ""
    config: WorkloadConfig = WorkloadConfig()
    requests: list[WorkloadRequest] = Field(min_length=1)
    actions: list[WorkloadAction] = []

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Workload:
        ids = [request.id for request in self.requests]
        if len(set(ids)) != len(ids):
            raise ValueError("two requests have the same id")
        return self


def read(path: Path) -> bytes:
    """What a file holds; `WorkloadError`, with its path, where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read ({error.strerror})") from None


def load_workload(path: Path) -> tuple[Workload, str]:
    """The workload and its file's SHA-256; `WorkloadError` where it is none."""
    data = read(path)
    try:
        workload = Workload.model_validate_json(data)
    except ValidationError as error:
        raise WorkloadError(f"{path}: {describe(error)}") from None
    try:
        workload.config.engine_config(cache_uncomputed_blocks=True)
    except ConfigError as error:
        raise WorkloadError(f"{path}: config.{error}") from None
    limit = workload.config.max_model_len
    for index, request in enumerate(workload.requests):
        if len(request.prompt_token_ids) >= limit:
            raise WorkloadError(
                f"{path}: requests.{index}.prompt_token_ids: {len(request.prompt_token_ids)} "
                f"tokens; a prompt must be shorter than max_model_len ({limit})"
            )
        try:
            request.sampling_params()
        except ConfigError as error:
            raise WorkloadError(f"{path}: requests.{index}.{error}") from None
    return workload, hashlib.sha256(data).hexdigest()


class Sampler:
    """Stands in for the model: the n-th token of a request is a formula of its seed and n."""

    def __init__(self, workload: Workload):
        self._specs = {spec.id: (index, spec) for index, spec in enumerate(workload.requests)}

    def seed(self, request_id: str) -> int:
        """The sample seed of a request."""
        index, spec = self._specs[request_id]
        return index if spec.sample_seed is None else spec.sample_seed

    def token(self, request_id: str, number: int) -> int:
        """The `number`-th output token (from 1) of a request."""
        _, spec = self._specs[request_id]
        if spec.eos_at == number:
            return EOS_TOKEN_ID
        if spec.stop_at == number:
            return spec.stop_token_ids[0]
        seed = self.seed(request_id)
        return 1000 + (seed * 7919 + number * 104729) % 40009
