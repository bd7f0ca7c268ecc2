"""Runs of small operations as one kernel each, generated and compiled by torch's inductor.

What `compilation_backend` "inductor" adds to a recorded list. Matrix products and PagedAttention
stay the operations that they are. Layers that do the same share their kernels, so a
model takes few. Part of the box CUDA graph; counterpart in vLLM 0.26.0: the pieces that
`vllm/compilation/backends.py` gives to inductor, which are cut at attention only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map_only

from engine.config import ConfigError, EngineConfig
from engine.cuda_graph.recorder import RecordedOp, storage_of, storages
from engine.doing import tell

# Code, and of each given tensor its dtype, shape and strides: one kernel for all that agree.
Kernels = dict[Any, Callable[[list[Tensor]], Any]]

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}  # which inductor would call as they are
PRODUCTS |= {"_weight_int8pack_mm", "_weight_int4pack_mm_for_cpu"}


class Kernel(NamedTuple):
    """What a run of operations became."""

    name: str  # of the operations in it
    run: Callable[[list[Tensor]], Any]  # empties the list


class FusedOp(RecordedOp):
    """A run as one operation: `args` are read, then those in `result` are written."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """`pow+mean+add`."""
        return str(self.func.name)

    def changed(self) -> list[Tensor]:
        """Nothing that others made."""
        return []

    def bound(self) -> Callable[[], Any]:
        """A call without arguments that does it."""
        return partial(call, self.func.run, (*self.args, *self.result))


def call(run: Callable[[list[Tensor]], Any], given: tuple[Tensor, ...]) -> None:
    """Run a kernel on a list of its own."""
    run([*given])


def tolerance(dtype: torch.dtype) -> float:
    """How far a logit may be from the eager forward's, as a part of the largest logit.

    A kernel sums in another order, and in 16 bits it rounds less often than the operations do.
    """
    return max(1e-4, 8 * torch.finfo(dtype).eps)


def check_inductor(config: EngineConfig, device: torch.device) -> None:
    """ConfigError where the settings ask for inductor and it cannot be had."""
    if config.compilation_backend != "inductor":
        return
    if device.type != "cpu":
        raise ConfigError(
            "compilation_backend inductor: it compiles for a CPU here, and the model is on "
            f"{device}; set it to auto, which captures CUDA graphs"
        )
    from torch._inductor.cpp_builder import get_cpp_compiler  # it takes seconds, and few want it

    try:
        get_cpp_compiler()
    except Exception as error:
        raise ConfigError(
            "compilation_backend inductor: it needs a C++ compiler, and none was found; install "
            "one (g++ or clang++; CXX= may name it), or set it to auto"
        ) from error


def fuse(
    replayed: Sequence[RecordedOp], ops: Sequence[RecordedOp], output: Tensor, kernels: Kernels
) -> list[RecordedOp]:
    """`replayed` with each run of plain operations, of one layer and kind of module, compiled.

    `ops` is all that was recorded, for the views in between; `kernels` collects what is compiled.
    """
    makers = {id(tensor): op for op in ops for tensor in op.outputs()}
    last_read = {s: i for i, op in enumerate(replayed) for s in storages(op.inputs())}
    last_read[storage_of(output)] = len(replayed)
    fused, end = list[RecordedOp](), 0
    for (_, _, plain), group in groupby(replayed, lambda op: (op.layer, op.kind, is_plain(op))):
        run = list(group)
        end += len(run)
        if not plain or len(run) == 1:
            fused += run
            continue
        made = [tensor for op in run for tensor in op.outputs()]
        results = [t for t in made if last_read.get(storage_of(t), -1) >= end]
        tell("compiling with inductor", end, len(replayed), "operations")
        fused.append(fuse_run(run, results, makers, kernels))
    return fused


def is_plain(op: RecordedOp) -> bool:
    """Whether inductor has code for it, and it writes to nothing but its result."""
    known = op.func is not None and op.func.namespace == "aten"
    return known and op.name not in PRODUCTS and not op.changed()


def fuse_run(
    run: Sequence[RecordedOp],
    results: Sequence[Tensor],
    makers: dict[int, RecordedOp],
    kernels: Kernels,
) -> FusedOp:
    """One operation for `run`, of whose tensors `results` are needed afterwards."""
    body = Body(run, makers)
    for op in run:
        body.add(op)
    given = tuple(body.given)
    body.write(results)
    module = fx.GraphModule({}, body.graph)
    key = (module.code, *((t.dtype, t.shape, t.stride()) for t in body.given))
    if key not in kernels:
        kernels[key] = compiled(module, body.given)
    name = "+".join(op.name for op in run)
    kernel = Kernel(name, kernels[key])
    return FusedOp(kernel, given, {}, tuple(results), run[0].kind, run[0].layer)


class Body:
    """The code of a kernel while it is written."""

    def __init__(self, run: Sequence[RecordedOp], makers: dict[int, RecordedOp]):
        self.graph = fx.Graph()
        self.given: list[Tensor] = []  # what it is called with
        self._nodes: dict[int, fx.Node] = {}  # by the id of the tensor
        self._own = set[int]().union(*(storages(op.outputs()) for op in run))
        self._makers = makers

    def add(self, op: RecordedOp) -> None:
        """One more operation."""
        args, kwargs = tree_map_only(Tensor, self._node, (op.args, op.kwargs))
        node = self.graph.call_function(op.func, args, kwargs)
        if isinstance(op.result, Tensor):
            self._nodes[id(op.result)] = node
            return
        for index, tensor in enumerate(op.result):
            self._nodes[id(tensor)] = node[index]  # type: ignore[index]

    def write(self, results: Sequence[Tensor]) -> None:
        """The end: leave these where they were when they were recorded."""
        for tensor in results:
            into = self._given(tensor)
            self.graph.call_function(torch.ops.aten.copy_.default, (into, self._node(tensor)))
        self.graph.output(())

    def _node(self, tensor: Tensor) -> fx.Node:
        """Where its value is: made here, a view of what is, or given."""
        if id(tensor) not in self._nodes:
            if storage_of(tensor) in self._own:
                self.add(self._makers[id(tensor)])
            else:
                self._nodes[id(tensor)] = self._given(tensor)
        return self._nodes[id(tensor)]

    def _given(self, tensor: Tensor) -> fx.Node:
        """One more argument. All of them come first."""
        first = next((node for node in self.graph.nodes if node.op != "placeholder"), None)
        where = self.graph.inserting_before(first) if first else self.graph.inserting_after()
        with where:
            node = self.graph.placeholder(f"given_{len(self.given)}")
        self.given.append(tensor)
        return node


def compiled(module: fx.GraphModule, given: Sequence[Tensor]) -> Callable[[list[Tensor]], Any]:
    """What inductor makes of it: called without the checks that come before it otherwise."""
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    found = list[Any]()

    def keep(*arguments: Any, **named: Any) -> Any:
        found.append(compile_fx_inner(*arguments, **named))
        return found[-1]

    patches = {"size_asserts": False, "alignment_asserts": False}
    compile_fx(module, list(given), inner_compile=keep, config_patches=patches)
    function: Callable[[list[Tensor]], Any] = found[0]
    return function
