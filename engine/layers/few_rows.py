"""Operations of our own for a decode step's few rows of float32, and how a replay calls them.

A product of few rows is as fast as its weights can be read. oneDNN's reads them at half of what the
memory gives; `numba_kernels` reads the same packed weights at nearly all of it: all products of
SmolLM2 take 19 ms instead of 27 at one row. What lies between products are single calls as well, of
what is a handful of operations in torch, each of which costs more to call than to do.

They are operations of torch (`glassbox::linear`), so that they can be recorded like all others. A
recorded list calls the kernel itself, without torch in between (`bound`). They need numba with
OpenMP, products and what is fused with them also a processor with AVX-512, for which oneDNN packs
weights as the kernels read them; where one is missing, layers compute as torch does. No box of the
map. Counterpart in vLLM 0.26.0: `csrc/cpu`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from engine.layers.numba_threads import has_threads, numba_is_installed, threads

MOST_ROWS = 16  # beyond, oneDNN's products are no slower
PANEL = 64  # outputs that lie together
# Weights of a product from which on a second thread pays for being woken up: half a megabyte.
PARALLEL_FROM = 131_072
Call = Callable[[], None]

_library = torch.library.Library("glassbox", "DEF")
_calls: dict[Any, Callable[..., Call]] = {}  # by operation
_address: Any = torch.ops.mkldnn.data_ptr
_pack: Any = torch.ops.mkldnn._reorder_linear_weight


@cache
def available() -> bool:
    """Whether this machine can run the kernels of norms and rotary embeddings."""
    return numba_is_installed() and has_threads()


def available_for_products() -> bool:
    """Whether it can run the others as well, which read weights as AVX-512 has them packed."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and available()


@cache
def kernels() -> Any:
    """The module of the kernels: numba is imported only now."""
    from engine.layers import numba_kernels

    return numba_kernels


@cache
def compile_kernels() -> None:
    """Have them compiled, or loaded, now: no step shall wait for it."""
    for size in (PANEL, PARALLEL_FROM // PANEL) if available_for_products() else ():
        x, weights = torch.zeros(1, size), _pack(torch.zeros(PANEL, size))
        linear(x, weights, None, PANEL)
        gated(x, weights, None, weights, None, PANEL)
    x = torch.zeros(1, PANEL)
    rms_norm(x, x[0], 1.0)
    rotary(x.view(1, 1, 4, -1), x, x, 1, 1)


def takes(x: Tensor) -> bool:
    """Whether x [..., size] is a few rows of float32, one after the other in memory."""
    few = x.dtype == torch.float32 and x.numel() <= MOST_ROWS * x.shape[-1]
    return few and x.is_contiguous() and not torch.is_grad_enabled()


def can_read(packed: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN has packed `weight` [outputs, inputs] as the kernels read it."""
    outputs, inputs = weight.shape
    if weight.dtype != torch.float32 or outputs % PANEL or not available_for_products():
        return False
    numbers = ctypes.c_float * weight.numel()
    found = np.ctypeslib.as_array(numbers.from_address(_address(packed)))
    panels, wanted = found.reshape(-1, inputs, PANEL), weight.detach().view(-1, PANEL, inputs)
    return all(np.array_equal(panels[i].T, wanted[i]) for i in (0, -1))


def bound(operation: Any, result: Any, arguments: tuple[Any, ...]) -> Call | None:
    """A call that does one of these operations again; None for all others.

    It reads and writes wherever the tensors lie at the time. Packed weights stay where they are; it
    knows their address alone, and keeps them from being let go of.
    """
    prepare = _calls.get(operation)
    if prepare is None:
        return None
    call: Any = prepare(result, *arguments)
    call.arguments = arguments
    return cast(Call, call)


def _define(schema: str, allocate: Callable[..., Any], prepare: Callable[..., Call]) -> Any:
    """An operation of torch: `allocate` makes its result, `prepare` the call that fills it in."""
    _library.define(schema)
    name = schema.partition("(")[0]

    def run(*arguments: Any) -> Any:
        result = allocate(*arguments)
        prepare(result, *arguments)()
        return result

    _library.impl(name, run, "CompositeExplicitAutograd")
    operation = getattr(torch.ops.glassbox, name).default
    _calls[operation] = prepare
    return operation


def _place(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _rows_of(x: Tensor, size: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], size)


def _kernel(name: str, num_weights: int) -> Callable[..., None]:
    """A product's kernel: by one thread where there is little to read, else by all."""
    module = kernels()
    if num_weights < PARALLEL_FROM:
        return cast(Callable[..., None], getattr(module, name))
    kernel = getattr(module, f"{name}_in_parallel")
    return lambda *arguments: kernel(threads(), *arguments)


def _linear(y: Tensor, x: Tensor, packed: Tensor, bias: Tensor | None, outputs: int) -> Call:
    inputs, weights = x.shape[-1], _address(packed)
    rows, kernel = x.numel() // inputs, _kernel("linear", inputs * outputs)

    def call() -> None:
        kernel(rows, inputs, outputs, weights, _place(bias), x.data_ptr(), y.data_ptr())

    return call


linear = _define(
    "linear(Tensor x, Tensor packed, Tensor? bias, int outputs) -> Tensor",
    lambda x, packed, bias, outputs: _rows_of(x, outputs),
    _linear,
)


def _gated(
    y: Tensor, x: Tensor, gate: Tensor, gate_bias: Tensor | None, up: Tensor,
    up_bias: Tensor | None, outputs: int,
) -> Call:  # fmt: skip
    inputs, gates, ups = x.shape[-1], _address(gate), _address(up)
    rows, kernel = x.numel() // inputs, _kernel("gated", 2 * inputs * outputs)

    def call() -> None:
        kernel(
            rows, inputs, outputs, gates, _place(gate_bias), ups, _place(up_bias),
            x.data_ptr(), y.data_ptr(),
        )  # fmt: skip

    return call


gated = _define(
    "gated(Tensor x, Tensor gate, Tensor? gate_bias, Tensor up, Tensor? up_bias, int outputs)"
    " -> Tensor",
    lambda x, gate, gate_bias, up, up_bias, outputs: _rows_of(x, outputs),
    _gated,
)


def _rms_norm(y: Tensor, x: Tensor, weight: Tensor, epsilon: float) -> Call:
    size, kernel = x.shape[-1], kernels().rms_norm
    rows = x.numel() // size

    def call() -> None:
        kernel(rows, size, epsilon, weight.data_ptr(), x.data_ptr(), y.data_ptr())

    return call


rms_norm = _define(
    "rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor",
    lambda x, weight, epsilon: torch.empty_like(x),
    _rms_norm,
)


def _rotary(
    result: tuple[Tensor, Tensor], qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int
) -> Call:
    (query, key), kernel = result, kernels().rotary
    rows, stride, dim = qkv.shape[-3], qkv.stride(-3), qkv.shape[-1]

    def call() -> None:
        kernel(
            rows, stride, dim, heads, kv_heads, cos.data_ptr(), sin.data_ptr(), qkv.data_ptr(),
            query.data_ptr(), key.data_ptr(),
        )  # fmt: skip

    return call


# Query and key of qkv [1, rows, heads + 2 * kv_heads, dim]; cos and sin are [1, rows, dim].
rotary = _define(
    "rotary(Tensor qkv, Tensor cos, Tensor sin, int heads, int kv_heads) -> (Tensor, Tensor)",
    lambda qkv, cos, sin, heads, kv_heads: tuple(
        qkv.new_empty(*qkv.shape[:-2], count, qkv.shape[-1]) for count in (heads, kv_heads)
    ),
    _rotary,
)
