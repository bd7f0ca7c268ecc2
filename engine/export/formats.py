"""The forms that a log can be had in: as it is, for Perfetto, for a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from engine.export.perfetto import perfetto_trace
from engine.export.summary import Summary
from engine.export.tables import csv_archive
from engine.trace import Trace


class Format(StrEnum):
    """What a log is written as."""

    JSONL = "jsonl"
    PERFETTO = "perfetto"
    CSV = "csv"


class FileKind(NamedTuple):
    """How a file of a format ends, and what a browser is told of it."""

    suffix: str
    media_type: str


KINDS = {
    Format.JSONL: FileKind(".jsonl", "application/jsonl"),
    Format.PERFETTO: FileKind(".perfetto-trace", "application/octet-stream"),
    Format.CSV: FileKind(".csv.zip", "application/zip"),
}


def written(trace: Trace, form: Format) -> Iterator[bytes]:
    """The log in this form, in pieces; `TraceError` where it holds what no engine writes."""
    if form is Format.JSONL:
        yield from pieces_of_lines(trace)
        return
    summary = Summary(*trace.snapshot())
    if form is Format.PERFETTO:
        yield from perfetto_trace(summary)
    else:
        yield csv_archive(summary)


LINES_A_PIECE = 1_000


def pieces_of_lines(trace: Trace) -> Iterator[bytes]:
    """A trace file's lines, in pieces that are worth sending."""
    piece: list[str] = []
    for line in trace.lines():
        piece.append(line + "\n")
        if len(piece) >= LINES_A_PIECE:
            yield "".join(piece).encode()
            piece.clear()
    yield "".join(piece).encode()
