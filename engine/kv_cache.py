"""The physical KV cache: one tensor a layer, cut into blocks (map: GPU device memory).

Counterpart in vLLM 0.26.0: `vllm/v1/kv_cache_interface.py` (the spec) and the allocation in
`vllm/v1/worker/gpu_model_runner.py`. Which request owns which block is no concern of this file.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.kv_quantization import FP8, dequantize, has_scales, quantize
from engine.memory import check_pool, pool_too_large
from engine.model_loader import LoadedModel
from engine.sizing import SCALE_BYTES, kv_bytes_per_token


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
        """K and V of one token over all layers, with their scales."""
        scale_bytes = SCALE_BYTES if has_scales(self.dtype) else 0
        return kv_bytes_per_token(
            self.num_layers, self.num_kv_heads, self.head_dim, self.dtype.itemsize, scale_bytes
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
        for part, states in enumerate((key, value)):
            data, scales = quantize(states.transpose(0, 1), self.data.dtype)
            bits(self.data[part]).flatten(0, 1).index_copy_(0, slots, bits(data))
            if self.scales is not None:
                assert scales is not None
                self.scales[part].flatten(0, 1).index_copy_(0, slots, scales)

    def read(self, blocks: Tensor) -> Tensor:
        """What these blocks hold, in order: [2, tokens, kv_heads, head_dim] fp32, of its own."""
        data = self.data[:, blocks]
        scales = None if self.scales is None else self.scales[:, blocks]
        values = torch.empty(data.shape, dtype=torch.float32, device=data.device)
        return dequantize(data, scales, values).flatten(1, 2)


def bits(data: Tensor) -> Tensor:
    """The same memory, as a dtype that can be copied by index: fp8 cannot."""
    return data.view(torch.uint8) if data.dtype in FP8 else data


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
        check_pool(spec, num_blocks, device)  # or the system kills us once the pages are touched
        shape = (2, num_blocks, spec.block_size, spec.num_kv_heads, spec.head_dim)
        try:
            # Zeros are pages that the system hands out on first use: an idle pool costs nothing.
            self.layers = tuple(
                LayerKVCache(
                    torch.zeros(shape, dtype=spec.dtype, device=device),
                    torch.zeros(shape[:-1], device=device) if has_scales(spec.dtype) else None,
                )
                for _ in range(spec.num_layers)
            )
        except (RuntimeError, MemoryError):  # torch.OutOfMemoryError is a RuntimeError
            raise pool_too_large(spec, num_blocks, "more than is free", "set it lower") from None
        self.num_bytes = sum(layer.nbytes for layer in self.layers)

    def parts(self) -> dict[str, Tensor]:
        """All tensors of the pool by name, each [2, blocks, ...]."""
        parts = {}
        for number, layer in enumerate(self.layers):
            parts[f"layers.{number}.kv"] = layer.data
            if layer.scales is not None:
                parts[f"layers.{number}.scales"] = layer.scales
        return parts
