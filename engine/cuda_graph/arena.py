"""The memory that the results of recorded operations lie in. Part of the box CUDA graph.

Within a list, results share it where their lives do not overlap; and all lists of a model share
one, since no two of them run at a time. Counterpart in vLLM 0.26.0: the graph pool of
`vllm/compilation/cuda_graph.py`, one for all graphs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cuda_graph.operations import Buffer

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


class Life(NamedTuple):
    """A storage from the operation that makes it to the last one that touches it."""

    storage: int
    first: int
    last: int
    num_bytes: int


class Arena:
    """One block of memory. It grows, and then takes all that lies in it along."""

    def __init__(self, device: torch.device):
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)
        self._tenants: list[tuple[Tensor, int]] = []  # and the offset of each, in bytes

    @property
    def num_bytes(self) -> int:
        """What it takes."""
        return self._memory.nbytes

    def buffer(self, num_bytes: int) -> Buffer:
        """Its first bytes, as those of one list."""
        return Buffer.of("results", self._memory[:num_bytes])

    def house(self, tensors: Iterable[tuple[Tensor, int]], num_bytes: int) -> None:
        """Have these tensors lie at these offsets, within the first `num_bytes`."""
        tenants = list(tensors)
        self._tenants += tenants
        if num_bytes > self.num_bytes:
            self._memory = self._memory.new_empty(num_bytes)
            tenants = self._tenants
        storage = self._memory.untyped_storage()
        for tensor, offset in tenants:
            tensor.set_(storage, offset // tensor.itemsize, tensor.size(), tensor.stride())


def allocate(lives: Iterable[Life]) -> tuple[dict[int, int], int]:
    """Where each storage lies, first fit, and how many bytes that takes."""
    places: dict[int, int] = {}
    alive: list[tuple[int, int, int]] = []  # begin, end, last
    size = 0
    for life in sorted(lives, key=lambda life: life.first):
        alive = sorted(span for span in alive if span[2] >= life.first)
        num_bytes = -(-life.num_bytes // ALIGNMENT) * ALIGNMENT
        begin = 0
        for start, end, _ in alive:
            if start - begin >= num_bytes:
                break
            begin = max(begin, end)
        places[life.storage] = begin
        alive.append((begin, begin + num_bytes, life.last))
        size = max(size, begin + num_bytes)
    return places, size
