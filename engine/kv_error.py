"""What rounding does to a request: how far off K, V and logits are, and whether its text changes.

Part of box `physical-vram`. The request's tokens run once more through the same model in fp32, with
a cache of fp32 in one piece; what the pool really holds of them is compared with that, layer by
layer. Where the engine's weights are rounded as well, they run a third time, through these with a
cache of fp32: what its logits are off by is the weights' part. Nothing of the engine is changed,
and no block is written. vLLM has no counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from engine.block_pool import BlockPool, KVCacheBlock
from engine.core import EngineCore
from engine.detokenizer import token_pieces
from engine.device import in_turn
from engine.events import KVCacheCompared
from engine.forward import ModelInputs, run_eagerly
from engine.kv_cache import KVCache, KVCacheSpec
from engine.kv_quantization import dequantize, quantize
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import dtype_name
from engine.model_runner import ModelRunner, four_digits
from engine.module_timer import ModuleTimer
from engine.paged_attention import ForwardContext, PagedAttentionMetadata, TorchPagedAttention
from engine.request import Request
from engine.sampler import Sampler, SamplingRow, TokenCounts, request_seed

MAX_TOKENS = 1024  # of a request that are compared: its first ones
CHUNK = 128  # tokens that run at a time
CONTINUED = 16  # tokens of each text from the first that differs
SHOWN_BEFORE = 24  # tokens of the text before it


@in_turn
@torch.inference_mode()
def compare_kv(model: LoadedModel, core: EngineCore, request: Request) -> KVCacheCompared:
    """Compare a request of an engine, whose runner is a ModelRunner, with `model`, which is fp32.

    Raises RuntimeError where the model's logits are no numbers.
    """
    assert isinstance(core.runner, ModelRunner)
    pool, prompt = core.runner.kv_cache, request.num_prompt_tokens
    tokens = request.all_token_ids[:MAX_TOKENS]
    reference = Reference(model, len(tokens) + CONTINUED)
    own = core.runner.model
    rounded = None if own.model is model.model else Reference(own, len(tokens))
    seed = request_seed(request.sampling_params, core.config.seed, request.request_id)
    writer = Writer(request, seed)
    differs, logits_error = compare_text(reference, rounded, writer, tokens, prompt)
    held = held_of(core, request, len(tokens))
    errors = list(errors_by_layer(pool, held, reference.cache))
    same = len(tokens) if differs is None else differs.position  # tokens of both texts
    written = tokens[: same + CONTINUED]
    in_fp32 = tokens[:same]
    if differs is not None:
        reference.length = same
        in_fp32 += continue_text(reference, writer, differs.token, len(written) - same)
    first = max(prompt, same - SHOWN_BEFORE)
    return KVCacheCompared(
        request=request.request_id,
        dtype=dtype_name(pool.spec.dtype),
        weights=own.quantization or dtype_name(own.model.dtype),
        logits_error=logits_error,
        num_tokens=held.num_tokens,
        key_errors=tuple(each.key for each in errors),
        value_errors=tuple(each.value for each in errors),
        key_rounding=tuple(each.key_rounding for each in errors),
        value_rounding=tuple(each.value_rounding for each in errors),
        greedy=request.sampling_params.is_greedy,
        num_outputs=max(0, len(tokens) - prompt),
        differs_at=-1 if differs is None else same - prompt,
        shown_from=first - prompt,
        written=tuple(token_pieces(model.tokenizer, written)[first:]),
        in_fp32=tuple(token_pieces(model.tokenizer, in_fp32)[first:]),
    )


# --- the model in fp32 -------------------------------------------------------------------------


class Reference:
    """The model over one sequence, with a cache in one piece: no pages, and nothing is rounded."""

    def __init__(self, model: LoadedModel, longest: int):
        self.model = model
        self.length = 0  # tokens computed; whoever sets it back has the later ones forgotten
        spec = KVCacheSpec.of(model, longest, torch.float32)
        self.cache = KVCache(spec, 1, model.model.device)

    def feed(self, token_ids: Sequence[int], num_logits: int) -> Tensor:
        """Compute these tokens; the logits of the last ones, [num_logits, vocabulary]."""
        device, start = self.model.model.device, self.length
        self.length = end = start + len(token_ids)
        positions = torch.arange(start, end, device=device)
        inputs = ModelInputs(
            input_ids=torch.tensor([list(token_ids)], device=device),
            positions=positions[None],
            logits_to_keep=positions[len(token_ids) - num_logits :] - start,
            metadata=PagedAttentionMetadata(
                query_start_loc=(0, end - start),
                seq_lens=(end,),
                block_tables=((0,),),  # of one block, as long as the sequence may be
                slot_mapping=positions,
                block_size=self.cache.spec.block_size,
            ),
        )
        backend = TorchPagedAttention.of(inputs.metadata, device)
        context = ForwardContext(backend, self.cache, ModuleTimer.of(self.model.model))
        return run_eagerly(self.model, inputs, context).logits


# --- the text ----------------------------------------------------------------------------------


class Writer:
    """The request's own way to choose tokens: its sampling parameters, and the same draws."""

    def __init__(self, request: Request, seed: int):
        self.params, self.eos = request.sampling_params, request.eos_token_ids
        self.seed = seed
        self.num_written = 0
        prompt = request.all_token_ids[: request.num_prompt_tokens]
        self.counts = TokenCounts(prompt, ()) if self.params.has_penalties else None

    def choose(self, logits: Tensor) -> int:
        """The token that these logits, [vocabulary], lead to."""
        row = SamplingRow(self.params, self.seed, self.num_written, self.eos, self.counts)
        return Sampler().sample(logits[None], [row])[0].token

    def write(self, token: int) -> None:
        """It is part of the text now."""
        self.num_written += 1
        if self.counts is not None:
            self.counts.add(token)

    def ends_with(self, token: int) -> bool:
        """Whether nothing is written after it."""
        ends = () if self.params.ignore_eos else self.eos
        return token in ends or token in self.params.stop_token_ids


class Difference(NamedTuple):
    """Where fp32 leads to another token than was written, and to which."""

    position: int  # in the request's tokens
    token: int


def compare_text(
    reference: Reference,
    rounded: Reference | None,
    writer: Writer,
    tokens: Sequence[int],
    num_prompt: int,
) -> tuple[Difference | None, float]:
    """Compute all of `tokens`, and find the first that fp32 would not have written.

    Up to there both texts are the same, so one forward over what was written tells it. And how far
    off the logits are with the weights of `rounded`, at the places where a token of the text was
    chosen and where the next one is: |difference| / |fp32|, by Euclidean norms.
    """
    found, off, whole = None, 0.0, 0.0
    for start in range(0, len(tokens), CHUNK):
        chunk = tokens[start : start + CHUNK]
        first = max(start + 1, num_prompt)  # of the tokens that this chunk's logits lead to
        count = max(0, start + len(chunk) + 1 - first)
        logits = reference.feed(chunk, count)
        if found is None:
            found = compare_choices(logits, writer, tokens[first:], first)
        if rounded is not None:
            off += float((rounded.feed(chunk, count).float() - logits).norm()) ** 2
            whole += float(logits.norm()) ** 2
    return found, four_digits((off / whole) ** 0.5) if whole else 0.0


def compare_choices(
    logits: Tensor, writer: Writer, written: Sequence[int], position: int
) -> Difference | None:
    """The first of the `written` tokens that is not chosen by its row of `logits`, if any."""
    for i, (row, token) in enumerate(zip(logits, written, strict=False)):  # a last row may be over
        chosen = writer.choose(row)
        if chosen != token:
            return Difference(position + i, chosen)
        writer.write(token)
    return None


def continue_text(reference: Reference, writer: Writer, token: int, count: int) -> list[int]:
    """What fp32 writes from `token` on: as many tokens as told, or fewer where its text ends."""
    text = [token]
    while len(text) < count and not writer.ends_with(token):
        writer.write(token)
        token = writer.choose(reference.feed([token], 1)[0])
        text.append(token)
    return text


# --- the cache ---------------------------------------------------------------------------------


class Held(NamedTuple):
    """What the pool has of a request: K and V of its first tokens."""

    blocks: tuple[int, ...]
    num_tokens: int


def held_of(core: EngineCore, request: Request, most: int) -> Held:
    """By its block table; of a request that does not run, by what is still cached of it."""
    manager, size = core.scheduler.kv_cache_manager, core.config.block_size
    blocks: Sequence[KVCacheBlock] = manager.req_to_blocks.get(request.request_id, ())
    if blocks:
        most = min(most, core.num_tokens_with_kv(request))
    else:
        blocks = list(cached_blocks(manager.block_pool, request))
    # A block has its hash, and can be hit, as soon as its forward is decided.
    unfilled = to_be_filled(core, request)
    filled = list(takewhile(lambda block: block not in unfilled, blocks))
    num_tokens = min(most, len(filled) * size)
    return Held(tuple(block.block_id for block in filled[: -(-num_tokens // size)]), num_tokens)


def cached_blocks(pool: BlockPool, request: Request) -> Iterator[KVCacheBlock]:
    """The blocks with its content, up to the first that is gone."""
    for block_hash in request.block_hashes:
        block = pool.get_cached_block(block_hash)
        if block is None:
            return
        yield block


def to_be_filled(core: EngineCore, request: Request) -> set[KVCacheBlock]:
    """Blocks that batches which have not run compute for others than this request."""
    tables, size = core.scheduler.kv_cache_manager.req_to_blocks, core.config.block_size
    return {
        block
        for output in core.not_run
        for item in output.scheduled
        if item.request_id != request.request_id
        for block in tables.get(item.request_id, ())[item.num_computed_tokens // size :]
    }


class LayerErrors(NamedTuple):
    """How far K and V of a layer are off: |difference| / |fp32|, by Euclidean norms."""

    key: float
    value: float
    key_rounding: float  # by rounding fp32's own K: without what the layers before add
    value_rounding: float


def errors_by_layer(pool: KVCache, held: Held, exact: KVCache) -> Iterator[LayerErrors]:
    """Of the tokens that are held; none where none are."""
    if not held.num_tokens:
        return
    blocks = torch.tensor(held.blocks, device=exact.layers[0].data.device)
    for layer, reference in zip(pool.layers, exact.layers, strict=True):
        wanted = reference.data[:, 0, : held.num_tokens]
        rounded = dequantize(*quantize(wanted, pool.spec.dtype), torch.empty_like(wanted))
        found = layer.read(blocks)[:, : held.num_tokens]
        yield LayerErrors(*off_by(found, wanted), *off_by(rounded, wanted))


def off_by(states: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Of K and of V, both [2, tokens, heads, dim]."""
    least = torch.finfo(torch.float32).tiny
    key, value = (states - wanted).flatten(1).norm(dim=1) / wanted.flatten(1).norm(dim=1).clamp(
        least
    )
    return four_digits(float(key)), four_digits(float(value))
