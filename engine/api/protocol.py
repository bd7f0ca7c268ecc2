"""What goes over the wire: OpenAI's requests, responses and errors as far as served.

Box `client-req`, its other end. vLLM 0.26.0: the `protocol.py` files of `vllm/entrypoints/openai/`.
A parameter that is not served is refused with its name, unless its value asks for nothing; so
is one that nobody knows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from engine.config import (
    MAX_BIASED_TOKENS,
    MAX_CACHE_SALT,
    MAX_LOGPROBS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKENS,
    SamplingParams,
)

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
MAX_PROMPTS = 64  # in one completion request

Number = StrictInt | StrictFloat
# Lists end at their first wrong item: an error for each of a million takes gigabytes.
StopStrings = Annotated[list[StrictStr], Field(max_length=MAX_STOP_STRINGS, fail_fast=True)]
StopTokens = Annotated[list[StrictInt], Field(max_length=MAX_STOP_TOKENS, fail_fast=True)]
TokenIds = Annotated[list[StrictInt], Field(fail_fast=True)]
Texts = Annotated[list[StrictStr], Field(fail_fast=True)]
ListsOfTokenIds = Annotated[list[TokenIds], Field(fail_fast=True)]

# Parameters that change nothing about the answer here, whatever they say.
IGNORED = frozenset(
    ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
)
# Parameters that are not served, or by the other endpoint only, with the values that ask for
# nothing.
NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "top_logprobs": (0,),
    "allowed_token_ids": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "structured_outputs": (),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "truncate_prompt_tokens": (),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "add_special_tokens": (),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}

# Parameters that the engine has under the same name; None is the engine's default.
AS_THEY_ARE = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty") + (
    "frequency_penalty",
    "logit_bias",
    "n",
)


class ApiError(Exception):
    """An error for the client, as OpenAI words them: `param` names the field that is wrong."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
    ):
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.kind = kind or ("server_error" if status >= 500 else "invalid_request_error")

    def body(self) -> dict[str, Any]:
        """The error object."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


class NoBody(BaseModel):
    """A command that needs no more said."""

    model_config = ConfigDict(extra="forbid")


class StreamOptions(BaseModel):
    """What a stream brings besides text."""

    model_config = ConfigDict(extra="forbid")

    include_usage: StrictBool | None = None
    continuous_usage_stats: StrictBool | None = None  # vLLM's
    include_obfuscation: StrictBool | None = None  # OpenAI's; there is nothing to hide here


class GenerationRequest(BaseModel):
    """What both endpoints share. Unknown names are collected, so that they can be answered."""

    model_config = ConfigDict(extra="allow")

    model: StrictStr | None = None
    max_tokens: StrictInt | None = Field(None, ge=1)
    min_tokens: StrictInt = Field(0, ge=0)
    temperature: Number | None = None
    top_p: Number | None = Field(None, gt=0, le=1)
    top_k: StrictInt | None = Field(None, ge=-1)  # -1, too, is all tokens
    min_p: Number | None = None
    repetition_penalty: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    logit_bias: dict[StrictStr, Number] | None = None
    n: StrictInt | None = None
    prompt_logprobs: StrictInt | None = None
    seed: StrictInt | None = None
    stop: StrictStr | StopStrings | None = None
    stop_token_ids: StopTokens | None = None
    ignore_eos: StrictBool = False
    priority: StrictInt = Field(0, ge=-(2**63), lt=2**63)
    cache_salt: StrictStr | None = Field(None, max_length=MAX_CACHE_SALT)
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None

    @field_validator("cache_salt", mode="before")
    @classmethod
    def _not_an_empty_salt(cls, value: Any) -> Any:
        if value is not None and (not isinstance(value, str) or not value):
            raise PydanticCustomError("no_salt", "must be a non-empty string, or left out")
        return value

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _not_too_many_biases(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MAX_BIASED_TOKENS:
            raise PydanticCustomError(
                "too_many", f"{len(value)} tokens are biased, at most {MAX_BIASED_TOKENS} may be"
            )
        return value

    def check(self) -> None:
        """Raise ApiError for a parameter that is not served, or does not go with the others."""
        for name, value in (self.model_extra or {}).items():
            if name in IGNORED or value is None or asks_nothing(name, value):
                continue
            if name in NOT_SERVED:
                raise ApiError(f"{name}: not supported here", param=name, code="unsupported")
            shown = f"{name:.100}"  # which may have megabytes
            raise ApiError(
                f"{shown}: there is no such parameter", param=shown, code="unknown_parameter"
            )
        if self.stream_options is not None and not self.stream:
            raise ApiError(
                "stream_options: only a stream has them; set stream to true",
                param="stream_options",
            )
        if self.prompt_logprobs is not None and self.stream:
            raise ApiError(
                "prompt_logprobs: a stream does not have them; set stream to false",
                param="prompt_logprobs",
            )

    def _sampling_params(self, max_tokens: int, **logprobs: int | None) -> SamplingParams:
        """The engine's parameters; raises ConfigError."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        values: dict[str, Any] = {
            "max_tokens": max_tokens,
            "min_tokens": self.min_tokens,
            "stop": tuple(stop),
            "stop_token_ids": tuple(self.stop_token_ids or ()),
            "ignore_eos": self.ignore_eos,
            "seed": self.seed,
            "prompt_logprobs": self.prompt_logprobs,
            **logprobs,
        }
        if self.top_k is not None:
            values["top_k"] = max(self.top_k, 0)
        for name in AS_THEY_ARE:
            value = getattr(self, name)
            if value is not None:
                values[name] = value
        return SamplingParams.parse(values)

    @property
    def wants_usage(self) -> bool:
        """Whether the stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    @property
    def wants_usage_so_far(self) -> bool:
        """Whether each chunk has its choice's usage; as in vLLM, only beside that of the end."""
        return self.wants_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats
        )


class CompletionRequest(GenerationRequest):
    """The body of POST /v1/completions."""

    prompt: StrictStr | TokenIds | Texts | ListsOfTokenIds
    max_tokens: StrictInt | None = Field(None, ge=0)
    logprobs: StrictInt | None = None
    echo: StrictBool | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _not_too_many(cls, value: Any) -> Any:
        if isinstance(value, list) and len(value) > MAX_PROMPTS and not isinstance(value[0], int):
            raise PydanticCustomError(
                "too_many", f"{len(value)} prompts in one request, at most {MAX_PROMPTS} go"
            )
        return value

    def check(self) -> None:
        """Raise ApiError for a parameter that is not served, or does not go with the others."""
        super().check()
        if self.max_tokens == 0 and not self.echo:
            raise ApiError(
                "max_tokens: must be 1 or more; 0 goes only with echo", param="max_tokens"
            )

    def sampling_params(self) -> SamplingParams:
        """The engine's parameters; raises ConfigError. Like vLLM, it generates a token for 0."""
        max_tokens = DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        prompt_logprobs = self.prompt_logprobs
        if self.echo and prompt_logprobs is None:
            prompt_logprobs = self.logprobs
        return self._sampling_params(
            max(max_tokens, 1), logprobs=self.logprobs, prompt_logprobs=prompt_logprobs
        )

    def prompts(self) -> list[str | list[int]]:
        """One prompt for each choice of the answer."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise ApiError("prompt: it is empty; give at least one token", param="prompt")
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return [item for item in self.prompt if not isinstance(item, int)]


class TextPart(BaseModel):
    """A piece of a message's content."""

    type: Literal["text"]
    text: StrictStr


class ChatMessage(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant"]
    content: StrictStr | Annotated[list[TextPart], Field(fail_fast=True)]

    @model_validator(mode="after")
    def _nothing_else(self) -> ChatMessage:
        """What would be lost is refused; programs send back the empty fields of an answer."""
        for name, value in (self.model_extra or {}).items():
            if name != "name" and value not in (None, []):
                raise PydanticCustomError("unsupported", f"{name:.100}: not supported here")
        return self

    def plain(self) -> dict[str, str]:
        """The message as chat templates know it."""
        if isinstance(self.content, str):
            text = self.content
        else:
            text = "\n".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(GenerationRequest):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1_000, fail_fast=True)]
    max_completion_tokens: StrictInt | None = Field(None, ge=1)
    logprobs: StrictBool | None = None
    top_logprobs: StrictInt | None = Field(None, ge=0, le=MAX_LOGPROBS)

    def check(self) -> None:
        """Raise ApiError for a parameter that is not served, or does not go with the others."""
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise ApiError("top_logprobs: set logprobs to true as well", param="top_logprobs")

    def sampling_params(self, most_tokens: int) -> SamplingParams:
        """The engine's parameters, with this limit where the body has none; raises ConfigError."""
        asked = self.max_completion_tokens or self.max_tokens
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return self._sampling_params(asked or most_tokens, logprobs=logprobs)


def asks_nothing(name: str, value: Any) -> bool:
    """Whether a parameter that is not served has the value that means doing without it."""
    return any(
        value == idle and isinstance(value, bool) == isinstance(idle, bool)
        for idle in NOT_SERVED.get(name, ())
    )


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """OpenAI's usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
