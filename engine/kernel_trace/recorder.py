"""Watches Triton's interpreter while a kernel runs: which pages each program really reads.

Lives in the interpreter's process. The interpreter runs a kernel program by program, as Python over
arrays: each load passes through its builder with the addresses that it is for, so an address inside
the pool tells the physical block. Nothing that the kernel says of itself is needed for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

Array = np.ndarray[Any, Any]
Program = tuple[int, int, int]  # its place in the grid
KEYS = 0  # the part of the pool that holds them; the other has the values


class Visit:
    """One page that a program read, and how much of it, scales included."""

    def __init__(self, block: int) -> None:
        self.block = block  # physical
        self.key_bytes = 0
        self.value_bytes = 0


class Recorder:
    """The walk of each program over a pool's tensors, [2, blocks, ...], in the order of reading."""

    def __init__(self, *pool: Tensor):
        self.programs: dict[Program, list[Visit]] = {}
        self._pool = pool

    def loaded(self, program: Program, addresses: Array) -> None:
        """`program` loads one element from each of these addresses."""
        for tensor in self._pool:
            offsets = addresses.astype(np.int64) - tensor.data_ptr()
            offsets = offsets[(offsets >= 0) & (offsets < tensor.nbytes)]
            if not len(offsets):
                continue
            visits = self.programs.setdefault(program, [])
            parts, rest = np.divmod(offsets, tensor.stride(0) * tensor.itemsize)
            blocks = rest // (tensor.stride(1) * tensor.itemsize)
            for block in dict.fromkeys(blocks.tolist()):
                if not visits or visits[-1].block != block:
                    visits.append(Visit(block))
                in_block = parts[blocks == block]
                num_keys = int((in_block == KEYS).sum())
                visits[-1].key_bytes += num_keys * tensor.itemsize
                visits[-1].value_bytes += (len(in_block) - num_keys) * tensor.itemsize


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Have the interpreter tell `recorder` of every load meanwhile."""
    from triton.runtime.interpreter import interpreter_builder as builder

    load = builder.create_masked_load

    def watched_load(pointers: Any, mask: Any, *rest: Any) -> Any:
        recorder.loaded(builder.grid_idx, np.asarray(pointers.data)[np.asarray(mask.data)])
        return load(pointers, mask, *rest)

    builder.create_masked_load = watched_load
    try:
        yield
    finally:
        del builder.create_masked_load
