"""From bytes to a `Document`: file, text, JSON and field errors become diagnostics.

Nothing here raises on bad input. JSON is read by hand-set rules before pydantic sees it, because
Python's parser takes NaN, Infinity and duplicate keys silently and dies of deep nesting.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from engine.file_kinds import BINARY, DOCUMENT, JSON_FILE, TEXT, kind_of, kind_of_text
from views.document.diagnostics import Diagnostic, error, has_errors, json_path, shorten, warning
from views.document.model import Document

MAX_BYTES = 2_000_000
MAX_DEPTH = 32
MAX_FOUND = 200  # a file with more faults than that is another kind of file

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"?|[\[{]|[\]}]|-?(?:NaN|Infinity)', re.DOTALL)
_Step = str | int
_Leaf = tuple[tuple[_Step, ...], Any]


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its keys came twice."""

    repeated: tuple[str, ...] = ()


def read_file(path: Path) -> tuple[str | None, list[Diagnostic]]:
    """Return the text of a file, or why there is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = getattr(problem, "strerror", None) or str(problem)
        fix = "Name a file that exists and that you may read."
        return None, [error("file/unreadable", "$", str(path), f"{reason}.", fix)]
    return decode(data)


def decode(data: bytes) -> tuple[str | None, list[Diagnostic]]:
    """Return the bytes as text, or why they are none."""
    if len(data) > MAX_BYTES:
        return None, [_too_large()]
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError as problem:
        message = f"Byte {problem.start} (0x{data[problem.start]:02x}) is not UTF-8."
        kind = kind_of(data)
        if kind is not BINARY:
            message = f"{message} It is {kind.what}."
        return None, [
            error("file/not-utf8", "$", "", message, kind.where or "Save the file as UTF-8.")
        ]


def parse(text: str) -> tuple[Document | None, list[Diagnostic]]:
    """Return the document in a text, or the errors that keep it from being one."""
    found = _check_text(text)
    if found:
        return None, found
    try:
        raw = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        kind = kind_of_text(text)
        if kind not in (DOCUMENT, JSON_FILE, TEXT, BINARY):
            return None, [_syntax(f"This is {kind.what}, and no document.", kind.where)]
        return None, [_syntax(f"{problem.msg} at {where}.")]
    except (ValueError, RecursionError) as problem:  # an integer of over 4,300 digits
        return None, [_syntax(f"{shorten(str(problem))}.")]
    found = _check_values(raw)
    if has_errors(found):
        return None, found
    return _validate(raw)


def _too_large() -> Diagnostic:
    message = f"The document is larger than {MAX_BYTES:,} bytes."
    return error("file/too-large", "$", "", message, "Split it into several documents.")


def _syntax(message: str, fix: str = "") -> Diagnostic:
    return error("json/syntax", "$", "", message, fix or "Correct the JSON at that place.")


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    result = _Object(pairs)
    if len(result) < len(pairs):
        times = Counter(key for key, _ in pairs)
        result.repeated = tuple(key for key in result if times[key] > 1)
    return result


def _check_text(text: str) -> list[Diagnostic]:
    """Find what must be known before parsing: size, depth, and numbers that are none."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return [_too_large()]
    depth = 0
    for token in _TOKEN.finditer(text):
        first = token.group()[0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                where = _line_and_column(text, token.start())
                message = f"More than {MAX_DEPTH} levels are open at {where}."
                return [error("json/too-deep", "$", "", message, "Flatten the document.")]
        elif first in "]}":
            depth -= 1
        elif first != '"':
            where = _line_and_column(text, token.start())
            message = f"{token.group()} at {where} is not JSON."
            return [error("json/non-finite", "$", token.group(), message, "Write a finite number.")]
    return []


def _line_and_column(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    column = index - text.rfind("\n", 0, index)
    return f"line {line}, column {column}"


def _check_values(raw: Any) -> list[Diagnostic]:
    """Find values that Python's parser lets through and the format has no place for."""
    found: list[Diagnostic] = []
    for location, value in _walk(raw):
        path = json_path([_readable(step) for step in location])
        if isinstance(value, _Object):
            found += [_repeated(path, key) for key in value.repeated]
            if any(_broken(key) for key in value):
                found.append(_bad_text(path, "A key"))
        elif isinstance(value, str) and _broken(value):
            found.append(_bad_text(path, "The text"))
        elif isinstance(value, float) and not math.isfinite(value):
            message = "The number is too large to be one."
            found.append(error("json/non-finite", path, "", message, "Write a smaller number."))
        elif value is None:
            fix = "Leave the field out, or give it a value."
            found.append(error("field/value", path, "", "The format knows no null.", fix))
        if len(found) >= MAX_FOUND:
            break
    return found


def _walk(raw: Any) -> Iterator[_Leaf]:
    """Yield every value with its location, in the order of the text."""
    stack: list[_Leaf] = [((), raw)]
    while stack:
        location, value = stack.pop()
        yield location, value
        items: list[tuple[_Step, Any]] = []
        if isinstance(value, dict):
            items = list(value.items())
        elif isinstance(value, list):
            items = list(enumerate(value))
        stack.extend(((*location, key), child) for key, child in reversed(items))


def _broken(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _readable(step: _Step) -> _Step:
    if isinstance(step, int):
        return step
    return step.encode("utf-8", "backslashreplace").decode()


def _repeated(path: str, key: str) -> Diagnostic:
    message = f"The key {shorten(_readable_key(key))!r} is there more than once."
    fix = "Keep one of them; a parser silently drops the others."
    return error("json/duplicate-key", path, _readable_key(key), message, fix)


def _readable_key(key: str) -> str:
    return str(_readable(key))


def _bad_text(path: str, what: str) -> Diagnostic:
    message = f"{what} holds half of a surrogate pair."
    return error("json/bad-text", path, "", message, "Write the whole character.")


def _validate(raw: Any) -> tuple[Document | None, list[Diagnostic]]:
    """Validate; unknown fields of `meta` are taken out, told of, and do no harm."""
    warnings: list[Diagnostic] = []
    while True:
        try:
            return Document.model_validate_json(json.dumps(raw)), warnings
        except ValidationError as problem:
            details = problem.errors(include_url=False)
        unknown = [item for item in details if _is_unknown_in_meta(item)]
        details.sort(key=_is_unknown_in_meta)  # so that no error is cut off for a warning
        found = [_diagnostic(item, raw) for item in details[:MAX_FOUND]]
        if not unknown or len(unknown) < len(details):
            return None, warnings + _without_repeats(found)
        warnings += found
        for item in unknown:
            _remove(raw, item["loc"])


def _is_unknown_in_meta(item: ErrorDetails) -> bool:
    return item["type"] == "extra_forbidden" and item["loc"][0] == "meta"


def _remove(raw: Any, location: tuple[_Step, ...]) -> None:
    *parents, last = location
    for step in parents:
        raw = raw[step]
    del raw[last]


def _diagnostic(item: ErrorDetails, raw: Any) -> Diagnostic:
    """Turn one of pydantic's errors into ours."""
    location = _real_location(item, raw)
    path, subject = json_path(location), _subject(location, raw)
    kind, message = item["type"], f"{shorten(item['msg'], 200)}."
    if kind == "missing":
        return error("field/missing", path, subject, message, f"Add {location[-1]!r}.")
    if kind == "extra_forbidden":
        name = shorten(str(location[-1]))
        report = warning if location[0] == "meta" else error
        text = f"The format knows no field {name!r} here."
        return report("field/unknown", path, subject, text, "Remove it, or correct its name.")
    if kind == "too_short" and isinstance(item["input"], list) and not item["input"]:
        return error("list/empty", path, subject, message, "Name at least one entry.")
    if kind == "too_long" and "Tuple" not in message:
        return error("list/too-long", path, subject, message, "Shorten the list.")
    return error("field/value", path, subject, message, "Give it a value of the format.")


def _real_location(item: ErrorDetails, raw: Any) -> tuple[_Step, ...]:
    """Drop the steps that name a branch of one of our unions rather than a place in the file."""
    location, real = item["loc"], list[_Step]()
    for position, step in enumerate(location):
        inside = isinstance(raw, dict) and step in raw
        inside = inside or (isinstance(raw, list) and isinstance(step, int) and step < len(raw))
        if inside:
            raw = raw[step]
            real.append(step)
        elif position == len(location) - 1 and item["type"] == "missing":
            real.append(step)
    return tuple(real)


def _subject(location: tuple[_Step, ...], raw: Any) -> str:
    """Name the nearest thing around a location that has an id, a label or a title."""
    subject = ""
    for step in location:
        if isinstance(raw, dict):
            names = [raw.get(key) for key in ("id", "label", "title")]
            subject = next((name for name in names if isinstance(name, str)), subject)
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            break
    return subject


def _without_repeats(found: list[Diagnostic]) -> list[Diagnostic]:
    """Keep one finding a place: a union reports each of its branches."""
    return list({(item.code, item.path): item for item in found}.values())
