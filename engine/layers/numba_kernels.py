"""The kernels of `few_rows`, which numba turns into machine code at their first call.

No box of the map. oneDNN packs the weights of `y = x @ w.T` as [outputs / 64, inputs, 64]. One work
item is such a panel, 64 outputs: its weights go by once in the order in which they lie, and meet
up to six rows, whose sums stay in registers. Threads take items from a common counter, so one that
woke up late, or has to share its core, does less. A row's sums are built in the same order whatever
stands beside it. Arguments are addresses of float32 tensors and their sizes: numbers are what is
quickest to hand over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from engine.layers.few_rows import MOST_ROWS, PANEL
from engine.paged_attention.numba_kernels import FAST, exp

LANES = 16  # float32 in a vector
AHEAD = 24  # inputs whose weights are fetched before they are needed
ONE = np.float32(1)
WORD = ir.IntType(64)
VECTOR = ir.VectorType(ir.FloatType(), LANES)


def multiply_rows(rows: int) -> Any:
    """An intrinsic that does one item for so many rows."""

    @intrinsic
    def multiply(
        typing_context: Any, weights: Any, x: Any, inputs: Any, bias: Any, y: Any, outputs: Any
    ) -> Any:
        """Write y[r, :64] = x[r] @ weights + bias (0: none); `inputs`, `outputs`: of a row."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            weights, x, inputs, bias, y, outputs = arguments
            item = Item(builder, rows)
            item.write(item.sums(weights, x, inputs, item.first_sums(bias)), y, outputs)
            return context.get_dummy_value()

        return types.void(*(types.int64,) * 6), generate

    return multiply


class Item:
    """Writes the machine code of one item: numba's own loops would not keep sums in registers."""

    def __init__(self, builder: Any, rows: int) -> None:
        self.builder = builder
        self.rows = range(rows)
        self.parts = range(PANEL // LANES)

    def at(self, address: Any, index: Any, kind: Any = VECTOR) -> Any:
        """A pointer to the element at `index` after an address."""
        offset = self.builder.mul(index, WORD(4))
        return self.builder.inttoptr(self.builder.add(address, offset), kind.as_pointer())

    def first_sums(self, bias: Any) -> list[Any]:
        """By row and part: the bias, or zeros."""
        nothing = ir.Constant(VECTOR, [0.0] * LANES)
        slots = [cgutils.alloca_once_value(self.builder, nothing) for _ in self.parts]
        with self.builder.if_then(self.builder.icmp_signed("!=", bias, WORD(0))):
            for part, slot in zip(self.parts, slots, strict=True):
                there = self.at(bias, WORD(part * LANES))
                self.builder.store(self.builder.load(there, align=4), slot)
        given = [self.builder.load(slot) for slot in slots]
        return [given[part] for _ in self.rows for part in self.parts]

    def sums(self, weights: Any, x: Any, inputs: Any, first: list[Any]) -> list[Any]:
        """After all inputs."""
        builder = self.builder
        before = builder.block
        body, end = builder.append_basic_block("body"), builder.append_basic_block("end")
        builder.branch(body)
        builder.position_at_end(body)
        k = builder.phi(WORD)
        k.add_incoming(WORD(0), before)
        sums = [builder.phi(VECTOR) for _ in first]
        for phi, value in zip(sums, first, strict=True):
            phi.add_incoming(value, before)
        line = builder.mul(k, WORD(PANEL))
        own = []
        for part in self.parts:
            place = builder.add(line, WORD(part * LANES))
            own.append(builder.load(self.at(weights, place), align=4))
            self.prefetch(self.at(weights, builder.add(place, WORD(AHEAD * PANEL))))
        after = []
        for row in self.rows:
            where = self.at(x, builder.add(builder.mul(inputs, WORD(row)), k), ir.FloatType())
            value = self.spread(builder.load(where, align=4))
            after += [
                self.multiply_add(value, own[part], sums[row * len(own) + part])
                for part in self.parts
            ]
        following = builder.add(k, WORD(1))
        k.add_incoming(following, body)
        for phi, value in zip(sums, after, strict=True):
            phi.add_incoming(value, body)
        builder.cbranch(builder.icmp_signed("<", following, inputs), body, end)
        builder.position_at_end(end)
        return after

    def write(self, sums: list[Any], y: Any, outputs: Any) -> None:
        """Store them."""
        for row in self.rows:
            start = self.builder.mul(outputs, WORD(row))
            for part in self.parts:
                there = self.at(y, self.builder.add(start, WORD(part * LANES)))
                self.builder.store(sums[row * len(self.parts) + part], there, align=4)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""
        kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
        name = f"llvm.fma.v{LANES}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [a, b, c])

    def spread(self, value: Any) -> Any:
        """A vector of one number."""
        empty = ir.Constant(VECTOR, ir.Undefined)
        one = self.builder.insert_element(empty, value, ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, empty, places)

    def prefetch(self, place: Any) -> None:
        """Have the cache line come nearer."""
        place = self.builder.bitcast(place, ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, flag, flag, flag])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        self.builder.call(function, [place, flag(0), flag(3), flag(1)])  # to read, to keep, data


@intrinsic
def next_item(typing_context: Any, counter: Any) -> Any:
    """Take a number from the counter, an array of one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = make_array(counter)(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, WORD(1), "monotonic")

    return types.int64(counter), generate


@intrinsic
def floats(typing_context: Any, address: Any) -> Any:
    """The address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.int64), generate


one, two, four, six = (multiply_rows(rows) for rows in (1, 2, 4, 6))


@njit(nogil=True, inline="always")
def multiply(
    rows: int, weights: int, item: int, x: int, inputs: int, bias: int, y: int, outputs: int
) -> None:
    """One item for all rows: y[:, :64] = x @ its weights + bias.

    Of eight rows, six and two take four fifths of what four and four do.
    """
    weights += 4 * item * PANEL * inputs
    if bias != 0:
        bias += 4 * item * PANEL
    row = 0
    while row < rows:
        from_x, to_y = x + 4 * row * inputs, y + 4 * row * outputs
        if rows - row >= 6:
            six(weights, from_x, inputs, bias, to_y, outputs)
            row += 6
        elif rows - row >= 4:
            four(weights, from_x, inputs, bias, to_y, outputs)
            row += 4
        elif rows - row >= 2:
            two(weights, from_x, inputs, bias, to_y, outputs)
            row += 2
        else:
            one(weights, from_x, inputs, bias, to_y, outputs)
            row += 1


@njit(nogil=True, inline="always")
def linear_items(
    counter: Any, rows: int, inputs: int, outputs: int, weights: int, bias: int, x: int, y: int
) -> None:
    """Whatever items of `linear` nobody else takes."""
    while True:
        item = next_item(counter)
        if item >= outputs // PANEL:
            break
        multiply(rows, weights, item, x, inputs, bias, y + 4 * item * PANEL, outputs)


@njit(nogil=True, cache=True)
def linear(rows: int, inputs: int, outputs: int, weights: int, bias: int, x: int, y: int) -> None:
    """y = x @ weights + bias (0: none), [rows, inputs] to [rows, outputs]."""
    linear_items(np.zeros(1, np.int64), rows, inputs, outputs, weights, bias, x, y)


@njit(nogil=True, cache=True, parallel=True)
def linear_in_parallel(
    threads: int, rows: int, inputs: int, outputs: int, weights: int, bias: int, x: int, y: int
) -> None:
    """`linear`, by several threads."""
    counter = np.zeros(1, np.int64)
    for _ in prange(threads):
        linear_items(counter, rows, inputs, outputs, weights, bias, x, y)


@njit(nogil=True, inline="always", fastmath=FAST)
def gated_items(
    counter: Any, rows: int, inputs: int, outputs: int,
    gate: int, gate_bias: int, up: int, up_bias: int, x: int, y: int,
) -> None:  # fmt: skip
    """Whatever items of `gated` nobody else takes."""
    factors = np.empty((MOST_ROWS, PANEL), np.float32)
    while True:
        item = next_item(counter)
        if item >= outputs // PANEL:
            break
        to_y = y + 4 * item * PANEL
        multiply(rows, gate, item, x, inputs, gate_bias, to_y, outputs)
        multiply(rows, up, item, x, inputs, up_bias, factors.ctypes.data, PANEL)
        for row in range(rows):
            gates, ups = carray(floats(to_y + 4 * row * outputs), PANEL), factors[row]
            for i in range(PANEL):
                value = gates[i]
                small = exp(-abs(value))
                gates[i] = value * (ONE if value > 0 else small) / (ONE + small) * ups[i]


@njit(nogil=True, cache=True, fastmath=FAST)
def gated(
    rows: int, inputs: int, outputs: int,
    gate: int, gate_bias: int, up: int, up_bias: int, x: int, y: int,
) -> None:  # fmt: skip
    """y = silu(x @ gate + gate_bias) * (x @ up + up_bias)."""
    counter = np.zeros(1, np.int64)
    gated_items(counter, rows, inputs, outputs, gate, gate_bias, up, up_bias, x, y)


@njit(nogil=True, cache=True, parallel=True, fastmath=FAST)
def gated_in_parallel(
    threads: int, rows: int, inputs: int, outputs: int,
    gate: int, gate_bias: int, up: int, up_bias: int, x: int, y: int,
) -> None:  # fmt: skip
    """`gated`, by several threads."""
    counter = np.zeros(1, np.int64)
    for _ in prange(threads):
        gated_items(counter, rows, inputs, outputs, gate, gate_bias, up, up_bias, x, y)


@njit(nogil=True, cache=True, fastmath=FAST)
def rms_norm(rows: int, size: int, epsilon: float, weight: int, x: int, y: int) -> None:
    """y = x / sqrt(mean(x^2) + epsilon) * weight, row by row."""
    weights = carray(floats(weight), size)
    for row in range(rows):
        source = carray(floats(x + 4 * row * size), size)
        target = carray(floats(y + 4 * row * size), size)
        total = np.float32(0)
        for i in range(size):
            total += source[i] * source[i]
        scale = np.float32(ONE / math.sqrt(total / np.float32(size) + np.float32(epsilon)))
        for i in range(size):
            target[i] = source[i] * scale * weights[i]


@njit(nogil=True, inline="always")
def rotate(heads: int, dim: int, cos: int, sin: int, x: int, y: int) -> None:
    """y = x * cos + rotate_half(x) * sin for one row of heads, as Llama does it."""
    c, s, half = carray(floats(cos), dim), carray(floats(sin), dim), dim // 2
    for head in range(heads):
        source, target = (
            carray(floats(x + 4 * head * dim), dim),
            carray(floats(y + 4 * head * dim), dim),
        )
        for i in range(half):
            target[i] = source[i] * c[i] - source[i + half] * s[i]
            target[i + half] = source[i + half] * c[i + half] + source[i] * s[i + half]


@njit(nogil=True, cache=True)
def rotary(
    rows: int, stride: int, dim: int, heads: int, kv_heads: int, cos: int, sin: int, qkv: int,
    query: int, key: int,
) -> None:  # fmt: skip
    """Query and key [rows, heads, dim] of qkv, whose rows lie `stride` apart. cos: [rows, dim]."""
    for row in range(rows):
        c, s, x = cos + 4 * row * dim, sin + 4 * row * dim, qkv + 4 * row * stride
        rotate(heads, dim, c, s, x, query + 4 * row * heads * dim)
        rotate(kv_heads, dim, c, s, x + 4 * heads * dim, key + 4 * row * kv_heads * dim)
