"""A log as tables for a spreadsheet: `steps.csv`, `requests.csv` and `README.txt`, in a zip file.

UTF-8 with a byte order mark, by which Excel knows it. A text that a spreadsheet would take for a
formula (a prompt may begin with `=`) gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

from engine.export.summary import RequestSummary, StepSummary, Summary
from engine.records import STEP_PHASES

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
LONGEST_CELL = 32_000  # characters; Excel takes 32,767

Cell = str | int | float | None
Column = tuple[str, Callable[[Any], Cell], str]

STEP_COLUMNS: list[Column] = [
    ("step", lambda s: s.step, "its number"),
    ("begin_ms", lambda s: ms(s.begin_us), "when its first phase began, since the log began"),
    ("end_ms", lambda s: ms(s.end_us), "when its last phase in the log ended"),
    *(
        (
            f"{phase}_ms",
            lambda s, phase=phase: ms(s.durations.get(phase)),
            f"how long its phase {phase} took; empty: it has not ended",
        )
        for phase in STEP_PHASES
    ),
    ("requests", lambda s: s.batch and s.batch.num_requests, "in its batch"),
    ("prefill_tokens", lambda s: s.batch and s.batch.prefill_tokens, "scheduled for prefill"),
    ("decode_tokens", lambda s: s.batch and s.batch.decode_tokens, "scheduled for decode"),
    ("token_budget", lambda s: s.batch and s.batch.max_num_batched_tokens, "of the step"),
    ("graph", lambda s: s.dispatch and s.dispatch.mode, "FULL, PIECEWISE, or NONE: it ran eagerly"),
    ("padded_tokens", lambda s: s.dispatch and s.dispatch.num_padded_tokens, "rows that ran"),
    ("hit_tokens", lambda s: s.hit_tokens, "found in the prefix cache"),
    ("evicted_blocks", lambda s: s.evicted_blocks, "whose cached content went"),
    ("preemptions", lambda s: s.preemptions, "requests that lost their blocks"),
    ("drafts", lambda s: s.drafts, "draft tokens that were judged"),
    ("accepted_drafts", lambda s: s.accepted, "of these, accepted"),
    ("new_tokens", lambda s: s.new_tokens, "appended to requests"),
    ("finished", lambda s: s.finished, "requests that ended in it"),
    ("running", lambda s: s.after and s.after.running, "requests, after its last phase"),
    ("waiting", lambda s: s.after and s.after.waiting, "requests, after its last phase"),
    ("used_blocks", lambda s: s.after and s.after.used_blocks, "held, after its last phase"),
]

REQUEST_COLUMNS: list[Column] = [
    ("request", lambda r: r.request, "its id"),
    ("source", lambda r: r.source, "page or http"),
    ("prompt_tokens", lambda r: r.prompt_tokens, "of its prompt"),
    ("max_tokens", lambda r: r.max_tokens, "that it asked for"),
    ("output_tokens", lambda r: r.output_tokens, "that it got, in this log"),
    ("hit_tokens", lambda r: r.hit_tokens, "found in the prefix cache, by all its look-ups"),
    ("preemptions", lambda r: r.preemptions, "how often it lost its blocks"),
    ("steps", lambda r: r.steps, "that gave it tokens"),
    ("submitted_ms", lambda r: ms(r.submitted_us), "since the log began"),
    ("arrived_ms", lambda r: ms(r.arrived_us), "in the waiting queue"),
    ("scheduled_ms", lambda r: ms(r.scheduled_us), "for the first time"),
    ("first_token_ms", lambda r: ms(r.first_token_us), "when it got its first token"),
    ("finished_ms", lambda r: ms(r.finished_us), "when it ended in the scheduler"),
    ("completed_ms", lambda r: ms(r.completed_us), "when its client was told"),
    ("finish_reason", lambda r: r.finish_reason, "empty: unfinished where the log ends"),
    ("prompt", lambda r: r.prompt, "as text, where the log has it"),
    ("output", lambda r: "".join(r.text), "the text that went out"),
]

ABOUT = """Glassbox, log {trace_id}, model {model}

All figures are read from the engine's log. Times are milliseconds since it began, and go on while
the engine is paused by hand. An empty cell: the log does not have it. A text that a spreadsheet
would take for a formula has an apostrophe in front; one of more than {longest} characters is cut.
"""


def csv_archive(summary: Summary) -> bytes:
    """The zip file."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (
            ("steps.csv", table(STEP_COLUMNS, summary.steps.values())),
            ("requests.csv", table(REQUEST_COLUMNS, summary.requests.values())),
            ("README.txt", about(summary)),
        ):
            # Without the hour, so that one log gives one file.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return held.getvalue()


def table(columns: list[Column], rows: Iterable[StepSummary | RequestSummary]) -> bytes:
    """A table with its head, as a spreadsheet reads it."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([name for name, _, _ in columns])
    for row in rows:
        writer.writerow([cell(value(row)) for _, value, _ in columns])
    return text.getvalue().encode("utf-8-sig", "replace")


def cell(value: Cell) -> Cell:
    """A value as it goes into a cell: no text is a formula."""
    if not isinstance(value, str):
        return value
    text = value if len(value) <= LONGEST_CELL else value[: LONGEST_CELL - 1] + "…"
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def about(summary: Summary) -> bytes:
    """What the columns mean."""
    header = summary.header
    text = ABOUT.format(
        trace_id=header.trace_id,
        model=header.model.get("name", "(none)"),
        longest=f"{LONGEST_CELL:,}",
    )
    for name, columns in (("steps.csv", STEP_COLUMNS), ("requests.csv", REQUEST_COLUMNS)):
        width = max(len(column) for column, _, _ in columns) + 2
        text += f"\n{name}\n"
        text += "".join(f"  {column:{width}}{meaning}\n" for column, _, meaning in columns)
    return text.encode("utf-8", "replace")


def ms(t_us: float | None) -> float | None:
    """Microseconds as milliseconds."""
    return None if t_us is None else round(t_us / 1_000, 3)
