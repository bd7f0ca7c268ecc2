"""PagedAttention as Triton kernels (box `paged-attn`).

A kernel is one small program, run once for each point of a grid and told by `tl.program_id` which
one it is. What it holds are tiles, small matrices in registers, and what it reads and writes are
pointers: it knows no shapes beyond what it is given. The same source runs on a GPU and, number by
number, in Triton's interpreter.

The pool of a layer is [2, blocks, block_size, kv_heads, dim], without gaps: slot `s` of the cache
(block s // block_size, place s % block_size) has the keys of head `h` at (s * kv_heads + h) * dim.

All three attention kernels are one walk: `walk_blocks` goes along a request's block table, reads
one physical block after the other, and keeps a softmax that is right at every stop. They differ in
which rows of queries they bring and in which part of the table they walk.

Counterpart in vLLM 0.26.0: `vllm/v1/attention/ops/triton_unified_attention.py` and
`triton_reshape_and_cache_flash.py`. This module needs nothing but triton: it is compiled, and
interpreted, in processes of its own.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # GPUs have a power of 2: e**x is 2**(x * LOG2E)


@triton.jit
def reshape_and_cache_kernel(
    key,  # [kv_heads, rows, dim], any strides of heads and rows
    value,
    key_cache,  # [blocks, block_size, kv_heads, dim]
    value_cache,
    key_scales,  # [blocks, block_size, kv_heads] float32, or None
    value_scales,
    slot_mapping,  # [rows] int64: block * block_size + offset
    key_stride_head,
    key_stride_row,
    value_stride_head,
    value_stride_row,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,  # the next power of two: tiles have no other sizes
    LARGEST: tl.constexpr,  # what a cache of 8 bits can hold; 0 where it holds the values as such
    WIDEN: tl.constexpr,  # whether this is the interpreter, see `narrow`
):
    """Program (row, kv head): put a token's K and V where the block table will look for it."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    slot = tl.load(slot_mapping + row).to(tl.int64)  # a pool may have more than 2**31 elements
    dims = tl.arange(0, DIM_PADDED)
    real = dims < DIM
    k = tl.load(key + head * key_stride_head + row * key_stride_row + dims, mask=real, other=0.0)
    v = tl.load(
        value + head * value_stride_head + row * value_stride_row + dims, mask=real, other=0.0
    )
    place = slot * KV_HEADS + head
    store_states(k, key_cache, key_scales, place, dims, real, DIM, LARGEST, WIDEN)
    store_states(v, value_cache, value_scales, place, dims, real, DIM, LARGEST, WIDEN)


@triton.jit
def store_states(
    states,
    cache,
    scales,
    place,
    dims,
    real,
    DIM: tl.constexpr,
    LARGEST: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Store the K or V of one token and head: as they are, cut to what fits, or scaled."""
    x = states.to(tl.float32)
    if scales is not None:  # int8: the largest becomes 127, and the scale says what it was
        scale = tl.maximum(tl.max(tl.abs(x)) / LARGEST, 1e-6)
        tl.store(scales + place, scale)
        x = x * (1.0 / scale)
        x = x + tl.where(x < 0, -0.5, 0.5)  # the cast cuts off what is behind the point
    if LARGEST > 0:
        x = tl.minimum(tl.maximum(x, -LARGEST), LARGEST)
    tl.store(cache + place * DIM + dims, narrow(x, cache.dtype.element_ty, WIDEN), mask=real)


@triton.jit
def narrow(x, dtype: tl.constexpr, WIDEN: tl.constexpr):
    """x, float32, as `dtype`: the nearest number that it has.

    The interpreter's own conversion cuts to bfloat16, and loses a digit where fp8 carries one. So
    there x first becomes a number that `dtype` has, by hand; compiled, this is a conversion.
    """
    if WIDEN and (dtype == tl.bfloat16 or dtype.is_fp8()):
        DROPPED: tl.constexpr = 23 - dtype.fp_mantissa_width  # binary digits behind the last kept
        bits = x.to(tl.int32, bitcast=True)
        odd = (bits >> DROPPED) & 1  # halves go to the even neighbour
        bits = (bits + (1 << (DROPPED - 1)) - 1 + odd) >> DROPPED << DROPPED
        rounded = bits.to(tl.float32, bitcast=True)
        # Below the smallest exponent numbers have equal distances, of STEP: 2**23 of them and a
        # half are a number that keeps no digit behind STEP.
        STEP: tl.constexpr = 2.0 ** (1 - dtype.exponent_bias - dtype.fp_mantissa_width)
        FIRST: tl.constexpr = 2.0 ** (1 - dtype.exponent_bias)
        coarse = (x + STEP * 12582912.0) - STEP * 12582912.0
        x = tl.where(tl.abs(x) < FIRST, coarse, rounded)
    return x.to(dtype)


@triton.jit
def walk_blocks(
    queries,  # [ROWS, DIM_PADDED]: query heads of one KV head, of one token or of several
    positions,  # [ROWS]: of each row's token in its request
    block_table,  # of the request
    key_cache,
    value_cache,
    key_scales,
    value_scales,
    kv_head,
    seq_len,  # tokens of the request that have K and V
    first,  # the part of the block table to walk: entries first to end - 1
    end,
    maximum,  # [ROWS] the state to begin with, see `start`
    total,
    scaling,
    softcap,
    trace_blocks,  # [steps] int32, where this program notes what it does, or None
    trace_states,  # [steps, TRACE_ROWS, 3] float32
    ROWS: tl.constexpr,
    TRACE_ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,  # tokens of a block read at once
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    WINDOW: tl.constexpr,  # 0: none
    SOFTCAP: tl.constexpr,  # whether there is one
    WIDEN: tl.constexpr,  # multiply in float32: the interpreter's product of bf16 is wrong
):
    """Attention of the rows over some blocks, one at a time: the online softmax.

    Softmax needs the largest score of all before it may add anything up. Here the largest so far
    stands in for it: when a block brings a larger one, what has been added up shrinks by the
    factor that it was too large. Returns the state: for each row the largest score (times LOG2E),
    the sum of weights, and the weighted sum of values [ROWS, DIM_PADDED], all float32.
    """
    output = tl.zeros([ROWS, DIM_PADDED], dtype=tl.float32)
    dims = tl.arange(0, DIM_PADDED)
    real = dims < DIM
    PARTS: tl.constexpr = (BLOCK_SIZE + TILE - 1) // TILE
    for step in range(first * PARTS, end * PARTS):
        index = step // PARTS
        block = tl.load(block_table + index).to(tl.int64)
        offsets = (step % PARTS) * TILE + tl.arange(0, TILE)
        tokens = index * BLOCK_SIZE + offsets  # positions in the request
        # What lies behind the request's end may be anything, even no number.
        there = (offsets < BLOCK_SIZE) & (tokens < seq_len)
        places = (block * BLOCK_SIZE + offsets) * KV_HEADS + kv_head
        keys = tl.load(  # [DIM_PADDED, TILE]: transposed by the way it is read
            key_cache + places[None, :] * DIM + dims[:, None],
            mask=there[None, :] & real[:, None],
            other=0.0,
        )
        values = tl.load(
            value_cache + places[:, None] * DIM + dims[None, :],
            mask=there[:, None] & real[None, :],
            other=0.0,
        )
        scores = multiply(queries, keys, queries.dtype, WIDEN) * scaling
        if key_scales is not None:
            scores *= tl.load(key_scales + places, mask=there, other=0.0)[None, :]
        if SOFTCAP:
            scores = softcap * tanh(scores / softcap)
        visible = there[None, :] & (tokens[None, :] <= positions[:, None])
        if WINDOW > 0:
            visible = visible & (tokens[None, :] > positions[:, None] - WINDOW)
        scores = tl.where(visible, scores * LOG2E, float("-inf"))

        larger = tl.maximum(maximum, tl.max(scores, 1))
        # A row that has seen nothing yet has no largest score: -inf less -inf is no number.
        origin = tl.where(larger == float("-inf"), 0.0, larger)
        weights = tl.exp2(scores - origin[:, None])
        shrink = tl.exp2(maximum - origin)
        total = total * shrink + tl.sum(weights, 1)
        if value_scales is not None:
            weights *= tl.load(value_scales + places, mask=there, other=0.0)[None, :]
        output = output * shrink[:, None] + multiply(weights, values, queries.dtype, WIDEN)
        maximum = larger

        if trace_blocks is not None:  # what the page shows of the walk
            seen = index - first
            tl.store(trace_blocks + seen, block.to(tl.int32))
            rows = tl.arange(0, ROWS)
            state = trace_states + (seen * TRACE_ROWS + rows) * 3
            tl.store(state, maximum / LOG2E, mask=rows < TRACE_ROWS)
            tl.store(state + 1, total, mask=rows < TRACE_ROWS)
            norm = tl.sqrt(tl.sum(output * output, 1))
            tl.store(state + 2, norm, mask=rows < TRACE_ROWS)
    return maximum, total, output


@triton.jit
def multiply(a, b, dtype: tl.constexpr, WIDEN: tl.constexpr):
    """a @ b, added up in float32; the tensor cores take both in `dtype`."""
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a.to(dtype), b.to(dtype), input_precision="ieee")


@triton.jit
def tanh(x):
    """tanh, which Triton's language lacks."""
    return 1.0 - 2.0 / (tl.exp2(x * (2.0 * LOG2E)) + 1.0)


@triton.jit
def start(sinks, heads, real, SINKS: tl.constexpr, ROWS: tl.constexpr):
    """The largest score and the sum of weights before the first block.

    An attention sink is a score that takes weight and gives nothing: it is there from the start.
    """
    if SINKS:
        sink = tl.load(sinks + heads, mask=real, other=float("-inf")).to(tl.float32)
        maximum = sink * LOG2E
        total = tl.where(real, 1.0, 0.0)
    else:
        maximum = tl.full([ROWS], float("-inf"), dtype=tl.float32)
        total = tl.zeros([ROWS], dtype=tl.float32)
    return maximum, total


@triton.jit
def first_block(position, BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr):
    """The first entry of the block table that a query at `position` looks at."""
    if WINDOW > 0:
        return tl.maximum(position - WINDOW + 1, 0) // BLOCK_SIZE
    else:
        return position * 0


@triton.jit(do_not_specialize=["width"])  # it changes from step to step
def paged_decode_kernel(
    query,  # [heads, rows, dim], any strides of heads and rows
    output,  # [rows, heads, dim]; with several splits [requests, splits, heads, dim] float32
    maxima,  # [requests, splits, heads] float32, or None: largest scores, times LOG2E
    totals,  # [requests, splits, heads] float32, or None: sums of weights
    key_cache,
    value_cache,
    key_scales,
    value_scales,
    block_tables,  # [requests, width] int32
    seq_lens,  # [requests] int32; 0: a request that is none, zeros
    request_rows,  # [requests] int32: the row of the batch with its query
    sinks,  # [heads], or None
    trace_blocks,  # [requests, kv_heads, splits, width] int32, or None
    trace_states,  # [requests, kv_heads, splits, width, group, 3] float32, or None
    query_stride_head,
    query_stride_row,
    width,
    scaling,
    softcap,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,  # GROUP, padded to what tensor cores take
    GROUP: tl.constexpr,  # query heads of a KV head
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    TRACE: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Program (request, kv head, split): one new token looks at the pages of its request.

    All query heads that share the KV head are rows of one tile, so a page is read once for all of
    them. That is what grouped-query attention saves.

    A few long requests are too few programs to keep a GPU busy. Then several programs share a
    request's pages, each leaves the state of its walk, and `reduce_splits_kernel` makes one softmax
    of them.
    """
    request = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    seq_len = tl.load(seq_lens + request)
    row = tl.load(request_rows + request)
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, DIM_PADDED)
    heads = kv_head * GROUP + rows
    real = rows < GROUP
    inside = real[:, None] & (dims < DIM)[None, :]
    queries = tl.load(
        query + heads[:, None] * query_stride_head + row * query_stride_row + dims[None, :],
        mask=inside,
        other=0.0,
    )
    if TRACE:
        program = (request * KV_HEADS + kv_head) * SPLITS + split
        trace_blocks += program * width
        trace_states += program * width * GROUP * 3
    position = seq_len - 1
    first = first_block(position, BLOCK_SIZE, WINDOW)
    end = tl.cdiv(seq_len, BLOCK_SIZE)
    if SPLITS > 1:
        share = tl.cdiv(end - first, SPLITS)
        first = tl.minimum(first + split * share, end)
        end = tl.minimum(first + share, end)
    sinking = rows < tl.where(split == 0, GROUP, 0)  # once, not in each share
    maximum, total = start(sinks, heads, sinking, SINKS, ROWS)
    maximum, total, result = walk_blocks(
        queries,
        position + tl.zeros([ROWS], dtype=tl.int32),
        block_tables + request * width,
        key_cache,
        value_cache,
        key_scales,
        value_scales,
        kv_head,
        seq_len,
        first,
        end,
        maximum,
        total,
        scaling,
        softcap,
        trace_blocks,
        trace_states,
        ROWS,
        GROUP,
        BLOCK_SIZE,
        TILE,
        KV_HEADS,
        DIM,
        DIM_PADDED,
        WINDOW,
        SOFTCAP,
        WIDEN,
    )
    if SPLITS > 1:
        place = (request * SPLITS + split) * KV_HEADS * GROUP + heads
        tl.store(maxima + place, maximum, mask=real)
        tl.store(totals + place, total, mask=real)
    else:
        place = row * KV_HEADS * GROUP + heads
        result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        output + place[:, None] * DIM + dims[None, :],
        narrow(result, output.dtype.element_ty, WIDEN),
        mask=inside,
    )


@triton.jit
def reduce_splits_kernel(
    output,  # [rows, heads, dim]
    partial_outputs,  # these three as `paged_decode_kernel` leaves them
    partial_maxima,
    partial_totals,
    request_rows,
    HEADS: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_PADDED: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Program (request, head): the shares of a request become one softmax."""
    request = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(request_rows + request)
    splits = tl.arange(0, SPLITS_PADDED)
    dims = tl.arange(0, DIM_PADDED)
    real = splits < SPLITS
    partial = (request * SPLITS + splits) * HEADS + head
    maxima = tl.load(partial_maxima + partial, mask=real, other=float("-inf"))
    totals = tl.load(partial_totals + partial, mask=real, other=0.0)
    outputs = tl.load(
        partial_outputs + partial[:, None] * DIM + dims[None, :],
        mask=real[:, None] & (dims < DIM)[None, :],
        other=0.0,
    )
    # Each share is too large by the distance of its largest score from the largest of all.
    largest = tl.max(maxima, 0)
    shrink = tl.exp2(maxima - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(totals * shrink, 0)
    result = tl.sum(outputs * shrink[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(
        output + (row * HEADS + head) * DIM + dims,
        narrow(result, output.dtype.element_ty, WIDEN),
        mask=dims < DIM,
    )


@triton.jit(do_not_specialize=["width"])  # it changes from step to step
def paged_prefill_kernel(
    query,  # [heads, rows, dim], any strides of heads and rows
    output,  # [rows, heads, dim]
    key_cache,
    value_cache,
    key_scales,
    value_scales,
    block_tables,  # [requests, width] int32
    seq_lens,  # [requests] int32: tokens of the request, this chunk's included
    query_starts,  # [requests] int32: the row of the batch with the chunk's first token
    query_lens,  # [requests] int32: tokens of the chunk
    tile_requests,  # [tiles] int32: whose chunk the tile is cut from
    tile_starts,  # [tiles] int32: its first token, counted within the chunk
    sinks,
    trace_blocks,  # [tiles, kv_heads, width]
    trace_states,  # [tiles, kv_heads, width, ROWS, 3]
    query_stride_head,
    query_stride_row,
    width,
    scaling,
    softcap,
    ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    TRACE: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Program (tile, kv head): neighbouring tokens of a chunk look at the pages before them.

    The tile's rows are ROWS // GROUP tokens times the query heads of the KV head. The walk ends at
    the block of the tile's last token: what causality hides from all of them is never read.
    """
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    request = tl.load(tile_requests + tile)
    tile_start = tl.load(tile_starts + tile)
    seq_len = tl.load(seq_lens + request)
    query_len = tl.load(query_lens + request)
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, DIM_PADDED)
    TOKENS: tl.constexpr = ROWS // GROUP
    tokens = tile_start + rows // GROUP  # within the chunk
    heads = kv_head * GROUP + rows % GROUP
    real = (rows < TOKENS * GROUP) & (tokens < query_len)
    inside = real[:, None] & (dims < DIM)[None, :]
    batch_rows = tl.load(query_starts + request) + tokens
    queries = tl.load(
        query
        + heads[:, None] * query_stride_head
        + batch_rows[:, None] * query_stride_row
        + dims[None, :],
        mask=inside,
        other=0.0,
    )
    if TRACE:
        program = tile * KV_HEADS + kv_head
        trace_blocks += program * width
        trace_states += program * width * ROWS * 3
    computed = seq_len - query_len  # tokens before the chunk
    last = computed + tl.minimum(tile_start + TOKENS, query_len)
    maximum, total = start(sinks, heads, real, SINKS, ROWS)
    maximum, total, result = walk_blocks(
        queries,
        computed + tokens,
        block_tables + request * width,
        key_cache,
        value_cache,
        key_scales,
        value_scales,
        kv_head,
        seq_len,
        first_block(computed + tile_start, BLOCK_SIZE, WINDOW),
        tl.cdiv(last, BLOCK_SIZE),
        maximum,
        total,
        scaling,
        softcap,
        trace_blocks,
        trace_states,
        ROWS,
        ROWS,
        BLOCK_SIZE,
        TILE,
        KV_HEADS,
        DIM,
        DIM_PADDED,
        WINDOW,
        SOFTCAP,
        WIDEN,
    )
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        output + (batch_rows[:, None] * KV_HEADS * GROUP + heads[:, None]) * DIM + dims[None, :],
        narrow(result, output.dtype.element_ty, WIDEN),
        mask=inside,
    )
