"""From a question about an engine to the trace of a kernel (box `paged-attn`)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core import EngineCore
from engine.kernel_trace.errors import KernelTraceError
from engine.kernel_trace.rows import find_rows

if TYPE_CHECKING:
    from engine.async_llm import AsyncLLM
    from engine.kernel_trace.inputs import KernelInputs

# Rows times pages; of a chunk that has more, the last rows are traced. The interpreter takes some
# 20 ms for each page of a program, and a program has some 20 to 60 rows.
MOST_READS = 2_500
MOST_WAITING = 4  # traces are made one after the other


class Question(NamedTuple):
    """Whose attention, and where."""

    request: str
    layer: int
    kv_head: int
    step: int | None = None  # None: the last one that computed something of the request


class KernelTracer:
    """Traces kernels for the engines of a server, one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kernel-trace")
        self._waiting = 0

    async def trace(self, engine: AsyncLLM, question: Question) -> dict[str, Any]:
        """The trace as JSON. Raises KernelTraceError where there is none."""
        if self._waiting >= MOST_WAITING:
            raise KernelTraceError("other kernels are being traced; try again shortly", "busy")
        self._waiting += 1
        try:
            inputs = await engine.look_async(partial(look, question))
            work = self._thread.submit(interpret, inputs)
            return await asyncio.wrap_future(work)
        finally:
            self._waiting -= 1


def interpret(inputs: KernelInputs) -> dict[str, Any]:
    """The trace of a kernel over these inputs. May take some seconds."""
    from engine.paged_attention.triton.process import KernelProcessError, interpreter

    try:
        answer = interpreter().run("engine.kernel_trace.interpret:interpret", task_of(inputs))
    except KernelProcessError as error:
        raise KernelTraceError(str(error), "no_kernel") from None
    return describe(inputs, answer)


def look(question: Question, core: EngineCore) -> KernelInputs:
    """What the kernel is to run on, copied out of the engine."""
    from engine.kernel_trace.inputs import take_inputs
    from engine.model_runner import ModelRunner

    block_size = core.config.block_size
    rows = find_rows(core.trace.records, block_size, question.request, question.step)
    if not isinstance(core.runner, ModelRunner):
        raise KernelTraceError("this engine runs no model: it has no pages", "not_possible")
    few = rows.last(max(1, MOST_READS // len(rows.blocks)))
    return take_inputs(core.runner, few, question.layer, question.kv_head)


def task_of(inputs: KernelInputs) -> dict[str, Any]:
    """What the interpreter's process is sent."""
    return {
        "query": inputs.query,
        "output": inputs.output,
        "data": inputs.pages.data,
        "scales": inputs.pages.scales,
        "blocks": list(inputs.rows.blocks),
        "num_blocks": inputs.num_blocks,
        "seq_len": inputs.rows.seq_len,
        "options": tuple(inputs.options),
        "split_by": split_by(inputs),
    }


def split_by(inputs: KernelInputs) -> tuple[int, int, int]:
    """By what the Triton backend splits a step's decodes: walks, the longest's tokens in whole
    pages, and processors (`splits_of` in `engine/paged_attention/triton/backend.py`).
    """
    rows, spec = inputs.rows, inputs.spec
    tokens = -(-rows.longest_decode // spec.block_size) * spec.block_size
    return max(1, rows.num_decodes) * spec.num_kv_heads, tokens, inputs.gpu.processors


def describe(inputs: KernelInputs, answer: dict[str, Any]) -> dict[str, Any]:
    """The whole trace: what it is of, what the programs did, and what others would have read."""
    rows, spec = inputs.rows, inputs.spec
    return {
        "request": rows.request,
        "step": rows.step,
        "layer": inputs.layer,
        "kv_head": inputs.kv_head,
        "query_heads": list(inputs.query_heads),
        "num_kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "kv_itemsize": spec.dtype.itemsize,
        "scale_bytes": 0 if inputs.pages.scales is None else inputs.pages.scales.itemsize,
        "sliding_window": inputs.options.sliding_window,
        "block_size": spec.block_size,
        "num_blocks": inputs.num_blocks,
        "blocks": list(rows.blocks),
        "seq_len": rows.seq_len,
        "first_position": rows.positions[0],
        "num_rows": len(rows.positions),
        "num_scheduled": rows.num_scheduled,
        "backend": inputs.backend,
        "num_decodes": rows.num_decodes,
        "gpu": inputs.gpu.name,
        "processors": inputs.gpu.processors,
        "kv_difference": inputs.kv_difference,
        **answer,
    }
