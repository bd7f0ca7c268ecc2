"""The process that interprets kernels: there when needed, clear when it dies, gone when closed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.paged_attention.triton import process
from engine.paged_attention.triton.process import KernelProcess, KernelProcessError
from tests.waiting import wait_until

HERE = "tests.engine.triton_tasks"


@pytest.fixture(scope="module")
def kernels() -> Iterator[KernelProcess]:
    own = KernelProcess()
    yield own
    own.close()


def test_it_has_triton_and_no_transformers(kernels: KernelProcess) -> None:
    told = kernels.run(f"{HERE}:tell", {"numbers": torch.arange(3)})
    assert told["pid"] != os.getpid()
    assert told["interprets"] and not told["transformers"]
    assert torch.equal(told["doubled"], torch.arange(3) * 2)
    assert kernels.run(f"{HERE}:tell", {"numbers": torch.arange(1)})["pid"] == told["pid"]


def test_what_a_function_raises_is_told_in_a_line(kernels: KernelProcess) -> None:
    with pytest.raises(KernelProcessError, match="ValueError: the cause$"):
        kernels.run(f"{HERE}:fail", {})
    kernels.run(f"{HERE}:tell", {"numbers": torch.arange(1)})  # it lives on


def test_a_process_that_dies_at_work_says_how_and_the_next_one_works(
    kernels: KernelProcess,
) -> None:
    with pytest.raises(KernelProcessError, match="ended with status 3: last words$"):
        kernels.run(f"{HERE}:leave", {"status": 3})
    with pytest.raises(KernelProcessError, match="ended by SIGKILL$"):
        kernels.run(f"{HERE}:leave", {"signal": int(signal.SIGKILL)})
    kernels.run(f"{HERE}:tell", {"numbers": torch.arange(1)})


def test_one_that_went_to_rest_is_woken(kernels: KernelProcess) -> None:
    first = kernels.run(f"{HERE}:tell", {"numbers": torch.arange(1)})["pid"]
    kernels.run(f"{HERE}:rest_at_once", {})

    def is_another() -> bool:
        return bool(kernels.run(f"{HERE}:tell", {"numbers": torch.arange(1)})["pid"] != first)

    wait_until(is_another)  # it may find a task already there, and go to rest after that one


def test_closing_ends_it(kernels: KernelProcess) -> None:
    pid = kernels.run(f"{HERE}:tell", {"numbers": torch.arange(1)})["pid"]
    kernels.close()
    assert not Path(f"/proc/{pid}").exists()


def test_without_triton_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "triton_is_installed", lambda: False)
    with pytest.raises(KernelProcessError, match="not installed: install it with .* triton"):
        KernelProcess().run(f"{HERE}:tell", {})
