"""Kernels of our own for a few rows: they compute what torch does, whatever stands beside a row."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from engine.layers import few_rows
from engine.layers.linear import PackedLinear
from engine.layers.numba_threads import numba_is_installed

pytestmark = pytest.mark.usefixtures("no_gradients")
needs_numba = pytest.mark.skipif(not few_rows.available(), reason="needs numba")
of_products = pytest.mark.skipif(
    not few_rows.available_for_products(), reason="needs numba and AVX-512"
)
ROWS = range(1, few_rows.MOST_ROWS + 1)
# Outputs, inputs; 9 panels do not divide by two. The last is shared by several threads.
SHAPES = [(64, 16), (192, 576), (576, 1536)]
assert 192 * 576 < few_rows.PARALLEL_FROM < 576 * 1536


@pytest.fixture
def no_gradients() -> Any:
    with torch.inference_mode():
        yield


def layer(outputs: int, inputs: int, *, bias: bool) -> tuple[PackedLinear, Tensor]:
    weight = torch.randn(outputs, inputs) / inputs**0.5
    given = nn.Parameter(torch.randn(outputs), requires_grad=False) if bias else None
    packed = PackedLinear(weight, given, None)
    assert packed.few_rows
    return packed, weight


@of_products
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_torch_and_a_row_s_depend_on_no_other_row(
    shape: tuple[int, int], bias: bool
) -> None:
    own, weight = layer(*shape, bias=bias)
    x = torch.randn(1, few_rows.MOST_ROWS, shape[1])
    whole = own(x)
    torch.testing.assert_close(whole, linear(x, weight, own.bias), atol=1e-5, rtol=1e-5)
    for rows in ROWS:
        assert torch.equal(own(x[:, :rows]), whole[:, :rows])
        assert torch.equal(own(x[:, -rows:]), whole[:, -rows:])


@of_products
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [96, 192])
def test_gate_and_activation_are_applied_in_the_product(size: int, bias: bool) -> None:
    assert 2 * 576 * 96 < few_rows.PARALLEL_FROM < 2 * 576 * 192  # by one thread, and by several
    (gate, gates), (up, ups) = layer(576, size, bias=bias), layer(576, size, bias=bias)
    x = 4 * torch.randn(1, few_rows.MOST_ROWS, size)
    wanted = silu(linear(x, gates, gate.bias)) * linear(x, ups, up.bias)
    for rows in ROWS:
        given = x[:, :rows]
        found = few_rows.gated(given, gate.packed, gate.bias, up.packed, up.bias, 576)
        torch.testing.assert_close(found, wanted[:, :rows], atol=1e-4, rtol=1e-4)


@needs_numba
def test_norm_and_rotary_embedding_are_llama_s() -> None:
    norm = LlamaRMSNorm(96, eps=1e-5)
    norm.weight = nn.Parameter(torch.randn(96), requires_grad=False)
    for rows in ROWS:
        x = torch.randn(1, rows, 96)
        found = few_rows.rms_norm(x, norm.weight, norm.variance_epsilon)
        torch.testing.assert_close(found, norm(x), atol=1e-6, rtol=1e-6)
        qkv = torch.randn(1, rows, 8, 32)
        cos, sin = torch.randn(1, rows, 32), torch.randn(1, rows, 32)
        parts = (qkv[:, :, :4].transpose(1, 2), qkv[:, :, 4:6].transpose(1, 2))
        wanted = apply_rotary_pos_emb(*parts, cos, sin)
        for own, states in zip(few_rows.rotary(qkv, cos, sin, 4, 2), wanted, strict=True):
            assert torch.equal(own, states.transpose(1, 2))


def test_many_rows_other_dtypes_and_gradients_are_left_to_torch() -> None:
    assert few_rows.takes(torch.zeros(1, few_rows.MOST_ROWS, 8))
    assert not few_rows.takes(torch.zeros(1, few_rows.MOST_ROWS + 1, 8))
    assert not few_rows.takes(torch.zeros(1, 1, 8, dtype=torch.bfloat16))
    assert not few_rows.takes(torch.zeros(1, 2, 16)[..., ::2])
    assert not few_rows.can_read(torch.zeros(0), torch.zeros(65, 8))
    with torch.inference_mode(mode=False):
        assert not few_rows.takes(torch.zeros(1, 1, 8))


@of_products
def test_a_recorded_call_follows_its_tensors_to_where_they_lie() -> None:
    own, _ = layer(64, 16, bias=True)
    x = torch.randn(1, 2, 16)
    arguments = (x, own.packed, own.bias, 64)
    result = torch.zeros(1, 2, 64)
    call = few_rows.bound(few_rows.linear, result, arguments)
    assert call is not None and few_rows.bound(torch.ops.aten.mm.default, x, (x, x)) is None
    for tensor in (x, result):
        tensor.set_(torch.randn(199).untyped_storage(), 3, tensor.shape, tensor.stride())  # type: ignore[call-overload]
    call()
    assert torch.equal(result, few_rows.linear(*arguments))


@of_products
def test_a_recorded_call_keeps_the_weights_that_it_reads() -> None:
    own, _ = layer(64, 16, bias=False)
    x, result, packed = torch.randn(1, 2, 16), torch.zeros(1, 2, 64), weakref.ref(own.packed)
    calls = [
        few_rows.bound(few_rows.linear, result, (x, own.packed, None, 64)),
        few_rows.bound(few_rows.gated, result, (x, own.packed, None, own.packed, None, 64)),
    ]
    del own
    for i in range(len(calls)):
        assert packed() is not None, f"call {i} reads what is gone"
        calls[i] = None
    assert packed() is None


@needs_numba
def test_numba_that_may_not_compile_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert numba_is_installed()
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not numba_is_installed()
