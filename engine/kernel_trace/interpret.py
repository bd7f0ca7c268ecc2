"""Runs a kernel over copied pages in Triton's interpreter, watched (box `paged-attn`).

Lives in the interpreter's process. The pages stand where they stand in the pool, at their physical
blocks, in a pool that has nothing else: whatever the kernel finds, it finds by the block table.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from engine.kernel_trace.recorder import Program, Recorder, Visit, recording
from engine.paged_attention.metadata import AttentionOptions, PagedAttentionMetadata
from engine.paged_attention.triton.backend import Prefills, decodes_of, splits_of
from engine.paged_attention.triton.interpret import placed
from engine.paged_attention.triton.launch import (
    Pages,
    Partials,
    WalkTrace,
    paged_decode,
    paged_prefill,
    prefill_rows,
)

CPU = torch.device("cpu")
LOG2E = math.log2(math.e)  # the kernels have their scores times this
# Of the output's dtype: the reduction is in float32, and rounds once at the end.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def interpret(task: dict[str, Any]) -> dict[str, Any]:
    """The trace of `task` (see `task_of` in `tracer.py`), ready for JSON."""
    began = time.perf_counter()
    query = task["query"]
    group, num_rows, dim = query.shape
    where, scales = (torch.tensor(task["blocks"]), task["num_blocks"]), task["scales"]
    pages = Pages(placed(task["data"], *where), None if scales is None else placed(scales, *where))
    batch = PagedAttentionMetadata(
        query_start_loc=(0, num_rows),
        seq_lens=(task["seq_len"],),
        block_tables=(tuple(task["blocks"]),),
        slot_mapping=torch.zeros(num_rows, dtype=torch.int64),
        block_size=pages.data.shape[2],
    )
    output = query.new_empty(num_rows, group, dim)
    partials = None
    options = AttentionOptions(*task["options"])
    recorder = Recorder(*(tensor for tensor in pages if tensor is not None))
    with recording(recorder):
        if num_rows == 1:
            splits = splits_of(*task["split_by"])
            starts, lanes = [0] * splits, group
            grids: list[Program] = [(0, 0, split) for split in range(splits)]
            decodes = decodes_of(batch, [0], CPU)
            partials = Partials.empty(query, 1, splits) if splits > 1 else None
            notes = paged_decode(
                pages, query, output, decodes, options, splits, trace=True, partials=partials
            )
        else:
            splits = 1
            chunks = Prefills(batch, [0], CPU).tiled(group, dim)
            starts, lanes = chunks.tile_starts.tolist(), prefill_rows(group, dim) // group * group
            grids = [(tile, 0, 0) for tile in range(len(starts))]
            notes = paged_prefill(pages, query, output, chunks, options, trace=True)
    assert notes is not None
    states = as_held(notes)
    programs = []
    for i, (grid, start) in enumerate(zip(grids, starts, strict=True)):
        count = min(lanes, (num_rows - start) * group)
        visits = check_noted(recorder.programs.get(grid, []), notes.blocks[i])
        held = states[i, : len(visits), :count]
        programs.append(program_record(grid, start, count // group, visits, held))
    return {
        "kernel": "paged_decode_kernel" if num_rows == 1 else "paged_prefill_kernel",
        "splits": splits,  # programs that share the pages of a decode
        "programs": programs,
        "reduction": partials and reduction_record(partials, output[0]),
        "difference": float((output.float() - task["output"].float()).abs().max()),
        "seconds": time.perf_counter() - began,
    }


def as_held(notes: WalkTrace) -> Tensor:
    """The states [programs, walked, rows, 3], without the entries that no program noted.

    A kernel notes the norm of the weighted sum of values; divided by the sum of weights it is the
    norm of the output, if the walk ended there.
    """
    states = notes.states.clone()
    totals = states[..., 1]
    states[..., 2] /= totals.where(totals > 0, 1.0)
    for i, noted in enumerate(notes.blocks >= 0):
        states[i, : int(noted.sum())] = states[i, noted]
    return states


def check_noted(visits: list[Visit], noted: Tensor) -> list[Visit]:
    """The visits, which must be those that the kernel noted itself."""
    loaded, said = [visit.block for visit in visits], noted[noted >= 0].tolist()
    if loaded != said:
        raise RuntimeError(f"the kernel says that it read blocks {said}, and loaded {loaded}")
    return visits


def program_record(
    grid: Program, start: int, tokens: int, visits: list[Visit], held: Tensor
) -> dict[str, Any]:
    """One program as JSON: its rows, and each visit with what every row held after it."""
    return {
        "grid": list(grid),
        "first_row": start,  # of the chunk; a row of the chunk is one of the program a query head
        "num_rows": tokens,
        "visits": [
            {
                "block": visit.block,
                "key_bytes": visit.key_bytes,
                "value_bytes": visit.value_bytes,
                "maximum": finite(state[:, 0]),
                "total": finite(state[:, 1]),
                "norm": finite(state[:, 2]),
            }
            for visit, state in zip(visits, held, strict=True)
        ],
    }


def reduction_record(partials: Partials, output: Tensor) -> dict[str, Any]:
    """How the shares of one request became its `output` [heads, dim], as JSON.

    What the shares left and what was stored in the end is the kernels'. What lies between is worked
    out as `reduce_splits_kernel` does it, and must come to what that stored.
    """
    outputs, maxima, totals = (part[0] for part in partials)  # [splits, heads, ...]
    largest = maxima.amax(0)
    shrink = torch.exp2(maxima - largest.where(largest.isfinite(), 0.0))
    total = (totals * shrink).sum(0)
    result = (outputs * shrink[..., None]).sum(0) / total.where(total > 0, 1.0)[:, None]
    stored = output.float()
    if not torch.allclose(result, stored, rtol=TOLERANCE[output.dtype], atol=1e-5):
        raise RuntimeError("the kernel's reduction stored another output than its shares make")
    held = totals.where(totals > 0, 1.0)
    return {
        "shares": [
            {
                "maximum": finite(maxima[i] / LOG2E),
                "total": finite(totals[i]),
                "norm": finite(outputs[i].norm(dim=-1) / held[i]),
                "shrink": finite(shrink[i]),
            }
            for i in range(len(maxima))
        ],
        "maximum": finite(largest / LOG2E),
        "total": finite(total),
        "norm": finite(stored.norm(dim=-1)),
    }


def finite(values: Tensor) -> list[float | None]:
    """For JSON: a row that has seen nothing has no largest score."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
