"""The folder of saved logs that the server offers: what is in it, and the way to one of them.

The other end of box `client-req`, beside `exports.py`. No counterpart in vLLM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from engine import strict_json
from engine.api.protocol import ApiError
from engine.folders import NotInFolder, Why, find_inside, what_is_wrong
from engine.trace import SCHEMA_VERSION

VARIABLE = "TRACES"
SUFFIX = ".jsonl"
MOST_LISTED = 1_000  # of the files; those that were written last
MOST_LOOKED_AT = 50_000  # entries of the folder and of those in it
MAX_FILE = 200_000_000  # bytes; the page opens no larger one (`MAX_FILE` in core/trace_file.js)
END_BYTES = 65_536  # read of a file's beginning, and of its end
BEFORE_STATE = b',"state":'  # as text, a quotation mark would have a backslash before it

NOT_OFFERED = "this server offers no saved traces (TRACES= names the folder of them)"
WORDS = {
    Why.NO_PATH: f"it is no path of a {SUFFIX} file inside the folder of traces",
    Why.ROOTED: f"it is no path of a {SUFFIX} file inside the folder of traces",
    Why.SUFFIX: f"it is no path of a {SUFFIX} file inside the folder of traces",
    Why.OUT: "what lies outside of the folder of traces stays closed",
    Why.HIDDEN: "hidden files stay closed",
    Why.MISSING: "there is no such file in the folder of traces",
}


class Listed(NamedTuple):
    """A file of the folder, as far as its two ends tell."""

    path: str  # in the folder, as a link names it
    num_bytes: int
    written: float  # seconds since the epoch
    problem: str = ""  # why the page would not open it, or ""
    trace_id: str | None = None
    model: str | None = None
    step: int | None = None  # of its last record
    num_records: int | None = None


class Listing(NamedTuple):
    """What a folder offers, the file that was written last first."""

    traces: list[Listed]
    left_out: int  # files that are not listed, being older


def traces_folder() -> Path | None:
    """The folder that TRACES names; None where it names none, and the server offers no traces."""
    named = os.environ.get(VARIABLE, "").strip()
    return Path(named).expanduser() if named else None


def find(folder: Path | None, path: str) -> Path:
    """The file that `path` names inside the folder; ApiError where it is not opened."""
    if folder is None:
        raise not_found(NOT_OFFERED)
    try:
        return find_inside(folder, path, SUFFIX)
    except NotInFolder as error:
        raise not_found(WORDS[error.why]) from None


def not_found(why: str) -> ApiError:
    """A 404 that says why."""
    return ApiError(f"path: {why}", 404, param="path")


def listing(folder: Path) -> Listing:
    """The traces in a folder and in those below it; ApiError where it cannot be read."""
    try:
        root = folder.resolve(strict=True)
        os.scandir(root).close()
    except (OSError, RuntimeError):
        raise ApiError(
            "the server's folder of traces cannot be read", 404, param=VARIABLE
        ) from None
    found = sorted(files_of(root), key=lambda item: item[1].st_mtime, reverse=True)
    traces = [listed(root, file, status) for file, status in found[:MOST_LISTED]]
    return Listing(traces, max(0, len(found) - MOST_LISTED))


def files_of(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Each file that has a trace's name and that a link could open or be told why not."""
    seen = 0
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            seen += 1
            if seen > MOST_LOOKED_AT:
                return
            file = Path(place, name)
            if name.startswith(".") or not name.lower().endswith(SUFFIX):
                continue
            try:
                if file.is_symlink() and not file.resolve(strict=True).is_relative_to(root):
                    continue  # out of the folder
                if file.is_file():
                    yield file, file.stat()
            except (OSError, RuntimeError):
                continue  # it is gone, or a link in a circle


def listed(root: Path, file: Path, status: os.stat_result) -> Listed:
    """What can be said of a file by its ends."""
    path = file.relative_to(root).as_posix()
    shown = path.encode("utf-8", "replace").decode()
    known = Listed(shown, status.st_size, status.st_mtime)
    if shown != path or what_is_wrong(path, SUFFIX) is not None:
        return known._replace(problem="no link can name it: give it a shorter or plainer name")
    if status.st_size > MAX_FILE:
        megabytes = MAX_FILE // 1_000_000
        return known._replace(problem=f"larger than the {megabytes} MB that the page takes")
    if status.st_size == 0:
        return known._replace(problem="empty")
    try:
        return by_its_ends(file, known, status.st_mtime_ns, status.st_ctime_ns)
    except OSError:
        return known._replace(problem="the server may not read it")


@lru_cache(maxsize=2 * MOST_LISTED)
def by_its_ends(file: Path, known: Listed, mtime_ns: int, ctime_ns: int) -> Listed:
    """What a file's beginning and end add to what is known; read once as long as it is the same.

    Its size is in `known`. The times are those of its content and of its entry: one of them changes
    with whatever is written, or laid in its place. Raises OSError, which is not remembered.
    """
    with file.open("rb") as content:
        header = header_of(content)
        last = None if header is None else last_record(content, known.num_bytes)
    if header is None:
        return known._replace(problem="no trace: it does not begin with a trace's header")
    version = header.get("schema_version")
    if version != SCHEMA_VERSION:
        return known._replace(
            problem=f"a trace of version {version!r:.20}; this page reads {SCHEMA_VERSION}"
        )
    model = header.get("model")
    name = model.get("name") if isinstance(model, dict) else None
    known = known._replace(trace_id=short(header.get("trace_id")), model=short(name))
    step, seq, base = (last or {}).get("step"), (last or {}).get("seq"), header.get("base_seq", 0)
    if is_count(step) and is_count(seq) and is_count(base):
        known = known._replace(step=step, num_records=seq - base + 1)
    return known


def header_of(content: BinaryIO) -> dict[str, Any] | None:
    """A trace's header without the state, which can be long and comes last; None: it is none."""
    start = content.read(END_BYTES)
    line, end, _ = start.partition(b"\n")
    before, state, _ = line.partition(BEFORE_STATE)
    whole = before + b"}" if state else line if end or len(start) < END_BYTES else b""
    header = decoded(whole)
    return header if header is not None and header.get("kind") == "header" else None


def last_record(content: BinaryIO, num_bytes: int) -> dict[str, Any] | None:
    """The last record; None where it is longer than is read of a file."""
    content.seek(max(0, num_bytes - END_BYTES))
    *_, line = content.read(END_BYTES).rstrip().split(b"\n")
    return decoded(line)


def decoded(line: bytes) -> dict[str, Any] | None:
    """A JSON object, or None."""
    try:
        found = strict_json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def is_count(value: Any) -> bool:
    """Whether it is one, and no larger than the page reads; JSON has no end of digits."""
    return type(value) is int and 0 <= value < 2**53


def short(text: Any) -> str | None:
    """A name of a stranger's file, as far as a list has room."""
    return text[:80].encode("utf-8", "replace").decode() if isinstance(text, str) else None
