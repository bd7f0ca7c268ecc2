"""Every kernel compiles for every GPU that is promised, without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.paged_attention.triton import compile as ahead
from engine.paged_attention.triton.compile import (
    ARCHS,
    DTYPES,
    KERNELS,
    CompiledKernel,
    Shape,
    Wanted,
    compile_all,
    compile_now,
    compiled,
    every_kernel,
)
from engine.paged_attention.triton.process import KernelProcessError

# The least of all: a thread has 255 registers, a program this much shared memory (sm_89).
MAX_SHARED_BYTES = 99 * 1024


LARGEST = Shape(8, 8, 256, 128)
DEADLY = Wanted("paged_decode", 1, "bf16")  # no such GPU: LLVM ends the process


class Ahead(NamedTuple):
    """What one process of the compiler made, which is slow to start, and how it ended."""

    kernels: dict[tuple[str, int, str], CompiledKernel]
    largest: list[CompiledKernel]
    last_words: str


@pytest.fixture(scope="module")
def made_ahead() -> Ahead:
    largest = [Wanted("paged_prefill", 89, dtype, LARGEST) for dtype in DTYPES]
    made = []
    with pytest.raises(KernelProcessError) as died:
        for one in compile_all([*every_kernel(), *largest, DEADLY]):
            made.append(one)
    return Ahead(
        {(k.kernel, k.arch, k.dtype): k for k in made if k.shape != LARGEST},
        [k for k in made if k.shape == LARGEST],
        str(died.value),
    )


@pytest.fixture
def kernels(made_ahead: Ahead) -> dict[tuple[str, int, str], CompiledKernel]:
    return made_ahead.kernels


def test_all_kernels_compile_for_all_architectures_and_dtypes(
    kernels: dict[tuple[str, int, str], CompiledKernel],
) -> None:
    assert set(kernels) == {(k, a, d) for k in KERNELS for a in ARCHS for d in DTYPES}
    for (name, arch, _), made in kernels.items():
        assert 0 < made.registers <= 255, made.label
        assert made.spilled_bytes == 0, made.label
        assert made.shared_bytes <= MAX_SHARED_BYTES, made.label
        assert f".target sm_{arch}" in made.ptx, made.label
        assert name.removesuffix("_split") in made.ttir


def test_the_tensor_cores_multiply_in_16_bits(
    kernels: dict[tuple[str, int, str], CompiledKernel],
) -> None:
    for arch in (80, 89, 90):
        assert "mma" in kernels["paged_prefill", arch, "bf16"].ptx
        assert "mma" not in kernels["paged_prefill", arch, "fp32"].ptx  # it would round to TF32


def test_a_split_decode_leaves_its_state_and_a_whole_one_divides(
    kernels: dict[tuple[str, int, str], CompiledKernel],
) -> None:
    assert kernels["paged_decode", 90, "bf16"].constants["SPLITS"] == 1
    assert kernels["paged_decode_split", 90, "bf16"].constants["SPLITS"] > 1


def test_one_has_all_texts_and_needs_no_compiler_again_and_another_that_fails_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLASSBOX_CACHE", str(tmp_path))
    texts = Wanted("reduce_splits", 90, "bf16", sass=True)
    unheard_of = Wanted("paged_decode", 90, "bf16", Shape(kv_heads=0))
    compiling = compile_now([texts, unheard_of])
    made = next(compiling)
    assert "tt.func" in made.ttir and "ttg." in made.ttgir
    assert made.sass is not None and "EXIT" in made.sass
    with pytest.raises(KernelProcessError, match="paged_decode sm_90 bf16 does not compile: Zero"):
        next(compiling)

    def never(wanted: list[Wanted]) -> Iterator[CompiledKernel]:
        raise AssertionError(wanted)

    monkeypatch.setattr(ahead, "compile_now", never)
    assert compiled("reduce_splits", 90, "bf16") == made


def test_a_compiler_that_dies_has_its_last_words_told(made_ahead: Ahead) -> None:
    assert "ended at paged_decode sm_1 bf16: LLVM ERROR" in made_ahead.last_words


def test_the_largest_heads_and_blocks_fit_the_smallest_gpu(made_ahead: Ahead) -> None:
    assert {made.dtype for made in made_ahead.largest} == set(DTYPES)
    for made in made_ahead.largest:
        assert made.shared_bytes <= MAX_SHARED_BYTES, made.label


def test_without_triton_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "triton_is_installed", lambda: False)
    with pytest.raises(KernelProcessError, match="install it with"):
        compiled("paged_decode", 90, "bf16")
