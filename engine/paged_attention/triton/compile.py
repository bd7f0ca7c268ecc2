"""The kernels compiled for GPUs, without one: `python -m engine.paged_attention.triton.compile`.

Prints for each kernel, architecture and dtype what it takes of a GPU; `compiled` also has the
texts, from Triton's own intermediate language down to machine code. Part of the box `paged-attn`.
Triton compiles in a process of its own (`compile_worker.py`); results are kept in the cache folder,
under the digest of all that they come from.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from engine.model_loader.fetch import cache_dir
from engine.paged_attention.triton.process import (
    BOOT,
    INSTALL,
    KernelProcessError,
    triton_is_installed,
)

KERNELS = (
    "reshape_and_cache",
    "paged_decode",
    "paged_decode_split",
    "reduce_splits",
    "paged_prefill",
)
ARCHS = (80, 89, 90, 100)  # sm_: Ampere (A100), Ada (L4), Hopper (H100), Blackwell (B200)
DTYPES = ("bf16", "fp32")
LONGEST_SECONDS = 600
SOURCES = ("kernels.py", "launch.py", "compile_worker.py")


class Shape(NamedTuple):
    """What a kernel is made for beside a dtype; these are SmolLM2's."""

    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    block_size: int = 16


class Wanted(NamedTuple):
    """One kernel for one GPU."""

    kernel: str
    arch: int
    dtype: str
    shape: Shape = Shape()
    sass: bool = False  # machine code as text takes as long as all the rest


class CompiledKernel(NamedTuple):
    """A kernel compiled for one GPU."""

    kernel: str
    arch: int
    dtype: str
    shape: Shape
    seconds: float  # that Triton and ptxas took
    num_warps: int
    num_stages: int
    registers: int  # of a thread
    spilled_bytes: int  # of a thread, that found no register
    shared_bytes: int  # of a program, of the multiprocessor's shared memory
    constants: dict[str, Any]  # what is compiled in
    ttir: str
    ttgir: str
    ptx: str
    sass: str | None

    @property
    def label(self) -> str:
        """`paged_decode sm_90 bf16`."""
        return label_of(self.kernel, self.arch, self.dtype)


def compiled(kernel: str, arch: int, dtype: str, shape: Shape | None = None) -> CompiledKernel:
    """One kernel with all its texts, compiled now or taken from the cache.

    Raises KernelProcessError where it does not compile, or triton is not there.
    """
    return next(compile_all([Wanted(kernel, arch, dtype, shape or Shape(), sass=True)]))


def compile_all(wanted: Iterable[Wanted]) -> Iterator[CompiledKernel]:
    """Each kernel as it is ready, those in the cache first. Raises as `compiled`."""
    missing = []
    for each in wanted:
        kept = read_kept(each)
        if kept is None:
            missing.append(each)
        else:
            yield kept
    if missing:
        yield from compile_now(missing)


def every_kernel() -> list[Wanted]:
    """All that the command compiles."""
    return [Wanted(k, arch, dtype) for k in KERNELS for arch in ARCHS for dtype in DTYPES]


def compile_now(wanted: list[Wanted]) -> Iterator[CompiledKernel]:
    """Compile them in one process, and keep them."""
    if not triton_is_installed():
        raise KernelProcessError(f"Triton is not installed: {INSTALL}")
    command = [sys.executable, "-P", str(BOOT), "engine.paged_attention.triton.compile_worker:main"]
    environment = {n: v for n, v in os.environ.items() if n != "TRITON_INTERPRET"}
    done = subprocess.run(
        command,
        input=json.dumps([each._asdict() for each in wanted]),
        capture_output=True,
        text=True,
        env=environment,
        timeout=LONGEST_SECONDS,
    )
    answers = done.stdout.splitlines()
    for each, answer in zip(wanted, answers, strict=False):
        fields = json.loads(answer)
        if "error" in fields:
            name = label_of(each.kernel, each.arch, each.dtype)
            raise KernelProcessError(f"{name} does not compile: {fields['error']}")
        keep(each, fields)
        yield made_of(each, fields)
    if len(answers) < len(wanted):
        last = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1][:300]
        at = wanted[len(answers)]
        name = label_of(at.kernel, at.arch, at.dtype)
        raise KernelProcessError(f"the process that compiles kernels ended at {name}: {last}")


def made_of(wanted: Wanted, fields: dict[str, Any]) -> CompiledKernel:
    """The kernel that was wanted, of what was made of it."""
    return CompiledKernel(wanted.kernel, wanted.arch, wanted.dtype, wanted.shape, **fields)


def label_of(kernel: str, arch: int, dtype: str) -> str:
    """How people name it."""
    return f"{kernel} sm_{arch} {dtype}"


# --- kept -----------------------------------------------------------------------------------------


def kept_at(wanted: Wanted) -> Path:
    """The file of a result; another source, another Triton, another file."""
    digest = hashlib.sha256(version("triton").encode())
    for name in SOURCES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    digest.update(json.dumps(wanted[:4]).encode())
    return cache_dir() / "kernels" / f"{wanted.kernel}-{digest.hexdigest()[:24]}.json"


def read_kept(wanted: Wanted) -> CompiledKernel | None:
    """An earlier result, if it has what is wanted."""
    if not triton_is_installed():
        return None  # nobody knows of which version
    try:
        made = made_of(wanted, json.loads(kept_at(wanted).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return made if made.sass is not None or not wanted.sass else None


def keep(wanted: Wanted, fields: dict[str, Any]) -> None:
    """Write a result, whole or not at all. Where that cannot be, it is compiled again next time."""
    path = kept_at(wanted)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(fields, file)
        os.replace(file.name, path)
    except OSError:
        pass


def main() -> int:
    """Compile every kernel and print a line for each."""
    print("kernel              GPU     dtype  warps  registers  spilled B  shared B  seconds")
    try:
        for made in compile_all(every_kernel()):
            print(
                f"{made.kernel:<19} sm_{made.arch:<4} {made.dtype:<6} {made.num_warps:>5} "
                f"{made.registers:>10} {made.spilled_bytes:>10} {made.shared_bytes:>9} "
                f"{made.seconds:>8.2f}",
                flush=True,
            )
    except KernelProcessError as error:
        print(f"glassbox: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
