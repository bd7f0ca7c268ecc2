"""The physical KV cache: one tensor a layer, cut into blocks (map: GPU device memory).

Counterpart in vLLM 0.26.0: `vllm/v1/kv_cache_interface.py` (the spec) and the allocation in
`vllm/v1/worker/gpu_model_runner.py`. Which request owns which block is no concern of this file.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.memory import check_pool, pool_too_large
from engine.model_loader import LoadedModel
from engine.sizing import kv_bytes_per_token


class KVCacheSpec(NamedTuple):
    """The shape of what one token, and one block, leaves in the cache."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    block_size: int

    @classmethod
    def of(
        cls, model: LoadedModel, block_size: int, dtype: torch.dtype | None = None
    ) -> KVCacheSpec:
        """The spec that `model` needs; without `dtype`, K and V are kept as its weights are."""
        return cls(
            num_layers=model.num_layers,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            dtype=dtype or model.model.dtype,
            block_size=block_size,
        )

    @property
    def bytes_per_token(self) -> int:
        """K and V of one token over all layers."""
        return kv_bytes_per_token(
            self.num_layers, self.num_kv_heads, self.head_dim, self.dtype.itemsize
        )

    @property
    def bytes_per_block(self) -> int:
        """K and V of one block over all layers."""
        return self.bytes_per_token * self.block_size


class LayerKVCache(NamedTuple):
    """One layer's part of the pool, which attention writes to and reads from."""

    data: Tensor  # [2: keys and values, blocks, block_size, kv_heads, head_dim], of the cache dtype
    scales: Tensor | None = None  # [2, blocks, block_size, kv_heads] fp32: a value is data * scale

    @property
    def nbytes(self) -> int:
        """What it takes of the memory."""
        return self.data.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def write(self, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Put K and V, each [kv_heads, rows, head_dim], where `slots` [rows] says.

        A slot is block * block_size + offset.
        """
        for part, states in zip(self.data.flatten(1, 2), (key, value), strict=True):
            part.index_copy_(0, slots, states.transpose(0, 1).to(part.dtype))


class KVCache:
    """The pool: `layers[i]` holds the keys and values of layer i.

    Block 0 is nobody's: where a captured graph has rows to spare, and while one is captured, K and
    V are written to it. No request's attention reads it.
    `attention_backend` names what reads the others.
    """

    def __init__(
        self,
        spec: KVCacheSpec,
        num_blocks: int,
        device: torch.device,
        attention_backend: str = "torch",
    ):
        self.spec = spec
        self.attention_backend = attention_backend
        self.num_blocks = num_blocks
        self.num_bytes = num_blocks * spec.bytes_per_block
        check_pool(spec, num_blocks, device)  # or the system kills us once the pages are touched
        shape = (2, num_blocks, spec.block_size, spec.num_kv_heads, spec.head_dim)
        try:
            # Zeros are pages that the system hands out on first use: an idle pool costs nothing.
            self.layers = tuple(
                LayerKVCache(torch.zeros(shape, dtype=spec.dtype, device=device))
                for _ in range(spec.num_layers)
            )
        except (RuntimeError, MemoryError):  # torch.OutOfMemoryError is a RuntimeError
            raise pool_too_large(spec, num_blocks, "more than is free", "set it lower") from None
