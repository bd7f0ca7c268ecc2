"""Rectangles, points and lines: the small arithmetic under the map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Point = tuple[float, float]


class Box(NamedTuple):
    """A rectangle by its upper left corner and its size."""

    x: float
    y: float
    w: float
    h: float

    @property
    def right(self) -> float:
        """Return the x of the right side."""
        return self.x + self.w

    @property
    def bottom(self) -> float:
        """Return the y of the lower side."""
        return self.y + self.h

    @property
    def centre(self) -> Point:
        """Return the middle."""
        return self.x + self.w / 2, self.y + self.h / 2

    def grown(self, by: float) -> Box:
        """Return the rectangle with a margin on every side."""
        return Box(self.x - by, self.y - by, self.w + 2 * by, self.h + 2 * by)

    def overlaps(self, other: Box) -> bool:
        """Say whether the two share more than an edge."""
        # Asked millions of times on a large map, so without the properties.
        x, y, w, h = self
        left, top, width, height = other
        return x < left + width and left < x + w and y < top + height and top < y + h

    def crossed_by(self, start: Point, end: Point) -> bool:
        """Say whether a straight line passes through the inside."""
        low, high = 0.0, 1.0
        for origin, delta, near, far in (
            (start[0], end[0] - start[0], self.x, self.right),
            (start[1], end[1] - start[1], self.y, self.bottom),
        ):
            if delta == 0:
                if not near < origin < far:
                    return False
                continue
            first, second = sorted(((near - origin) / delta, (far - origin) / delta))
            low, high = max(low, first), min(high, second)
        return low < high


def around(boxes: Iterable[Box]) -> Box:
    """Return the smallest rectangle that holds all of them; there must be one."""
    listed = list(boxes)
    x, y = min(box.x for box in listed), min(box.y for box in listed)
    right, bottom = max(box.right for box in listed), max(box.bottom for box in listed)
    return Box(x, y, right - x, bottom - y)


def centred(point: Point, w: float, h: float) -> Box:
    """Return the rectangle of this size around a point."""
    return Box(point[0] - w / 2, point[1] - h / 2, w, h)


def segments(points: list[Point]) -> Iterator[tuple[Point, Point]]:
    """Return the straight pieces of a line."""
    return zip(points, points[1:], strict=False)


def length(start: Point, end: Point) -> float:
    """Return the distance of two points, corners counted at right angles."""
    return abs(end[0] - start[0]) + abs(end[1] - start[1])


class BoxIndex:
    """Rectangles by the cells of a coarse grid, so that "what is here" need not ask them all."""

    CELL = 128.0

    def __init__(self, boxes: Iterable[Box] = ()) -> None:
        """Start with these rectangles; a position is the place in the order of adding."""
        self._cells: dict[tuple[int, int], list[int]] = {}
        self._boxes: list[Box] = []
        for box in boxes:
            self.add(box)

    def add(self, box: Box) -> None:
        """Put a rectangle in."""
        for cell in self._cover(box):
            self._cells.setdefault(cell, []).append(len(self._boxes))
        self._boxes.append(box)

    def box(self, position: int) -> Box:
        """Return a rectangle by its position."""
        return self._boxes[position]

    def near(self, box: Box) -> list[int]:
        """Return the positions of those that overlap a rectangle, in the order of their adding."""
        area = (box.w / self.CELL + 1) * (box.h / self.CELL + 1)
        if area > len(self._boxes):  # then asking all of them is quicker than asking the cells
            return [i for i, other in enumerate(self._boxes) if other.overlaps(box)]
        candidates = {i for cell in self._cover(box) for i in self._cells.get(cell, ())}
        return sorted(i for i in candidates if self._boxes[i].overlaps(box))

    def crossed(self, start: Point, end: Point) -> set[int]:
        """Return the positions of those that a straight line passes through."""
        x, y = min(start[0], end[0]), min(start[1], end[1])
        w, h = abs(end[0] - start[0]), abs(end[1] - start[1])
        hull = Box(x, y, w, h).grown(1)
        return {i for i in self.near(hull) if self._boxes[i].crossed_by(start, end)}

    def _cover(self, box: Box) -> Iterator[tuple[int, int]]:
        for column in range(int(box.x // self.CELL), int(box.right // self.CELL) + 1):
            for row in range(int(box.y // self.CELL), int(box.bottom // self.CELL) + 1):
                yield column, row


class LineIndex:
    """Lines by the places that they pass, so that "which lines are here" need not ask them all."""

    PIECE = 256.0

    def __init__(self, lines: list[list[Point]]) -> None:
        """Start with these lines, each a list of corners."""
        self._pieces: list[tuple[int, Point, Point]] = []
        self._index = BoxIndex()
        for number, points in enumerate(lines):
            for start, end in segments(points):
                self._add(number, start, end)

    def crossing(self, box: Box) -> set[int]:
        """Return the positions of the lines that pass through a rectangle."""
        pieces = (self._pieces[i] for i in self._index.near(box))
        return {number for number, start, end in pieces if box.crossed_by(start, end)}

    def _add(self, number: int, start: Point, end: Point) -> None:
        # A long slanting line would fill the grid with its hull; its pieces do not.
        count = int(length(start, end) // self.PIECE) + 1
        dx, dy = (end[0] - start[0]) / count, (end[1] - start[1]) / count
        for i in range(count):
            a = start[0] + dx * i, start[1] + dy * i
            b = a[0] + dx, a[1] + dy
            self._pieces.append((number, a, b))
            hull = Box(min(a[0], b[0]), min(a[1], b[1]), abs(dx), abs(dy))
            self._index.add(hull.grown(0.5))
