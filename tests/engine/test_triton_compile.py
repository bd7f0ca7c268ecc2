"""Every kernel compiles for every GPU that is promised, without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[str, int, str], CompiledKernel]:
    return {(k.kernel, k.arch, k.dtype): k for k in compile_all(every_kernel())}


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


def test_all_texts_of_one_kernel_and_no_compiler_the_second_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLASSBOX_CACHE", str(tmp_path))
    made = compiled("reduce_splits", 90, "bf16")
    assert "tt.func" in made.ttir and "ttg." in made.ttgir
    assert made.sass is not None and "EXIT" in made.sass

    def never(wanted: list[Wanted]) -> Iterator[CompiledKernel]:
        raise AssertionError(wanted)

    monkeypatch.setattr(ahead, "compile_now", never)
    assert compiled("reduce_splits", 90, "bf16") == made


def test_a_kernel_that_does_not_compile_is_named() -> None:
    unheard_of = Wanted("paged_decode", 90, "bf16", Shape(kv_heads=0))
    with pytest.raises(KernelProcessError, match="paged_decode sm_90 bf16 does not compile: Zero"):
        list(compile_now([unheard_of]))


def test_a_compiler_that_dies_has_its_last_words_told() -> None:
    with pytest.raises(KernelProcessError, match="ended at paged_decode sm_1 bf16: LLVM ERROR"):
        list(compile_now([Wanted("paged_decode", 1, "bf16")]))


def test_the_largest_heads_and_blocks_fit_the_smallest_gpu() -> None:
    largest = Shape(8, 8, 256, 128)
    for made in compile_all(Wanted("paged_prefill", 89, dtype, largest) for dtype in DTYPES):
        assert made.shared_bytes <= MAX_SHARED_BYTES, made.label


def test_without_triton_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "triton_is_installed", lambda: False)
    with pytest.raises(KernelProcessError, match="install it with"):
        compiled("paged_decode", 90, "bf16")
