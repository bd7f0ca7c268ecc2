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

from engine.cuda_graph.operations import Span
from engine.cuda_graph.recorder import Attention, CannotRecord, RecordedOp, storage_of, storages
from engine.kv_cache import LayerKVCache
from engine.paged_attention import AttentionBackend

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
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

    def __init__(self, ops: list[RecordedOp], inputs: Sequence[Tensor], output: Tensor):
        replayed, self.num_views, self.num_folded = classify(ops, inputs)
        self.output = output
        self.segments = segments_of(replayed)  # first: it tries operations on what was recorded
        self.num_bytes = share_memory(ops, replayed, output) + sum(t.nbytes for t in inputs)

    def replay(
        self, backend: AttentionBackend, layers: Sequence[LayerKVCache], spent: dict[str, float]
    ) -> None:
        """Run every operation once, adding the seconds of each kind of module to `spent`.

        `layers` is the pool that attention works on.
        """
        clock = time.perf_counter
        mark = clock()
        for (_, kind, _), calls, leaf in self.segments:
            for call in calls:
                call()
            if leaf is not None:
                attention, output = leaf
                output.copy_(attention.run(backend, layers))
            now = clock()
            spent[kind] += now - mark
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


class Life(NamedTuple):
    """A storage from the operation that makes it to the last one that touches it."""

    storage: int
    first: int
    last: int
    num_bytes: int


def share_memory(ops: list[RecordedOp], replayed: list[RecordedOp], output: Tensor) -> int:
    """Move the results of `replayed` into one block of memory; its size in bytes."""
    places, size = allocate(lives_of(replayed, output))
    like = replayed[0].outputs()[0]
    arena = torch.empty(size, dtype=torch.uint8, device=like.device).untyped_storage()
    everything = {id(t): t for op in ops for t in (*op.inputs(), *op.outputs())}
    for tensor in everything.values():
        place = places.get(storage_of(tensor))
        if place is not None:
            offset = place // tensor.itemsize + tensor.storage_offset()
            tensor.set_(arena, offset, tensor.size(), tensor.stride())
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


def allocate(lives: Iterable[Life]) -> tuple[dict[int, int], int]:
    """Where each storage lies, first fit, and how many bytes that takes."""
    places: dict[int, int] = {}
    alive: list[tuple[int, int, int]] = []  # begin, end, last
    size = 0
    for life in sorted(lives, key=lambda life: life.first):
        alive = sorted(span for span in alive if span[2] >= life.first)
        num_bytes = -(-life.num_bytes // ALIGNMENT) * ALIGNMENT
        begin = 0
        for start, end, _ in alive:
            if start - begin >= num_bytes:
                break
            begin = max(begin, end)
        places[life.storage] = begin
        alive.append((begin, begin + num_bytes, life.last))
        size = max(size, begin + num_bytes)
    return places, size


# --- calls -------------------------------------------------------------------------------------


def segments_of(replayed: list[RecordedOp]) -> tuple[Segment, ...]:
    """The list cut where the layer or the kind of module changes, and around attention."""
    segments = []
    known: dict[Any, Callable[..., Any] | None] = {}
    for ops in runs_of(replayed):
        attention = ops[0].attention
        if attention is None:
            segments.append(Segment(span_of(ops), tuple(bind(op, known) for op in ops), None))
        else:
            segments.append(Segment(span_of(ops), (), (attention, ops[0].result)))
    return tuple(segments)


def runs_of(ops: list[RecordedOp]) -> Iterator[list[RecordedOp]]:
    """Operations in a row of one layer and kind; attention by itself."""
    for _, group in groupby(ops, key=lambda op: (op.layer, op.kind, op.attention is not None)):
        yield list(group)


def span_of(ops: list[RecordedOp]) -> Span:
    """What the log says of such a run."""
    return Span(ops[0].layer, ops[0].kind, tuple(op.name for op in ops))


def bind(op: RecordedOp, known: dict[Any, Callable[..., Any] | None]) -> Callable[[], Any]:
    """A call without arguments that does `op` again and leaves the result where it was.

    `known` collects which function can do what into a given tensor.
    """
    if op.changed():
        return partial(op.func._op, *op.args, **op.kwargs)
    if op.name in _COPIES:
        return partial(op.result.copy_, op.args[0])
    kind = (op.func, *map(type, op.args), *op.kwargs)
    if kind not in known:
        known[kind] = out_form(op)
    function = known[kind]
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
