"""What the engine is asked to be, and what a request asks for.

Names and defaults are vLLM 0.26.0's (`vllm/config/*`, `vllm/sampling_params.py`), except where a
small engine on a page wants smaller numbers: the pool, the token budget and the seats.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

LEAST_TEMPERATURE = 0.01  # above 0; vLLM raises what is lower to it
MAX_STOP_STRINGS = 16
MAX_STOP_TOKENS = 64
MAX_SEQUENCES = 16  # of one request (vLLM takes 16,384)
MAX_LOGPROBS = 20  # as vLLM's max_logprobs
MAX_BIASED_TOKENS = 1_024
MAX_CACHE_SALT = 1_024  # characters
MAX_BIAS = 100.0
MAX_BLOCKS = 65_536  # of a pool
MAX_DRAFTS = 128  # of a request in a step (vLLM has no limit)
NGRAM_SIZE = 5  # where neither lookup size is given
MAX_GRAPH_SIZES = 128
MAX_ERRORS = 10  # named in one message; a client may have sent a thousand wrong values


def clamp_bias(bias: float) -> float:
    """A bias as vLLM takes it: what is beyond the limits counts as the limit."""
    return min(MAX_BIAS, max(-MAX_BIAS, bias))


def raise_temperature(temperature: float) -> float:
    """A temperature as vLLM takes it: what is lower than the least, and not 0, counts as it."""
    return max(temperature, LEAST_TEMPERATURE) if temperature > 0 else temperature


def seed_or_none(seed: int | None) -> int | None:
    """A seed as vLLM takes it: -1 is none."""
    return None if seed == -1 else seed


def cache_dtype_by_short_name(name: Any) -> Any:
    """vLLM's name for what people call otherwise."""
    short = {"fp16": "float16", "bf16": "bfloat16", "int8": "int8_per_token_head"}
    return short.get(name, name) if isinstance(name, str) else name


Temperature = Annotated[float, Field(ge=0.0, le=2.0), AfterValidator(raise_temperature)]
Seed = Annotated[int | None, Field(ge=-(2**63), lt=2**63), AfterValidator(seed_or_none)]
CacheDType = Annotated[
    Literal["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head"],
    BeforeValidator(cache_dtype_by_short_name),
]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
GraphSize = Annotated[int, Field(ge=1, le=32_768)]
Bias = Annotated[float, Field(allow_inf_nan=False), AfterValidator(clamp_bias)]


class SpeculativeConfig(BaseModel):
    """How tokens are drafted for the model to verify (vLLM 0.26.0: `vllm/config/speculative.py`).

    What the drafter is decides what the scheduler sets aside for it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["ngram", "draft_model", "eagle"] = Field(
        description="who drafts; ngram: the text itself"
    )
    num_speculative_tokens: int = Field(
        ge=1, le=MAX_DRAFTS, description="most tokens drafted for a request in a step"
    )
    prompt_lookup_min: int | None = Field(
        default=None, ge=1, description="fewest last tokens looked for"
    )
    prompt_lookup_max: int | None = Field(
        default=None, ge=1, description="most last tokens looked for"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_lookup_sizes(cls, values: Any) -> Any:
        """One of the two stands for the other where that is not given."""
        if not isinstance(values, dict) or values.get("method") != "ngram":
            return values
        sizes = [values.get(f"prompt_lookup_{end}") for end in ("min", "max")]
        given = [size for size in sizes if size is not None] or [NGRAM_SIZE]
        return {**values, "prompt_lookup_min": given[0], "prompt_lookup_max": given[-1]}

    @model_validator(mode="after")
    def _sizes_are_in_order(self) -> SpeculativeConfig:
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        if low is not None and high is not None and low > high:
            raise ValueError(f"prompt_lookup_min {low} is more than prompt_lookup_max {high}")
        return self

    @property
    def num_lookahead_tokens(self) -> int:
        """Slots beyond the scheduled tokens into which a drafter with KV of its own writes."""
        return 0 if self.method == "ngram" else self.num_speculative_tokens


class EngineConfig(BaseModel):
    """Settings of one engine. Sizes are counts of tokens, blocks or requests as named."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    block_size: int = Field(default=16, ge=1, le=128, description="tokens a KV-cache block holds")
    num_gpu_blocks: int = Field(
        default=64,
        ge=0,
        le=MAX_BLOCKS,
        description="blocks in the pool, the null one too; 0: all that fit",
    )
    gpu_memory_utilization: float = Field(
        default=0.92,
        gt=0.0,
        le=1.0,
        description="share of the memory, where num_gpu_blocks is 0",
    )
    kv_cache_memory_bytes: int | None = Field(
        default=None,
        ge=1,
        description="of the KV cache alone, where num_gpu_blocks is 0",
    )
    max_num_batched_tokens: int = Field(
        default=64, ge=1, le=32_768, description="token budget of a step, shared by all requests"
    )
    max_num_seqs: int = Field(default=8, ge=1, le=1024, description="most requests running at once")
    max_model_len: int | None = Field(
        default=None,
        ge=2,
        description="most tokens of a request; None: what model and pool both allow",
    )
    enable_prefix_caching: bool = Field(
        default=True, description="reuse full blocks with known content"
    )
    enable_chunked_prefill: bool = Field(
        default=True, description="split a prompt over several steps"
    )
    long_prefill_token_threshold: int = Field(
        default=0, ge=0, description="most tokens one request gets in a step; 0: no limit"
    )
    scheduling_policy: Literal["fcfs", "priority"] = Field(
        default="fcfs", description="first come first served, or by (priority, arrival)"
    )
    watermark: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        description="fraction of the pool kept free at admission, while others run",
    )
    scheduler_reserve_full_isl: bool = Field(
        default=True, description="admit a request only if its whole known sequence fits now"
    )
    async_scheduling: bool = Field(
        default=False, description="schedule the next step while the model runs the last one"
    )
    speculative_config: SpeculativeConfig | None = Field(
        default=None, description="draft tokens, and verify several of them in one step"
    )
    cache_uncomputed_blocks: bool = Field(
        default=False,
        description="keep blocks in the cache that a victim by priority never computed",
    )
    enforce_eager: bool = Field(default=False, description="never replay a captured graph")
    cudagraph_mode: Literal[
        "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"
    ] = Field(
        default="FULL_AND_PIECEWISE",
        description="what is replayed: of decode batches, and of all others",
    )
    cudagraph_capture_sizes: tuple[GraphSize, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_GRAPH_SIZES,
        description="tokens of graphs; None: by vLLM's rule",
    )
    max_cudagraph_capture_size: int | None = Field(
        default=None,
        ge=1,
        description="largest of these; None: twice the seats, 512 at most",
    )
    compilation_backend: Literal["auto", "inductor"] = Field(
        default="auto",
        description="compiles small operations of graphs; auto: nothing",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="of weights; auto: float32. In 16 bits a text may change with its batch",
    )
    quantization: Literal["int8_weight_only", "int4_weight_only"] | None = Field(
        default=None,
        description="of the weights of linear layers, on a CPU; None: none. It changes texts",
    )
    kv_cache_dtype: CacheDType = Field(
        default="auto",
        description="of keys and values in the pool; auto: as the weights; fp8: fp8_e4m3",
    )
    attention_backend: Literal["auto", "torch", "numba", "triton", "triton-interpret"] = Field(
        default="auto",
        description="what computes attention; auto: the fastest there is",
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="with the request's id, the seed of those that bring none",
    )

    @classmethod
    def parse(cls, values: dict[str, Any]) -> EngineConfig:
        """Validate `values`; raise `ConfigError` with one line for each field that is wrong."""
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(describe(error)) from None
        if config.max_num_scheduled_tokens < 1:
            raise ConfigError(
                f"max_num_batched_tokens {config.max_num_batched_tokens}: a draft model takes one "
                f"for each of the {config.max_num_seqs} seats (max_num_seqs), which leaves none; "
                f"raise it to {config.max_num_seqs + 1} or more"
            )
        return config

    @property
    def num_speculative_tokens(self) -> int:
        """Most drafts of a request in a step; 0: nothing speculates."""
        return self.speculative_config.num_speculative_tokens if self.speculative_config else 0

    @property
    def max_num_scheduled_tokens(self) -> int:
        """What the scheduler may give out in a step: a draft model adds a slot for each seat.

        (vLLM 0.26.0: `VllmConfig._set_max_num_scheduled_tokens`.)
        """
        drafter = self.speculative_config
        slots = self.max_num_seqs if drafter and drafter.method == "draft_model" else 0
        return self.max_num_batched_tokens - slots

    def largest_request(self) -> int:
        """Tokens of the longest request that the pool can hold by itself (block 0 is not given)."""
        return (self.num_gpu_blocks - 1) * self.block_size

    @property
    def pool_set_by(self) -> str:
        """The setting that says how large the pool is, and so the one to raise."""
        if self.num_gpu_blocks:
            return "num_gpu_blocks"
        given = self.kv_cache_memory_bytes is not None
        return "kv_cache_memory_bytes" if given else "gpu_memory_utilization"

    def with_blocks(self, num_gpu_blocks: int) -> EngineConfig:
        """The same with a pool of so many blocks."""
        return self.model_copy(update={"num_gpu_blocks": num_gpu_blocks})

    def resolve(self, model_max_len: int, num_gpu_blocks: int | None = None) -> EngineConfig:
        """Fill in `max_model_len`, or raise `ConfigError` where model or pool cannot hold it.

        `num_gpu_blocks` is how many blocks the memory holds, where the settings leave it open.

        A step must have a token for every seat. Without chunked prefill it must hold a whole
        sequence, or a long one would wait for ever once it is preempted. (vLLM refuses both as
        well: `vllm/config/scheduler.py`. Recorded workloads have more seats than tokens, so the
        scheduler itself takes them.)
        """
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} is less than max_num_seqs "
                f"{self.max_num_seqs}, and a step must have a token for every running request; "
                f"raise it to {self.max_num_seqs} or more, or lower max_num_seqs"
            )
        self._check_speculation()
        sized = self if num_gpu_blocks is None else self.with_blocks(num_gpu_blocks)
        fits = min(model_max_len, sized.largest_request())
        if not self.enable_chunked_prefill:
            fits = min(fits, self.max_num_batched_tokens)
        if fits < 2:
            raise ConfigError(
                f"num_gpu_blocks {sized.num_gpu_blocks}: a request has 2 tokens at least, and pool "
                f"and step allow {fits}; raise {self.pool_set_by}, block_size or "
                "max_num_batched_tokens"
            )
        wanted = self.max_model_len
        if wanted is None:
            return sized.model_copy(update={"max_model_len": fits})
        if wanted > model_max_len:
            raise ConfigError(
                f"max_model_len {wanted} is more than the {model_max_len} positions the model "
                f"knows; set it to {fits} or less"
            )
        if wanted > sized.largest_request():
            blocks = sized.num_gpu_blocks - 1
            hold = "1 block of {} holds" if blocks == 1 else f"{blocks} blocks of {{}} hold"
            raise ConfigError(
                f"max_model_len {wanted} does not fit the KV cache: "
                f"{hold.format(self.block_size)} {sized.largest_request()} tokens; set it to "
                f"{fits} or less, or raise {self.pool_set_by}"
            )
        if wanted > fits:
            raise ConfigError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} is less than max_model_len "
                f"{wanted}, and without chunked prefill a step must hold a whole sequence; raise "
                "it, lower max_model_len, or switch enable_chunked_prefill on",
                field="max_num_batched_tokens",
            )
        return sized

    def _check_speculation(self) -> None:
        """Raise `ConfigError` where no engine can run it: the scheduler alone knows more methods.

        (vLLM 0.26.0 refuses ngram with asynchronous scheduling too: `vllm/config/vllm.py`.)
        """
        drafter = self.speculative_config
        if drafter is None:
            return
        if drafter.method != "ngram":
            raise ConfigError(
                f"speculative_config: method {drafter.method} needs a second model, and none can "
                "be loaded here; set method to ngram"
            )
        if self.async_scheduling:
            raise ConfigError(
                "speculative_config: method ngram drafts from the tokens of the last step, and "
                "async_scheduling schedules before these are known; switch one of them off"
            )


class SamplingParams(BaseModel):
    """How the tokens of one request are chosen and when they end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: Temperature = Field(default=1.0, description="0: greedy")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0, description="0: all tokens")
    min_p: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="least probability, as a part of the most probable token's; 0: none",
    )
    repetition_penalty: float = Field(
        default=1.0,
        gt=0.0,
        allow_inf_nan=False,
        description="divides what speaks for a token of prompt or output; 1: none",
    )
    presence_penalty: float = Field(
        default=0.0, ge=-2.0, le=2.0, description="taken from each token of the output, once"
    )
    frequency_penalty: float = Field(
        default=0.0, ge=-2.0, le=2.0, description="taken from a token as often as it was generated"
    )
    logit_bias: dict[TokenId, Bias] | None = Field(
        default=None,
        max_length=MAX_BIASED_TOKENS,
        description="added to the logits of these tokens; as in vLLM, -100 to 100 at most",
    )
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_LOGPROBS,
        description="so many most probable tokens are told beside each one generated",
    )
    prompt_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_LOGPROBS,
        description="the same for the prompt's tokens; such a request reads no cached prefix",
    )
    n: int = Field(
        default=1, ge=1, le=MAX_SEQUENCES, description="sequences generated from the one prompt"
    )
    seed: Seed = Field(
        default=None,
        description="None: from the engine's seed and the request's id",
    )
    max_tokens: int = Field(default=16, ge=1)
    min_tokens: int = Field(default=0, ge=0, description="below it, nothing stops the request")
    stop: tuple[str, ...] = Field(default=(), max_length=MAX_STOP_STRINGS)
    stop_token_ids: tuple[TokenId, ...] = Field(default=(), max_length=MAX_STOP_TOKENS)
    ignore_eos: bool = False

    @classmethod
    def parse(cls, values: dict[str, Any]) -> SamplingParams:
        """Validate `values`; raise `ConfigError` with one line for each field that is wrong."""
        try:
            params = cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(describe(error)) from None
        if params.min_tokens > params.max_tokens:
            raise ConfigError(
                f"min_tokens: {params.min_tokens} is more than max_tokens ({params.max_tokens})",
                field="min_tokens",
            )
        if "" in params.stop:
            raise ConfigError("stop: a stop string cannot be empty; leave it out", field="stop")
        if params.n > 1 and params.is_greedy:
            raise ConfigError(
                f"n: {params.n} sequences would all be the same, since temperature "
                f"{params.temperature:g} is greedy; set temperature above 0, or n to 1",
                field="n",
            )
        return params

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken, as vLLM decides it."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether the request's own tokens change the logits."""
        given = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return given != (1.0, 0.0, 0.0)


class ConfigError(ValueError):
    """A setting that cannot be; the message names the field, what is wrong and what would do."""

    def __init__(self, message: str, field: str | None = None):
        super().__init__(message)
        self.field = field if field is not None else re.split("[:. ]", message, maxsplit=1)[0]


_WORDINGS = {
    "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}",
    "literal_error": "must be {expected}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a number that is not infinite",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "extra_forbidden": "there is no such setting",
    "model_type": "must be an object of settings",
    "tuple_type": "must be a list",
    "too_short": "must have {min_length} or more",
    "too_long": "must have {max_length} at most",
}


def _lacks_only_wrong_ones(item: Any) -> bool:
    """Whether a list is called too short because members are wrong, which are named themselves."""
    return item["type"] == "too_short" and bool(len(item["input"]) >= item["ctx"]["min_length"])


def describe(error: ValidationError) -> str:
    """A validation error in words, by field: `max_num_seqs: must be 1 or more (got -1)`."""
    lines = []
    items = [item for item in error.errors(include_url=False) if not _lacks_only_wrong_ones(item)]
    for item in items[:MAX_ERRORS]:
        parts = [repr(str(part)[:60])[1:-1] for part in item["loc"] if part != "[key]"]
        where = ".".join(parts) or "value"
        wording = _WORDINGS.get(item["type"])
        text = wording.format(**item.get("ctx", {})) if wording else item["msg"]
        text = text.removeprefix("Value error, ")
        text = text[:1].lower() + text[1:]
        if where == "num_gpu_blocks" and item["type"].startswith("int"):
            text += "; 0 takes all that the memory holds"
        lines.append(f"{where}: {text} (got {item['input']!r:.60})")
    if len(items) > MAX_ERRORS:
        lines.append(f"and {len(items) - MAX_ERRORS} more")
    return "; ".join(lines)
