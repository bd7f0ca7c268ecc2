"""The kernels of `engine/layers/numba_kernels.py` that several threads share, on any processor.

Where oneDNN does not pack weights as they read them, nothing but this calls them.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from engine.layers.few_rows import MOST_ROWS, PANEL
from engine.layers.numba_threads import has_threads, numba_is_installed

pytestmark = pytest.mark.skipif(
    not (numba_is_installed() and has_threads()), reason="needs numba with OpenMP"
)
OUTPUTS, INPUTS = 9 * PANEL, 48  # items that do not divide by two
THREADS = 2


def packed(weight: Tensor) -> Tensor:
    """[outputs, inputs] as [outputs / 64, inputs, 64]."""
    return weight.view(-1, PANEL, weight.shape[1]).transpose(1, 2).contiguous()


@pytest.mark.parametrize("threads", [(), (THREADS,)])
@pytest.mark.parametrize("rows", range(1, MOST_ROWS + 1))
def test_one_thread_and_several_compute_the_same_products(
    rows: int, threads: tuple[int, ...]
) -> None:
    from engine.layers import numba_kernels as kernels

    x, bias = torch.randn(rows, INPUTS), torch.randn(OUTPUTS)
    weight, other = torch.randn(2, OUTPUTS, INPUTS) / INPUTS**0.5
    gate, up, y = packed(weight), packed(other), torch.empty(rows, OUTPUTS)
    sizes, x_y = (rows, INPUTS, OUTPUTS), (x.data_ptr(), y.data_ptr())
    product = kernels.linear_in_parallel if threads else kernels.linear
    product(*threads, *sizes, gate.data_ptr(), bias.data_ptr(), *x_y)
    wanted = linear(x, weight, bias)
    torch.testing.assert_close(y, wanted, atol=1e-5, rtol=1e-5)
    product = kernels.gated_in_parallel if threads else kernels.gated
    product(*threads, *sizes, gate.data_ptr(), bias.data_ptr(), up.data_ptr(), 0, *x_y)
    torch.testing.assert_close(y, silu(wanted) * linear(x, other), atol=1e-4, rtol=1e-4)
