"""What `device_graph.py` asks of torch.cuda, on a CPU: graphs note operations and run them again.

As on a GPU, a replay runs what was launched in a capture, on the same memory, and no Python of it.
Nor is a result there before: a capture leaves NaN. That memory is shared within and between graphs
is not imitated.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine.cuda_graph import CapturedGraphs, device_graph
from engine.cuda_graph.recorder import storage_of, storages, tensors
from tests.engine.test_model_runner import Engine


class GraphOnCpu(TorchDispatchMode):
    """`torch.cuda.CUDAGraph`."""

    capturing = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launched: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def capture_begin(self, pool: Any = None) -> None:
        assert pool == "pool" and not GraphOnCpu.capturing
        GraphOnCpu.capturing = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def capture_end(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        GraphOnCpu.capturing = False
        for _, args, kwargs, results in self.launched:
            for made in results:
                if made.is_floating_point() and storage_of(made) not in storages(
                    tensors((args, kwargs))
                ):
                    made.fill_(float("nan"))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.launched.append((func, args, kwargs or {}, tensors(result)))
        return result

    def replay(self) -> None:
        for func, args, kwargs, results in self.launched:
            for static, again in zip(results, tensors(func(*args, **kwargs)), strict=True):
                if static.data_ptr() != again.data_ptr():
                    static.copy_(again)


class Stream:
    """`torch.cuda.Stream`: there is one order only."""

    def wait_stream(self, other: Any) -> None:
        """Nothing to wait for."""


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torch.cuda be this for a test."""
    for name, our in {
        "CUDAGraph": GraphOnCpu,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": nullcontext,
        "memory_allocated": lambda _: 0,
    }.items():
        monkeypatch.setattr(torch.cuda, name, our)
    monkeypatch.setattr(device_graph, "memory_pool", lambda: "pool")


def on_device(engine: Engine) -> Engine:
    """The engine, with graphs of its own as they are on a GPU."""
    engine.runner.graphs = graphs = CapturedGraphs(torch.device("cpu"))
    graphs._on_gpu = True
    return engine
