"""What a file is, told by how it begins: for whoever opened it in the wrong place.

Only asked once a file was refused, so a trace that is damaged is a trace here. No counterpart in
vLLM.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

HEAD_BYTES = 65_536  # of a file are looked at
MOMENT_FORMAT = '"format":"glassbox-moment"'
KEY = re.compile(r'"((?:[^"\\]|\\.){1,40})"\s*:')
TABLE_NAMES = (b"steps.csv", b"requests.csv", b"README.txt")


class FileKind(NamedTuple):
    """What a file is: `name` for programs, `what` after "this is", `where` a sentence or ""."""

    name: str
    what: str
    where: str = ""


EMPTY = FileKind("empty", "an empty file")
TRACE = FileKind("trace", "a saved trace", "Open shows it.")
MOMENT = FileKind("moment", "a saved live engine", "Open goes on from it.")
SAFETENSORS = FileKind(
    "safetensors", "a safetensors file, such as a model's weights", "MODEL= names a model's folder."
)
GGUF = FileKind("gguf", "a model in a GGUF file", "The server runs it when MODEL= names it.")
PERFETTO = FileKind(
    "perfetto",
    "a trace for Perfetto",
    "ui.perfetto.dev shows it; here, open the .jsonl file that it was made of.",
)
CHROME = FileKind(
    "chrome-trace", "a trace in Chrome's JSON format", "ui.perfetto.dev shows it, not this page."
)
TABLES = FileKind(
    "csv-zip",
    "a zip file of tables, as Save writes it",
    "A spreadsheet opens the tables in it; here, open the .jsonl file that they were made of.",
)
DOCUMENT = FileKind(
    "document", "an architecture document", "Document, in the header, uploads and draws it."
)
WORKLOAD = FileKind("workload", "a saved workload", "Compare runs it: Requests, A file.")
HAR = FileKind("har", "a browser's network log (HAR)", "The browser's developer tools import it.")
ZIP = FileKind("zip", "a zip file", "Unpack it and open what is in it.")
GZIP = FileKind("gzip", "a file compressed by gzip", "Unpack it (gunzip) and open what it holds.")
ZSTD = FileKind("zstd", "a file compressed by zstd", "Unpack it (unzstd) and open what it holds.")
PDF = FileKind("pdf", "a PDF")
IMAGE = FileKind("image", "a picture")
HTML = FileKind("html", "a web page")
JSON_FILE = FileKind("json", "a JSON file, and no trace, workload or document of Glassbox")
TEXT = FileKind("text", "a text file, and no trace, workload or document of Glassbox")
BINARY = FileKind("binary", "a binary file that Glassbox does not know")

MAGIC = (
    (b"\x1f\x8b", GZIP),
    (b"\x28\xb5\x2f\xfd", ZSTD),
    (b"\x89PNG\r\n\x1a\n", IMAGE),
    (b"\xff\xd8\xff", IMAGE),
    (b"GIF8", IMAGE),
    (b"%PDF-", PDF),
    (b"GGUF", GGUF),
)


def kind_of(start: bytes) -> FileKind:
    """What a file is that begins with these bytes; the first `HEAD_BYTES` are enough."""
    start = start[:HEAD_BYTES]
    if not start.strip():
        return EMPTY
    for magic, kind in MAGIC:
        if start.startswith(magic):
            return kind
    if start.startswith(b"PK\x03\x04"):
        return TABLES if start[30:60].startswith(TABLE_NAMES) else ZIP
    if is_safetensors(start):
        return MOMENT if MOMENT_FORMAT in text_of(start[8:]).replace(" ", "") else SAFETENSORS
    if is_perfetto(start):
        return PERFETTO
    if b"\0" in start:
        return BINARY
    return kind_of_text(text_of(start))


def kind_of_text(text: str) -> FileKind:
    """What a text is."""
    text = text.lstrip("\ufeff \t\r\n")
    if text[:200].lower().startswith(("<!doctype html", "<html")):
        return HTML
    if not text.startswith(("{", "[")):
        return BINARY if "\ufffd" in text[:1_000] else TEXT
    keys = set(KEY.findall(text))
    first_line = text.partition("\n")[0]
    if re.search(r'"kind"\s*:\s*"header"', first_line):
        return TRACE
    if "diagram_type" in keys or {"components", "connections"} <= keys:
        return DOCUMENT
    if {"requests", "arrival_step"} <= keys:
        return WORKLOAD
    if "traceEvents" in keys:
        return CHROME
    if {"log", "creator"} <= keys or {"log", "entries"} <= keys:
        return HAR
    return JSON_FILE


def is_safetensors(start: bytes) -> bool:
    """Whether a header's length and a JSON object come first."""
    if len(start) < 10 or start[8:9] != b"{":
        return False
    (length,) = struct.unpack("<Q", start[:8])
    return 2 <= length <= 100_000_000 and start[9:10] in (b'"', b"}", b" ")


def is_perfetto(start: bytes) -> bool:
    """Whether it is a `Trace` message: its field 1, a `TracePacket` of known fields."""
    if start[:1] != b"\x0a":
        return False
    length, place = varint(start, 1)
    tag, _ = varint(start, place)
    # timestamp, trusted_packet_sequence_id, track_event, track_descriptor, clock_snapshot, ...
    return length > 0 and tag & 7 in (0, 2) and 1 <= tag >> 3 <= 200


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of protobuf's and where it ends; (-1, place) where there is none."""
    value = 0
    for shift in range(0, 64, 7):
        if place >= len(data):
            return -1, place
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    return -1, place


def text_of(data: bytes) -> str:
    """Bytes as text; what is no UTF-8 becomes a replacement character."""
    return data.decode("utf-8", "replace")


def explained(why: str, start: bytes, wanted: FileKind) -> str:
    """A refusal with what the file is, where it is something else than what was wanted."""
    kind = kind_of(start)
    if kind in (wanted, TEXT, JSON_FILE):
        return why
    return f"it is {kind.what}" + (f". {kind.where}" if kind.where else "")
