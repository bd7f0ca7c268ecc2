"""From a step's tokens to the text that clients see.

Part of box `async-engine`. vLLM 0.26.0: `vllm/v1/engine/output_processor.py` (`OutputProcessor`,
`RequestState`, `RequestOutputCollector`). It runs in the phase `output`, on the engine thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from engine.events import RequestCompleted, TextEmitted
from engine.outputs import EngineCoreOutput, PromptLogprobs, RequestOutput
from engine.request import FinishReason, Request, RequestStatus
from engine.trace import Changes, State, Trace

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class RequestLost(RuntimeError):
    """The request's engine stopped; the message is for the client."""


class EngineReplaced(RequestLost):
    """The request's engine was reset, brought back or put to rest; another one may take it."""


class RequestStream:
    """The outputs of one request, for one reader: iterate over it, with `for` or `async for`.

    Those of its n sequences come as they are made, each with its index. The stream ends once every
    sequence has had its output with a finish reason, or by raising `RequestLost`.
    """

    def __init__(self, request_id: str, prompt: str, prompt_token_ids: Sequence[int], n: int = 1):
        self.request_id = request_id
        self.prompt = prompt
        self.prompt_token_ids = prompt_token_ids
        self.num_cached_tokens = 0  # of the prompt, found in the prefix cache
        # Where asked for: there once the first output is.
        self.prompt_logprobs: PromptLogprobs | None = None
        self._outputs: deque[RequestOutput] = deque()
        self._error: RequestLost | None = None
        self._unfinished = n  # sequences whose last output the writer has not put
        self._ended = False  # it has put the last one of all, or an error
        self._changed = threading.Condition()
        self._wake: Callable[[], None] | None = None  # of an async reader that waits

    # -- writing, on the engine thread ------------------------------------------------------------

    def put(self, output: RequestOutput) -> None:
        """Hand an output over."""
        with self._changed:
            self._outputs.append(output)
            self._unfinished -= output.finish_reason is not None
            self._ended = self._unfinished == 0
            self._tell()

    def fail(self, error: RequestLost) -> None:
        """End the stream with an error."""
        with self._changed:
            self._error, self._ended = error, True
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        if self._wake is not None:
            self._wake()

    # -- reading ----------------------------------------------------------------------------------

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come than what is there already."""
        return self._ended

    def get_nowait(self) -> RequestOutput | None:
        """The next output if it is there; raises the stream's error once all outputs are read."""
        with self._changed:
            if self._outputs:
                return self._outputs.popleft()
            if self._error is not None:
                raise self._error
            return None

    def __iter__(self) -> Iterator[RequestOutput]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outputs or self._ended)
            output = self.get_nowait()
            if output is None:
                return
            yield output

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        with self._waking() as there:
            while True:
                there.clear()  # before looking, so that what comes in between is not missed
                output = self.get_nowait()
                if output is None:
                    if self._ended and not self._outputs and self._error is None:
                        return
                    await there.wait()
                    continue
                yield output

    async def until_ended(self) -> None:
        """Wait for whoever wants all outputs at once: no step wakes them but the last one.

        (vLLM's `RequestOutputKind.FINAL_ONLY`.)
        """
        with self._waking(only_at_end=True) as there:
            if not self._ended:
                await there.wait()

    @contextlib.contextmanager
    def _waking(self, only_at_end: bool = False) -> Iterator[asyncio.Event]:
        """What is set in this loop when there is more, or at the end alone."""
        loop = asyncio.get_running_loop()
        there = asyncio.Event()

        def wake() -> None:
            if self._ended or not only_at_end:
                with contextlib.suppress(RuntimeError):  # the reader's loop is closed: nobody reads
                    loop.call_soon_threadsafe(there.set)

        self._wake = wake
        try:
            yield there
        finally:
            self._wake = None


class RequestState:
    """What is remembered of a request between its steps, and after its end for the page."""

    def __init__(
        self,
        request: Request,
        source: str,
        stream: RequestStream,
        index: int,
        tokenizer: PreTrainedTokenizerBase,
        prompt_pieces: list[str] | None = None,
    ):
        self.request = request
        self.stream = stream
        self.index = index  # among the sequences of the stream
        self.source = source
        # Imports Transformers, which the server does in the background, while it loads the model.
        from engine.detokenizer import IncrementalDetokenizer, token_pieces

        params = request.sampling_params
        if prompt_pieces is None:
            prompt_pieces = token_pieces(tokenizer, request.all_token_ids)
        self.prompt_pieces = prompt_pieces
        self.detokenizer = IncrementalDetokenizer(
            tokenizer, request.all_token_ids, params.stop, params.min_tokens
        )
        self.output_pieces: list[str] = []

    def record(self) -> Changes:
        """Its part of the state."""
        record: Changes = {
            "source": self.source,
            "prompt": self.stream.prompt,
            "prompt_pieces": self.prompt_pieces,
        }
        if self.output_pieces:
            record["output_pieces"] = {str(i): text for i, text in enumerate(self.output_pieces)}
        return record


class OutputProcessor:
    """Detokenizes, finds stop strings, feeds the clients' streams, and logs what they were told."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, trace: Trace):
        self.tokenizer = tokenizer
        self.trace = trace
        self.states: dict[str, RequestState] = {}  # the finished ones too, until `forget`
        self.open: dict[str, RequestState] = {}  # whose client still waits
        self._changes: Changes = {}  # by request, since the last patch
        self.after_step: Callable[[], None] = lambda: None

    def add_request(
        self, request: Request, source: str, stream: RequestStream, index: int = 0
    ) -> None:
        """Begin to follow a request, whose output goes to `stream` as that of sequence `index`."""
        state = RequestState(request, source, stream, index, self.tokenizer)
        self.states[request.request_id] = self.open[request.request_id] = state
        self._changes[request.request_id] = state.record()

    def restore_request(self, state: RequestState) -> None:
        """Follow a request that another engine followed; the log's base state has it already."""
        key = state.request.request_id
        self.states[key] = state
        if state.request.status is not RequestStatus.FINISHED:
            self.open[key] = state

    def open_sequences(self, request_id: str) -> list[str]:
        """The open requests that an id names: one by itself, or the sequences of their parent."""
        return [
            key for key, state in self.open.items() if request_id in (key, state.stream.request_id)
        ]

    def untold_prompt_tokens(self) -> int:
        """Tokens of open requests' prompts whose log-probabilities are still to come."""
        return sum(
            state.request.num_prompt_tokens
            for state in self.open.values()
            if state.request.sampling_params.prompt_logprobs is not None and not state.output_pieces
        )

    def process(self, outputs: list[EngineCoreOutput]) -> list[tuple[str, str, int]]:
        """Emit the text of a step; returns (request id, stop string, index) of what it ended."""
        stopped = []
        for output in outputs:
            state = self.open.get(output.request_id)
            if state is None:  # its client took it back after the token was sampled
                continue
            stop = self._process_one(state, output)
            if stop is not None:
                stopped.append((output.request_id, *stop))
        self.after_step()
        return stopped

    def _process_one(self, state: RequestState, output: EngineCoreOutput) -> tuple[str, int] | None:
        """One request's tokens; returns the stop string that ended it, with its index."""
        finish_reason, stop_reason = output.finish_reason, output.stop_reason
        first = state.index == 0 and not state.output_pieces
        if first and output.new_token_ids:  # other sequences hit what the first one left
            state.stream.num_cached_tokens = state.request.num_cached_tokens
        texts = list(self._add_tokens(state, output))
        index = state.detokenizer.stop_index
        stop = None if index is None else (state.request.sampling_params.stop[index], index)
        if stop is not None:
            finish_reason, stop_reason = FinishReason.STOP, stop[0]
        if output.prompt_logprobs is not None:
            state.stream.prompt_logprobs = output.prompt_logprobs
        # Tokens that were accepted together with the one that ended the text are no part of it.
        # (vLLM 0.26.0 tells the client of them, without their text.)
        logprobs = output.logprobs
        state.stream.put(
            RequestOutput(
                output.request_id,
                "".join(texts),
                output.new_token_ids[: len(texts)],
                finish_reason,
                stop_reason,
                state.index,
                None if logprobs is None else logprobs[: len(texts)],
            )
        )
        if finish_reason is not None:
            self._complete(state, finish_reason)
        return stop

    def _add_tokens(self, state: RequestState, output: EngineCoreOutput) -> Iterator[str]:
        """The text that each token adds, until a stop string ends it."""
        last = len(output.new_token_ids) - 1
        for number, token in enumerate(output.new_token_ids):
            ends = number == last and output.finish_reason is not None
            # The token that ended the text (end of sequence, stop token) is no part of it.
            shown = not (ends and output.finish_reason == FinishReason.STOP)
            text = state.detokenizer.push(token) if shown else ""
            if ends:
                text += state.detokenizer.finish()
            self._emit(state, text, token)
            yield text
            if state.detokenizer.stopped:
                for unwanted in output.new_token_ids[number + 1 :]:
                    self._emit(state, "", unwanted)
                return

    def _emit(self, state: RequestState, text: str, token: int) -> None:
        """Log the text that a token added to what the client has ("" while nothing can go out)."""
        key, index = state.request.request_id, len(state.output_pieces)
        state.output_pieces.append(text)
        if key in self.states:  # else so many have ended since that the state has forgotten it
            changes = self._changes.setdefault(key, {})
            changes.setdefault("output_pieces", {})[str(index)] = text
        if text:
            self.trace.event(TextEmitted(key, text, token, index))

    def _complete(self, state: RequestState, finish_reason: str) -> None:
        key = state.request.request_id
        del self.open[key]
        self.trace.event(RequestCompleted(key, str(finish_reason)))

    def abort(self, request_ids: Iterable[str]) -> None:
        """Tell the clients of these requests that they were taken back."""
        for key in request_ids:
            if key in self.open:
                state = self.open[key]
                asked = state.request.sampling_params.logprobs is not None
                self._process_one(
                    state,
                    EngineCoreOutput(key, (), FinishReason.ABORT, None, () if asked else None),
                )

    def fail_all(self, error: RequestLost) -> None:
        """End every stream with an error: the engine behind them is gone."""
        for state in self.open.values():
            state.stream.fail(error)
        self.open.clear()

    def forget(self, request_ids: Iterable[str]) -> None:
        """These finished requests have left the state."""
        for key in request_ids:
            self.states.pop(key, None)
            self._changes.pop(key, None)

    def take_changes(self) -> Changes:
        """What changed of its part of the state since the last call."""
        changes, self._changes = self._changes, {}
        return {"requests": changes} if changes else {}

    def snapshot(self) -> State:
        """Its part of the state, whole."""
        if not self.states:
            return {}
        return {"requests": {key: state.record() for key, state in self.states.items()}}
