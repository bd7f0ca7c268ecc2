"""What no single field can know: references, sizes, overlaps (errors), and sense (warnings)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from views.document import graph as graphs
from views.document.bindings import ENGINE_COMPONENTS, Bindings
from views.document.diagnostics import Diagnostic, Location, error, json_path, warning
from views.document.geometry import Box, BoxIndex
from views.document.layout import placed_by_document
from views.document.model import Component, Document
from views.document.sources import VerifiedSources

MAX_SIZE = 10_000.0
MAX_COORDINATE = 50_000.0
MAX_CELL = 500
MAX_OVERLAPS = 50  # after that many the document is not worth a longer list

_Item = tuple[tuple[str | int, ...], str]


def errors(document: Document) -> list[Diagnostic]:
    """Return what keeps a well-formed document from being drawn."""
    found = [*_duplicates(document), *_unknown_ids(document)]
    found += [*_sizes(document), *_placement(document), *_paths(document)]
    # Overlaps of boxes whose size is nonsense would say the same thing twice.
    return found or list(_overlaps(document))


def lint(document: Document, bindings: Bindings, sources: VerifiedSources) -> list[Diagnostic]:
    """Return what can be drawn and yet may not be what was meant."""
    return [
        *_isolated(document),
        *_no_return(document),
        *_unbound(document, bindings),
        *_unverified(document, sources),
    ]


def _duplicates(document: Document) -> Iterator[Diagnostic]:
    components = [(("components", i, "id"), c.id) for i, c in enumerate(document.components)]
    edges = [(("connections", i, "id"), e.id) for i, e in enumerate(document.connections) if e.id]
    views = [(("meta", "views", i, "id"), v.id) for i, v in enumerate(document.meta.views)]
    yield from _repeated(components, "Give every component an id of its own.")
    yield from _repeated(edges, "Give every connection an id of its own.")
    yield from _repeated(views, "Give every view an id of its own.")
    for location, names in _lists(document):
        items = [((*location, i), name) for i, name in enumerate(names)]
        yield from _repeated(items, "Name every component once.")


def _repeated(items: Iterable[_Item], fix: str) -> Iterator[Diagnostic]:
    first: dict[str, Location] = {}
    for location, name in items:
        if name in first:
            message = f"The id {name!r} is already at {json_path(first[name])}."
            yield error("id/duplicate", json_path(location), name, message, fix)
        else:
            first[name] = location


def _lists(document: Document) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    for i, view in enumerate(document.meta.views):
        yield ("meta", "views", i, "focus"), view.focus
    for i, boundary in enumerate(document.boundaries):
        yield ("boundaries", i, "wraps"), boundary.wraps


def _unknown_ids(document: Document) -> Iterator[Diagnostic]:
    known = {component.id for component in document.components}
    named: list[_Item] = []
    for location, names in _lists(document):
        named += [((*location, i), name) for i, name in enumerate(names)]
    for i, edge in enumerate(document.connections):
        named.append((("connections", i, "from"), edge.source))
        named.append((("connections", i, "to"), edge.target))
    for location, name in named:
        if name not in known:
            message = f"There is no component {name!r}."
            fix = "Name the id of a component, or add the component."
            yield error("id/unknown", json_path(location), name, message, fix)


def _sizes(document: Document) -> Iterator[Diagnostic]:
    for i, component in enumerate(document.components):
        if component.size is not None:
            yield from _size(("components", i, "size"), component.id, component.size)
    for location, subject, numbers in _coordinates(document):
        limit = MAX_CELL if location[-1] in ("row", "col") else MAX_COORDINATE
        if any(abs(number) > limit for number in numbers):
            message = f"Nothing is drawn beyond {limit:,.0f}."
            fix = "Write a number that fits a picture."
            yield error("size/absurd", json_path(location), subject, message, fix)


def _size(location: Location, subject: str, size: Sequence[float]) -> Iterator[Diagnostic]:
    shown = f"{size[0]:g} by {size[1]:g}"
    if min(size) <= 0:
        message, fix = f"The box is {shown}.", "Give it a width and a height above zero."
        yield error("size/not-positive", json_path(location), subject, message, fix)
    elif max(size) > MAX_SIZE or min(size) < 1:
        message, fix = f"The box is {shown}.", f"Keep both between 1 and {MAX_SIZE:,.0f}."
        yield error("size/absurd", json_path(location), subject, message, fix)


def _coordinates(
    document: Document,
) -> Iterator[tuple[tuple[str | int, ...], str, Sequence[float]]]:
    """Yield every other number that decides where something is drawn."""
    for i, c in enumerate(document.components):
        for name, numbers in (("pos", c.pos), ("row", c.row), ("col", c.col)):
            if numbers is not None:
                values = numbers if isinstance(numbers, tuple) else (numbers,)
                yield ("components", i, name), c.id, values
    for i, boundary in enumerate(document.boundaries):
        yield ("boundaries", i, "pad"), boundary.label, (boundary.pad or 0,)
    for i, edge in enumerate(document.connections):
        subject = edge.id or f"{edge.source}-{edge.target}"
        for j, point in enumerate(edge.via or ()):
            yield ("connections", i, "via", j), subject, point
        yield ("connections", i, "labelAt"), subject, edge.label_at or ()
        yield ("connections", i, "labelDx"), subject, (edge.label_dx or 0,)
        yield ("connections", i, "labelDy"), subject, (edge.label_dy or 0,)
        yield ("connections", i, "width"), subject, (edge.width or 0,)
    yield ("meta", "viewBox"), "", document.meta.view_box or ()
    if (grid := document.layout) is not None:
        yield ("layout", "origin"), "", grid.origin
        for name, number in (("gapX", grid.gap_x), ("gapY", grid.gap_y)):
            yield ("layout", name), "", (number,)
        for name, number in (("cellW", grid.cell_w), ("cellH", grid.cell_h)):
            yield ("layout", name), "", (number,)


def _placement(document: Document) -> Iterator[Diagnostic]:
    """Find boxes that are half placed: a row without a column, or cells without a grid."""
    needs_grid: list[Component] = []
    for i, c in enumerate(document.components):
        if c.pos is not None:
            continue
        if (c.row is None) != (c.col is None):
            name = "col" if c.col is None else "row"
            path = json_path(("components", i, name))
            message = "A box in the grid needs both row and col."
            yield error("field/missing", path, c.id, message, f"Add {name!r}.")
        if c.row is not None or c.col is not None:
            needs_grid.append(c)
        if document.layout is not None and c.col is not None and c.col >= document.layout.cols:
            path = json_path(("components", i, "col"))
            message = f"The grid has {document.layout.cols} columns, counted from 0."
            yield error("field/value", path, c.id, message, "Raise layout.cols or lower col.")
    if needs_grid and document.layout is None:
        message = "There are row and col, and no grid in which they count."
        fix = "Add a layout, or give the boxes a pos."
        yield error("field/missing", "$.layout", needs_grid[0].id, message, fix)


def _paths(document: Document) -> Iterator[Diagnostic]:
    for i, component in enumerate(document.components):
        for j, source in enumerate(component.sources or ()):
            where = ("components", i, "sources", j)
            parts = source.path.split("/")
            if "\\" in source.path or not parts[0] or ".." in parts:
                message = "A source path starts at the root of the repository and stays inside."
                fix = "Write it like vllm/v1/engine/core.py."
                path = json_path((*where, "path"))
                yield error("field/value", path, component.id, message, fix)
            if source.end_line is not None and source.end_line < (source.line or 1):
                message = "The last line comes before the first."
                fix = "Exchange line and end_line."
                path = json_path((*where, "end_line"))
                yield error("field/value", path, component.id, message, fix)


def _overlaps(document: Document) -> Iterator[Diagnostic]:
    index, names, told = BoxIndex(), list[str](), 0
    for i, component in enumerate(document.components):
        box: Box | None = placed_by_document(component, document.layout)
        if box is None:
            continue
        for other in index.near(box):
            told += 1
            if told > MAX_OVERLAPS:
                return
            message = f"The box lies on {names[other]!r}."
            fix = f"Move one of the two, or make it smaller than {box.w:g} by {box.h:g}."
            location = ("components", i, _placing_field(component))
            yield error("layout/overlap", json_path(location), component.id, message, fix)
        index.add(box)
        names.append(component.id)


def _placing_field(component: Component) -> str:
    return "pos" if component.pos is not None else "row"


def _isolated(document: Document) -> Iterator[Diagnostic]:
    graph = graphs.build(document)
    for i, view in enumerate(document.meta.views):
        for name in graphs.isolated(graph, view.focus):
            path = json_path(("meta", "views", i, "focus", view.focus.index(name)))
            message = f"In the view {view.id!r} nothing connects {name!r} to the others."
            fix = "Add the connection that is missing, or the box between them."
            yield warning("lint/isolated-in-view", path, name, message, fix)


def _no_return(document: Document) -> Iterator[Diagnostic]:
    places = {c.id: i for i, c in enumerate(document.components)}
    for name in graphs.clients_without_return(graphs.build(document)):
        path = json_path(("components", places[name]))
        message = f"{name!r} asks, and no connection brings anything back to it."
        fix = "Draw the way of the answer."
        yield warning("lint/no-return-path", path, name, message, fix)


def _unbound(document: Document, bindings: Bindings) -> Iterator[Diagnostic]:
    """Tell what is static on a map that is live, and which engine box the map leaves out."""
    if not bindings.live:
        message = "No component of this document has a live counterpart; the map is static."
        fix = "Nothing, for another system's map; else bind it in views/document/bindings.py."
        yield warning("lint/unbound", "$.components", document.meta.title, message, fix)
        return
    for i, component in enumerate(document.components):
        if component.id not in bindings.components:
            message = "The component has no live counterpart and is drawn as static."
            fix = "Use an id of the engine, or bind it in views/document/bindings.py."
            path = json_path(("components", i))
            yield warning("lint/unbound", path, component.id, message, fix)
    for name in ENGINE_COMPONENTS:
        if name not in bindings.components.values():
            message = f"The engine's {name!r} is not on the map; its events light nothing."
            fix = f"Add a component with the id {name!r}, or bind one to it."
            yield warning("lint/unbound", "$.components", name, message, fix)


def _unverified(document: Document, sources: VerifiedSources) -> Iterator[Diagnostic]:
    for i, component in enumerate(document.components):
        verified = {(s.path, s.first, s.last) for s in sources.of(component.id)}
        for j, source in enumerate(component.sources or ()):
            if (source.path, source.line, source.end_line or source.line) in verified:
                continue
            path = json_path(("components", i, "sources", j))
            message = f"The range pinned in {source.path} is not verified."
            fix = "Look the symbol up, and add it to the file of verified sources."
            yield warning("lint/source-unverified", path, component.id, message, fix)
