"""Where things stand: boxes by `pos`, by grid or by their connections; frames around boxes.

A box that the document places stands there. The others are laid out in layers from left to
right, below whatever is placed, so that nothing can overlap because of us.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx

from views.document import graph as graphs
from views.document import labels
from views.document.geometry import Box, BoxIndex, around
from views.document.model import Boundary, Component, Document, Grid

DEFAULT_SIZE = (140.0, 60.0)
MARGIN = 60.0
GAP_X, GAP_Y = 120.0, 90.0
MAX_ROWS = 8
BAND_GAP = 150.0  # between two bands of columns, for the lines from one to the other
ASPECT = 1.7  # width to height of the picture that a map is shown in
TRIES = 24  # so many numbers of columns in a band are tried
WEIGHED_FRAMES = 20  # with more of them, nobody looks for strangers in frames
STRANGER = 0.3  # by how much a box in a frame of others makes a picture worse
MAX_WIDTH = 240.0
MAX_GAP = 200.0
LINE_ENDS = 64.0  # of a line between two columns, where it turns and ends
TITLE_SCALE, TITLE_ROOM = 1.3, 24.0  # from a label's width at 11 px to that of a box around it
BOUNDARY_PAD = 30.0
BOUNDARY_TITLE = 44.0  # room for its title above the tags of the highest boxes, whatever the pad
NESTED_TITLE = 26.0  # the same above a frame, which has no tag
NESTED_GAP = 14.0  # how far a frame stays outside the one that it holds


def place(document: Document) -> dict[str, Box]:
    """Return where every component stands, in the order of the document."""
    grid = document.layout
    fixed = {c.id: box for c in document.components if (box := placed_by_document(c, grid))}
    missing = [c for c in document.components if c.id not in fixed]
    boxes = fixed | (_in_layers(document, missing, fixed) if missing else {})
    return {c.id: boxes[c.id] for c in document.components}


def placed_by_document(component: Component, grid: Grid | None) -> Box | None:
    """Return where the document puts a component, or None where it does not say."""
    if component.pos is not None:
        return Box(*component.pos, *_size(component, grid))
    if grid is None or component.row is None or component.col is None:
        return None
    x = grid.origin[0] + component.col * (grid.cell_w + grid.gap_x)
    y = grid.origin[1] + component.row * (grid.cell_h + grid.gap_y)
    return Box(x, y, *_size(component, grid))


def frames(document: Document, boxes: dict[str, Box]) -> list[Box]:
    """Return one rectangle a boundary: its boxes, its pad, and room for its title.

    A frame that holds all the boxes of another begins above it, so that both titles can be read;
    where the document gives no pad, it also stays outside on the other sides.
    """
    boundaries, result = document.boundaries, dict[int, Box]()
    for position in sorted(range(len(boundaries)), key=lambda i: _reach(boundaries[i])):
        boundary = boundaries[position]
        held = [result[i] for i in result if set(boundary.wraps) >= set(boundaries[i].wraps)]
        result[position] = _frame(boundary, boxes, held)
    return [result[i] for i in range(len(boundaries))]


def _frame(boundary: Boundary, boxes: dict[str, Box], held: list[Box]) -> Box:
    pad = _pad(boundary)
    inside = around(boxes[name] for name in boundary.wraps)
    top = max(pad, BOUNDARY_TITLE)
    frame = Box(inside.x - pad, inside.y - top, inside.w + 2 * pad, inside.h + top + pad)
    if not held:
        return frame
    within = around(held)
    if boundary.pad is None:
        frame = around([frame, within.grown(NESTED_GAP)])
    return around([frame, Box(frame.x, within.y - NESTED_TITLE, frame.w, 0)])


def _pad(boundary: Boundary) -> float:
    return BOUNDARY_PAD if boundary.pad is None else boundary.pad


def _reach(boundary: Boundary) -> tuple[int, float]:
    """Order frames from the innermost to the outermost."""
    return len(set(boundary.wraps)), _pad(boundary)


def _size(component: Component, grid: Grid | None) -> tuple[float, float]:
    if component.size is not None:
        return component.size
    return DEFAULT_SIZE if grid is None else (grid.cell_w, grid.cell_h)


def _in_layers(
    document: Document, missing: list[Component], fixed: dict[str, Box]
) -> dict[str, Box]:
    """Lay boxes out in columns, from those that ask to those that answer.

    Columns that do not fit beside each other go on in another band below, as lines of a text do;
    boxes that nothing connects come last, in rows of their own.
    """
    sizes = {c.id: _own_size(c, document.layout) for c in missing}
    graph = graphs.build(document)
    graph.remove_nodes_from(list(fixed))
    loose = [node for node in graph if not set(nx.all_neighbors(graph, node)) - {node}]
    graph.remove_nodes_from(loose)
    columns = [part for layer in graphs.layers(graph) for part in _parts(layer, len(missing))]
    top = max((box.bottom for box in fixed.values()), default=MARGIN - GAP_Y) + GAP_Y
    left = min((box.x for box in fixed.values()), default=MARGIN)
    tries = []
    for number in _numbers(len(columns) + len(loose)):
        sheet = _Sheet(sizes, _gap(document), number, left, top)
        tries.append(sheet.filled(columns) | sheet.filled([[name] for name in loose]))
    return min(tries, key=lambda placed: _awkwardness(document, fixed | placed))


def _own_size(component: Component, grid: Grid | None) -> tuple[float, float]:
    """Return a size in which the words can be read, where the document gives none."""
    if component.size is not None or grid is not None:
        return _size(component, grid)
    words = (component.label, component.sublabel or "", component.tag or "")
    lines = sum(1 for text in words if text)
    wanted = max(labels.size(text)[0] for text in words) * TITLE_SCALE + TITLE_ROOM
    height = DEFAULT_SIZE[1] + 16 * max(0, lines - 2)
    return max(DEFAULT_SIZE[0], min(MAX_WIDTH, round(wanted))), height


def _numbers(columns: int) -> Iterator[int]:
    """Return how many columns a band may have: each number where they are few."""
    last = 0
    for i in range(1, TRIES + 1):
        number = max(last + 1, round(columns ** (i / TRIES)))
        if number > columns:
            return
        yield number
        last = number


def _gap(document: Document) -> float:
    """Return how far columns stand apart, so that the words on the lines between them have room."""
    widest = max(
        (labels.size(edge.label)[0] for edge in document.connections if edge.label), default=0
    )
    return round(min(MAX_GAP, max(GAP_X, widest * TITLE_SCALE + LINE_ENDS)))


@dataclass
class _Sheet:
    """Where the next column goes: beside the last one, or at the start of another band."""

    sizes: dict[str, tuple[float, float]]
    gap: float
    number: int  # of columns in a band
    left: float
    top: float

    def filled(self, columns: list[list[str]]) -> dict[str, Box]:
        """Place these columns, and go on below them."""
        placed: dict[str, Box] = {}
        for start in range(0, len(columns), self.number):
            band = columns[start : start + self.number]
            tallest = max(self._height(column) for column in band)
            left = self.left
            for column in band:
                wide = self._wide(column)
                y = self.top + (tallest - self._height(column)) / 2
                for name in column:
                    w, h = self.sizes[name]
                    placed[name] = Box(left + (wide - w) / 2, y, w, h)
                    y += h + GAP_Y
                left += wide + self.gap
            self.top += tallest + BAND_GAP
        return placed

    def _wide(self, column: list[str]) -> float:
        return max(self.sizes[name][0] for name in column)

    def _height(self, column: list[str]) -> float:
        return sum(self.sizes[name][1] for name in column) + GAP_Y * (len(column) - 1)


def _awkwardness(document: Document, boxes: dict[str, Box]) -> float:
    """Return how small a picture is drawn, and worse where frames hold boxes of others."""
    whole, index = around(boxes.values()), BoxIndex(boxes.values())
    strangers = 0
    if len(document.boundaries) <= WEIGHED_FRAMES:
        for boundary, frame in zip(document.boundaries, frames(document, boxes), strict=True):
            strangers += len(index.near(frame)) - len(boundary.wraps)
    return max(whole.w / ASPECT, whole.h) * (1 + STRANGER * strangers)


def _parts(layer: list[str], boxes: int) -> list[list[str]]:
    """Cut a layer that is too high for a picture into columns of their own."""
    height = max(MAX_ROWS, math.isqrt(boxes) // 2)
    return [layer[i : i + height] for i in range(0, len(layer), height)]
