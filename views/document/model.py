"""The architecture document: one pydantic model for each thing the format knows.

The format is that of the public project archify (schema version 1, diagram type architecture).
Every model is strict and forbids unknown fields; what a single field cannot know (unknown ids,
overlaps, absurd sizes) is checked in `views.document.checks`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

ComponentType = Literal[
    "frontend", "backend", "database", "cloud", "security", "messagebus", "external"
]
BoundaryKind = Literal["region", "security-group"]
Variant = Literal["default", "emphasis", "security", "dashed"]
Side = Literal["left", "right", "top", "bottom"]
Route = Literal["auto", "straight", "orthogonal-h", "orthogonal-v"]
Dot = Literal["cyan", "emerald", "violet", "amber", "rose", "orange", "slate"]

# The format has no limit; a map does, and so has the time that a server gives to one document.
MAX_COMPONENTS = 1000
MAX_CONNECTIONS = 2000

Point = tuple[float, float]
Identifier = Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_-]*\z")]
Text = Annotated[str, Field(min_length=1)]
# A word, or an address that is shown and never fetched.
BrandWord = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\r\n]+\z")]
BrandUrl = Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s]+\z")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)


class BrandMark(_Model):
    """A brand by address and digest."""

    url: BrandUrl
    sha256: Annotated[str, Field(pattern=r"^[a-f0-9]{64}\z")]


class Source(_Model):
    """A place in the repository that the document pins to a component."""

    path: Annotated[str, Field(min_length=1, max_length=240)]
    line: Annotated[int, Field(ge=1)] | None = None
    end_line: Annotated[int, Field(ge=1)] | None = None
    label: Annotated[str, Field(min_length=1, max_length=48)] | None = None


class Component(_Model):
    """A box. Without `pos` and without `row`/`col` it is laid out from the connections."""

    id: Identifier
    type: ComponentType
    label: Text
    sublabel: str | None = None
    tag: str | None = None
    brand: BrandWord | BrandUrl | BrandMark | None = None
    sources: Annotated[list[Source], Field(min_length=1, max_length=3)] | None = None
    row: Annotated[int, Field(ge=0)] | None = None
    col: Annotated[int, Field(ge=0)] | None = None
    pos: Point | None = None
    size: Point | None = None


class Boundary(_Model):
    """A frame around the components it wraps."""

    kind: BoundaryKind
    label: Text
    wraps: Annotated[list[Identifier], Field(min_length=1)]
    pad: Annotated[float, Field(ge=0)] | None = None


class Connection(_Model):
    """An arrow from one component to another."""

    id: Identifier | None = None
    source: Identifier = Field(alias="from")
    target: Identifier = Field(alias="to")
    label: str | None = None
    variant: Variant = "default"
    from_side: Side | None = Field(default=None, alias="fromSide")
    to_side: Side | None = Field(default=None, alias="toSide")
    route: Route = "auto"
    via: list[Point] | None = None
    label_at: Point | None = Field(default=None, alias="labelAt")
    label_dx: float | None = Field(default=None, alias="labelDx")
    label_dy: float | None = Field(default=None, alias="labelDy")
    label_segment: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="labelSegment")
    width: Annotated[float, Field(ge=0.5)] | None = None


class View(_Model):
    """A reader's path: the components in focus, and what to look for."""

    id: Identifier
    label: Annotated[str, Field(min_length=1, max_length=48)]
    focus: Annotated[list[Identifier], Field(min_length=1)]
    note: Annotated[str, Field(max_length=140)] | None = None


class Card(_Model):
    """A short note beside the map."""

    dot: Dot
    title: Text
    items: list[str]


class Grid(_Model):
    """The grid in which `row` and `col` count."""

    mode: Literal["grid"]
    origin: Point = (40.0, 100.0)
    cols: Annotated[int, Field(ge=1, le=12)] = 12
    gap_x: Annotated[float, Field(ge=0)] = Field(default=60.0, alias="gapX")
    gap_y: Annotated[float, Field(ge=0)] = Field(default=60.0, alias="gapY")
    cell_w: Annotated[float, Field(ge=40)] = Field(default=130.0, alias="cellW")
    cell_h: Annotated[float, Field(ge=24)] = Field(default=60.0, alias="cellH")


class Repository(_Model):
    """The repository, at one full revision, that `sources` point into."""

    url: Text
    revision: Annotated[str, Field(pattern=r"^[a-fA-F0-9]{40}\z")]
    provider: Literal["github", "gitee"] = "github"
    link_mode: Literal["web", "local-only"] = "web"


class LegendEntry(_Model):
    """What the legend says of one component type."""

    label: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    visible: bool | None = None


class LegendEntries(_Model):
    """The legend, by component type."""

    frontend: LegendEntry | None = None
    backend: LegendEntry | None = None
    database: LegendEntry | None = None
    cloud: LegendEntry | None = None
    security: LegendEntry | None = None
    messagebus: LegendEntry | None = None
    external: LegendEntry | None = None


class Legend(_Model):
    """Whether and how the legend is drawn."""

    mode: Literal["auto", "all", "hidden"] = "auto"
    entries: LegendEntries | None = None


class Meta(_Model):
    """The document about itself; its unknown fields are warnings, not errors."""

    title: Text
    subtitle: str | None = None
    output: str | None = None
    animation: Literal["trace", "none"] | None = None
    visual_preset: Literal["classic", "signal-flow", "blueprint", "editorial"] | None = None
    quality_profile: Literal["standard", "showcase"] | None = None
    engineering_profile: Literal["deployment-ownership"] | None = None
    locale: Literal["en", "zh-CN"] | None = None
    legend: Legend | None = None
    view_box: tuple[Annotated[float, Field(ge=320)], Annotated[float, Field(ge=240)]] | None = (
        Field(default=None, alias="viewBox")
    )
    repository: Repository | None = None
    views: Annotated[list[View], Field(max_length=5)] = Field(default_factory=list)


class Document(_Model):
    """A whole `architecture.json`."""

    # An int in bounds and not Literal[1], which would take `true` and `1.0` for 1.
    schema_version: Annotated[int, Field(ge=1, le=1)]
    diagram_type: Literal["architecture"]
    meta: Meta
    layout: Grid | None = None
    components: Annotated[list[Component], Field(min_length=1, max_length=MAX_COMPONENTS)]
    boundaries: Annotated[list[Boundary], Field(max_length=500)] = Field(default_factory=list)
    connections: Annotated[list[Connection], Field(max_length=MAX_CONNECTIONS)] = Field(
        default_factory=list
    )
    cards: Annotated[list[Card], Field(max_length=500)] = Field(default_factory=list)

    def connection_ids(self) -> list[str]:
        """Return one stable id for each connection: its own, or `from-to`, numbered if taken."""
        taken = {edge.id for edge in self.connections if edge.id is not None}
        ids: list[str] = []
        for edge in self.connections:
            name = edge.id
            if name is None:
                name = _free_name(f"{edge.source}-{edge.target}", taken)
                taken.add(name)
            ids.append(name)
        return ids


def _free_name(stem: str, taken: set[str]) -> str:
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    return name
