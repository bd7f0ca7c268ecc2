"""The architecture document: load it, judge it, hand it to the page.

    python -m views.architecture FILE

prints what can be said against a file and ends with 0 (no errors), 1 (errors) or 2 (the file
cannot be read). The rest is in `views.document`: the models in `model`, what the browser gets in
`drawing`.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from engine.terminal import LAYOUT, escaped
from views.document import checks
from views.document.bindings import Bindings, bind
from views.document.diagnostics import CODES, Diagnostic, has_errors
from views.document.drawing import PageDocument, page_document
from views.document.model import Document
from views.document.reading import decode, parse, read_file
from views.document.sources import VerifiedSources, load_sources, sources_path

__all__ = [
    "CODES",
    "DEFAULT_DOCUMENT",
    "SHIPPED",
    "Bindings",
    "Diagnostic",
    "Document",
    "LoadResult",
    "PageDocument",
    "bind",
    "last_changed",
    "load_document",
    "load_page",
    "main",
    "page_document",
    "start_document",
]

DEFAULT_DOCUMENT = Path(__file__).resolve().parent.parent / "architecture.json"
# What comes with the project: the engine's own map first.
SHIPPED = (DEFAULT_DOCUMENT, DEFAULT_DOCUMENT.parent / "docs/process-topology.architecture.json")
START_VARIABLE = "DOCUMENT"  # names the document that every visitor sees first
UNREADABLE = ("file/unreadable", "file/not-utf8")


@dataclass(frozen=True)
class LoadResult:
    """A document, or why there is none, and all that can be said about it."""

    document: Document | None
    diagnostics: list[Diagnostic]
    sources: VerifiedSources = field(default_factory=VerifiedSources)

    @property
    def ok(self) -> bool:
        """Say whether there is a document to draw."""
        return self.document is not None

    @property
    def title(self) -> str:
        """Return the document's title; nothing where there is no document."""
        return "" if self.document is None else self.document.meta.title

    @property
    def bindings(self) -> Bindings:
        """Return what the engine calls the things of the document."""
        return Bindings() if self.document is None else bind(self.document)

    def to_page(self) -> PageDocument:
        """Return the document for the browser; raise ValueError where there is none."""
        if self.document is None:
            raise ValueError("; ".join(str(item) for item in self.diagnostics))
        return page_document(self.document, self.bindings, self.sources, self.diagnostics)


def start_document() -> Path:
    """Return the document that every visitor sees first."""
    named = os.environ.get(START_VARIABLE, "").strip()
    return Path(named).expanduser().resolve() if named else DEFAULT_DOCUMENT


def load_document(source: Path | str | bytes) -> LoadResult:
    """Load a document from a file (a `Path`) or from its text (a `str` or `bytes`).

    Nothing is raised on bad input, and nothing is fetched. The verified sources beside a file are
    loaded with it.
    """
    if isinstance(source, Path):
        text, found = read_file(source)
        sources, notes = load_sources(source) if text is not None else (VerifiedSources(), [])
    else:
        text, found = (source, []) if isinstance(source, str) else decode(source)
        sources, notes = VerifiedSources(), []
    if text is None:
        return LoadResult(None, found)
    return _judge(text, sources, notes)


def load_page(path: Path = DEFAULT_DOCUMENT) -> PageDocument:
    """Load a file and return it for the browser; raise ValueError where it has errors."""
    return load_document(path).to_page()


def last_changed(path: Path = DEFAULT_DOCUMENT) -> tuple[int, ...]:
    """Return when a document's files were written last; whatever is loaded holds until then."""
    files = (path, sources_path(path))
    return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)


def _judge(text: str, sources: VerifiedSources, notes: list[Diagnostic]) -> LoadResult:
    document, found = parse(text)
    found = found + notes
    if document is None:
        return LoadResult(None, found, sources)
    found += checks.errors(document)
    if has_errors(found):
        return LoadResult(None, found, sources)
    found += checks.lint(document, bind(document), sources)
    return LoadResult(document, found, sources)


def main(arguments: list[str] | None = None) -> int:
    """Print the diagnostics of a file and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m views.architecture",
        description="Check an architecture document.",
        epilog="Exit status: 0 no errors, 1 errors, 2 the file cannot be read.",
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    result = load_document(parser.parse_args(arguments).file)
    _print(result.diagnostics)
    if any(item.code in UNREADABLE for item in result.diagnostics):
        return 2
    return 1 if has_errors(result.diagnostics) else 0


def _print(diagnostics: list[Diagnostic]) -> None:
    count = sum(1 for item in diagnostics if item.severity == "error")
    lines = [escaped(str(item), LAYOUT) for item in diagnostics]
    lines.append(f"{count} errors, {len(diagnostics) - count} warnings")
    # A terminal that is not UTF-8 gets escapes, and a reader that has left (`| head`) is no fault.
    encoding = sys.stdout.encoding or "utf-8"
    text = "\n".join(lines).encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
