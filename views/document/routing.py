"""How a connection runs: the sides it leaves and enters, its ports, and its corners.

What the document says is kept: `fromSide`, `toSide`, `route` and `via`. A port stands in the
middle of its side, shares the side evenly with other ports, or, next to a `via` point or the
facing port of a parallel side, stands level with it so that the line is straight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from views.document.geometry import Box, BoxIndex, Point, around, length, segments
from views.document.model import Connection, Document, Side

PORT_GAP = 24.0  # between two ports of one side, where the side is long enough
CORNER = 8.0  # no port nearer to a corner of its box
STUB = 22.0  # how far a line goes straight out before it turns
LANE = 14.0  # between two lines that run beside each other on their way around a box
LANES = 3
LEVEL = 4.0  # ports nearer to level than this are joined by a straight line

_OUT: dict[Side, Point] = {"left": (-1, 0), "right": (1, 0), "top": (0, -1), "bottom": (0, 1)}
_FACING: set[tuple[Side, Side]] = {
    ("right", "left"),
    ("left", "right"),
    ("bottom", "top"),
    ("top", "bottom"),
}


@dataclass
class _End:
    """One end of a connection: its box, its side, and where along the side it stands."""

    box: Box
    side: Side
    other: Box
    at: float = 0.0
    pinned: bool = field(default=False)

    @property
    def upright(self) -> bool:
        """Say whether the side is a vertical one, along which y counts."""
        return self.side in ("left", "right")

    @property
    def span(self) -> tuple[float, float]:
        """Return the part of the side on which a port may stand."""
        start, size = (self.box.y, self.box.h) if self.upright else (self.box.x, self.box.w)
        inset = min(CORNER, size / 2)
        return start + inset, start + size - inset

    @property
    def point(self) -> Point:
        """Return where the line touches the box."""
        if self.upright:
            return (self.box.x if self.side == "left" else self.box.right), self.at
        return self.at, (self.box.y if self.side == "top" else self.box.bottom)

    def level_with(self, point: Point) -> None:
        """Stand level with a point, if the side reaches that far."""
        at = point[1] if self.upright else point[0]
        low, high = self.span
        if low <= at <= high:
            self.at, self.pinned = at, True


class _Scene:
    """The boxes, and the level and upright lines that are drawn already."""

    def __init__(self, boxes: BoxIndex) -> None:
        self.boxes = boxes
        self._tracks: dict[tuple[bool, int], list[tuple[float, float, float]]] = defaultdict(list)

    def add(self, line: list[Point]) -> None:
        for a, b in segments(line):
            if (track := _track(a, b)) is not None:
                level, at, low, high = track
                self._tracks[level, int(at // LANE)].append((at, low, high))

    def shared(self, a: Point, b: Point) -> float:
        """Return on what length a line would run along others, too near to be told apart."""
        if (track := _track(a, b)) is None:
            return 0.0
        level, at, low, high = track
        total, row = 0.0, int(at // LANE)
        for near in (row - 1, row, row + 1):
            for other, start, end in self._tracks.get((level, near), ()):
                if abs(other - at) < LANE / 2:
                    total += max(0.0, min(high, end) - max(low, start))
        return total


def _track(a: Point, b: Point) -> tuple[bool, float, float, float] | None:
    """Return whether a line is level, where it runs, and from where to where."""
    if a[1] == b[1]:
        return True, a[1], min(a[0], b[0]), max(a[0], b[0])
    if a[0] == b[0]:
        return False, a[0], min(a[1], b[1]), max(a[1], b[1])
    return None


def route(document: Document, boxes: dict[str, Box]) -> list[list[Point]]:
    """Return the corners of every connection, from port to port, in the order of the document."""
    ends = [_ends(edge, boxes) for edge in document.connections]
    for edge, (start, end) in zip(document.connections, ends, strict=True):
        if edge.via:
            start.level_with(edge.via[0])
            end.level_with(edge.via[-1])
    _spread(end for pair in ends for end in pair)
    for edge, (start, end) in zip(document.connections, ends, strict=True):
        if not edge.via and edge.route != "straight":
            _align(start, end)
    return _draw(document, ends, _Scene(BoxIndex(boxes.values())))


def _draw(document: Document, ends: list[tuple[_End, _End]], scene: _Scene) -> list[list[Point]]:
    """Draw what the document fixes first, so that the others can keep clear of it."""
    lines: list[list[Point]] = [[] for _ in ends]
    fixed = [edge.via is not None or edge.route != "auto" for edge in document.connections]
    for number in sorted(range(len(ends)), key=lambda i: not fixed[i]):
        start, end = ends[number]
        via = _corners(document.connections[number], start, end, scene)
        lines[number] = _tidy([start.point, *via, end.point])
        scene.add(lines[number])
    return lines


def _ends(edge: Connection, boxes: dict[str, Box]) -> tuple[_End, _End]:
    start, end = boxes[edge.source], boxes[edge.target]
    out, into = _sides(start, end)
    first = _End(start, edge.from_side or out, end)
    second = _End(end, edge.to_side or into, start)
    for port in (first, second):
        port.at = sum(port.span) / 2
    return first, second


def _sides(start: Box, end: Box) -> tuple[Side, Side]:
    """Choose facing sides: beside each other left and right, else above and below."""
    if start == end:
        return "right", "bottom"
    dx = max(end.x - start.right, start.x - end.right)
    dy = max(end.y - start.bottom, start.y - end.bottom)
    if dx >= dy:
        return ("right", "left") if end.centre[0] >= start.centre[0] else ("left", "right")
    return ("bottom", "top") if end.centre[1] >= start.centre[1] else ("top", "bottom")


def _spread(ends: Iterable[_End]) -> None:
    """Give the ports of a side places of their own, in the order of where they lead."""
    shared: dict[tuple[Box, Side], list[_End]] = defaultdict(list)
    for end in ends:
        shared[end.box, end.side].append(end)
    for ports in shared.values():
        loose = [port for port in ports if not port.pinned]
        taken = sorted(port.at for port in ports if port.pinned)
        if len(ports) > 1 and loose:
            _share(loose, taken)


def _share(ports: list[_End], taken: list[float]) -> None:
    low, high = ports[0].span
    gap = min(PORT_GAP, (high - low) / (len(ports) + len(taken)))
    middle = (low + high) / 2
    count = len(ports) + len(taken)
    places = [middle + (i - (count - 1) / 2) * gap for i in range(count)]
    for used in taken:  # a place next to a pinned port is not free
        places.remove(min(places, key=lambda place: abs(place - used)))
    ports.sort(key=lambda port: port.other.centre[1 if port.upright else 0])
    for port, place in zip(ports, places, strict=True):
        port.at = place


def _align(start: _End, end: _End) -> None:
    """Make a line between facing sides straight where both sides reach that far."""
    if (start.side, end.side) not in _FACING or abs(start.at - end.at) >= PORT_GAP:
        return
    mover, keeper = (start, end) if end.pinned else (end, start)
    low, high = mover.span
    if low <= keeper.at <= high:
        mover.at = keeper.at


def _corners(edge: Connection, start: _End, end: _End, scene: _Scene) -> list[Point]:
    if edge.via is not None:
        return list(edge.via)
    a, b = start.point, end.point
    if edge.route == "straight":
        return []
    if edge.route == "orthogonal-h":
        return _across(a, b)
    if edge.route == "orthogonal-v":
        return _down(a, b)
    ways = _candidates(start, end, scene.boxes)
    return min(ways, key=lambda via: _cost(start, via, end, scene))


def _across(a: Point, b: Point) -> list[Point]:
    middle = (a[0] + b[0]) / 2
    return [(middle, a[1]), (middle, b[1])]


def _down(a: Point, b: Point) -> list[Point]:
    middle = (a[1] + b[1]) / 2
    return [(a[0], middle), (b[0], middle)]


def _candidates(start: _End, end: _End, index: BoxIndex) -> Iterator[list[Point]]:
    """Offer ways from port to port: the shortest first, then ways around what is between."""
    a, b = start.point, end.point
    level = abs(a[1] - b[1]) < LEVEL if start.upright else abs(a[0] - b[0]) < LEVEL
    if level and (start.side, end.side) in _FACING:
        yield []
    if start.upright != end.upright:
        yield [(b[0], a[1])] if start.upright else [(a[0], b[1])]
    yield _across(a, b) if start.upright else _down(a, b)
    for lane in range(LANES):
        yield from _detours(start, end, index, lane)


def _detours(start: _End, end: _End, index: BoxIndex, lane: int) -> Iterator[list[Point]]:
    """Offer ways that go straight out, around what is between, and straight in."""
    out = STUB + lane * LANE
    p, q = _stub(start, out), _stub(end, out)
    yield [p, (q[0], p[1]), q]
    yield [p, (p[0], q[1]), q]
    hull = _hull(p, q)
    blocking = [index.box(i) for i in index.near(hull.grown(STUB))] or [hull]
    whole = around(blocking).grown(out)
    for y in (whole.y, whole.bottom):
        yield [p, (p[0], y), (q[0], y), q]
    for x in (whole.x, whole.right):
        yield [p, (x, p[1]), (x, q[1]), q]


def _stub(end: _End, out: float) -> Point:
    dx, dy = _OUT[end.side]
    return end.point[0] + dx * out, end.point[1] + dy * out


def _hull(a: Point, b: Point) -> Box:
    return Box(min(a[0], b[0]), min(a[1], b[1]), abs(a[0] - b[0]), abs(a[1] - b[1]))


def _cost(start: _End, via: list[Point], end: _End, scene: _Scene) -> tuple[int, float]:
    """Count crossed boxes first; then the length, a corner as 60 px, a shared stretch tenfold."""
    points = _tidy([start.point, *via, end.point])
    crossed = sum(len(scene.boxes.crossed(a, b)) for a, b in segments(points))
    wrong_way = int(_leaves_inward(start, points[1])) + int(_leaves_inward(end, points[-2]))
    total = sum(length(a, b) + 10.0 * scene.shared(a, b) for a, b in segments(points))
    return crossed + wrong_way, total + 60.0 * (len(points) - 2)


def _leaves_inward(end: _End, following: Point) -> bool:
    dx, dy = _OUT[end.side]
    return (following[0] - end.point[0]) * dx + (following[1] - end.point[1]) * dy <= 0


def _tidy(points: list[Point]) -> list[Point]:
    """Drop points that repeat the one before or lie on a straight line between neighbours."""
    result: list[Point] = []
    for point in points:
        if result and point == result[-1]:
            continue
        if len(result) > 1 and _straight_on(result[-2], result[-1], point):
            result[-1] = point
        else:
            result.append(point)
    return result if len(result) > 1 else points[:1] + points[-1:]


def _straight_on(a: Point, b: Point, c: Point) -> bool:
    first, second = (b[0] - a[0], b[1] - a[1]), (c[0] - b[0], c[1] - b[1])
    turn = first[0] * second[1] - first[1] * second[0]
    return abs(turn) < 1e-6 and first[0] * second[0] + first[1] * second[1] > 0
