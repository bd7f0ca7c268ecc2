"""The document as the browser receives it: everything placed, bound and linked already.

`PageDocument` is the contract with the page's JavaScript, which draws it and computes nothing.
All positions are in the units of `view_box`; `label_at` is the middle of a label's text and
`label_size` its estimated extent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from views.document import graph as graphs
from views.document import labels, layout, routing
from views.document.bindings import Bindings, code_of
from views.document.claims import Marks, PageMark, marks_of
from views.document.diagnostics import Diagnostic, Location, json_path
from views.document.geometry import Box, Point, around, centred
from views.document.model import Component, Document
from views.document.sources import VerifiedSources, pinned_url

MARGIN = 24.0
WHOLE = "all"  # the id of the view that a document without views gets
UNVERIFIED = "pinned by the document, not verified"


class PageCode(TypedDict):
    """A file of this project and the class or function in it."""

    path: str
    symbol: str


class PageVerifiedSource(TypedDict):
    """A symbol of vLLM that was looked up at a release; a whole file goes by its name."""

    path: str
    symbol: str
    first: int
    last: int
    url: str


class PagePinnedSource(TypedDict):
    """A range that the document pins; `status` says that nobody has verified it."""

    path: str
    line: int | None
    end_line: int | None
    label: str
    url: str | None
    status: str


class PageNote(TypedDict):
    """What can be said against a part of the document, where a reader meets that part."""

    code: str
    path: str
    message: str
    fix: str


class PageComponent(TypedDict):
    """A box; `live` is the engine's name for it, or None where it is static."""

    id: str
    type: str
    label: str
    sublabel: str
    tag: str
    x: float
    y: float
    w: float
    h: float
    live: str | None
    code: list[PageCode]
    verified_sources: list[PageVerifiedSource]
    pinned_sources: list[PagePinnedSource]
    upstream: list[str]
    downstream: list[str]
    notes: list[PageNote]
    claims: list[PageMark]
    source_claims: list[PageMark]


class PageBoundary(TypedDict):
    """A frame, with room for its title above the boxes."""

    kind: str
    label: str
    wraps: list[str]
    x: float
    y: float
    w: float
    h: float


# "from" is a word of Python, so this one cannot be written as a class.
PageConnection = TypedDict(
    "PageConnection",
    {
        "id": str,
        "from": str,
        "to": str,
        "label": str,
        "variant": str,
        "width": float | None,
        "points": list[list[float]],
        "label_at": list[float] | None,
        "label_size": list[float] | None,
        "live": str | None,
    },
)


class PageView(TypedDict):
    """A view: its tab, and what it puts in focus."""

    id: str
    label: str
    focus: list[str]
    note: str
    notes: list[PageNote]
    claims: list[PageMark]


class PageCard(TypedDict):
    """A note beside the map; `claims` are its title's, then those of each item."""

    dot: str
    title: str
    items: list[str]
    claims: list[list[PageMark]]


class PageMeta(TypedDict):
    """What the map is called; `claims` are also those of its arrows and frames."""

    title: str
    subtitle: str
    claims: list[PageMark]


class PageDocument(TypedDict):
    """The whole map. `live` is False for a document that the engine lights nothing of.

    `release` is the release of vLLM in which the verified sources were looked up, "" without any;
    `request_path` are the boxes in the order in which a request reaches them.
    """

    meta: PageMeta
    live: bool
    release: str
    view_box: list[float]
    components: list[PageComponent]
    boundaries: list[PageBoundary]
    connections: list[PageConnection]
    views: list[PageView]
    cards: list[PageCard]
    request_path: list[str]


def page_document(
    document: Document,
    bindings: Bindings,
    sources: VerifiedSources,
    diagnostics: Iterable[Diagnostic] = (),
) -> PageDocument:
    """Return a legal document as the page draws it; see `PageDocument`."""
    notes = _Notes(diagnostics)
    boxes = layout.place(document)
    frames = layout.frames(document, boxes)
    graph = graphs.build(document)
    connections = _connections(document, bindings, boxes, frames)
    marks = marks_of(document, bindings)
    return PageDocument(
        meta=PageMeta(
            title=document.meta.title,
            subtitle=document.meta.subtitle or "",
            claims=marks.meta,
        ),
        live=bindings.live,
        release=sources.release,
        view_box=_view_box(document, [*boxes.values(), *frames], connections),
        components=_components(document, bindings, sources, boxes, graph, notes, marks),
        boundaries=_boundaries(document, frames),
        connections=connections,
        views=_views(document, notes, marks),
        cards=[
            PageCard(dot=c.dot, title=c.title, items=list(c.items), claims=marks.cards[i])
            for i, c in enumerate(document.cards)
        ],
        request_path=graphs.request_path(graph),
    )


class _Notes:
    """The warnings of a document, by the part that they are about."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self._found = [item for item in diagnostics if item.severity == "warning"]

    def at(self, location: Location) -> list[PageNote]:
        """Return what is said of this part or of something in it."""
        here = json_path(location)
        return [
            PageNote(code=item.code, path=item.path, message=item.message, fix=item.fix)
            for item in self._found
            if item.path == here or item.path.startswith((f"{here}.", f"{here}["))
        ]


def _views(document: Document, notes: _Notes, marks: Marks) -> list[PageView]:
    """Return the document's views; one that shows everything where it has none."""
    if not document.meta.views:
        everything = [c.id for c in document.components]
        return [PageView(id=WHOLE, label="All", focus=everything, note="", notes=[], claims=[])]
    return [
        PageView(
            id=v.id,
            label=v.label,
            focus=list(v.focus),
            note=v.note or "",
            notes=notes.at(("meta", "views", i)),
            claims=marks.views[i],
        )
        for i, v in enumerate(document.meta.views)
    ]


def _components(
    document: Document,
    bindings: Bindings,
    sources: VerifiedSources,
    boxes: dict[str, Box],
    graph: graphs.Graph,
    notes: _Notes,
    marks: Marks,
) -> list[PageComponent]:
    onward = graphs.forward(graph)
    return [
        PageComponent(
            id=c.id,
            type=c.type,
            label=c.label,
            sublabel=c.sublabel or "",
            tag=c.tag or "",
            x=boxes[c.id].x,
            y=boxes[c.id].y,
            w=boxes[c.id].w,
            h=boxes[c.id].h,
            live=bindings.components.get(c.id),
            code=[
                PageCode(path=code.path, symbol=code.symbol)
                for code in code_of(bindings.components.get(c.id))
            ],
            verified_sources=_verified(c.id, sources),
            pinned_sources=_pinned(document, c),
            upstream=graphs.upstream(onward, c.id),
            downstream=graphs.downstream(onward, c.id),
            notes=notes.at(("components", i)),
            claims=marks.components[i],
            source_claims=marks.sources[i],
        )
        for i, c in enumerate(document.components)
    ]


def _verified(component: str, sources: VerifiedSources) -> list[PageVerifiedSource]:
    return [
        PageVerifiedSource(
            path=source.path,
            symbol=source.name,
            first=source.first,
            last=source.last,
            url=sources.url(source),
        )
        for source in sources.of(component)
    ]


def _pinned(document: Document, component: Component) -> list[PagePinnedSource]:
    return [
        PagePinnedSource(
            path=source.path,
            line=source.line,
            end_line=source.end_line,
            label=source.label or "",
            url=pinned_url(document.meta.repository, source),
            status=UNVERIFIED,
        )
        for source in component.sources or ()
    ]


def _boundaries(document: Document, frames: list[Box]) -> list[PageBoundary]:
    return [
        PageBoundary(
            kind=boundary.kind,
            label=boundary.label,
            wraps=list(boundary.wraps),
            x=frame.x,
            y=frame.y,
            w=frame.w,
            h=frame.h,
        )
        for boundary, frame in zip(document.boundaries, frames, strict=True)
    ]


def _connections(
    document: Document, bindings: Bindings, boxes: dict[str, Box], frames: list[Box]
) -> list[PageConnection]:
    lines = routing.route(document, boxes)
    spots = labels.place(document, boxes, lines, frames)
    letters = labels.letters_of(document)
    result: list[PageConnection] = []
    for number, own in enumerate(document.connection_ids()):
        edge, spot = document.connections[number], spots[number]
        result.append(
            {
                "id": own,
                "from": edge.source,
                "to": edge.target,
                "label": edge.label or "",
                "variant": edge.variant,
                "width": edge.width,
                "points": [_rounded(point) for point in lines[number]],
                "label_at": None if spot is None else _rounded(spot),
                "label_size": spot and list(labels.size(edge.label or "", letters)),
                "live": bindings.connections.get(own),
            }
        )
    return result


def _rounded(point: Point) -> list[float]:
    return [round(point[0], 1), round(point[1], 1)]


def _view_box(
    document: Document, areas: list[Box], connections: list[PageConnection]
) -> list[float]:
    """Return a picture that holds everything, and at least what the document asks for."""
    for edge in connections:
        areas += [Box(x, y, 0, 0) for x, y in edge["points"]]
        if edge["label_at"] and edge["label_size"]:
            x, y = edge["label_at"]
            areas.append(centred((x, y), *edge["label_size"]))
    whole = around(areas).grown(MARGIN)
    if document.meta.view_box is not None:
        whole = around([Box(0, 0, *document.meta.view_box), whole.grown(-MARGIN)])
    return [round(number, 1) for number in whole]
