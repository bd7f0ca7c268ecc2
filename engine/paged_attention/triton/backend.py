"""PagedAttention by Triton kernels, for tensors on a GPU (box `paged-attn`).

Counterpart in vLLM 0.26.0: `vllm/v1/attention/backends/triton_attn.py`. In the interpreter's
process the same class works on CPU tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.paged_attention.metadata import AttentionOptions, PagedAttentionMetadata
from engine.paged_attention.triton.launch import (
    Chunks,
    Decodes,
    Pages,
    paged_decode,
    paged_prefill,
    prefill_rows,
    reshape_and_cache,
)

if TYPE_CHECKING:
    from engine.kv_cache import LayerKVCache

# A split is worth a program of its own from this many tokens on.
SMALLEST_SPLIT = 256
PROGRAMS_A_PROCESSOR = 4  # enough that some compute while others wait for memory
MAX_SPLITS = 64


@dataclass
class TritonPagedAttention:
    """One step's attention: planned once, then run in every layer.

    Requests with one row go to the decode kernel, split or not; longer chunks to the prefill
    kernel. With static tensors, `decoding` makes it a part of a CUDA graph.
    """

    slot_mapping: Tensor  # [rows + padding]
    num_tokens: int  # rows
    decodes: Decodes | None
    prefills: Prefills | None
    splits: int | None = None  # None: as many as keep the GPU busy
    name: str = "triton"

    @classmethod
    def of(cls, metadata: PagedAttentionMetadata, device: torch.device) -> TritonPagedAttention:
        """The plan for this batch."""
        lens = metadata.query_lens
        decodes = [i for i, length in enumerate(lens) if length == 1]
        prefills = [i for i, length in enumerate(lens) if length > 1]
        return cls(
            slot_mapping=metadata.slot_mapping,
            num_tokens=metadata.num_tokens,
            decodes=decodes_of(metadata, decodes, device) if decodes else None,
            prefills=Prefills(metadata, prefills, device) if prefills else None,
        )

    @classmethod
    def decoding(cls, slot_mapping: Tensor, batch: Decodes) -> TritonPagedAttention:
        """A batch of decodes, a row each, whose tensors the caller fills before every run."""
        return cls(slot_mapping, len(batch.rows), batch, None)

    def forward(
        self,
        layer: LayerKVCache | Pages,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """As `TorchPagedAttention.forward`."""
        pages = Pages(layer.data, layer.scales)
        reshape_and_cache(pages, key, value, self.slot_mapping)
        heads, rows, dim = query.shape
        output = query.new_empty(rows, heads, dim)
        output[self.num_tokens :] = 0
        if self.decodes is not None:
            splits = self.splits or splits_for(self.decodes, pages.data)
            paged_decode(pages, query, output, self.decodes, options, splits)
        if self.prefills is not None:
            chunks = self.prefills.tiled(heads // pages.data.shape[3], dim)
            paged_prefill(pages, query, output, chunks, options)
        return output


class Prefills:
    """The chunks of a step. How they are cut depends on the heads, which layers bring."""

    def __init__(self, metadata: PagedAttentionMetadata, requests: list[int], device: torch.device):
        self._device = device
        self._lens = [metadata.query_lens[i] for i in requests]
        self._tables = table_of(metadata, requests, device)
        self._seq_lens = int32([metadata.seq_lens[i] for i in requests], device)
        self._starts = int32([metadata.query_start_loc[i] for i in requests], device)
        self._tiled: dict[int, Chunks] = {}

    def tiled(self, group: int, dim: int) -> Chunks:
        """Cut for `group` query heads a KV head, of `dim` numbers each."""
        tokens = prefill_rows(group, dim) // group
        if tokens not in self._tiled:
            tiles = [(i, start) for i, n in enumerate(self._lens) for start in range(0, n, tokens)]
            self._tiled[tokens] = Chunks(
                self._tables,
                self._seq_lens,
                self._starts,
                int32(self._lens, self._device),
                int32([request for request, _ in tiles], self._device),
                int32([start for _, start in tiles], self._device),
            )
        return self._tiled[tokens]


def decodes_of(
    metadata: PagedAttentionMetadata, requests: list[int], device: torch.device
) -> Decodes:
    """Those of these requests."""
    return Decodes(
        table_of(metadata, requests, device),
        int32([metadata.seq_lens[i] for i in requests], device),
        int32([metadata.query_start_loc[i] for i in requests], device),
    )


def table_of(metadata: PagedAttentionMetadata, requests: list[int], device: torch.device) -> Tensor:
    """Block tables side by side, [requests, width]; behind a table's end is never looked."""
    tables = [metadata.block_tables[i] for i in requests]
    width = max(map(len, tables))
    return int32([(*table, *[0] * (width - len(table))) for table in tables], device)


def int32(values: object, device: torch.device) -> Tensor:
    """On the device."""
    return torch.tensor(values, dtype=torch.int32, device=device)


def splits_for(batch: Decodes, data: Tensor) -> int:
    """Into how many shares to split each request's pages, so that every processor has work.

    By the width of the block tables and not by the lengths, which a CUDA graph cannot look at.
    """
    requests, width = batch.block_tables.shape
    _, _, block_size, kv_heads, _ = data.shape
    return splits_of(requests * kv_heads, width * block_size, processors(data.device))


def splits_of(walks: int, tokens: int, num_processors: int) -> int:
    """The rule: for `walks` pairs of a request and a KV head, over up to so many tokens.

    A power of two: each number is a kernel to compile.
    """
    wanted = num_processors * PROGRAMS_A_PROCESSOR // walks
    most = max(1, min(wanted, tokens // SMALLEST_SPLIT, MAX_SPLITS))
    return 1 << (most.bit_length() - 1)


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; the interpreter is one."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
