"""How K and V become the numbers that a narrow pool holds, and back (box `physical-vram`).

vLLM 0.26.0: fp8 has one scale for a layer, which is 1 unless a checkpoint brings another, and what
is too large becomes the largest number (`csrc/cache_kernels.cu`); `int8_per_token_head` has a scale
for each token and KV head (`_reshape_cache_per_token_head` in
`vllm/v1/attention/ops/triton_reshape_and_cache_flash.py`).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
LARGEST_INT8 = 127
SMALLEST_SCALE = 1e-6  # vLLM's: of a head that is all zeros
LARGEST_SCALE = torch.finfo(torch.float32).max / LARGEST_INT8


def has_scales(dtype: torch.dtype) -> bool:
    """Whether the numbers of a pool of this dtype mean something only with their scales."""
    return dtype is torch.int8


def quantize(states: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """K or V, [..., heads, dim], as a pool of `dtype` holds them; and scales, [..., heads] fp32."""
    if dtype is torch.int8:
        return quantize_int8(states)
    if dtype in FP8:
        largest = torch.finfo(dtype).max
        states = states.clamp(-largest, largest)
    return states.to(dtype), None


def quantize_int8(states: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric: the largest number of a token and head becomes 127. Halves round away from 0."""
    states = states.float()
    scales = states.abs().amax(dim=-1) / LARGEST_INT8
    scales = scales.clamp(SMALLEST_SCALE, LARGEST_SCALE)
    steps = states * (1.0 / scales).unsqueeze(-1)
    steps.add_(steps.sign(), alpha=0.5)  # the cast cuts off what is behind the point
    return steps.clamp_(-LARGEST_INT8 - 1, LARGEST_INT8).to(torch.int8), scales


def dequantize(data: Tensor, scales: Tensor | None, out: Tensor) -> Tensor:
    """The values that `data` with `scales` stands for, in `out` (fp32 or 16 bits). Contiguous."""
    if data.dtype in FP8 and data.device.type == "cpu":
        return widen_by_table(data, out)
    out.copy_(data)
    return out if scales is None else out.mul_(scales.unsqueeze(-1))


def widen_by_table(data: Tensor, out: Tensor) -> Tensor:
    """fp8 on a CPU: torch converts one number at a time, so two at once are looked up.

    (3.0 ns a number of e4m3 by `copy_`, 0.35 so; measured on the machine of `make bench`.)
    """
    pairs = values_of_pairs(data.dtype, out.dtype)
    indices = data.view(torch.uint16).view(-1).to(torch.int32)
    torch.index_select(pairs, 0, indices, out=out.view(pairs.dtype).view(-1))
    return out


@cache
def values_of_pairs(fp8: torch.dtype, wide: torch.dtype) -> Tensor:
    """For any two bytes that stand beside each other, their two values as one integer."""
    values = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(fp8).to(wide)
    return values.view(torch.int64 if wide.itemsize == 4 else torch.int32)
