"""What can be said against a document: one record and the list of its stable codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
Location = Sequence[str | int]

# Every code that can appear, with what it stands for. Codes are stable: tests, lessons and people
# refer to them; add to the list, rename nothing.
CODES: dict[str, str] = {
    "file/unreadable": "the file is missing, a directory, or may not be read",
    "file/refused": "a path that does not stay inside the folder of documents",
    "file/not-utf8": "the bytes are not UTF-8 text",
    "file/too-large": "the document is over 2 MB",
    "json/syntax": "the text is not JSON",
    "json/non-finite": "NaN, Infinity, or a number too large to be one",
    "json/too-deep": "objects and lists are nested absurdly deep",
    "json/duplicate-key": "an object has one key twice",
    "json/bad-text": "a text holds half of a surrogate pair",
    "field/missing": "a field that must be there is not",
    "field/unknown": "a field that the format does not know (in meta: a warning)",
    "field/value": "a field has the wrong type or a value outside its range",
    "list/empty": "focus, wraps or another list is empty",
    "list/too-long": "a list has more entries than the format or the map bears",
    "id/duplicate": "two things have one id, or a list names one id twice",
    "id/unknown": "focus, wraps, from or to names a component that is not there",
    "size/not-positive": "a box has no width or no height",
    "size/absurd": "a size or coordinate beyond anything that can be drawn",
    "layout/overlap": "two boxes lie on each other",
    "lint/isolated-in-view": "a component in a view has no connection to the rest of the view",
    "lint/no-return-path": "nothing comes back to the external client",
    "lint/unbound": "a component of a live map, or an engine box, without its counterpart",
    "lint/source-unverified": "a pinned source range that nobody has checked",
    "sources/unreadable": "the file of verified sources beside the document is not legal",
}


@dataclass(frozen=True)
class Diagnostic:
    """One finding: what, how bad, where (JSON path), on whom, and what to do about it."""

    code: str
    severity: Severity
    path: str
    subject: str
    message: str
    fix: str

    def __str__(self) -> str:
        """Return one printable line; what the document says cannot steer the terminal."""
        head = f"{self.severity} {self.code} {self.path}"
        subject = f" [{self.subject}]" if self.subject else ""
        return _printable(f"{head}{subject}: {self.message} Fix: {self.fix}")


def error(code: str, path: str, subject: str, message: str, fix: str) -> Diagnostic:
    """Return an error: the document cannot be drawn."""
    return _record(code, "error", path, subject, message, fix)


def warning(code: str, path: str, subject: str, message: str, fix: str) -> Diagnostic:
    """Return a warning: it can be drawn, and something about it deserves a look."""
    return _record(code, "warning", path, subject, message, fix)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Say whether one of them is an error."""
    return any(item.severity == "error" for item in diagnostics)


def json_path(location: Location) -> str:
    """Return `$.components[3].size` for `("components", 3, "size")`."""
    parts = ["$"]
    for step in location:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif step.replace("_", "a").replace("-", "a").isalnum():
            parts.append(f".{step}")
        else:
            parts.append(f"[{shorten(step)!r}]")
    return "".join(parts)


def shorten(text: str, limit: int = 80) -> str:
    """Return the text, cut where it is too long to be read in a line."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _record(
    code: str, severity: Severity, path: str, subject: str, message: str, fix: str
) -> Diagnostic:
    if code not in CODES:
        raise KeyError(code)
    return Diagnostic(code, severity, path, shorten(subject), message, fix)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
