"""A stand-in for the model whose tokens betray any wrong use of the KV cache.

All of `ModelRunner` is the real one, but for the forward and the choice of tokens. The "model" has
two layers of hashes. Layer 1 writes a hash of token and position to its slot; layer 2 writes a hash
of all that it reads of layer 1 through the block table, up to its own position; the next token is
a hash of all that is read of layer 2. As in a real forward, a layer writes all rows before it
reads any. So a token depends on every slot of its context, as with attention, and a wrong block, a
stale one, a slot never written, a token at a wrong place: each gives another text than
`naive_tokens`, which has no cache at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from engine.config import EngineConfig, SamplingParams
from engine.cuda_graph import CudagraphDispatcher
from engine.detokenizer import TokenTexts
from engine.model_loader import LoadedModel
from engine.model_runner import ModelRunner
from engine.outputs import TokenLogprobs
from engine.sampler import Candidates, Sampled, SamplingRow, request_seed
from engine.spec_decode.ngram_proposer import NgramProposer
from engine.trace import Trace

EOS = 2
TEXT = [EOS, *(3 + byte for byte in b"abcdefghijklmnopqrstuvwxyz 0123456789")]  # tiny's tokens
NEVER_WRITTEN = -1
NO_CANDIDATES = Candidates((), (), ())


def first_layer(token: int, position: int) -> int:
    return hash((token, position))


def attend(values: Sequence[int]) -> int:
    """What comes of reading these, in this order. (A tuple of numbers hashes alike everywhere.)"""
    return hash(tuple(values))


def choose(output: int, params: SamplingParams, seed: int, index: int) -> int:
    """The `index`-th token of a request, from what its last position gave."""
    if not params.is_greedy:
        output = hash((output, seed, index))
    return TEXT[output % len(TEXT)]


@lru_cache(maxsize=256)
def naive_text(prompt: tuple[int, ...], params: SamplingParams, seed: int) -> NaiveText:
    """The same text for whoever asks again."""
    return NaiveText(naive_tokens(prompt, params, seed))


class NaiveText:
    """What follows a prompt, as far as somebody asked for it."""

    def __init__(self, tokens: Iterator[int]):
        self._more = tokens
        self._tokens: list[int] = []

    def __getitem__(self, index: int) -> int:
        while len(self._tokens) <= index:
            self._tokens.append(next(self._more))
        return self._tokens[index]


def naive_tokens(prompt: Sequence[int], params: SamplingParams, seed: int) -> Iterator[int]:
    """The tokens that follow the prompt, for ever: everything is computed from the start."""
    tokens = list(prompt)
    while True:
        first = [first_layer(token, position) for position, token in enumerate(tokens)]
        second = [attend(first[:end]) for end in range(1, len(first) + 1)]
        index = len(tokens) - len(prompt)
        tokens.append(choose(attend(second), params, seed, index))
        yield tokens[-1]


class HashingRunner(ModelRunner):
    """A `ModelRunner` of the model above."""

    def __init__(self, model: LoadedModel, config: EngineConfig, trace: Trace):
        # Not the parent's: there is neither a model to run nor a pool of tensors.
        self.model, self.config, self.trace = model, config, trace
        self.device = torch.device("cpu")
        self.sampler = HashingSampler()  # type: ignore[assignment]
        self.proposer = NgramProposer.of(config)
        self.texts = TokenTexts(model.tokenizer)
        self.requests = {}
        self.dispatcher = CudagraphDispatcher.of(config)
        self._graphs_told, self._changes = {}, {}
        self._dispatch = None
        self._scheduled = ()
        self._end_step()
        slots = config.num_gpu_blocks * config.block_size
        self.layers = [[NEVER_WRITTEN] * slots, [NEVER_WRITTEN] * slots]

    def pool_bytes(self) -> int:
        return 0  # no tensors

    def save_blocks(self, blocks: Sequence[int]) -> dict[str, torch.Tensor]:
        size = self.config.block_size
        both = torch.tensor(self.layers, dtype=torch.int64).reshape(2, -1, size)
        return {"hashes": both[:, list(blocks)]}

    def restore_blocks(self, blocks: Sequence[int], saved: Mapping[str, torch.Tensor]) -> None:
        size = self.config.block_size
        for layer, values in zip(self.layers, saved["hashes"].tolist(), strict=True):
            for block, content in zip(blocks, values, strict=True):
                layer[block * size : (block + 1) * size] = content

    def _dispatched(self, inputs: Any) -> Any:
        return None  # there are no graphs

    def execute_model(self) -> None:
        inputs = self._inputs
        if inputs is None:
            return
        ids, positions = inputs.input_ids[0].tolist(), inputs.positions[0].tolist()
        ends = [position + 1 for position in positions]
        self._write(0, list(map(first_layer, ids, positions)))
        contexts = self._contexts(0)
        self._write(1, [attend(c[:end]) for c, end in zip(contexts, ends, strict=True)])
        contexts = list(self._contexts(1))
        rows = inputs.logits_to_keep.tolist()
        outputs = [attend(contexts[row][: ends[row]]) for row in rows]
        self._logits = torch.tensor(outputs, dtype=torch.int64)

    def _write(self, layer: int, values: list[int]) -> None:
        for slot, value in zip(self._inputs.metadata.slot_mapping.tolist(), values, strict=True):
            self.layers[layer][slot] = value

    def _contexts(self, layer: int) -> Iterator[list[int]]:
        """For each row, what its request's block table leads to in a layer."""
        kv, batch = self.layers[layer], self._inputs.metadata
        size = batch.block_size
        for table, length, rows in zip(
            batch.block_tables, batch.seq_lens, batch.query_lens, strict=True
        ):
            context: list[int] = []
            for block in table:
                context += kv[block * size : (block + 1) * size]
            for _ in range(rows):
                yield context[:length]

    def _propose(self, request_ids: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Drafts of any number that are right up to any place, beside those looked up."""
        drafts = super()._propose(request_ids)
        most = self.config.num_speculative_tokens
        for key in request_ids if most else ():
            state = self.requests[key]
            known, length = len(state.token_ids) - state.num_prompt_tokens, len(state.token_ids)
            chance = hash((length, known, state.token_ids[-1]))
            if chance % 5 == 0:
                continue  # what was looked up, if anything
            prompt = tuple(state.token_ids[: state.num_prompt_tokens])
            text = naive_text(prompt, state.sampling_params, state.seed)
            right, number = chance % (most + 2), most - (chance % 7 == 0)
            drafts[key] = tuple(
                text[known + n] if n < right else TEXT[chance % len(TEXT)] for n in range(number)
            )
        return drafts

    def _rank_prompt(self, rows: Any) -> None:
        """Each of a prompt's tokens must be rated once, and by the right row."""
        state = self.requests[rows.request_id]
        for row in range(rows.logits_row, rows.logits_row + rows.num_rows):
            rated = TokenLogprobs(int(self._logits[row]), 0.0, 1, ())
            state.prompt_logprobs.append(rated)

    def _log_sampled(self, request_id: str, row: SamplingRow, sampled: Sampled) -> None:
        """There are no candidates."""

    def _log_verified(self, item: Any, kept: Any) -> None:
        """There are no probabilities."""


class HashingSampler:
    """What `Sampler` does, with hashes in place of logits."""

    def sample(self, outputs: torch.Tensor, rows: Sequence[SamplingRow]) -> list[Sampled]:
        return [
            Sampled(choose(output, row.params, row.seed, row.output_index), NO_CANDIDATES, None)
            for output, row in zip(outputs.tolist(), rows, strict=True)
        ]


__all__ = ["EOS", "TEXT", "HashingRunner", "naive_text", "request_seed"]
