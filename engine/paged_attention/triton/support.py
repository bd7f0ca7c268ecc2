"""What the Triton backends can do; nothing here needs triton (box `paged-attn`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.paged_attention.metadata import PagedAttentionMetadata
from engine.paged_attention.triton.interpret import InterpretedPagedAttention
from engine.paged_attention.triton.process import INSTALL, triton_is_installed

if TYPE_CHECKING:
    from engine.paged_attention.choice import Asked, AttentionBackend

MAX_HEAD_DIM = 256
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CACHE_DTYPES = (*DTYPES, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)
FP8_E4M3_CAPABILITY = (8, 9)  # the first NVIDIA GPUs that convert it


def make_triton(metadata: PagedAttentionMetadata, device: torch.device) -> AttentionBackend:
    """`TritonPagedAttention` for a step."""
    from engine.paged_attention.triton.backend import TritonPagedAttention

    return TritonPagedAttention.of(metadata, device)


def static_triton(slots: Tensor, block_tables: Tensor, seq_lens: Tensor) -> AttentionBackend:
    """Decodes, a row each, whose tensors are filled anew before every run: for a CUDA graph.

    `slots` [rows], `block_tables` [rows, width] and `seq_lens` [rows] on the device.
    """
    from engine.paged_attention.triton.backend import TritonPagedAttention
    from engine.paged_attention.triton.launch import Decodes

    rows = torch.arange(len(seq_lens), device=seq_lens.device)
    return TritonPagedAttention.decoding(slots, Decodes(block_tables, seq_lens, rows))


make_interpreted = InterpretedPagedAttention.of


def refuse_triton(asked: Asked) -> str | None:
    """Why the kernels cannot run on the engine's device."""
    if asked.device.type != "cuda":
        return (
            f"needs a GPU, and the model is on {asked.device.type}: set it to auto, or to "
            "triton-interpret for the same kernels, slowly, on a CPU"
        )
    if (
        asked.spec.dtype == torch.float8_e4m3fn
        and torch.version.cuda
        and torch.cuda.get_device_capability(asked.device) < FP8_E4M3_CAPABILITY
    ):
        return "cannot convert fp8_e4m3 on this GPU: set kv_cache_dtype to fp8_e5m2 or auto"
    return refuse_kernels(asked)


def refuse_interpreted(asked: Asked) -> str | None:
    """Why the kernels cannot be interpreted for the engine."""
    if asked.device.type != "cpu":
        return f"is for models on a CPU, and this one is on {asked.device.type}: set it to triton"
    return refuse_kernels(asked)


def refuse_kernels(asked: Asked) -> str | None:
    """What the kernels are not made for."""
    if not triton_is_installed():
        return f"needs Triton, which is not installed: {INSTALL}, or set it to auto"
    if asked.spec.head_dim > MAX_HEAD_DIM:
        return (
            f"takes heads of {MAX_HEAD_DIM} at most, not of {asked.spec.head_dim}: set it to auto"
        )
    if asked.dtype not in DTYPES or asked.spec.dtype not in CACHE_DTYPES:
        return f"has no kernel for {asked.dtype} with a cache of {asked.spec.dtype}: set it to auto"
    return None
