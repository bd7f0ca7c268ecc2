"""Starts the kernels: grids, strides and tile sizes from tensors (box `paged-attn`).

On CUDA tensors the kernels are compiled at their first call, on CPU tensors they are interpreted,
which works only where TRITON_INTERPRET=1 was set before triton was imported.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.paged_attention.metadata import AttentionOptions
from engine.paged_attention.triton import kernels

# Largest values of the cache's dtypes with 8 bits; what is larger is cut to them, as in vLLM.
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0, torch.int8: 127.0}
SMALLEST_DOT = 16  # rows, columns and depth of the smallest product that tensor cores take
LARGEST_TILE = 16 * 1024  # bytes of keys, or of values, at once
PREFILL_ROWS = 64  # rows of a prefill tile: tokens times query heads of a KV head
# Bytes of keys and values that a program has on their way, beside those it works on. A block's
# number has to arrive before its keys can be asked for, which takes a stage of the pipeline more.
IN_FLIGHT = 24 * 1024
MOST_STAGES = 5
# Whether a * b + c may be rounded once. Said explicitly, so that every way to compile says it.
FP_FUSION = True


class Pages(NamedTuple):
    """A layer's pool, as kernels see it."""

    data: Tensor  # [2, blocks, block_size, kv_heads, dim]
    scales: Tensor | None  # [2, blocks, block_size, kv_heads] float32, for int8


class Decodes(NamedTuple):
    """Requests with one row each. Int32 tensors on the device."""

    block_tables: Tensor  # [requests, width]
    seq_lens: Tensor  # [requests]; 0: nobody, whose row becomes zeros
    rows: Tensor  # [requests]: of the batch


class Chunks(NamedTuple):
    """Requests with several rows each, cut into tiles. Int32 tensors on the device."""

    block_tables: Tensor  # [requests, width]
    seq_lens: Tensor  # [requests], the chunk included
    query_starts: Tensor  # [requests]: first row of the batch
    query_lens: Tensor  # [requests]
    tile_requests: Tensor  # [tiles]
    tile_starts: Tensor  # [tiles]: first token within the chunk


class Partials(NamedTuple):
    """What each share of a decode leaves in memory, float32: of it one softmax is made."""

    outputs: Tensor  # [requests, splits, heads, dim]: weighted sums of values
    maxima: Tensor  # [requests, splits, heads]: largest scores, times log2(e)
    totals: Tensor  # [requests, splits, heads]: sums of weights

    @classmethod
    def empty(cls, query: Tensor, requests: int, splits: int) -> Partials:
        """Room for them, on the device of `query` [heads, rows, dim]."""
        heads, _, dim = query.shape
        outputs = query.new_empty((requests, splits, heads, dim), dtype=torch.float32)
        return cls(outputs, *(outputs.new_empty(outputs.shape[:3]) for _ in range(2)))


class WalkTrace(NamedTuple):
    """What the programs of an attention kernel noted of their walks, one program after the other.

    `blocks` [programs, width]: physical blocks in the order read, then -1. `states`
    [programs, width, rows, 3] float32: after each block and for each row of the program's tile the
    largest score, the sum of weights, and the norm of the weighted sum of values.
    """

    blocks: Tensor
    states: Tensor

    @classmethod
    def empty(cls, programs: int, width: int, rows: int, device: torch.device) -> WalkTrace:
        """Of programs that have read nothing yet."""
        return cls(
            torch.full((programs, width), -1, dtype=torch.int32, device=device),
            torch.zeros(programs, width, rows, 3, device=device),
        )


def reshape_and_cache(pages: Pages, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
    """Write K and V [kv_heads, rows, dim] to their slots. One program a row and KV head."""
    kv_heads, rows, dim = key.shape
    key, value = with_rows(key), with_rows(value)
    kernels.reshape_and_cache_kernel[rows, kv_heads](
        key,
        value,
        *halves(pages),
        slot_mapping,
        *key.stride()[:2],
        *value.stride()[:2],
        KV_HEADS=kv_heads,
        DIM=dim,
        DIM_PADDED=padded(dim),
        LARGEST=LARGEST.get(pages.data.dtype, 0.0),
        WIDEN=is_interpreted(key),
        num_warps=1,
        **compile_options(key),
    )


def paged_decode(
    pages: Pages,
    query: Tensor,
    output: Tensor,
    batch: Decodes,
    options: AttentionOptions,
    splits: int = 1,
    trace: bool = False,
    partials: Partials | None = None,
) -> WalkTrace | None:
    """Attention of the batch's rows of `query` [heads, rows, dim] into `output` [rows, heads, dim].

    One program a request, KV head and split. With `trace`, what each of them noted. Who wants to
    see what the splits leave brings the room for it, `partials`.
    """
    query = with_rows(query)
    heads, _, dim = query.shape
    (requests, width), kv_heads = batch.block_tables.shape, pages.data.shape[3]
    group = heads // kv_heads
    notes = None
    if trace:
        notes = WalkTrace.empty(requests * kv_heads * splits, width, group, query.device)
    partial: tuple[Any, ...] = (output, None, None)
    if splits > 1:
        partial = partials or Partials.empty(query, requests, splits)
    kernels.paged_decode_kernel[requests, kv_heads, splits](
        query,
        *partial,
        *halves(pages),
        batch.block_tables,
        batch.seq_lens,
        batch.rows,
        options.sinks,
        *(notes or (None, None)),
        *query.stride()[:2],
        width,
        options.scaling,
        options.softcap or 0.0,
        SPLITS=splits,
        ROWS=padded(group),
        GROUP=group,
        num_warps=warps_for(padded(group), dim),
        **walk_constants(pages, options, trace, query),
    )
    if splits > 1:
        kernels.reduce_splits_kernel[requests, heads](
            output,
            *partial,
            batch.rows,
            HEADS=heads,
            SPLITS=splits,
            SPLITS_PADDED=power_of_two(splits),
            DIM=dim,
            DIM_PADDED=padded(dim),
            WIDEN=is_interpreted(query),
            num_warps=1,
            **compile_options(query),
        )
    return notes


def paged_prefill(
    pages: Pages,
    query: Tensor,
    output: Tensor,
    batch: Chunks,
    options: AttentionOptions,
    trace: bool = False,
) -> WalkTrace | None:
    """As `paged_decode`, for chunks. One program a tile and KV head."""
    query = with_rows(query)
    heads, _, dim = query.shape
    kv_heads = pages.data.shape[3]
    group = heads // kv_heads
    tiles, width = len(batch.tile_requests), batch.block_tables.shape[1]
    rows = prefill_rows(group, dim)
    notes = WalkTrace.empty(tiles * kv_heads, width, rows, query.device) if trace else None
    kernels.paged_prefill_kernel[tiles, kv_heads](
        query,
        output,
        *halves(pages),
        *batch,
        options.sinks,
        *(notes or (None, None)),
        *query.stride()[:2],
        width,
        options.scaling,
        options.softcap or 0.0,
        ROWS=rows,
        GROUP=group,
        num_warps=warps_for(rows, dim),
        **walk_constants(pages, options, trace, query),
    )
    return notes


def walk_constants(
    pages: Pages, options: AttentionOptions, trace: bool, query: Tensor
) -> dict[str, Any]:
    """What a walk over these pages is compiled for."""
    _, _, block_size, kv_heads, dim = pages.data.shape
    tile = tile_of(block_size, dim, query.dtype)
    in_tile = 2 * tile * padded(dim) * pages.data.itemsize
    return {
        "BLOCK_SIZE": block_size,
        "TILE": tile,
        "KV_HEADS": kv_heads,
        "DIM": dim,
        "DIM_PADDED": padded(dim),
        "WINDOW": options.sliding_window or 0,
        "SOFTCAP": options.softcap is not None,
        "SINKS": options.sinks is not None,
        "TRACE": trace,
        "WIDEN": is_interpreted(query),
        "num_stages": min(MOST_STAGES, 2 + IN_FLIGHT // in_tile),
        **compile_options(query),
    }


def compile_options(like: Tensor) -> dict[str, Any]:
    """Options of the compiler, which the interpreter does not know."""
    return {} if is_interpreted(like) else {"enable_fp_fusion": FP_FUSION}


def is_interpreted(like: Tensor) -> bool:
    """Whether it is the interpreter that works on such a tensor."""
    return like.device.type == "cpu"


def tile_of(block_size: int, dim: int, dtype: torch.dtype) -> int:
    """Tokens of a block that are read at once: all, unless a program cannot hold them."""
    most = LARGEST_TILE // dtype.itemsize // padded(dim)
    return min(padded(block_size), max(SMALLEST_DOT, most))


def warps_for(rows: int, dim: int) -> int:
    """Warps of a program whose sums are [rows, dim]: each thread holds as many."""
    return min(8, max(2, rows * padded(dim) // 1024))


def prefill_rows(group: int, dim: int) -> int:
    """Rows of a prefill tile with `group` rows a token; fewer where their sums are long."""
    return max(PREFILL_ROWS * 128 // max(128, padded(dim)), power_of_two(group))


def padded(size: int) -> int:
    """The size of a tile that `size` fits into."""
    return max(SMALLEST_DOT, power_of_two(size))


def power_of_two(size: int) -> int:
    """The next one."""
    return 1 << (size - 1).bit_length()


def with_rows(states: Tensor) -> Tensor:
    """The same with the elements of a row next to each other, as the kernels read them."""
    return states if states.stride(2) == 1 else states.contiguous()


def halves(pages: Pages) -> tuple[Any, ...]:
    """Keys and values, then the scales of both."""
    scales = (None, None) if pages.scales is None else pages.scales.unbind(0)
    return (*pages.data.unbind(0), *scales)
