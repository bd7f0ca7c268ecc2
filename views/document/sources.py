"""Verified sources: where each component stands in vLLM, by symbol, at a release.

They lie in a file of their own beside the document (`architecture.json` has
`architecture.sources.json`), because the document's format pins line ranges at one revision, and
that revision could not be read. A symbol at a tag was looked up; a pinned range was not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from views.document.diagnostics import Diagnostic, warning
from views.document.model import Repository, Source
from views.document.reading import read_file


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class VerifiedSource(_Model):
    """The lines on which a symbol stands, or lines of a file that are more than one."""

    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\z")]
    symbol: Annotated[str, Field(min_length=1)] | None = None
    first: Annotated[int, Field(ge=1)]
    last: Annotated[int, Field(ge=1)]

    @property
    def name(self) -> str:
        """Return what the lines are called: their symbol, else their file."""
        return self.symbol or self.path.rsplit("/", 1)[-1]

    @model_validator(mode="after")
    def _in_order(self) -> VerifiedSource:
        if self.last < self.first:
            raise ValueError("the last line comes before the first")
        return self


class VerifiedSources(_Model):
    """All verified sources of a document, by component."""

    repository: Annotated[str, Field(pattern=r"^https://github\.com/[\w.-]+/[\w.-]+\z")] = (
        "https://github.com/vllm-project/vllm"
    )
    tag: Annotated[str, Field(pattern=r"^[\w.-]+\z")] = "v0.26.0"
    components: dict[str, list[VerifiedSource]] = Field(default_factory=dict)

    @property
    def release(self) -> str:
        """Return the number of the release; "" where nothing was looked up in it."""
        return self.tag.removeprefix("v") if self.components else ""

    def of(self, component: str) -> list[VerifiedSource]:
        """Return the sources of a component; there may be none."""
        return self.components.get(component, [])

    def url(self, source: VerifiedSource) -> str:
        """Return the address of a source at the release."""
        lines = f"#L{source.first}-L{source.last}"
        return f"{self.repository}/blob/{self.tag}/{source.path}{lines}"


def sources_path(document_path: Path) -> Path:
    """Return where the verified sources of a document lie: beside it."""
    return document_path.with_name(f"{document_path.stem}.sources.json")


def load_sources(document_path: Path) -> tuple[VerifiedSources, list[Diagnostic]]:
    """Return the verified sources beside a document; none where there is no such file."""
    path = sources_path(document_path)
    if not path.is_file():
        return VerifiedSources(), []
    text, found = read_file(path)
    if text is None:
        return VerifiedSources(), [_unreadable(path, found[0].message)]
    try:
        return VerifiedSources.model_validate_json(text), []
    except ValidationError as problem:
        return VerifiedSources(), [_unreadable(path, problem.errors()[0]["msg"])]


def _unreadable(path: Path, why: str) -> Diagnostic:
    message = f"The verified sources are left out: {why}"
    return warning("sources/unreadable", "$", path.name, message, "Correct that file.")


def pinned_url(repository: Repository | None, source: Source) -> str | None:
    """Return the address that the document pins; None where it has no public repository."""
    if repository is None or repository.link_mode != "web":
        return None
    base = repository.url.removesuffix("/").removesuffix(".git")
    if not base.startswith(("https://github.com/", "https://gitee.com/")):
        return None
    lines = "" if source.line is None else f"#L{source.line}"
    if lines and source.end_line is not None:
        lines += f"-L{source.end_line}"
    return f"{quote(base, safe=':/')}/blob/{repository.revision}/{quote(source.path)}{lines}"
