"""InputProcessor: from what somebody asks for to tokens that the engine can take, or a refusal.

Part of box `async-engine`. vLLM 0.26.0: `vllm/v1/engine/input_processor.py` (`InputProcessor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.config import MAX_CACHE_SALT, ConfigError, EngineConfig, SamplingParams
from engine.reasons import PromptTextTooLong, PromptTooLong, Reason

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

Prompt = str | Sequence[int] | Sequence[dict[str, str]]  # text, token ids, or chat messages

MAX_PROMPT_LOGPROBS = 500_000  # of all prompts and sequences handed in at once
MAX_PROMPT_LOGITS_BYTES = 2 * 2**30  # of a request with prompt_logprobs, in one step

# One thread, as in vLLM: tokenizers are not made for two callers at once, and a stranger's long
# text must take no more than one core from the engine.
TOKENIZING = ThreadPoolExecutor(1, "tokenizer")


class RequestRefusedError(ValueError):
    """A request that this engine can never serve; `reason` has the numbers."""

    def __init__(self, message: str, reason: Reason):
        super().__init__(message)
        self.reason = reason

    def within(self, place: int, number: int) -> RequestRefusedError:
        """The same, said of one of several."""
        which = f"request {place} of {number}: " if number > 1 else ""
        return RequestRefusedError(f"{which}{self}", self.reason)


class Submission(NamedTuple):
    """What somebody asks for: a prompt, how it is continued, how urgent it is, who may share it."""

    prompt: Prompt
    params: SamplingParams = SamplingParams()
    priority: int = 0
    cache_salt: str = ""  # cached blocks are shared with requests of the same salt alone


class Encoded(NamedTuple):
    """A submission whose prompt has become tokens."""

    text: str
    token_ids: list[int]
    params: SamplingParams
    priority: int
    cache_salt: str


class InputProcessor:
    """Makes tokens of prompts, and says what an engine of these settings can never serve."""

    def __init__(self, model: LoadedModel, config: EngineConfig):
        self.model = model
        self.config = config

    def encode_all(self, submissions: Sequence[Submission]) -> list[Encoded]:
        """Tokens for all of them. Raises as `encode` does, and says which of several it was."""
        encoded = []
        for place, one in enumerate(submissions, start=1):
            check_salt(one.cache_salt)
            try:
                text, token_ids = self.encode(one.prompt)
            except RequestRefusedError as refusal:
                raise refusal.within(place, len(submissions)) from None
            encoded.append(Encoded(text, token_ids, *one[1:]))
        return encoded

    def encode(self, prompt: Prompt) -> tuple[str, list[int]]:
        """Text and token ids of a prompt; chat messages go through the model's template.

        Raises ConfigError, or RequestRefusedError for a prompt that is too long, as soon as that
        is certain: what has megabytes is not made into tokens first.
        """
        tokenizer: Any = self.model.tokenizer
        if isinstance(prompt, str):
            self._check_text(prompt, "prompt")
            text, token_ids = prompt, tokenizer(prompt)["input_ids"]
        elif prompt and isinstance(prompt[0], dict):
            text = self.chat_prompt([item for item in prompt if isinstance(item, dict)])
            self._check_text(text, "messages")
            token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            self._check_length(len(prompt))
            token_ids = [item for item in prompt if isinstance(item, int)]
            check_token_ids(token_ids, self.model.vocab_size)
            text = tokenizer.decode(token_ids)
        if not token_ids:
            raise ConfigError("prompt: it has no tokens; give it at least one", field="prompt")
        self._check_length(len(token_ids))
        return text, list(token_ids)

    def chat_prompt(self, messages: list[dict[str, str]]) -> str:
        """The messages as the text that the model was trained to answer."""
        tokenizer: Any = self.model.tokenizer
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                f"messages: {self.model.name} has no chat template; send a plain prompt instead",
                field="messages",
            )
        try:
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template is a program of the model's; it says no by raising
            first_line = str(error).strip().splitlines()[:1] or ["no reason given"]
            raise ConfigError(
                f"messages: the chat template of {self.model.name} refuses them: {first_line[0]}",
                field="messages",
            ) from None
        return str(text)

    def check_prompt_logprobs(self, batch: Sequence[Encoded], untold: int) -> None:
        """Refuse what would need gigabytes: the logits of all the prompts' tokens of a step.

        `untold`: so many tokens of prompts handed in before still wait for theirs.
        """
        asking = [item for item in batch if item.params.prompt_logprobs is not None]
        if not asking:
            return
        told = sum(
            item.params.n * len(item.token_ids) * (1 + (item.params.prompt_logprobs or 0))
            for item in asking
        )
        if told > MAX_PROMPT_LOGPROBS:
            raise ConfigError(
                f"prompt_logprobs: {told} log-probabilities of prompts are asked for at once, and "
                f"{MAX_PROMPT_LOGPROBS} may be; ask for fewer at each place, fewer prompts or "
                "fewer sequences"
            )
        most = MAX_PROMPT_LOGITS_BYTES // (4 * self.model.vocab_size)
        rows = sum(item.params.n * len(item.token_ids) for item in asking)
        rows += untold
        rows = min(rows, self.config.max_num_batched_tokens)
        if rows > most:
            raise ConfigError(
                f"prompt_logprobs: a step would keep the logits of {rows} tokens of prompts, "
                f"and may keep those of {most}; leave it out, or set max_num_batched_tokens to "
                f"{most} or less"
            )

    def why_refused(self, num_tokens: int) -> RequestRefusedError | None:
        """Why a prompt of this length can never be served here; None where it can.

        That it fits the pool, and a step where prefill is not chunked, goes without a check:
        `EngineConfig.resolve` lets no max_model_len pass that they cannot hold.
        """
        config = self.config
        longest = (config.max_model_len or 0) - 1
        if num_tokens > longest:
            return RequestRefusedError(
                f"the prompt has {num_tokens} tokens, and may have {longest} at most: "
                f"max_model_len is {config.max_model_len}, and one token must be left to answer",
                PromptTooLong(num_tokens, config.max_model_len or 0),
            )
        return None

    def why_text_refused(self, num_characters: int) -> RequestRefusedError | None:
        """Why a text is too long whatever its tokens; None where only they can tell.

        The bound is vLLM 0.26.0's (`vllm/renderers/params.py`): most tokens times the characters
        of the longest one.
        """
        config, longest = self.config, self.model.longest_token
        most = longest * ((config.max_model_len or 0) - 1)
        if num_characters > most:
            return RequestRefusedError(
                f"the prompt has {num_characters} characters, and may have {most} at most: "
                f"no token of {self.model.name} has more than {longest}, max_model_len is "
                f"{config.max_model_len}, and one token must be left to answer",
                PromptTextTooLong(num_characters, longest, config.max_model_len or 0),
            )
        return None

    def _check_text(self, text: str, field: str) -> None:
        refusal = self.why_text_refused(len(text))
        if refusal is not None:
            raise refusal
        check_text(text, field)

    def _check_length(self, num_tokens: int) -> None:
        refusal = self.why_refused(num_tokens)
        if refusal is not None:
            raise refusal


def check_text(text: str, field: str) -> None:
    """Raise ConfigError at half of a surrogate pair, which stands for no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{field}: the character at {error.start} is half of a surrogate pair; send whole "
            "characters",
            field=field,
        ) from None


def check_salt(cache_salt: str) -> None:
    """Raise ConfigError where this is no salt; "" is none."""
    check_text(cache_salt, "cache_salt")
    if len(cache_salt) > MAX_CACHE_SALT:
        raise ConfigError(
            f"cache_salt: it has {len(cache_salt)} characters, and may have {MAX_CACHE_SALT}",
        )


def check_token_ids(token_ids: list[int], vocab_size: int) -> None:
    """Raise ConfigError where the model knows no such token."""
    for token in token_ids:
        if not 0 <= token < vocab_size:
            raise ConfigError(
                f"prompt: token id {token} is outside the vocabulary (0 to {vocab_size - 1})",
                field="prompt",
            )


def check_logit_bias(params: SamplingParams, vocab_size: int) -> None:
    """Raise ConfigError where a bias is for a token that the model does not know."""
    for token in params.logit_bias or ():
        if token >= vocab_size:
            raise ConfigError(
                f"logit_bias: token id {token} is outside the vocabulary (0 to {vocab_size - 1})",
            )
