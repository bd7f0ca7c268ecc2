"""PagedAttention by kernels that numba compiles: pages are read where they lie, none is gathered.

Part of the box PagedAttention, for CPUs that have numba. Decodes, drafts
and short chunks go to `numba_kernels.attend`, all of a step in one call. Longer chunks go to torch,
as `TorchPagedAttention` has them: matrix products of many rows are what its library is best at, and
what it takes longer to gather their pages is little beside them.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from engine.doing import doing, tell
from engine.kv_cache import LayerKVCache
from engine.layers.numba_threads import numba_is_installed, threads
from engine.model_loader.dtypes import dtype_name
from engine.model_loader.fetch import Progress, Report
from engine.paged_attention.metadata import AttentionOptions, PagedAttentionMetadata
from engine.paged_attention.torch_backend import PrefillChunk

if TYPE_CHECKING:
    from engine.paged_attention.choice import Asked

MOST_ROWS = 8  # of a request, for the kernel: one tile
# Numbers of K that query heads meet from which on a second thread pays for being woken up.
PARALLEL_FROM = 100_000
NO_WINDOW = 2**62
LONG_SECONDS = 5.0  # what takes longer is told: kernels in the cache folder are there in less
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Array = np.ndarray[Any, Any]
log = logging.getLogger("glassbox")
NOTHING: Array = np.zeros(0, np.float32)
NO_SCALES: Array = np.zeros((2, 0, 0, 0), np.float32)


def refuse_numba(asked: Asked) -> str | None:
    """Why the kernels cannot run for an engine."""
    if asked.device.type != "cpu":
        return f"computes on the CPU, and the model is on {asked.device.type}: set it to auto"
    if not numba_is_installed():
        return "needs numba, which is not installed: run `pip install numba`, or set it to auto"
    if asked.dtype not in DTYPES:
        return f"takes no queries of {asked.dtype}: set it to auto"
    return None


def kernels() -> Any:
    """The module of the kernels: numba is imported only now."""
    from engine.paged_attention import numba_kernels

    return numba_kernels


@dataclass
class NumbaPagedAttention:
    """One step's attention: planned once, then run in every layer."""

    slot_mapping: Tensor  # [rows + padding]
    num_tokens: int  # rows
    block_size: int
    tiles: Array  # [requests with few rows, 4]: place, first row, rows, position of that row
    tables: Array  # [requests, width] blocks
    chunks: list[PrefillChunk]
    pairs: int  # of a token and a row's request, that `tiles` make
    items: dict[int, Array] = field(default_factory=dict)  # by KV heads: `tiles` with each of them
    name: str = "numba"

    @classmethod
    def of(cls, metadata: PagedAttentionMetadata, device: torch.device) -> NumbaPagedAttention:
        """The plan for this batch."""
        lens = metadata.query_lens
        short = [i for i, length in enumerate(lens) if length <= MOST_ROWS]
        tables = np.zeros((len(lens), max(map(len, metadata.block_tables))), np.int64)
        for i in short:
            table = metadata.block_tables[i]
            tables[i, : len(table)] = table
        tiles = [
            (i, metadata.query_start_loc[i], lens[i], metadata.seq_lens[i] - lens[i]) for i in short
        ]
        return cls(
            slot_mapping=metadata.slot_mapping,
            num_tokens=metadata.num_tokens,
            block_size=metadata.block_size,
            tiles=np.array(tiles, np.int64).reshape(-1, 4),
            tables=tables,
            chunks=[
                PrefillChunk.of(metadata, i, device)
                for i, length in enumerate(lens)
                if length > MOST_ROWS
            ],
            pairs=sum(metadata.seq_lens[i] for i in short),
        )

    def forward(
        self,
        layer: LayerKVCache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """As `TorchPagedAttention.forward`; the kernel computes in fp32 whatever the dtypes."""
        self._write(layer, key, value)
        rows = query.transpose(0, 1)
        output = torch.empty(rows.shape, dtype=torch.float32)
        if self.num_tokens < rows.shape[0]:
            output[self.num_tokens :] = 0
        if len(self.tiles):
            self._run_kernel(layer, rows.float().contiguous(), options, output)
        result = output.to(query.dtype)
        for chunk in self.chunks:
            result[chunk.rows] = chunk.attend(layer, query[:, chunk.rows], options)
        return result

    def _write(self, layer: LayerKVCache, key: Tensor, value: Tensor) -> None:
        """As `LayerKVCache.write`, in one call where no number changes."""
        if not key.dtype == layer.data.dtype == torch.float32:
            layer.write(self.slot_mapping, key, value)
            return
        states = [part.transpose(0, 1).contiguous().numpy() for part in (key, value)]
        kernels().write(self.slot_mapping.numpy(), *states, layer.data.numpy())

    def _run_kernel(
        self, layer: LayerKVCache, query: Tensor, options: AttentionOptions, output: Tensor
    ) -> None:
        """Fill in the rows of `tiles`; query and output are [rows, heads, dim]."""
        module = kernels()
        num_heads, dim = query.shape[1:]
        num_kv_heads = layer.data.shape[3]
        num_threads = threads() if self.pairs * num_heads * dim >= PARALLEL_FROM else 1
        needed = module.scratch_size(MOST_ROWS, num_heads // num_kv_heads, dim)
        attend = module.attend if num_threads == 1 else module.attend_in_parallel
        if num_kv_heads not in self.items:
            self.items[num_kv_heads] = with_heads(self.tiles, num_kv_heads)
        attend(
            self.items[num_kv_heads],
            self.tables,
            self.block_size,
            query.numpy(),
            numbers(layer.data),
            meaning(layer.data.dtype),
            NO_SCALES if layer.scales is None else layer.scales.numpy(),
            np.float32(options.scaling),
            NO_WINDOW if options.sliding_window is None else options.sliding_window,
            np.float32(options.softcap or 0),
            NOTHING if options.sinks is None else options.sinks.detach().float().numpy(),
            output.numpy(),
            np.empty((num_threads, needed), np.float32),
        )


def with_heads(tiles: Array, num_kv_heads: int) -> Array:
    """The kernel's work items: each tile with each KV head, those of a tile next to each other."""
    heads = np.tile(np.arange(num_kv_heads), len(tiles))
    return np.column_stack([np.repeat(tiles, num_kv_heads, axis=0), heads])


def numbers(data: Tensor) -> Array:
    """A pool as an array: fp32 as it is, else the bits of its elements as whole numbers."""
    if data.dtype == torch.float32:
        return data.numpy()
    if data.dtype.itemsize == 1:
        return data.view(torch.uint8).numpy()
    return data.view(torch.int16).numpy().view(np.uint16)


@cache
def meaning(dtype: torch.dtype) -> Array:
    """What each bit pattern of a dtype of 8 or 16 bits stands for, in fp32; nothing for fp32."""
    if dtype == torch.float32:
        return NOTHING
    unsigned = torch.uint8 if dtype.itemsize == 1 else torch.int16
    patterns = torch.arange(256**dtype.itemsize).to(unsigned)
    return patterns.view(dtype).float().numpy()


def compile_for(dtype: torch.dtype, report: Report = lambda progress: None) -> None:
    """Have the kernels compiled, or loaded, for a pool of this dtype: no step shall wait for it.

    Once a process; whoever comes meanwhile waits. `report` is called between the kernels.
    """
    if dtype in _compiled:
        return
    with doing(f"compiling attention for K and V in {dtype_name(dtype)}"), _compiling:
        if dtype in _compiled:
            return
        began = time.monotonic()
        for done, pairs in enumerate((0, PARALLEL_FROM)):
            report(Progress("compile", done, 2, "kernels"))
            tell("once on a machine", done, 2, "kernels")
            attend_once(dtype, pairs)
        _compiled.add(dtype)
        took = time.monotonic() - began
        if took >= LONG_SECONDS:
            log.info("numba compiled the attention kernels for %s in %.0f s", dtype, took)


_compiling = threading.Lock()
_compiled: set[torch.dtype] = set()


def attend_once(dtype: torch.dtype, pairs: int) -> None:
    """Over a pool of one slot, by the kernel that takes so many pairs."""
    has_scales = dtype == torch.int8
    layer = LayerKVCache(
        torch.zeros(2, 1, 1, 1, 4, dtype=dtype),
        torch.zeros(2, 1, 1, 1) if has_scales else None,
    )
    metadata = PagedAttentionMetadata((0, 1), (1,), ((0,),), torch.zeros(1, dtype=torch.int64), 1)
    states = torch.zeros(1, 1, 4)
    plan = NumbaPagedAttention.of(metadata, states.device)
    plan.pairs = pairs
    plan.forward(layer, states, states, states, AttentionOptions(1.0))
