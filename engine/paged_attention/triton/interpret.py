"""PagedAttention by the Triton kernels on a CPU, in Triton's interpreter (box `paged-attn`).

Slow, but the kernels themselves: for tests, for the page, and for an engine that is to be looked
at. The pages that a step reads are sent to the interpreter's process with its queries, and what
the step wrote comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.paged_attention.metadata import AttentionOptions, PagedAttentionMetadata
from engine.paged_attention.triton.process import interpreter

if TYPE_CHECKING:
    from engine.kv_cache import LayerKVCache


class InterpretedPagedAttention:
    """One step's attention, by `TritonPagedAttention` in another process."""

    name = "triton-interpret"

    def __init__(self, metadata: PagedAttentionMetadata, splits: int | None = None):
        self._metadata = metadata
        self._splits = splits
        written = {slot // metadata.block_size for slot in metadata.slot_mapping.tolist()}
        self._written = torch.tensor(sorted(written))
        self._read = torch.tensor(sorted(written.union(*metadata.block_tables)))

    @classmethod
    def of(
        cls, metadata: PagedAttentionMetadata, device: torch.device
    ) -> InterpretedPagedAttention:
        """The plan for this batch. There are no devices in it: it is CPU memory that is sent."""
        return cls(metadata)

    def forward(
        self,
        layer: LayerKVCache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """As `TorchPagedAttention.forward`. Raises KernelProcessError where it cannot."""
        batch = self._metadata
        task = {
            "batch": tuple(batch),
            "splits": self._splits,
            "num_blocks": layer.data.shape[1],
            "blocks": self._read,
            "written": self._written,
            "data": layer.data[:, self._read],
            "scales": None if layer.scales is None else layer.scales[:, self._read],
            "query": query.clone(),  # no more of its memory than itself
            "key": key.clone(),
            "value": value.clone(),
            "options": tuple(options),
        }
        result = interpreter().run("engine.paged_attention.triton.interpret:attend", task)
        layer.data[:, self._written] = result["data"]
        if layer.scales is not None:
            layer.scales[:, self._written] = result["scales"]
        output: Tensor = result["output"]
        return output


# --- in the interpreter's process --------------------------------------------------------------


def attend(task: dict[str, Any]) -> dict[str, Any]:
    """What `InterpretedPagedAttention.forward` sends, done."""
    from engine.paged_attention.triton.backend import TritonPagedAttention
    from engine.paged_attention.triton.launch import Pages

    data = placed(task["data"], task["blocks"], task["num_blocks"])
    scales = task["scales"]
    if scales is not None:
        scales = placed(scales, task["blocks"], task["num_blocks"])
    backend = TritonPagedAttention.of(PagedAttentionMetadata(*task["batch"]), data.device)
    backend.splits = task["splits"]
    output = backend.forward(
        Pages(data, scales),
        task["query"],
        task["key"],
        task["value"],
        AttentionOptions(*task["options"]),
    )
    written = task["written"]
    return {
        "output": output,
        "data": data[:, written],
        "scales": None if scales is None else scales[:, written],
    }


def placed(pages: Tensor, blocks: Tensor, num_blocks: int) -> Tensor:
    """A pool with these pages at their physical blocks, and nothing but zeros elsewhere.

    [2, pages, ...] -> [2, num_blocks, ...]. Memory that is never touched takes no room.
    """
    pool = pages.new_zeros(2, num_blocks, *pages.shape[2:])
    pool[:, blocks] = pages
    return pool
