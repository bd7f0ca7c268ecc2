"""What attention must know of a step's batch, whatever the backend (map: PagedAttention).

Counterpart in vLLM 0.26.0: `CommonAttentionMetadata` in `vllm/v1/attention/backend.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class PagedAttentionMetadata(NamedTuple):
    """The flattened batch: one row a token, the rows of a request next to each other.

    Request i owns rows `query_start_loc[i]` to `query_start_loc[i + 1]`, the last tokens of its
    `seq_lens[i]`. Token p of it has its K and V in slot p % block_size of the physical block
    `block_tables[i][p // block_size]`. Every table is just long enough for its request.

    `slot_mapping` may be longer than that: rows of padding, whose K and V are written to block 0
    and whose attention is nothing (zeros).
    """

    query_start_loc: tuple[int, ...]
    seq_lens: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...]
    slot_mapping: torch.Tensor  # [rows + padding], on the device: block * block_size + offset
    block_size: int

    @property
    def num_tokens(self) -> int:
        """Rows of the batch, without padding."""
        return self.query_start_loc[-1]

    def padded_to(self, rows: int) -> PagedAttentionMetadata:
        """The same batch with padding up to this many rows."""
        slots = self.slot_mapping.new_zeros(rows)
        slots[: self.num_tokens] = self.slot_mapping
        return self._replace(slot_mapping=slots)

    @property
    def query_lens(self) -> tuple[int, ...]:
        """Rows of each request."""
        starts = self.query_start_loc
        return tuple(end - start for start, end in zip(starts, starts[1:], strict=False))


class AttentionOptions(NamedTuple):
    """What a layer's attention may want beside plain scaled dot products."""

    scaling: float
    sliding_window: int | None = None  # a query sees keys at distances below it
    softcap: float | None = None  # scores s become softcap * tanh(s / softcap)
    sinks: torch.Tensor | None = None  # [heads]: logits that take weight and give nothing
