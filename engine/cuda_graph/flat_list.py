"""A recorded forward made ready for replay: bound calls in a row, no modules, no allocation.

Views are evaluated already (they are tensors over the static buffers), operations on constants are
folded, every other operation writes its result to where the recording left it. Buffers share one
block of memory where their lives do not overlap. Part of the box CUDA graph; in vLLM 0.26.0 the
CUDA driver does this for `torch.cuda.CUDAGraph`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.cuda_graph.arena import Arena, Life, allocate
from engine.cuda_graph.inductor import FusedOp, Kernels, fuse
from engine.cuda_graph.operations import Span, result_of
from engine.cuda_graph.recorder import Attention, CannotRecord, RecordedOp, storage_of, storages
from engine.kv_cache import LayerKVCache
from engine.layers import few_rows
from engine.paged_attention import AttentionBackend

# Which function does an operation into a given tensor, by operation and kinds of its arguments.
Forms = dict[Any, Callable[..., Any] | None]
_COPIES = {"_to_copy", "clone"}


class Segment(NamedTuple):
    """Operations in a row of one layer and one kind of module."""

    span: Span
    calls: tuple[Callable[[], Any], ...]
    attention: tuple[Attention, Tensor] | None  # instead of calls: what, and where its result goes


class Classified(NamedTuple):
    """The recorded operations by what a replay has to do with them."""

    replayed: list[RecordedOp]
    views: int
    folded: int


class FlatList:
    """A forward as a list. `replay` runs it on whatever its input buffers hold."""

    def __init__(
        self,
        ops: list[RecordedOp],
        inputs: Sequence[Tensor],
        output: Tensor,
        arena: Arena,
        forms: Forms,
        kernels: Kernels | None = None,
    ):
        """`kernels` are inductor's, for a list whose small operations it compiles."""
        replayed, self.num_views, self.num_folded = classify(ops, inputs)
        if kernels is not None:
            replayed = fuse(replayed, ops, output, kernels)
        self.output, self.arena = output, arena
        self.segments = segments_of(replayed, forms)  # first: it tries operations on what is there
        self.num_pieces = 1 + sum(segment.attention is not None for segment in self.segments)
        self.num_bytes = share_memory(ops, replayed, output, arena)

    def replay(
        self,
        backend: AttentionBackend,
        layers: Sequence[LayerKVCache],
        rows: int,
        spent: dict[str, float],
    ) -> None:
        """Run every operation once, adding the seconds of each kind of module to `spent`.

        `layers` is the pool that attention works on, and its first `rows` rows are those that
        attention runs over: all of them, or those of the batch without padding.
        """
        clock = time.perf_counter
        mark = clock()
        for span, calls, leaf in self.segments:
            for call in calls:
                call()
            if leaf is not None:
                attention, output = leaf
                attention.run_into(output, rows, backend, layers)
            now = clock()
            spent[span.kind] += now - mark
            mark = now


def classify(ops: list[RecordedOp], inputs: Iterable[Tensor]) -> Classified:
    """Sort out what depends on the inputs; raise CannotRecord where a list would not be true."""
    made = set[int]().union(*(storages(op.outputs()) - storages(op.inputs()) for op in ops))
    changed = set[int]().union(*(storages(op.changed()) for op in ops))
    varying = storages(inputs) | changed
    if changed - made:
        raise CannotRecord("it changes tensors that outlive it")
    replayed: list[RecordedOp] = []
    views = folded = 0
    for op in ops:
        if op.func is not None and torch.Tag.nondeterministic_seeded in op.func.tags:
            raise CannotRecord(f"it draws random numbers ({op.name})")
        reads, writes = storages(op.inputs()), storages(op.outputs())
        if not varying & (reads | writes):
            folded += 1
            continue
        check_recordable(op)
        if writes <= reads and not op.changed():
            views += 1
            continue
        varying |= writes
        replayed.append(op)
    return Classified(replayed, views, folded)


def check_recordable(op: RecordedOp) -> None:
    """Raise CannotRecord where values decide on what comes after."""
    if op.func is None:
        return
    tags = op.func.tags
    by_mask = any(tensor.dtype in (torch.bool, torch.uint8) for tensor in op.inputs()[1:])
    by_value = op.name != "index" or by_mask  # an index of numbers gives as many rows as it has
    if torch.Tag.data_dependent_output in tags or (
        torch.Tag.dynamic_output_shape in tags and by_value
    ):
        raise CannotRecord(f"what runs depends on values of tensors ({op.name})")


# --- memory ------------------------------------------------------------------------------------


def share_memory(
    ops: list[RecordedOp], replayed: list[RecordedOp], output: Tensor, arena: Arena
) -> int:
    """Move the results of `replayed` into the arena; how many bytes of it they take."""
    places, size = allocate(lives_of(replayed, output))
    everything = {id(t): t for op in ops for t in (*op.inputs(), *op.outputs())}
    tenants = list[tuple[Tensor, int]]()
    for tensor in everything.values():
        place = places.get(storage_of(tensor))
        if place is not None:
            tenants.append((tensor, place + int(tensor.storage_offset()) * tensor.itemsize))
    arena.house(tenants, size)
    return size


def lives_of(replayed: list[RecordedOp], output: Tensor) -> list[Life]:
    """When each storage that `replayed` makes is needed."""
    lives: dict[int, Life] = {}
    for i, op in enumerate(replayed):
        for tensor in op.outputs():
            key, num_bytes = storage_of(tensor), tensor.untyped_storage().nbytes()
            lives.setdefault(key, Life(key, i, i, num_bytes))
        for tensor in (*op.inputs(), *op.outputs()):
            key = storage_of(tensor)
            if key in lives:
                lives[key] = lives[key]._replace(last=i)
    key = storage_of(output)
    lives[key] = lives[key]._replace(last=len(replayed))
    return list(lives.values())


# --- calls -------------------------------------------------------------------------------------


def segments_of(replayed: list[RecordedOp], forms: Forms) -> tuple[Segment, ...]:
    """The list cut where the layer or the kind of module changes, and around attention."""
    segments = []
    for ops in runs_of(replayed):
        attention = ops[0].attention
        if attention is None:
            segments.append(Segment(span_of(ops), tuple(bind(op, forms) for op in ops), None))
        else:
            segments.append(Segment(span_of(ops), (), (attention, ops[0].result)))
    return tuple(segments)


def runs_of(ops: list[RecordedOp]) -> Iterator[list[RecordedOp]]:
    """Operations in a row of one layer and kind; attention by itself."""
    for _, group in groupby(ops, key=lambda op: (op.layer, op.kind, op.attention is not None)):
        yield list(group)


def span_of(ops: list[RecordedOp]) -> Span:
    """What the log says of such a run."""
    names, results = tuple(op.name for op in ops), tuple(result_of(op.outputs()) for op in ops)
    return Span(ops[0].layer, ops[0].kind, names, results)


def bind(op: RecordedOp, forms: Forms) -> Callable[[], Any]:
    """A call without arguments that does `op` again and leaves the result where it was.

    `forms` collects which function can do what into a given tensor.
    """
    if isinstance(op, FusedOp):
        return op.bound()
    ours = few_rows.bound(op.func, op.result, op.args)
    if ours is not None:
        return ours
    if op.changed():
        return partial(op.func._op, *op.args, **op.kwargs)
    if op.name in _COPIES:
        return partial(op.result.copy_, op.args[0])
    kind = (op.func, *map(type, op.args), *op.kwargs)
    if kind not in forms:
        forms[kind] = out_form(op)
    function = forms[kind]
    if function is None:
        return partial(compute_and_copy, op)
    return partial(function, *op.args, **op.kwargs, out=op.result)


def out_form(op: RecordedOp) -> Callable[..., Any] | None:
    """The function that does `op` into a given tensor: found by trying, the quickest to call first.

    Whether it computes the same is checked for the list as a whole, when a capture is compared with
    the eager forward.
    """
    if not isinstance(op.result, Tensor):
        return None
    packet = op.func.overloadpacket
    named: list[Any] = [getattr(space, op.name, None) for space in (torch, torch._C._nn)]
    overloads = [f"{op.func._schema.overload_name}_out", "out"]
    named += [getattr(packet, name)._op for name in overloads if name in packet.overloads()]
    for function in filter(None, named):
        try:
            function(*op.args, **op.kwargs, out=op.result)
        except (TypeError, RuntimeError, IndexError):
            continue
        form: Callable[..., Any] = function
        return form
    return None


def compute_and_copy(op: RecordedOp) -> None:
    """For operations without an out= form: the only ones that allocate."""
    results = op.func._op(*op.args, **op.kwargs)
    if isinstance(op.result, Tensor):
        op.result.copy_(results)
        return
    for static, result in zip(op.result, results, strict=True):
        static.copy_(result)
