"""What becomes of one HTTP request: the outputs of its streams, as OpenAI's objects.

Box `client-req`, its other end. vLLM 0.26.0: the `serving.py` files of `vllm/entrypoints/openai/`.
Every prompt has n choices; choice i of prompt p is number p * n + i.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from engine.api.logprobs import (
    MaybeLogprobs,
    TextOffsets,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
)
from engine.api.protocol import CompletionRequest, GenerationRequest, usage
from engine.async_llm import AsyncLLM
from engine.output_processor import RequestStream
from engine.outputs import RequestOutput


class Piece(NamedTuple):
    """A piece of one choice. With echo, the first one begins with the prompt."""

    choice: int
    text: str
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: tuple[int, ...] = ()
    logprobs: MaybeLogprobs | None = None  # one for each token, where asked for
    num_prompt_tokens: int = 0  # of `token_ids`, at their beginning
    num_generated: int = 0  # tokens that were made for it, shown or not


def abort_streams(engine: AsyncLLM, streams: Sequence[RequestStream]) -> None:
    """Take back what has not ended, all its sequences; does nothing where all has."""
    rest = [stream.request_id for stream in streams if not stream.ended]
    if rest:
        with suppress(RuntimeError):  # the engine thread has ended: so have all requests
            engine.abort_soon(rest)


class Answer(ABC):
    """The streams of one HTTP request, and how OpenAI words their outputs."""

    prefix = ""
    object = ""
    chunk_object = ""

    def __init__(self, engine: AsyncLLM, streams: list[RequestStream], body: GenerationRequest):
        self.engine = engine
        self.streams = streams
        self.n = body.n or 1
        self.wants_prompt_logprobs = body.prompt_logprobs is not None
        self.created = int(time.time())
        self.tokens = [0] * self.num_choices  # generated for each choice, as far as handed on
        self.id = f"{self.prefix}-{streams[0].request_id}-{secrets.token_hex(6)}"

    @property
    def num_choices(self) -> int:
        """Of the whole answer."""
        return len(self.streams) * self.n

    @property
    def tokenizer(self) -> Any:
        """The model's."""
        return self.engine.model.tokenizer

    def stream_of(self, choice: int) -> RequestStream:
        """The stream that a choice comes from."""
        return self.streams[choice // self.n]

    def head(self, kind: str) -> dict[str, Any]:
        """What every object of the answer begins with."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.engine.model.name,
        }

    def usage(self) -> dict[str, Any]:
        """The tokens read and written so far: each prompt once, and all choices."""
        prompt = sum(stream.num_prompt_tokens for stream in self.streams)
        cached = sum(stream.num_cached_tokens for stream in self.streams)
        return usage(prompt, sum(self.tokens), cached)

    def usage_of(self, choice: int, tokens: int) -> dict[str, Any]:
        """Of one choice when it has so many tokens, as vLLM tells it with each chunk."""
        stream = self.stream_of(choice)
        return usage(stream.num_prompt_tokens, tokens, stream.num_cached_tokens)

    # -- what the two endpoints word differently --------------------------------------------------

    @abstractmethod
    def choice(self, piece: Piece) -> dict[str, Any]:
        """A choice of the whole answer."""

    @abstractmethod
    def chunk_choice(self, piece: Piece) -> dict[str, Any]:
        """A piece of a stream, as the choice of the chunk that brings it."""

    @abstractmethod
    def logprobs(self, piece: Piece) -> dict[str, Any]:
        """The log-probabilities of a piece's tokens."""

    def openings(self) -> list[dict[str, Any]]:
        """Choices of the chunks that a stream begins with."""
        return []

    def tail(self) -> dict[str, Any]:
        """What the whole answer ends with, beside its usage."""
        return {}

    def piece(self, prompt: int, output: RequestOutput) -> Piece:
        """An output of the stream of a prompt."""
        return Piece(
            prompt * self.n + output.index,
            output.text,
            output.finish_reason,
            output.stop_reason,
            output.token_ids,
            output.logprobs,
            num_generated=len(output.token_ids),
        )

    def ending(self, piece: Piece) -> dict[str, Any]:
        """What choices of both endpoints have in common."""
        return {
            "index": piece.choice,
            "logprobs": self.logprobs(piece) if piece.logprobs else None,
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
        }

    def prompt_logprobs(self, stream: RequestStream) -> dict[str, Any]:
        """The field for a prompt's own log-probabilities, where they were asked for."""
        if not self.wants_prompt_logprobs:
            return {}
        found = stream.prompt_logprobs
        worded = None if found is None else prompt_logprobs(self.tokenizer, found)
        return {"prompt_logprobs": worded}

    # -- following the streams --------------------------------------------------------------------

    async def pieces(self, at_end: bool = False) -> AsyncIterator[Piece]:
        """The outputs of all streams as they come, or those of each once it has ended."""
        queue: asyncio.Queue[Piece | Exception | None] = asyncio.Queue()
        tasks = [
            asyncio.create_task(self._follow(index, stream, queue, at_end))
            for index, stream in enumerate(self.streams)
        ]
        try:
            running = len(tasks)
            while running:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    running -= 1
                else:
                    self.tokens[item.choice] += item.num_generated
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            abort_streams(self.engine, self.streams)

    async def _follow(
        self,
        index: int,
        stream: RequestStream,
        queue: asyncio.Queue[Piece | Exception | None],
        at_end: bool,
    ) -> None:
        try:
            if at_end:
                await stream.until_ended()
            async for output in stream:
                queue.put_nowait(self.piece(index, output))
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    async def whole(self) -> dict[str, Any]:
        """The answer as one object."""
        pieces: list[list[Piece]] = [[] for _ in range(self.num_choices)]
        async for piece in self.pieces(at_end=True):
            pieces[piece.choice].append(piece)
        # Thousands of tokens to word must not hold up the server's other answers.
        choices = await asyncio.to_thread(lambda: [self.choice(joined(item)) for item in pieces])
        tail = await asyncio.to_thread(self.tail)
        return {**self.head(self.object), "choices": choices, "usage": self.usage(), **tail}


def joined(pieces: list[Piece]) -> Piece:
    """All pieces of a choice as one."""
    with_logprobs = any(piece.logprobs is not None for piece in pieces)
    return pieces[-1]._replace(
        text="".join(piece.text for piece in pieces),
        token_ids=tuple(token for piece in pieces for token in piece.token_ids),
        logprobs=[x for piece in pieces for x in piece.logprobs or ()] if with_logprobs else None,
        num_prompt_tokens=pieces[0].num_prompt_tokens,
    )


class CompletionAnswer(Answer):
    """Of /v1/completions."""

    prefix = "cmpl"
    object = chunk_object = "text_completion"

    def __init__(self, engine: AsyncLLM, streams: list[RequestStream], body: CompletionRequest):
        super().__init__(engine, streams, body)
        self.number = body.logprobs or 0
        self.only_echo = body.echo is True and body.max_tokens == 0
        self.to_echo = set(range(self.num_choices)) if body.echo else set()
        self.offsets: dict[int, TextOffsets] = {}

    def piece(self, prompt: int, output: RequestOutput) -> Piece:
        """An output of the stream of a prompt, behind the prompt where that is to be echoed."""
        piece = super().piece(prompt, output)
        if piece.choice not in self.to_echo:
            return piece
        self.to_echo.remove(piece.choice)
        stream = self.streams[prompt]
        ids = stream.prompt_token_ids
        if self.only_echo:  # the engine has to generate a token; it is not part of the answer
            piece = piece._replace(text="", token_ids=(), logprobs=piece.logprobs and ())
        before: MaybeLogprobs = stream.prompt_logprobs or [None] * len(ids)
        return piece._replace(
            text=stream.prompt + piece.text,
            token_ids=(*ids, *piece.token_ids),
            logprobs=None if piece.logprobs is None else [*before, *piece.logprobs],
            num_prompt_tokens=len(ids),
        )

    def choice(self, piece: Piece) -> dict[str, Any]:
        """A choice of the whole answer."""
        stream = self.stream_of(piece.choice)
        return {**self.chunk_choice(piece), **self.prompt_logprobs(stream)}

    def chunk_choice(self, piece: Piece) -> dict[str, Any]:
        """A piece of a stream, as the choice of the chunk that brings it."""
        return {**self.ending(piece), "text": piece.text}

    def logprobs(self, piece: Piece) -> dict[str, Any]:
        """With the place of each token in the choice's text."""
        stream = self.stream_of(piece.choice)
        offsets = self.offsets.setdefault(
            piece.choice, TextOffsets(self.tokenizer, stream.prompt_token_ids)
        )
        number = piece.num_prompt_tokens
        places = offsets.of_prompt(stream.prompt, piece.token_ids[:number]) if number else []
        places += offsets.of_output(piece.token_ids[number:])
        return completion_logprobs(
            self.tokenizer, piece.token_ids, piece.logprobs or (), places, self.number
        )


class ChatAnswer(Answer):
    """Of /v1/chat/completions."""

    prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def choice(self, piece: Piece) -> dict[str, Any]:
        """A choice of the whole answer."""
        return {**self.ending(piece), "message": {"role": "assistant", "content": piece.text}}

    def chunk_choice(self, piece: Piece) -> dict[str, Any]:
        """A piece of a stream, as the choice of the chunk that brings it."""
        return {**self.ending(piece), "delta": {"content": piece.text}}

    def logprobs(self, piece: Piece) -> dict[str, Any]:
        """Of the answer's tokens; a chat echoes no prompt."""
        return chat_logprobs(self.tokenizer, [item for item in piece.logprobs or () if item])

    def openings(self) -> list[dict[str, Any]]:
        """The role comes before the text."""
        return [
            {
                **self.ending(Piece(choice, "", None, None)),
                "delta": {"role": "assistant", "content": ""},
            }
            for choice in range(self.num_choices)
        ]

    def tail(self) -> dict[str, Any]:
        """The log-probabilities of the one prompt that all choices have."""
        return self.prompt_logprobs(self.streams[0])
