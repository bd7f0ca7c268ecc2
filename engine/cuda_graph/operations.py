"""What a graph consists of, for the log: its operations by layer and module. Part of the box.

Layers that do the same are listed once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from torch import Tensor


class Span(NamedTuple):
    """Operations in a row of one layer and one kind of module."""

    layer: int  # NO_LAYER outside of the decoder layers
    kind: str
    names: tuple[str, ...]
    results: tuple[str, ...]  # of each: dtype and shape


class Buffer(NamedTuple):
    """Memory that a graph knows by its address."""

    name: str
    holds: str  # dtype and shape
    address: int
    num_bytes: int

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Buffer:
        """That of a tensor."""
        return cls(name, result_of([tensor]), tensor.data_ptr(), tensor.nbytes)


def result_of(tensors: Iterable[Tensor]) -> str:
    """`float32[8,576]`; of several tensors, with a plus between."""
    return "+".join(
        f"{str(t.dtype).removeprefix('torch.')}[{','.join(map(str, t.shape))}]" for t in tensors
    )


class OperationList(NamedTuple):
    """Counts, and the operations in the order in which a replay runs them.

    Entry i is `operations[i]` (names with a space between), which give `results[i]` (the same), of
    `kinds[i]` in each of the layers `first_layers[i]` to `last_layers[i]`. Entries in a row with
    the same layers run one after the other in the first of these layers, then in the next one.
    """

    recorded: int
    replayed: int
    folded: int  # only constants go in: computed once, at capture
    views: int  # another look at a buffer: nothing to run
    first_layers: tuple[int, ...]
    last_layers: tuple[int, ...]
    kinds: tuple[str, ...]
    operations: tuple[str, ...]
    results: tuple[str, ...]

    @classmethod
    def of(cls, spans: Iterable[Span], *, recorded: int, folded: int, views: int) -> OperationList:
        """The list of these spans."""
        layers = [(layer, list(group)) for layer, group in groupby(spans, key=lambda s: s.layer)]
        firsts, lasts, kinds, names, results = [], [], [], [], []
        for _, same in groupby(enumerate(layers), key=_what_a_layer_does):
            members = [layer for _, layer in same]
            for span in members[0][1]:
                firsts.append(members[0][0])
                lasts.append(members[-1][0])
                kinds.append(span.kind)
                names.append(" ".join(span.names))
                results.append(" ".join(span.results))
        return cls(
            recorded=recorded,
            replayed=sum(len(span.names) for _, group in layers for span in group),
            folded=folded,
            views=views,
            first_layers=tuple(firsts),
            last_layers=tuple(lasts),
            kinds=tuple(kinds),
            operations=tuple(names),
            results=tuple(results),
        )


def _what_a_layer_does(item: tuple[int, tuple[int, list[Span]]]) -> object:
    """Equal for layers that follow each other and do the same."""
    place, (layer, spans) = item
    return layer - place, [span[1:] for span in spans]
