"""The numba backend's kernel: attention of a few rows over the pages of their request.

Part of the box PagedAttention. Counterpart in vLLM 0.26.0: the compiled kernel
behind `vllm/v1/attention/backends/cpu_attn.py`. numba turns these functions into
machine code at their first call.

One work item is a tile of rows of one request and one KV head: all query heads of that KV head are
computed together, so that a page is read once a group. Its result depends on nothing else in the
batch. Keys go by in tiles; the softmax is built as they go (online): a running maximum, a running
sum, and an output that is rescaled when the maximum rises. All of it is in fp32.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import get_thread_id, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array

from engine.model_loader.fetch import cache_dir

numba.config.CACHE_DIR = str(cache_dir() / "numba")  # of compiled kernels, for the next process
numba.config.THREADING_LAYER = "omp"

KEY_TILE = 64  # tokens whose K and V are copied at a time: they stay in the nearest cache

# Sums may be built in any order (or no loop over them becomes vector instructions), but infinities
# and NaN stay what they are.
FAST = {"reassoc", "contract", "nsz", "arcp"}

ZERO, ONE = np.float32(0), np.float32(1)
LOWEST = np.float32(-3.0e38)
LEAST_EXPONENT = np.float32(-87.0)  # of e: what is less is nothing in fp32
LOG2_E = np.float32(1.4426950408889634)
LN_2_HIGH, LN_2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# e^x = 1 + x + x^2 (C[0] + C[1] x + ...), for |x| <= ln(2) / 2, to the last bit but one of fp32.
C = tuple(np.float32(1 / math.factorial(n)) for n in range(2, 8))
C2, C3, C4, C5, C6, C7 = C


@intrinsic
def float_of_bits(typing_context: Any, bits: Any) -> Any:
    """The fp32 number whose bits an int32 has."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@njit(fastmath=FAST, inline="always")
def exp(x: Any) -> Any:
    """e^x for x <= 0. Plain arithmetic, so that a loop over it becomes vector instructions."""
    x = max(x, LEAST_EXPONENT)
    power = np.floor(x * LOG2_E + np.float32(0.5))
    rest = x - power * LN_2_HIGH - power * LN_2_LOW
    series = C2 + rest * (C3 + rest * (C4 + rest * (C5 + rest * (C6 + rest * C7))))
    small = ONE + rest + rest * rest * series
    return small * float_of_bits((np.int32(power) + np.int32(127)) << np.int32(23))


def in_fp32(row: Any, meaning: Any, scale: Any, space: Any) -> Any:
    """K or V of a token and head as fp32: where it lies, or in `space`; see `attend`."""


@overload(in_fp32, inline="always")
def _in_fp32(row: Any, meaning: Any, scale: Any, space: Any) -> Any:
    if row.dtype == types.float32:

        def as_it_is(row: Any, meaning: Any, scale: Any, space: Any) -> Any:
            return row

        return as_it_is

    def look_up(row: Any, meaning: Any, scale: Any, space: Any) -> Any:
        for d in range(space.shape[0]):
            space[d] = meaning[row[d]] * scale
        return space

    return look_up


@njit(fastmath=FAST, nogil=True)
def score(queries: Any, k0: Any, k1: Any, k2: Any, k3: Any, scores: Any) -> None:
    """scores[i] = queries[i] . each of four keys, two rows at a time."""
    dim = queries.shape[1]
    for i in range(0, queries.shape[0], 2):
        q0, q1 = queries[i], queries[i + 1]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = ZERO
        for d in range(dim):
            x, y = q0[d], q1[d]
            a0 += x * k0[d]
            a1 += x * k1[d]
            a2 += x * k2[d]
            a3 += x * k3[d]
            b0 += y * k0[d]
            b1 += y * k1[d]
            b2 += y * k2[d]
            b3 += y * k3[d]
        scores[i, 0], scores[i, 1], scores[i, 2], scores[i, 3] = a0, a1, a2, a3
        scores[i + 1, 0], scores[i + 1, 1], scores[i + 1, 2], scores[i + 1, 3] = b0, b1, b2, b3


@njit(fastmath=FAST, nogil=True)
def add_values(weights: Any, v0: Any, v1: Any, v2: Any, v3: Any, result: Any) -> None:
    """result[i] += weights[i] . four values."""
    dim = result.shape[1]
    for i in range(result.shape[0]):
        w0, w1, w2, w3 = weights[i, 0], weights[i, 1], weights[i, 2], weights[i, 3]
        line = result[i]
        for d in range(dim):
            line[d] += w0 * v0[d] + w1 * v1[d] + w2 * v2[d] + w3 * v3[d]


@njit(fastmath=FAST, nogil=True)
def to_weights(scores: Any, first: int, end: int, softcap: Any, known: Any) -> Any:
    """Turn scores[first:end] into e^(score - maximum), and those beside them into 0.

    `known` is the maximum of the tiles before. Returns the new one and the sum of the weights.
    """
    seen = scores[first:end]  # indices from 0 on: else each would be checked for its sign
    if softcap > ZERO:
        for j in range(seen.shape[0]):
            seen[j] = softcap * np.float32(math.tanh(seen[j] / softcap))
    highest = known
    for j in range(seen.shape[0]):
        highest = max(highest, seen[j])
    scores[:first] = ZERO
    scores[end:] = ZERO
    total = ZERO
    for j in range(seen.shape[0]):
        weight = exp(seen[j] - highest)
        seen[j] = weight
        total += weight
    return highest, total


@njit(fastmath=FAST, nogil=True, inline="always")
def four(
    part: int,
    token: int,
    past: int,
    table: Any,
    block_size: int,
    cache: Any,
    head: int,
    meaning: Any,
    scales: Any,
    space: Any,
) -> Any:
    """K or V (`part`) of four tokens in a row, or of the last one for those that are not there."""
    return (
        one(part, token, past, table, block_size, cache, head, meaning, scales, space[0]),
        one(
            part,
            min(token + 1, past - 1),
            past,
            table,
            block_size,
            cache,
            head,
            meaning,
            scales,
            space[1],
        ),
        one(
            part,
            min(token + 2, past - 1),
            past,
            table,
            block_size,
            cache,
            head,
            meaning,
            scales,
            space[2],
        ),
        one(
            part,
            min(token + 3, past - 1),
            past,
            table,
            block_size,
            cache,
            head,
            meaning,
            scales,
            space[3],
        ),
    )


@njit(fastmath=FAST, nogil=True, inline="always")
def one(
    part: int,
    token: int,
    past: int,
    table: Any,
    block_size: int,
    cache: Any,
    head: int,
    meaning: Any,
    scales: Any,
    space: Any,
) -> Any:
    """K or V of one token."""
    block, offset = table[token // block_size], token % block_size
    scale = ONE
    if scales.shape[1] > 0:
        scale = scales[part, block, offset, head]
    return in_fp32(cache[part, block, offset, head], meaning, scale, space)


@njit(fastmath=FAST, nogil=True, inline="always")
def fetch(
    part: int, token: int, past: int, table: Any, block_size: int, cache: Any, head: int
) -> None:
    """Have K or V of up to four tokens in a row come nearer."""
    for each in range(token, min(token + 4, past)):
        row = cache[part, table[each // block_size], each % block_size, head]
        for d in range(0, row.shape[0], 16):
            prefetch(row, d)


@intrinsic
def bare(typing_context: Any, array: Any) -> Any:
    """The same array without an owner: its pieces need not be counted, which costs more than they.

    Whoever calls must keep the array.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = make_array(array)(context, builder, arguments[0])
        whole.meminfo = cgutils.get_null_value(whole.meminfo.type)
        whole.parent = cgutils.get_null_value(whole.parent.type)
        return whole._getvalue()

    return array(array), generate


@intrinsic
def prefetch(typing_context: Any, row: Any, index: Any) -> Any:
    """Have the cache line of row[index] come nearer: it will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = make_array(row)(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.PointerType(ir.IntType(8)))
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [place, flag(0), flag(3), flag(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.none(row, types.intp), generate


@njit(nogil=True, inline="always")
def cut(space: Any, rows: int, columns: int) -> Any:
    """The first elements of `space` as a table, and what is left."""
    return space[: rows * columns].reshape(rows, columns), space[rows * columns :]


def scratch_size(rows: int, group: int, dim: int) -> int:
    """Elements that `attend` needs for items of so many rows."""
    even = rows * group + 1
    return even * (2 * dim + KEY_TILE + 2) + 4 * dim


@njit(nogil=True, inline="always")
def first_key(position: int, window: int) -> int:
    """The first token that a row at `position` sees, or one of the three before it."""
    begin = max(0, position - window + 1)
    return begin - begin % 4


@njit(fastmath=FAST, nogil=True)
def attend_item(
    item: Any,
    following: Any,
    tables: Any,
    block_size: int,
    query: Any,
    cache: Any,
    meaning: Any,
    scales: Any,
    scaling: Any,
    window: int,
    softcap: Any,
    sinks: Any,
    output: Any,
    scratch: Any,
) -> None:
    """Attention of one work item; `attend` says what the arguments are.

    Memory is slow to answer and quick to deliver: V is asked for while K goes by, then K of what
    comes next, which may be that of the item `following`. That is a tenth of the time at 56 tokens.
    """
    request, first_row, num_rows, position, head = item
    dim = query.shape[2]
    group = query.shape[1] // cache.shape[3]
    lines = num_rows * group  # line i is query head i % group of row i // group
    even = lines + lines % 2
    queries, rest = cut(scratch, even, dim)
    scores, rest = cut(rest, even, KEY_TILE)
    result, rest = cut(rest, lines, dim)
    space, rest = cut(rest, 4, dim)
    highest, totals = rest[:lines], rest[lines : 2 * lines]
    queries[:], result[:], highest[:], totals[:] = ZERO, ZERO, LOWEST, ZERO
    for i in range(lines):
        source = query[first_row + i // group, head * group + i % group]
        for d in range(dim):
            queries[i, d] = source[d] * scaling
    table, past = tables[request], position + num_rows

    begin = first_key(position, window)
    next_table, next_past = tables[following[0]], following[3] + following[2]
    next_begin = first_key(following[3], window)
    for tile in range(begin, past, KEY_TILE):
        size = min(KEY_TILE, past - tile)
        for j in range(0, size, 4):
            fetch(1, tile + j, past, table, block_size, cache, head)
            k0, k1, k2, k3 = four(
                0, tile + j, past, table, block_size, cache, head, meaning, scales, space
            )
            score(queries, k0, k1, k2, k3, scores[:, j : j + 4])
        for i in range(lines):
            row = position + i // group
            first = min(size, max(0, row - window + 1 - tile))
            end = max(first, min(size, row + 1 - tile))
            above, total = to_weights(scores[i], first, end, softcap, highest[i])
            if above > highest[i]:
                shrink = exp(highest[i] - above)
                totals[i] *= shrink
                for d in range(dim):
                    result[i, d] *= shrink
                highest[i] = above
            totals[i] += total
        more = tile + KEY_TILE < past
        for j in range(0, size, 4):
            if more:
                fetch(0, tile + KEY_TILE + j, past, table, block_size, cache, head)
            else:
                fetch(0, next_begin + j, next_past, next_table, block_size, cache, following[4])
            v0, v1, v2, v3 = four(
                1, tile + j, past, table, block_size, cache, head, meaning, scales, space
            )
            add_values(scores[:, j : j + 4], v0, v1, v2, v3, result)

    for i in range(lines):
        query_head = head * group + i % group
        total, shrink = totals[i], ONE
        if sinks.shape[0] > 0:
            sink = sinks[query_head]
            above = max(highest[i], sink)
            shrink = exp(highest[i] - above)
            total = total * shrink + exp(sink - above)
        target = output[first_row + i // group, query_head]
        for d in range(dim):
            target[d] = result[i, d] * shrink / total


@njit(nogil=True, cache=True)
def write(slots: Any, key: Any, value: Any, cache: Any) -> None:
    """Put K and V [rows, kv_heads, dim] where `slots` [rows] says; `cache` is as in `attend`."""
    for row in range(slots.shape[0]):
        block, offset = divmod(slots[row], cache.shape[2])
        for head in range(key.shape[1]):
            for d in range(key.shape[2]):
                cache[0, block, offset, head, d] = key[row, head, d]
                cache[1, block, offset, head, d] = value[row, head, d]


@njit(fastmath=FAST, nogil=True, cache=True)
def attend(
    items: Any,
    tables: Any,
    block_size: int,
    query: Any,
    cache: Any,
    meaning: Any,
    scales: Any,
    scaling: Any,
    window: int,
    softcap: Any,
    sinks: Any,
    output: Any,
    scratch: Any,
) -> None:
    """Attention of all work items, one after the other.

    items: int64 [items, 5]: place of the request, first row, rows, position of the first row in
    its request, KV head. tables: int64 [requests, width] of blocks. query and output: fp32 [rows,
    heads, dim]. cache: [2, blocks, block_size, kv_heads, dim]. meaning: fp32, what each bit pattern
    of the cache's dtype stands for (unused where that is fp32). scales: fp32 [2, blocks,
    block_size, kv_heads], or [2, 0, 0, 0]. softcap: 0 for none. sinks: fp32 [heads], or [0].
    """
    for i in range(items.shape[0]):
        attend_item(
            items[i], items[min(i + 1, items.shape[0] - 1)], bare(tables), block_size,
            bare(query), bare(cache), bare(meaning), bare(scales), scaling, window, softcap,
            bare(sinks), bare(output), bare(scratch)[0],
        )  # fmt: skip


@njit(fastmath=FAST, nogil=True, cache=True, parallel=True)
def attend_in_parallel(
    items: Any,
    tables: Any,
    block_size: int,
    query: Any,
    cache: Any,
    meaning: Any,
    scales: Any,
    scaling: Any,
    window: int,
    softcap: Any,
    sinks: Any,
    output: Any,
    scratch: Any,
) -> None:
    """`attend`, by several threads: each takes as many items, in a row."""
    for i in prange(items.shape[0]):
        attend_item(
            items[i], items[min(i + 1, items.shape[0] - 1)], bare(tables), block_size,
            bare(query), bare(cache), bare(meaning), bare(scales), scaling, window, softcap,
            bare(sinks), bare(output), bare(scratch)[get_thread_id()],
        )  # fmt: skip
