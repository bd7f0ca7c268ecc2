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
from engine.paged_attention.triton.backend import Prefills, decodes_of
from engine.paged_attention.triton.interpret import placed
from engine.paged_attention.triton.launch import (
    Pages,
    WalkTrace,
    paged_decode,
    paged_prefill,
    prefill_rows,
)

CPU = torch.device("cpu")


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
    options = AttentionOptions(*task["options"])
    recorder = Recorder(*(tensor for tensor in pages if tensor is not None))
    with recording(recorder):
        if num_rows == 1:
            starts, lanes = [0], group
            decodes = decodes_of(batch, [0], CPU)
            notes = paged_decode(pages, query, output, decodes, options, trace=True)
        else:
            chunks = Prefills(batch, [0], CPU).tiled(group, dim)
            starts, lanes = chunks.tile_starts.tolist(), prefill_rows(group, dim) // group * group
            notes = paged_prefill(pages, query, output, chunks, options, trace=True)
    assert notes is not None
    states = as_held(notes)
    programs = []
    for i, (grid, start) in enumerate(zip(sorted(recorder.programs), starts, strict=True)):
        count = min(lanes, (num_rows - start) * group)
        visits = check_noted(recorder.programs[grid], notes.blocks[i])
        held = states[i, : len(visits), :count]
        programs.append(program_record(grid, start, count // group, visits, held))
    return {
        "kernel": "paged_decode_kernel" if num_rows == 1 else "paged_prefill_kernel",
        "programs": programs,
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


def finite(values: Tensor) -> list[float | None]:
    """For JSON: a row that has seen nothing has no largest score."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
