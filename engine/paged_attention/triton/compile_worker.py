"""Compiles kernels for GPUs that are not there; the inside of `compile.py`'s process.

Triton compiles from types alone: its own ptxas makes the machine code, no driver is asked. What a
kernel is compiled for is what `launch.py` would launch it with: it is called on tensors that have a
shape and no memory, and in the kernels' place stands a recorder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.paged_attention.metadata import AttentionOptions

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
TYPE_NAMES = {
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.int32: "i32",
    torch.int64: "i64",
}
ALIGNED = 16  # bytes and elements: what is a multiple of it lets loads be wide
THREADS_IN_WARP = 32
META = torch.device("meta")
SEQUENCES, WIDTH, SPLITS = 4, 256, 8  # of the batch; only SPLITS is compiled in


class Launch(NamedTuple):
    """What `launch.py` starts a kernel with."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]  # constants and the compiler's options


def main() -> None:
    """Read a list of wanted kernels from stdin and write a line of JSON for each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder  # `compile.py` keeps what is worth keeping
        for wanted in json.load(sys.stdin):
            print(json.dumps(compile_kernel(**wanted)), file=answers, flush=True)


def compile_kernel(
    kernel: str, arch: int, dtype: str, shape: list[int], sass: bool
) -> dict[str, Any]:
    """Compile one for sm_`arch`; what `CompiledKernel` says of it, or `error`."""
    import triton
    from triton.backends.compiler import GPUTarget

    from engine.paged_attention.triton import kernels

    began = time.perf_counter()
    try:
        function = getattr(kernels, FUNCTIONS[kernel])
        launch = launch_of(kernel, DTYPES[dtype], *shape)
        source, options = source_of(function, launch)
        made = triton.compile(
            source, target=GPUTarget("cuda", arch, THREADS_IN_WARP), options=options
        )
        seconds = time.perf_counter() - began
        usage = resources(made.asm["cubin"])
        return {
            "seconds": seconds,
            "num_warps": made.metadata.num_warps,
            "num_stages": made.metadata.num_stages,
            "shared_bytes": made.metadata.shared,
            "registers": usage["REG"],
            "spilled_bytes": usage["STACK"] + usage["LOCAL"],
            "constants": {n: v for n, v in launch.keywords.items() if n.isupper()},
            "ttir": str(made.asm["ttir"]),
            "ttgir": str(made.asm["ttgir"]),
            "ptx": str(made.asm["ptx"]),
            "sass": str(made.asm["sass"]) if sass else None,
        }
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:2000]}


# --- what is launched ----------------------------------------------------------------------------


def launch_of(
    kernel: str, dtype: torch.dtype, heads: int, kv_heads: int, dim: int, block_size: int
) -> Launch:
    """How `launch.py` starts this kernel on tensors of these shapes."""
    from engine.paged_attention.triton import kernels, launch

    taken: dict[str, Launch] = {}
    recorders = {name: Recorder(name, taken) for name in FUNCTIONS.values()}
    vars(launch)["kernels"] = SimpleNamespace(**recorders)
    try:
        pages = launch.Pages(empty(2, 64, block_size, kv_heads, dim, dtype=dtype), None)
        query = empty(SEQUENCES, heads, dim, dtype=dtype).transpose(0, 1)
        states = empty(SEQUENCES, kv_heads, dim, dtype=dtype).transpose(0, 1)
        output = empty(SEQUENCES, heads, dim, dtype=dtype)
        options = AttentionOptions(dim**-0.5)
        of_requests = empty(SEQUENCES)
        decodes = launch.Decodes(empty(SEQUENCES, WIDTH), of_requests, of_requests)
        chunks = launch.Chunks(empty(SEQUENCES, WIDTH), *[of_requests] * 5)
        if kernel == "reshape_and_cache":
            slots = empty(SEQUENCES, dtype=torch.int64)
            launch.reshape_and_cache(pages, states, states, slots)
        elif kernel == "paged_prefill":
            launch.paged_prefill(pages, query, output, chunks, options)
        else:
            splits = 1 if kernel == "paged_decode" else SPLITS
            launch.paged_decode(pages, query, output, decodes, options, splits)
    finally:
        vars(launch)["kernels"] = kernels
    return taken[FUNCTIONS[kernel]]


FUNCTIONS = {
    "reshape_and_cache": "reshape_and_cache_kernel",
    "paged_decode": "paged_decode_kernel",
    "paged_decode_split": "paged_decode_kernel",
    "reduce_splits": "reduce_splits_kernel",
    "paged_prefill": "paged_prefill_kernel",
}


class Recorder:
    """In a kernel's place: `recorder[grid](...)` notes what it is called with."""

    def __init__(self, name: str, taken: dict[str, Launch]):
        self._name, self._taken = name, taken

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def take(*arguments: Any, **keywords: Any) -> None:
            self._taken[self._name] = Launch(arguments, keywords)

        return take


def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device=META)


def source_of(function: Any, launch: Launch) -> tuple[Any, dict[str, Any]]:
    """What Triton compiles, with the types and promises of a launch, and the compiler's options."""
    from triton.compiler import ASTSource

    names = function.arg_names
    given = dict(zip(names, launch.arguments, strict=False))
    given |= {name: value for name, value in launch.keywords.items() if name in names}
    constants = {n for n in names if n.isupper() or given[n] is None}
    source = ASTSource(
        function,
        {n: "constexpr" if n in constants else type_of(given[n]) for n in names},
        constexprs={(names.index(n),): given[n] for n in constants},
        attrs={
            (names.index(n),): [["tt.divisibility", ALIGNED]]
            for n in names
            if n not in constants and n not in function.do_not_specialize and is_aligned(given[n])
        },
    )
    return source, {n: v for n, v in launch.keywords.items() if n not in names}


def type_of(value: Any) -> str:
    """As Triton writes it."""
    if isinstance(value, Tensor):
        return "*" + TYPE_NAMES[value.dtype]
    return "i32" if isinstance(value, int) else "fp32"


def is_aligned(value: Any) -> bool:
    """Memory of torch is, and so are numbers that happen to be."""
    return isinstance(value, Tensor) or (isinstance(value, int) and value % ALIGNED == 0)


def resources(cubin: bytes) -> dict[str, int]:
    """What a thread, or a program, takes of a multiprocessor: REG, STACK, LOCAL and more."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = Path(knobs.nvidia.cuobjdump.path)
        done = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True)
    words = done.stdout.split("Function", 1)[1].split()
    pairs = (word.split(":") for word in words if word.count(":") == 1)
    return {name: int(number) for name, number in pairs if number.isdigit()}
