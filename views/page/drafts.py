"""From what somebody typed to requests that the engine can take.

Nothing here knows Streamlit. `compose` turns a `Draft` (the composer's fields, as typed) into
submissions, or raises `ComposerError`, whose message names the field and the value that would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import ConfigError, SamplingParams
from engine.input_processor import Prompt, Submission

Mode = Literal["prompt", "chat"]
Split = Literal["one", "lines"]

MAX_AT_ONCE = 64


class ComposerError(ValueError):
    """What cannot be sent as it stands; the message is for the person who typed it."""


@dataclass(frozen=True)
class SamplingFields:
    """The sampling fields as they stand in the form: numbers may be missing, lists are text."""

    max_tokens: int | None = 16
    temperature: float | None = 0.0
    top_p: float | None = 1.0
    top_k: int | None = 0
    seed: int | None = None
    min_tokens: int | None = 0
    stop: str = ""
    stop_token_ids: str = ""
    ignore_eos: bool = False
    min_p: float | None = 0.0
    repetition_penalty: float | None = 1.0
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    logit_bias: str = ""


@dataclass(frozen=True)
class Draft:
    """The composer's fields."""

    text: str
    mode: Mode = "prompt"
    split: Split = "one"
    copies: int | None = 1
    n: int | None = 1
    system: str = ""
    priority: int | None = 0
    cache_salt: str = ""
    sampling: SamplingFields = SamplingFields()


def compose(draft: Draft) -> list[Submission]:
    """Return the draft's requests in order; raise `ComposerError` where there is none to send."""
    texts = _texts(draft)
    copies = _copies(draft, len(texts))
    params = sampling_params(draft.sampling, draft.n)
    rest = (params, draft.priority or 0, draft.cache_salt)
    return [Submission(_prompt(draft, text), *rest) for text in texts for _ in range(copies)]


def sampling_params(fields: SamplingFields, n: int | None = 1) -> SamplingParams:
    """Return the fields as the engine's sampling parameters; a field left empty is the default."""
    values = {
        "n": n,
        "max_tokens": fields.max_tokens,
        "temperature": fields.temperature,
        "top_p": fields.top_p,
        "top_k": fields.top_k,
        "seed": fields.seed,
        "min_tokens": fields.min_tokens,
        "stop": stop_strings(fields.stop),
        "stop_token_ids": stop_tokens(fields.stop_token_ids),
        "ignore_eos": fields.ignore_eos,
        "min_p": fields.min_p,
        "repetition_penalty": fields.repetition_penalty,
        "presence_penalty": fields.presence_penalty,
        "frequency_penalty": fields.frequency_penalty,
        "logit_bias": logit_bias(fields.logit_bias),
    }
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return SamplingParams.parse(given)
    except ConfigError as error:
        where = "Requests" if error.field == "n" else "Sampling"
        raise ComposerError(f"{where}: {error}.") from None


def stop_strings(text: str) -> tuple[str, ...]:
    r"""Return one stop string a line; `\n` and `\t` stand for a line break and a tab."""
    lines = (line for line in text.splitlines() if line)
    return tuple(line.replace("\\n", "\n").replace("\\t", "\t") for line in lines)


def stop_tokens(text: str) -> tuple[int, ...]:
    """Return token ids that are separated by commas or spaces."""
    words = text.replace(",", " ").split()
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise ComposerError(
                f"Sampling: stop_token_ids has {word!r:.40}, which is no token id; "
                "write whole numbers with commas between them, for example 2, 198."
            )
    return tuple(int(word) for word in words)


def logit_bias(text: str) -> dict[int, float] | None:
    """Return token ids with what is added to their logits; None where there are none."""
    bias: dict[int, float] = {}
    for item in text.replace(",", "\n").splitlines():
        if not item.strip():
            continue
        token, colon, value = (word.strip() for word in item.partition(":"))
        before = len(bias)
        try:
            if not (colon and token.isascii() and token.isdigit()):
                raise ValueError
            bias[int(token)] = float(value)
        except ValueError:
            raise ComposerError(
                f"Sampling: logit_bias has {item.strip()!r:.40}, which is no token id with a "
                "number; write for example 198: -100, 260: 2.5."
            ) from None
        if len(bias) == before:
            raise ComposerError(f"Sampling: logit_bias has token {token} twice; write it once.")
    return bias or None


def count(draft: Draft) -> int:
    """Return how many requests the draft makes, for labels; wrong input counts as none."""
    return len(_split(draft.text, draft.split)) * max(draft.copies or 0, 0) * max(draft.n or 1, 0)


def _split(text: str, split: Split) -> list[str]:
    if split == "one":
        return [text] if text.strip() else []
    return [line for line in text.splitlines() if line.strip()]


def _texts(draft: Draft) -> list[str]:
    texts = _split(draft.text, draft.split)
    if not texts:
        raise ComposerError("There is nothing to send: write a prompt, or take one of the presets.")
    return texts


def _copies(draft: Draft, texts: int) -> int:
    copies, n = draft.copies, draft.n or 1
    if copies is None or copies < 1:
        raise ComposerError(f"Requests: copies is {copies}; it must be 1 or more.")
    if texts * copies * n > MAX_AT_ONCE:
        factors = [(texts, "lines"), (copies, "copies"), (n, "sequences")]
        named = [f"{number} {what}" for number, what in factors if number > 1]
        raise ComposerError(
            f"Requests: {' times '.join(named)} make {texts * copies * n} requests; "
            f"at most {MAX_AT_ONCE} go out at once."
        )
    return copies


def _prompt(draft: Draft, text: str) -> Prompt:
    if draft.mode == "prompt":
        return draft.system + text
    messages = [{"role": "user", "content": text}]
    if draft.system.strip():
        messages.insert(0, {"role": "system", "content": draft.system.strip()})
    return messages
