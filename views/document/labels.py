"""Where the label of a connection stands: near its line, and never on a box.

`labelAt`, `labelDx` and `labelDy` are wishes. A wish that would put a label on a box is moved to
the nearest free place; so is one that would hide a label that already stands. Positions are the
middle of the text, whose size is estimated for 11 px letters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from views.document.geometry import (
    Box,
    BoxIndex,
    LineIndex,
    Point,
    centred,
    length,
    segments,
)
from views.document.model import Component, Connection, Document

HEIGHT = 16.0
LETTER = 5.8  # the mean width of a letter of Inter at 11 px, a little more
PADDING = 6.0
CLEAR = 2.0  # between a label and a box
BASELINE = 3.0  # the format places the baseline of the text, we its middle
FORMAT_LIFT = 10.0  # where labelDx and labelDy count from: this far above the line
BESIDE = 4.0  # from an upright line to the text beside it
LIFT = 11.0  # from a line to the middle of the text beside it
APART = 6.0  # between a label and the line of another connection
PATIENCE, LEAST_PATIENCE = 10_000, 12  # places weighed: in all, and at least for each label
STRAY = 14.0  # so far from another line, and not from its own, a label seems to be the other's
TAG_STRIP = 18.0  # the page writes a box's tag above it
WIDE_LETTERS = 1.25
TITLE_STRIP, TITLE_INSET = 26.0, 24.0  # and a frame's title in its upper left
LIVE_STRIP = 22.0  # and its live value below

_FRACTIONS = (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8)
_RINGS = (*range(8, 121, 8), *range(144, 401, 24), *range(480, 1201, 80))
_AROUND = ((0, -1), (0, 1), (-1, 0), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))


def size(text: str, letters: float = 1.0) -> tuple[float, float]:
    """Return the estimated width and height of a label; `letters` is how wide they are drawn."""
    wide = sum(1 for letter in text if unicodedata.east_asian_width(letter) in "WF")
    return max(20.0, (len(text) + wide * 0.8) * LETTER * letters + PADDING), HEIGHT


def letters_of(document: Document) -> float:
    """Return how wide to take letters: as a small screen draws them, where we place the boxes.

    Who places boxes by hand has seen where the labels stand, at 11 px.
    """
    ours = any(c.pos is None and c.row is None for c in document.components)
    return WIDE_LETTERS if ours else 1.0


@dataclass
class _Scene:
    """What a label must not hide: boxes above all, then labels, strips and lines."""

    boxes: BoxIndex
    soft: BoxIndex  # the strips above and below boxes, where tags and live values stand
    labels: BoxIndex  # and the titles of frames
    lines: LineIndex
    highest: float  # above this there is no box
    patience: int  # so many free places are weighed for a label
    letters: float

    def blocked(self, area: Box) -> bool:
        return bool(self.boxes.near(area.grown(CLEAR)))

    def hidden(self, area: Box) -> bool:
        return bool(self.labels.near(area.grown(1)))

    def cost(self, area: Box, own: int, limit: float) -> float:
        """Weigh a place, up to a limit: other labels, strips, foreign lines, its own line."""
        cost = 2000.0 * len(self.labels.near(area.grown(1)))
        cost += 150.0 * len(self.soft.near(area))
        if cost >= limit:
            return cost
        # A foreign line weighs when it is near: between two lanes nobody knows whose label it is.
        cost += 120.0 * len(self.lines.crossing(area.grown(APART)) - {own})
        close = self.lines.crossing(area.grown(STRAY))
        cost += 60.0 * (own not in close and bool(close))
        return cost + 25.0 * (own in self.lines.crossing(area))


def place(
    document: Document, boxes: dict[str, Box], lines: list[list[Point]], frames: list[Box]
) -> list[Point | None]:
    """Return where every label stands; None where a connection has none."""
    letters = letters_of(document)
    titles = [
        Box(
            frame.x,
            frame.y,
            min(frame.w, size(boundary.label, letters)[0] + TITLE_INSET),
            TITLE_STRIP,
        )
        for boundary, frame in zip(document.boundaries, frames, strict=True)
    ]
    soft = [strip for c in document.components for strip in _strips(c, boxes[c.id])]
    highest = min(box.y for box in boxes.values())
    solid = BoxIndex(boxes.values())
    patience = max(LEAST_PATIENCE, PATIENCE // max(1, len(lines)))
    scene = _Scene(
        solid, BoxIndex(soft), BoxIndex(titles), LineIndex(lines), highest, patience, letters
    )
    result: list[Point | None] = [None] * len(lines)
    # Wishes first: who asked for a place has it before those that have none in mind.
    order = sorted(range(len(lines)), key=lambda i: not _has_wish(document.connections[i]))
    for number in order:
        edge = document.connections[number]
        if edge.label:
            result[number] = spot = _settle(scene, number, edge, lines[number])
            scene.labels.add(centred(spot, *size(edge.label, letters)))
    return result


def _settle(scene: _Scene, number: int, edge: Connection, line: list[Point]) -> Point:
    extent = size(edge.label or "", scene.letters)
    wish = _wish(edge, line, extent)
    area = centred(wish, *extent)
    if _has_wish(edge) and not scene.blocked(area) and not scene.hidden(area):
        return wish
    return _nearest_free(scene, number, _places(line, wish, extent), extent)


def _has_wish(edge: Connection) -> bool:
    return edge.label_at is not None or edge.label_dx is not None or edge.label_dy is not None


def _wish(edge: Connection, line: list[Point], extent: tuple[float, float]) -> Point:
    """Return where the document wants the label, or else beside the middle of its piece.

    The format counts `labelDx` and `labelDy` from above the *start* of a straight line, and from
    above the middle of the second piece of a bent one; `labelAt` stands for itself.
    """
    if edge.label_at is not None:
        return edge.label_at[0], edge.label_at[1] - BASELINE
    start, end = _piece(edge, line)
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    if not _has_wish(edge):
        return _beside((x, y), start, end, extent)[0]
    y = (start[1] if len(line) == 2 else y) - FORMAT_LIFT - BASELINE
    return x + (edge.label_dx or 0.0), y + (edge.label_dy or 0.0)


def _piece(edge: Connection, line: list[Point]) -> tuple[Point, Point]:
    pieces = list(segments(line))
    if edge.label_segment is not None or _has_wish(edge):
        wanted = 1 if edge.label_segment is None else edge.label_segment
        return pieces[min(wanted, len(pieces) - 1)]
    return max(pieces, key=lambda piece: length(*piece))


def _beside(
    point: Point, start: Point, end: Point, extent: tuple[float, float]
) -> tuple[Point, Point]:
    """Return the two places next to a line: above and below, or right and left of it."""
    x, y = point
    if abs(end[0] - start[0]) >= abs(end[1] - start[1]):
        return (x, y - LIFT), (x, y + LIFT)
    out = extent[0] / 2 + BESIDE
    return (x + out, y), (x - out, y)


def _nearest_free(
    scene: _Scene, own: int, places: Iterator[Point], extent: tuple[float, float]
) -> Point:
    """Return the best free place: near the wish, beside the line, hiding as little as can be."""
    wish, weighed = next(places), 0
    best, best_cost = (wish[0], scene.highest - extent[1]), float("inf")
    for place in chain([wish], places):
        distance = length(place, wish)
        area = centred(place, *extent)
        if distance >= best_cost or scene.blocked(area):
            continue
        if weighed == scene.patience:
            break
        weighed += 1
        cost = distance + scene.cost(area, own, best_cost - distance)
        if cost < best_cost:
            best, best_cost = place, cost
        if best_cost <= 0:
            break
    return best


def _places(line: list[Point], wish: Point, extent: tuple[float, float]) -> Iterator[Point]:
    yield wish
    for start, end in segments(line):
        for part in _FRACTIONS:
            on = start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part
            yield from _beside(on, start, end, extent)
            yield on
    for ring in _RINGS:
        for dx, dy in _AROUND:
            yield wish[0] + dx * ring, wish[1] + dy * ring


def _strips(component: Component, box: Box) -> Iterator[Box]:
    if component.tag:
        width = min(box.w, size(component.tag)[0])
        yield Box(box.x, box.y - TAG_STRIP, width, TAG_STRIP)
    yield Box(box.x, box.bottom, box.w, LIVE_STRIP)
