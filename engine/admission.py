"""What an engine takes in, and as which requests: all that can be wrong is found before the first.

Part of box `async-engine`. vLLM 0.26.0: `AsyncLLM.add_request` and `generate` in
`vllm/v1/engine/async_llm.py`; the limit on requests is this project's own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.config import ConfigError, EngineConfig
from engine.core import EngineCore
from engine.engine_errors import EngineBusy
from engine.input_processor import Encoded, InputProcessor, check_logit_bias
from engine.limits import limit, named
from engine.output_processor import OutputProcessor, RequestStream
from engine.parallel_sampling import sequences
from engine.request import Request

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

# Requests an engine holds at once; each of n sequences is one.
MAX_UNFINISHED = limit("MAX_REQUESTS", 512, most=1_000)
# Tokens of these, prompts and what may be generated.
MAX_TOKENS = limit("MAX_TOKENS", 4_194_304)


class Admission:
    """One engine's door. On the engine thread."""

    def __init__(
        self, model: LoadedModel, core: EngineCore, outputs: OutputProcessor, next_id: int = 0
    ):
        self.inputs = InputProcessor(model, core.config)
        self.next_id = next_id
        self._model = model
        self._core = core
        self._outputs = outputs

    def check(self, batch: Sequence[Encoded]) -> None:
        """Raise ConfigError, EngineBusy or RequestRefusedError where not all of it can be taken."""
        wanted, unfinished = sum(item.params.n for item in batch), len(self._outputs.open)
        if wanted > MAX_UNFINISHED:
            raise ConfigError(
                f"n: {wanted} sequences at once, and an engine holds {MAX_UNFINISHED} at most; "
                f"lower n, or send fewer prompts together {named('MAX_REQUESTS')}"
            )
        if unfinished + wanted > MAX_UNFINISHED:
            raise EngineBusy(
                f"the engine holds at most {MAX_UNFINISHED} unfinished requests, and has "
                f"{unfinished} of them; try again when some ended {named('MAX_REQUESTS')}"
            )
        self._check_tokens(batch)
        self.inputs.check_prompt_logprobs(batch, self._outputs.untold_prompt_tokens())
        for place, item in enumerate(batch, start=1):
            self._check_one(item, place, len(batch))

    def _check_tokens(self, batch: Sequence[Encoded]) -> None:
        length = self._core.config.max_model_len or 0
        wanted = sum(
            item.params.n * min(len(item.token_ids) + item.params.max_tokens, length)
            for item in batch
        )
        held = sum(
            state.request.num_prompt_tokens + state.request.sampling_params.max_tokens
            for state in self._outputs.open.values()
        )
        if wanted > MAX_TOKENS:
            raise ConfigError(
                f"max_tokens: {wanted:,} tokens at once, prompts and max_tokens of all sequences, "
                f"and an engine takes {MAX_TOKENS:,} at most; lower max_tokens or n, or send fewer "
                f"prompts together {named('MAX_TOKENS')}"
            )
        if held + wanted > MAX_TOKENS:
            raise EngineBusy(
                f"the engine takes {MAX_TOKENS:,} tokens at most, prompts and max_tokens of its "
                f"unfinished requests; it has {held:,}, and these are {wanted:,}: try again when "
                f"some ended, or lower max_tokens {named('MAX_TOKENS')}"
            )

    def _check_one(self, item: Encoded, place: int, number: int) -> None:
        check_logit_bias(item.params, self._model.vocab_size)
        refusal = self.inputs.why_refused(len(item.token_ids))  # a reset may have come in between
        if refusal is not None:
            raise refusal.within(place, number)

    def add(self, item: Encoded, source: str) -> RequestStream:
        """Hand in the request, or the n requests of its n sequences."""
        key, arrival_time = self.new_id(), time.time()
        stream = RequestStream(key, item.text, item.token_ids, item.params.n)
        parent = key if item.params.n > 1 else ""
        for index, (request_id, params) in enumerate(sequences(key, item.params)):
            # One after the other. In vLLM 0.26.0 they arrive together, and of such the first
            # is preempted first: in a small pool they take turns at that for ever.
            arrival = arrival_time + index * 1e-6
            one = item._replace(params=params)
            request = make_request(self._model, self._core.config, request_id, one, arrival, parent)
            self._outputs.add_request(request, source, stream, index)
            self._core.add_request(request, source)
        return stream

    def new_id(self) -> str:
        """Of the next request, be it taken or refused."""
        self.next_id += 1
        return f"r{self.next_id - 1}"


def make_request(
    model: LoadedModel,
    config: EngineConfig,
    request_id: str,
    item: Encoded,
    arrival_time: float,
    parent: str = "",
) -> Request:
    """A request as the engine has it; it ends where `max_model_len` does, as vLLM's server has it.

    `arrival_time`: in seconds, or a number that orders requests alike.
    """
    room = (config.max_model_len or 0) - len(item.token_ids)
    return Request(
        request_id,
        item.token_ids,
        item.params.model_copy(update={"max_tokens": min(item.params.max_tokens, room)}),
        model.eos_token_ids,
        item.priority,
        arrival_time,
        parent=parent,
        cache_salt=item.cache_salt,
    )


def take_back(core: EngineCore, outputs: OutputProcessor, request_ids: Sequence[str]) -> list[str]:
    """Abort requests, and tell their clients; returns those that were there."""
    aborted = core.abort_requests(request_ids)
    if aborted:
        core.begin_command()
        outputs.abort(aborted)
        core.command({})
    return aborted
