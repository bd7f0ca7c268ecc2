"""Log-probabilities as OpenAI's two endpoints word them, and vLLM's `prompt_logprobs`.

Box `client-req`, its other end. vLLM 0.26.0: `create_logprobs` and its like under
`vllm/entrypoints/openai/`. Natural logarithms of the model's own probabilities, before anything
that sampling does to its logits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.outputs import TokenLogprobs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# How byte-level vocabularies write bytes: those that can be seen as themselves, the others as the
# characters from 256 on, in order.
VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
BYTE_LEVEL = {chr(byte): byte for byte in VISIBLE}
BYTE_LEVEL |= {chr(256 + place): byte for place, byte in enumerate(HIDDEN)}

LEAST = -9999.0  # stands for minus infinity, which JSON does not have; vLLM's number
REPLACEMENT = "\ufffd"

MaybeLogprobs = Sequence[TokenLogprobs | None]  # None: nothing predicts a text's first token


@lru_cache(maxsize=1 << 17)
def token_text(tokenizer: PreTrainedTokenizerBase, token_id: int) -> str:
    """A token by itself as text; what is a part of a character only is a replacement character."""
    text = tokenizer.decode(
        [token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    assert isinstance(text, str)
    return text


def token_bytes(tokenizer: PreTrainedTokenizerBase, token_id: int) -> bytes | None:
    """A token's own bytes, those of a part of a character as well; None where nobody knows them.

    (vLLM 0.26.0 gives the replacement character's bytes, from which no text can be put together.)
    """
    text = token_text(tokenizer, token_id)
    if REPLACEMENT not in text:
        return text.encode("utf-8")
    written = str(tokenizer.convert_ids_to_tokens(token_id))
    single = re.fullmatch("<0x([0-9A-F]{2})>", written)
    if single:
        return bytes.fromhex(single[1])
    return bytes(map(BYTE_LEVEL.__getitem__, written)) if BYTE_LEVEL.keys() >= {*written} else None


class TextOffsets:
    """Where in a choice's text each of its tokens begins, in characters.

    A token that is no text of its own there (the end of the sequence, a part of a character, what
    a tokenizer puts before every text) has no length: the next one begins at the same place.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_token_ids: Sequence[int]):
        # Imports Transformers, which is there with the model.
        from engine.detokenizer import TextStream

        self._tokenizer = tokenizer
        self._stream = TextStream(tokenizer, prompt_token_ids)
        self._next = 0

    def of_prompt(self, prompt: str, token_ids: Sequence[int]) -> list[int]:
        """Of a prompt that the text begins with."""
        from engine.detokenizer import token_pieces

        offsets, at = [], 0
        for piece in token_pieces(self._tokenizer, token_ids):
            offsets.append(at)
            if prompt.startswith(piece, at):
                at += len(piece)
        self._next = len(prompt)
        return offsets

    def of_output(self, token_ids: Sequence[int]) -> list[int]:
        """Of the tokens generated next."""
        offsets = []
        for token_id in token_ids:
            offsets.append(self._next)
            self._next += len(self._stream.push(token_id))
        return offsets


def completion_logprobs(
    tokenizer: PreTrainedTokenizerBase,
    token_ids: Sequence[int],
    logprobs: MaybeLogprobs,
    offsets: Sequence[int],
    number: int,
) -> dict[str, Any]:
    """The `logprobs` of a choice of /v1/completions, with up to `number` + 1 tokens at each place:
    the most probable ones, and the one that stands there.
    """
    return {
        "text_offset": list(offsets),
        "token_logprobs": [None if item is None else at_least(item.logprob) for item in logprobs],
        "tokens": [token_text(tokenizer, token_id) for token_id in token_ids],
        "top_logprobs": [
            None if item is None else _by_text(tokenizer, item, number) for item in logprobs
        ],
    }


def _by_text(
    tokenizer: PreTrainedTokenizerBase, item: TokenLogprobs, number: int
) -> dict[str, float]:
    found: dict[str, float] = {}
    for token_id, logprob in ((item.token_id, item.logprob), *item.top[:number]):
        # Of tokens with the same text, the one that stands there counts, then the most probable.
        found.setdefault(token_text(tokenizer, token_id), at_least(logprob))
    return found


def chat_logprobs(
    tokenizer: PreTrainedTokenizerBase, logprobs: Sequence[TokenLogprobs]
) -> dict[str, Any]:
    """The `logprobs` of a choice of /v1/chat/completions, the most probable tokens best first."""
    return {
        "content": [
            {
                **_chat_token(tokenizer, item.token_id, item.logprob),
                "top_logprobs": [_chat_token(tokenizer, *pair) for pair in item.top],
            }
            for item in logprobs
        ]
    }


def _chat_token(
    tokenizer: PreTrainedTokenizerBase, token_id: int, logprob: float
) -> dict[str, Any]:
    text, raw = token_text(tokenizer, token_id), token_bytes(tokenizer, token_id)
    known = None if raw is None else list(raw)
    return {"token": text, "logprob": at_least(logprob), "bytes": known}


def prompt_logprobs(
    tokenizer: PreTrainedTokenizerBase, logprobs: MaybeLogprobs
) -> list[dict[str, Any] | None]:
    """vLLM's `prompt_logprobs`: for each token of the prompt, by token id."""
    return [None if item is None else _by_token_id(tokenizer, item) for item in logprobs]


def _by_token_id(tokenizer: PreTrainedTokenizerBase, item: TokenLogprobs) -> dict[str, Any]:
    ranked = [(item.token_id, item.logprob, item.rank)]
    ranked += [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(item.top, 1)]
    return {
        str(token_id): {
            "logprob": at_least(logprob),
            "rank": rank,
            "decoded_token": token_text(tokenizer, token_id),
        }
        for token_id, logprob, rank in ranked
    }


def at_least(logprob: float) -> float:
    """A log-probability that JSON can hold."""
    return max(logprob, LEAST)
