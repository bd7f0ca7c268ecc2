"""Tokens to text, as they come (vLLM 0.26.0: `vllm/v1/engine/detokenizer.py`).

Text that went out is never taken back, so what may still change waits: the bytes of an unfinished
character, and text that may turn out to be the beginning of a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\ufffd"  # what decoders make of bytes that are no character (yet)
MAX_PENDING_BYTES = 3  # a character has up to four bytes; some decoders replace each of them
CONTEXT_TOKENS = 5  # of the prompt: a decoder may treat the first token of a text specially
LONG_WINDOW = 32  # tokens without a complete character at their end: look for a place to cut
SAFE_TAIL = 8  # tokens left after a cut, more than one character can span


class TextStream:
    """The text of a growing list of tokens: each piece whole characters, their sum the text."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        context: Sequence[int] = (),
        skip_special_tokens: bool = True,
    ):
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._window = list(context[-CONTEXT_TOKENS:]) if context else []
        self._context_len = len(self._window)  # tokens of the window that are out already
        self._context_text = self._decode(self._window)
        self._out = 0  # characters after the context's that are out already

    def push(self, token_id: int) -> str:
        """The text that is certain now and was not before."""
        self._window.append(token_id)
        text = self._text()
        pending = min(len(text) - len(text.rstrip(REPLACEMENT)), MAX_PENDING_BYTES)
        piece = text[self._out : len(text) - pending]
        self._out += len(piece)
        if not pending:
            self._begin_window(self._context_len)
        elif len(self._window) >= LONG_WINDOW:
            self._shorten_window(text)
        return piece

    def finish(self) -> str:
        """The rest: bytes that never became a character."""
        piece = self._text()[self._out :]
        self._out += len(piece)
        return piece

    def go_to(self, window: list[int], context_len: int, out: int) -> None:
        """Stand where another stream stood, with these tokens in its window."""
        self._window, self._context_len, self._out = window, context_len, out
        self._context_text = self._decode(window[:context_len])

    def _text(self) -> str:
        """What the window's tokens say after its context."""
        text = self._decode(self._window)
        if text.startswith(self._context_text):
            return text[len(self._context_text) :]
        # What is out already would read differently now (a stray byte spoils the characters before
        # it in some decoders). It cannot be taken back: go on as if the text began here.
        del self._window[: self._context_len]
        self._context_len, self._context_text = 0, ""
        return self._decode(self._window)

    def _begin_window(self, start: int) -> None:
        """All is out: the tokens from `start` on are the context of those to come."""
        if start == len(self._window):
            return
        self._window = self._window[start:]
        self._context_len, self._out = len(self._window), 0
        self._context_text = self._decode(self._window)

    def _shorten_window(self, text: str) -> None:
        """Keep endless bytes that are no text from being decoded again and again."""
        head, tail = self._window[self._context_len : -SAFE_TAIL], self._window[-SAFE_TAIL:]
        done = self._decode(head)
        if text == done + self._decode(tail) and self._out >= len(done):
            self._window, self._out = tail, self._out - len(done)
            self._context_len, self._context_text = 0, ""

    def _decode(self, token_ids: list[int]) -> str:
        if not token_ids:
            return ""
        text = self._tokenizer.decode(
            token_ids,
            skip_special_tokens=self._skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )
        assert isinstance(text, str)
        return text


class IncrementalDetokenizer:
    """The text of one request's output, cut before the first stop string.

    `stop_index` says which of `stop` ended it; after that nothing more comes out. A stop string
    that is complete within the first `min_tokens` tokens is text like any other.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt_token_ids: Sequence[int] = (),
        stop: tuple[str, ...] = (),
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
    ):
        self._stream = TextStream(tokenizer, prompt_token_ids, skip_special_tokens)
        self._stop = stop
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._held = ""  # may be the beginning of a stop string
        self.stop_index: int | None = None

    def save(self) -> dict[str, Any]:
        """Where it stands, for another one of the same request to go on from."""
        stream = self._stream
        return {
            "window": list(stream._window),
            "context_len": stream._context_len,
            "out": stream._out,
            "num_tokens": self._num_tokens,
            "held": self._held,
        }

    def restore(
        self, window: list[int], context_len: int, out: int, num_tokens: int, held: str
    ) -> None:
        """Stand where another one stood."""
        self._stream.go_to(window, context_len, out)
        self._num_tokens, self._held = num_tokens, held

    @property
    def stopped(self) -> bool:
        """Whether a stop string ended the text."""
        return self.stop_index is not None

    def push(self, token_id: int) -> str:
        """The text to emit now that this token is known."""
        if self.stopped:
            return ""
        self._num_tokens += 1
        return self._release(self._stream.push(token_id))

    def finish(self) -> str:
        """The text to emit last, where no stop string ended it. Nothing may be pushed after it."""
        if self.stopped:
            return ""
        text = self._release(self._stream.finish())
        held, self._held = self._held, ""
        return text + held

    def _release(self, piece: str) -> str:
        """`piece` with what was held before it, less what must be held now."""
        if not self._stop:
            return piece
        text = self._held + piece
        if self._num_tokens > self._min_tokens:
            match = first_stop(text, self._stop, len(self._held))
            if match is not None:
                self.stop_index, start = match
                self._held = ""
                return text[:start]
        keep = held_length(text, self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def first_stop(text: str, stop: tuple[str, ...], seen: int = 0) -> tuple[int, int] | None:
    """The stop string that is complete first in `text`: its index in `stop`, where it begins.

    First complete, so that the result is the same however the text is cut into tokens. Those
    complete within the first `seen` characters have been looked for already.
    """
    found = [
        (text.find(string, max(0, seen - len(string) + 1)), index)
        for index, string in enumerate(stop)
    ]
    ends = [(start + len(stop[index]), index, start) for start, index in found if start >= 0]
    if not ends:
        return None
    _, index, start = min(ends)
    return index, start


def held_length(text: str, stop: tuple[str, ...]) -> int:
    """How many characters at the end of `text` may be the beginning of a stop string."""
    longest = max(len(string) for string in stop) - 1
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[-length:]
        if any(string.startswith(tail) for string in stop):
            return length
    return 0


def token_pieces(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[str]:
    """The text that each token adds, special ones shown; their sum is the whole text."""
    stream = TextStream(tokenizer, skip_special_tokens=False)
    pieces = [stream.push(token_id) for token_id in token_ids]
    if pieces:
        pieces[-1] += stream.finish()
    return pieces


class TokenTexts:
    """The text of single tokens, each decoded once; special ones are shown."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer: Any = tokenizer
        self._texts: dict[int, str] = {}

    def of(self, token_id: int) -> str:
        """What the token adds to a text ("" where the tokenizer has no such token)."""
        text = self._texts.get(token_id)
        if text is None:
            # Alone it would be the first of a text, and some decoders drop the blank before that.
            twice, once = self._decode([token_id, token_id]), self._decode([token_id])
            text = self._texts[token_id] = twice[len(once) :]
        return text

    def _decode(self, token_ids: list[int]) -> str:
        text = self._tokenizer.decode(token_ids, clean_up_tokenization_spaces=False)
        return str(text)
