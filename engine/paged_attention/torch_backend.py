"""PagedAttention in plain torch: gather the pages of a request, then dense attention over them.

It runs wherever torch does, in every dtype that the cache may have, and is the oracle for the
kernels. Rows with one token of a request (decodes) share calls, since a call a request and layer
costs more than the arithmetic; longer chunks (prefills) get a call of their own.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.kv_cache import LayerKVCache
from engine.kv_quantization import dequantize
from engine.paged_attention.metadata import AttentionOptions, PagedAttentionMetadata

# Decodes share a call while the longest has at most this many times the pages of the shortest:
# padding reads pages for nothing, and every further call costs a launch in every layer.
MAX_PADDING_RATIO = 2
# Rows of a chunk that share their keys: fewer compute less to be masked, and take more calls.
TILE_ROWS = 64


@dataclass
class TorchPagedAttention:
    """One step's attention: planned once, then run in every layer."""

    slot_mapping: Tensor  # [rows + padding]
    num_tokens: int  # rows
    decodes: list[DecodeGroup]
    prefills: list[PrefillChunk]
    name: str = "torch"

    @classmethod
    def of(cls, metadata: PagedAttentionMetadata, device: torch.device) -> TorchPagedAttention:
        """The plan for this batch."""
        decodes = [i for i, length in enumerate(metadata.query_lens) if length == 1]
        prefills = [i for i, length in enumerate(metadata.query_lens) if length > 1]
        groups = groups_of_similar_width(metadata, decodes)
        return cls(
            slot_mapping=metadata.slot_mapping,
            num_tokens=metadata.num_tokens,
            decodes=[DecodeGroup.of(metadata, group, device) for group in groups],
            prefills=[PrefillChunk.of(metadata, i, device) for i in prefills],
        )

    def forward(
        self,
        layer: LayerKVCache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """Write K and V of the step's rows to their slots, then attend through the block tables.

        query, key and value are [heads, rows, dim]. Returns [rows, heads, dim]. All rows are
        written before any is read: a request may share blocks that another one fills in this very
        step. Rows of padding come last and are zero in the result.
        """
        layer.write(self.slot_mapping, key, value)
        rows = query.transpose(0, 1)
        sorted_out = len(self.decodes) == 1 and not self.prefills and self.num_tokens == len(rows)
        if sorted_out:
            return self.decodes[0].attend(layer, rows, options)  # the usual step
        output = torch.empty_like(rows, memory_format=torch.contiguous_format)
        output[self.num_tokens :] = 0
        for decode in self.decodes:
            output[decode.rows] = decode.attend(layer, rows[decode.rows], options)
        for prefill in self.prefills:
            output[prefill.rows] = prefill.attend(layer, query[:, prefill.rows], options)
        return output


def groups_of_similar_width(
    metadata: PagedAttentionMetadata, requests: list[int]
) -> list[list[int]]:
    """Requests whose block tables are about as long as each other's, in groups."""
    tables = metadata.block_tables
    if not requests:
        return []
    widths = [len(tables[i]) for i in requests]
    if max(widths) <= MAX_PADDING_RATIO * min(widths):
        return [requests]  # in batch order, so that no rows have to be moved
    groups: list[list[int]] = []
    for i in sorted(requests, key=lambda i: len(tables[i])):
        if groups and len(tables[i]) <= MAX_PADDING_RATIO * len(tables[groups[-1][0]]):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


class PagesInSight(NamedTuple):
    """Which pages a group's rows read, as many for each, and which tokens in them they see."""

    pages: Tensor  # [requests * width] physical blocks
    length: int  # width * block_size
    mask: Tensor  # [requests, 1, 1, length]: 0 where a row may look, else minus infinity


@dataclass
class DecodeGroup:
    """Requests with one row each: their pages side by side, as many for each, and masked."""

    rows: Tensor | slice  # of the batch, one a request
    pages: Tensor  # [requests * width] physical blocks
    seq_lens: Tensor  # [requests]
    padded_len: int  # width * block_size
    views: dict[int | None, PagesInSight] = field(default_factory=dict)

    @classmethod
    def of(
        cls, metadata: PagedAttentionMetadata, requests: list[int], device: torch.device
    ) -> DecodeGroup:
        """The group of these requests."""
        tables = [metadata.block_tables[i] for i in requests]
        width = max(len(table) for table in tables)
        # Filled up with a page of the request's own: block 0 may hold anything.
        pages = [block for t in tables for block in t + t[-1:] * (width - len(t))]
        rows = [metadata.query_start_loc[i] for i in requests]
        adjacent = rows == [*range(rows[0], rows[0] + len(rows))]
        return cls(
            rows=slice(rows[0], rows[-1] + 1) if adjacent else torch.tensor(rows, device=device),
            pages=torch.tensor(pages, device=device),
            seq_lens=torch.tensor([metadata.seq_lens[i] for i in requests], device=device),
            padded_len=width * metadata.block_size,
        )

    def attend(self, layer: LayerKVCache, query: Tensor, options: AttentionOptions) -> Tensor:
        """[requests, heads, dim] -> the same."""
        num_requests, num_heads, dim = query.shape
        pages, length, mask = self.in_sight(options.sliding_window, layer, query.dtype)
        keys, values = gather(layer, pages, num_requests, length, query)
        num_kv_heads = keys.shape[1]
        # The query heads of a KV head stand in line as if they were that head's queries: each
        # page is then read once a KV head, and nothing is repeated.
        query = query.reshape(num_requests, num_kv_heads, num_heads // num_kv_heads, dim)
        if is_plain(options):
            output = scaled_dot_product_attention(
                query, keys, values, attn_mask=mask, scale=options.scaling
            )
        else:
            output = explicit_attention(query.unsqueeze(3), keys, values, mask, options)
        return output.reshape(num_requests, num_heads, dim)

    def in_sight(self, window: int | None, layer: LayerKVCache, dtype: torch.dtype) -> PagesInSight:
        """What a layer with this window reads; of long requests only the pages of the window."""
        if window not in self.views:
            block_size, device = layer.data.shape[2], self.pages.device
            num_requests, width = len(self.seq_lens), self.padded_len // block_size
            end, first = self.seq_lens[:, None], torch.zeros_like(self.seq_lens)
            pages, most = self.pages, width
            if window is not None:
                most = min(width, (window - 2) // block_size + 2)  # however the window lies
            if window is not None and most < width:
                first = (self.seq_lens - window).clamp_(min=0) // block_size
                index = first[:, None] + torch.arange(most, device=device)
                pages = self.pages.view(num_requests, width)
                pages = pages.gather(1, index.clamp_(max=width - 1)).flatten()
            position = first[:, None] * block_size + torch.arange(most * block_size, device=device)
            visible = position < end
            if window is not None:
                visible &= position > end - 1 - window
            mask = additive(visible, dtype)[:, None, None, :]
            self.views[window] = PagesInSight(pages, most * block_size, mask)
        return self.views[window]


@dataclass
class PrefillChunk:
    """Several rows of one request: the last ones of its tokens so far."""

    rows: slice
    pages: Tensor  # [width] physical blocks
    query_len: int
    seq_len: int
    # By a tile's first row and the window.
    masks: dict[tuple[int, int | None], Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, metadata: PagedAttentionMetadata, request: int, device: torch.device
    ) -> PrefillChunk:
        """The chunk of this request."""
        start, end = metadata.query_start_loc[request : request + 2]
        return cls(
            rows=slice(start, end),
            pages=torch.tensor(metadata.block_tables[request], device=device),
            query_len=end - start,
            seq_len=metadata.seq_lens[request],
        )

    def attend(self, layer: LayerKVCache, query: Tensor, options: AttentionOptions) -> Tensor:
        """[heads, rows, dim] -> [rows, heads, dim].

        Whoever has no past and no window leaves it to torch to skip what is masked. All others go
        by tiles of rows, each of which is computed with the keys from its window's first to its
        last row's own, so that little is computed to be masked.
        """
        window, past = options.sliding_window, self.seq_len - self.query_len
        block_size = layer.data.shape[2]
        first = 0 if window is None else max(0, past - window + 1) // block_size * block_size
        pages = self.pages[first // block_size :]
        keys, values = gather(layer, pages, 1, self.seq_len - first, query)
        if is_plain(options) and not past and (window is None or window >= self.seq_len):
            output = scaled_dot_product_attention(
                query.unsqueeze(0),
                keys,
                values,
                is_causal=True,
                scale=options.scaling,
                enable_gqa=True,
            )
            return output[0].transpose(0, 1)
        tiles = []
        for start in range(0, self.query_len, TILE_ROWS):
            rows = range(past + start, past + min(start + TILE_ROWS, self.query_len))
            begin = first if window is None else max(first, rows[0] - window + 1)
            seen = slice(begin - first, rows[-1] + 1 - first)
            mask = self.mask(begin, rows, window, query.dtype)
            part = query[:, start : start + len(rows)]
            tiles.append(attend_tile(part, keys[:, :, seen], values[:, :, seen], mask, options))
        return torch.cat(tiles, dim=1).transpose(0, 1)

    def mask(self, begin: int, rows: range, window: int | None, dtype: torch.dtype) -> Tensor:
        """[rows, keys from `begin` on]: 0 where a row may look, else minus infinity."""
        known = self.masks.get((rows[0], window))
        if known is None:
            position = torch.arange(begin, rows[-1] + 1, device=self.pages.device)
            row = torch.arange(rows[0], rows[-1] + 1, device=self.pages.device)[:, None]
            visible = position <= row
            if window is not None:
                visible &= position > row - window
            known = self.masks[rows[0], window] = additive(visible, dtype)
        return known


def attend_tile(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, options: AttentionOptions
) -> Tensor:
    """Some rows of a request: [heads, rows, dim], [1, kv_heads, tokens, dim] -> as query."""
    if not is_plain(options):
        grouped = query.unflatten(0, (keys.shape[1], -1)).unsqueeze(0)
        return explicit_attention(grouped, keys, values, mask, options).flatten(1, 2)[0]
    return scaled_dot_product_attention(
        query.unsqueeze(0), keys, values, attn_mask=mask, scale=options.scaling, enable_gqa=True
    )[0]


def is_plain(options: AttentionOptions) -> bool:
    """Whether torch's fused attention can do it."""
    return options.softcap is None and options.sinks is None


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask to add to scores."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, float("-inf"))


def explicit_attention(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, options: AttentionOptions
) -> Tensor:
    """Attention with everything in sight, for scores that are more than scaled dot products.

    query is [batch, kv_heads, group, rows, dim], keys and values [batch, kv_heads, tokens, dim].
    """
    scores = query @ keys.unsqueeze(2).transpose(3, 4) * options.scaling
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    scores = scores + (mask.unsqueeze(2) if mask.dim() == 4 else mask)
    if options.sinks is not None:
        sinks = options.sinks.to(scores.dtype).view(query.shape[1], query.shape[2], 1, 1)
        scores = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], dim=-1)
    weights = torch.softmax(scores.float(), dim=-1).to(query.dtype)
    return weights[..., : keys.shape[2]] @ values.unsqueeze(2)


# --- gathering ---------------------------------------------------------------------------------

_local = threading.local()


def gather(
    layer: LayerKVCache, pages: Tensor, batch: int, length: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """The first `length` tokens in `pages` of each request, K and V as [batch, heads, length, dim].

    They have the dtype of `like` and lie in a workspace that the next call overwrites. Fresh memory
    each time would be four times slower: the system zeroes it page by page.
    """
    tail = layer.data.shape[2:]  # block_size, kv_heads, dim
    shape = (2, pages.numel(), *tail)
    space = workspace(math.prod(shape), layer.data).view(shape)
    for part in range(2):
        torch.index_select(layer.data[part], 0, pages, out=space[part])
    if like.dtype != space.dtype:  # attention computes in the dtype of the queries
        scales = None if layer.scales is None else layer.scales[:, pages]
        space = dequantize(space, scales, workspace(space.numel(), like).view(shape))
    keys, values = space.view(2, batch, -1, *tail[1:])[:, :, :length].transpose(2, 3)
    return keys, values


def workspace(numel: int, like: Tensor) -> Tensor:
    """Memory of this thread for `numel` elements. All engines of the thread take turns with it."""
    spaces: dict[tuple[torch.device, torch.dtype], Tensor] = _local.__dict__.setdefault(
        "spaces", {}
    )
    kind = (like.device, like.dtype)
    if kind not in spaces or spaces[kind].numel() < numel:
        spaces.pop(kind, None)
        with torch.inference_mode(False):
            spaces[kind] = torch.empty(
                1 << (numel - 1).bit_length(), dtype=like.dtype, device=like.device
            )
    return spaces[kind][:numel]


def forget_workspaces() -> None:
    """Give this thread's workspaces back; the next step makes new ones."""
    _local.__dict__.pop("spaces", None)
