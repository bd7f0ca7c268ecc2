"""Where things stand: boxes by `pos`, by grid or by their connections; frames around boxes.

A box that the document places stands there. The others are laid out in layers from left to
right, below whatever is placed, so that nothing can overlap because of us.
"""

from __future__ import annotations

import math

import networkx as nx

from views.document import graph as graphs
from views.document import labels
from views.document.geometry import Box, around
from views.document.model import Boundary, Component, Document, Grid

DEFAULT_SIZE = (140.0, 60.0)
MARGIN = 60.0
GAP_X, GAP_Y = 120.0, 90.0
MAX_ROWS = 8
BAND_GAP = 150.0  # between two bands of columns, for the lines from one to the other
ASPECT = 1.7  # width to height of the picture that a map is shown in
LEAST_PICTURE = 1500.0  # narrower than this, columns are never cut into bands
MAX_WIDTH = 240.0
MAX_GAP = 260.0
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
    gap = _gap(document)
    bands = _bands(columns, [[name] for name in loose], sizes, gap)
    top = max((box.bottom for box in fixed.values()), default=MARGIN - GAP_Y) + GAP_Y
    left = min((box.x for box in fixed.values()), default=MARGIN)
    placed: dict[str, Box] = {}
    for band in bands:
        placed |= _band(band, sizes, left, top, gap)
        top = max(placed[name].bottom for column in band for name in column) + BAND_GAP
    return placed


def _own_size(component: Component, grid: Grid | None) -> tuple[float, float]:
    """Return a size in which the words can be read, where the document gives none."""
    if component.size is not None or grid is not None:
        return _size(component, grid)
    words = (component.label, component.sublabel or "", component.tag or "")
    lines = sum(1 for text in words if text)
    wanted = max(labels.size(text)[0] for text in words) * TITLE_SCALE + TITLE_ROOM
    height = DEFAULT_SIZE[1] + 16 * max(0, lines - 2)
    return max(DEFAULT_SIZE[0], min(MAX_WIDTH, round(wanted))), height


def _gap(document: Document) -> float:
    """Return how far columns stand apart, so that the words on the lines between them have room."""
    widest = max(
        (labels.size(edge.label)[0] for edge in document.connections if edge.label), default=0
    )
    return round(min(MAX_GAP, max(GAP_X, widest * TITLE_SCALE + LINE_ENDS)))


def _bands(
    columns: list[list[str]],
    loose: list[list[str]],
    sizes: dict[str, tuple[float, float]],
    gap: float,
) -> list[list[list[str]]]:
    """Cut columns into bands; of all widths, the one with which the picture is drawn largest."""
    widths = (LEAST_PICTURE * 1.15**i for i in range(32))
    tries = [_cut(columns, sizes, gap, w) + _cut(loose, sizes, gap, w) for w in widths]
    return min(tries, key=lambda bands: _extent(bands, sizes, gap))


def _cut(
    columns: list[list[str]], sizes: dict[str, tuple[float, float]], gap: float, width: float
) -> list[list[list[str]]]:
    """Cut the columns into bands that are no wider than this."""
    bands: list[list[list[str]]] = []
    used = width + 1
    for column in columns:
        wide = max(sizes[name][0] for name in column)
        if used + wide > width:
            bands.append([])
            used = 0
        bands[-1].append(column)
        used += wide + gap
    return bands


def _extent(
    bands: list[list[list[str]]], sizes: dict[str, tuple[float, float]], gap: float
) -> float:
    """Return the height of the picture, or the height that its width takes on a screen."""
    wide = max(sum(max(sizes[n][0] for n in column) + gap for column in band) for band in bands)
    high = sum(max(_height(column, sizes) for column in band) + BAND_GAP for band in bands)
    return max(wide / ASPECT, high)


def _band(
    band: list[list[str]],
    sizes: dict[str, tuple[float, float]],
    left: float,
    top: float,
    gap: float,
) -> dict[str, Box]:
    tallest = max(_height(column, sizes) for column in band)
    placed: dict[str, Box] = {}
    for column in band:
        y = top + (tallest - _height(column, sizes)) / 2
        width = max(sizes[name][0] for name in column)
        for name in column:
            placed[name] = Box(left + (width - sizes[name][0]) / 2, y, *sizes[name])
            y += sizes[name][1] + GAP_Y
        left += width + gap
    return placed


def _parts(layer: list[str], boxes: int) -> list[list[str]]:
    """Cut a layer that is too high for a picture into columns of their own."""
    height = max(MAX_ROWS, math.isqrt(boxes) // 2)
    return [layer[i : i + height] for i in range(0, len(layer), height)]


def _height(column: list[str], sizes: dict[str, tuple[float, float]]) -> float:
    return sum(sizes[name][1] for name in column) + GAP_Y * (len(column) - 1)
