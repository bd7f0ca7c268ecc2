"""On a GPU: kernels against a device copy and torch's SDPA, replay against eager.

`python -m benchmarks.gpu`. README.md, "gpu", says what is compared. Where there is no GPU, every
figure says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.harness.effort import Effort
from benchmarks.harness.figures import Figure, at_least, figure, not_measured
from benchmarks.harness.pairs import by_turns

BLOCK_SIZE = 16
BATCH, CONTEXT = 64, 4096
PREFILL = 4096
DTYPE = torch.bfloat16
SAMPLES, RUNS = 30, 10  # a sample is the mean of so many runs, which the GPU is given at once
GOAL = at_least(0.8)
NO_GPU = "there is no CUDA device here"
REPLAYED_BATCHES, REPLAYED_STEPS = (1, 8), 50


class Shape(NamedTuple):
    """Whose attention."""

    name: str
    heads: int
    kv_heads: int
    dim: int


SHAPES = (Shape("Llama 3 8B", 32, 8, 128), Shape("SmolLM2", 9, 3, 64))


def measure(effort: Effort) -> list[Figure]:
    """All figures, or that there is no GPU to take them on."""
    if not torch.cuda.is_available():
        names = [decode_name(shape) for shape in SHAPES] + [prefill_name(s) for s in SHAPES]
        return [not_measured(name, "x", NO_GPU, GOAL if "copy" in name else None) for name in names]
    figures = []
    for shape in SHAPES:
        figures += decode(shape, effort.samples(SAMPLES))
        figures += prefill(shape, effort.samples(SAMPLES))
    return figures + replay(effort.samples(REPLAYED_STEPS))


def decode_name(shape: Shape) -> str:
    """Of the ratio that has the goal."""
    return f"{shape.name}, batch {BATCH}, context {CONTEXT}: bandwidth of decode / of a device copy"


def prefill_name(shape: Shape) -> str:
    """Of the ratio."""
    return f"{shape.name}, {PREFILL} tokens: torch's SDPA / paged prefill"


def decode(shape: Shape, count: int) -> list[Figure]:
    """Bytes of K and V that decode reads in a second, beside bytes that a copy moves."""
    from engine.paged_attention.metadata import AttentionOptions
    from engine.paged_attention.triton.backend import splits_for
    from engine.paged_attention.triton.launch import Decodes, Pages, paged_decode

    width = CONTEXT // BLOCK_SIZE
    pages = Pages(random(2, BATCH * width, BLOCK_SIZE, shape.kv_heads, shape.dim), None)
    tables = torch.randperm(BATCH * width, device="cuda").view(BATCH, width).int()
    lens = torch.full((BATCH,), CONTEXT, dtype=torch.int32, device="cuda")
    batch = Decodes(tables, lens, torch.arange(BATCH, dtype=torch.int32, device="cuda"))
    query = random(BATCH, shape.heads, shape.dim).transpose(0, 1)
    output = torch.empty(BATCH, shape.heads, shape.dim, dtype=DTYPE, device="cuda")
    splits = splits_for(batch, pages.data)
    options = AttentionOptions(shape.dim**-0.5)
    copied = torch.empty_like(pages.data)

    def attend() -> float:
        run = lambda: paged_decode(pages, query, output, batch, options, splits)  # noqa: E731
        return pages.data.nbytes / seconds(run) / 1e9

    def copy() -> float:  # it reads and writes each byte
        return 2 * pages.data.nbytes / seconds(lambda: copied.copy_(pages.data)) / 1e9

    pairs = by_turns(attend, copy, count)
    note = f"{splits} splits, {pages.data.nbytes / 1e6:.0f} MB"
    return [
        figure(f"{shape.name}, decode", "GB/s", [a for a, _ in pairs], note=note),
        figure(f"{shape.name}, device copy", "GB/s", [b for _, b in pairs]),
        figure(decode_name(shape), "x", [a / b for a, b in pairs], GOAL),
    ]


def prefill(shape: Shape, count: int) -> list[Figure]:
    """A whole prompt through pages, beside torch's attention over K and V in one piece."""
    from engine.paged_attention.metadata import AttentionOptions, PagedAttentionMetadata
    from engine.paged_attention.triton.backend import Prefills
    from engine.paged_attention.triton.launch import Pages, paged_prefill

    device = torch.device("cuda")
    width = PREFILL // BLOCK_SIZE
    pages = Pages(random(2, width, BLOCK_SIZE, shape.kv_heads, shape.dim), None)
    table = torch.randperm(width).tolist()
    metadata = PagedAttentionMetadata(
        (0, PREFILL), (PREFILL,), (tuple(table),), torch.zeros(0, dtype=torch.int64), BLOCK_SIZE
    )
    query = random(PREFILL, shape.heads, shape.dim).transpose(0, 1)
    output = torch.empty(PREFILL, shape.heads, shape.dim, dtype=DTYPE, device="cuda")
    chunks = Prefills(metadata, [0], device).tiled(shape.heads // shape.kv_heads, shape.dim)
    options = AttentionOptions(shape.dim**-0.5)
    keys, values = pages.data[:, table].flatten(1, 2).transpose(1, 2).contiguous()

    def paged() -> float:
        return 1e3 * seconds(lambda: paged_prefill(pages, query, output, chunks, options))

    def whole() -> float:
        def run() -> Tensor:
            return scaled_dot_product_attention(
                query[None], keys[None], values[None], is_causal=True, enable_gqa=True
            )

        return 1e3 * seconds(run)

    pairs = by_turns(paged, whole, count)
    return [
        figure(f"{shape.name}, paged prefill", "ms", [a for a, _ in pairs]),
        figure(f"{shape.name}, torch's SDPA", "ms", [b for _, b in pairs]),
        figure(prefill_name(shape), "x", [b / a for a, b in pairs]),
    ]


def replay(count: int) -> list[Figure]:
    """A decode step of the default model as a CUDA graph, beside the same step kernel by kernel."""
    from benchmarks.replay import compare
    from engine.model_loader import load_model
    from engine.model_loader.fetch import DEFAULT_MODEL

    model = load_model(DEFAULT_MODEL)
    figures = []
    for batch in REPLAYED_BATCHES:
        figures += compare(model, f"default model, batch {batch}", batch, count, None)
    return figures


def random(*shape: int) -> Tensor:
    """Numbers like keys and values."""
    return torch.randn(shape, dtype=DTYPE, device="cuda")


def seconds(run: Callable[[], object]) -> float:
    """Of one run on the GPU, by its own clock."""
    run()  # what is compiled at the first call is not measured
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(RUNS):
        run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / RUNS


if __name__ == "__main__":
    from benchmarks.__main__ import main

    sys.exit(main(["gpu", *sys.argv[1:]]))
