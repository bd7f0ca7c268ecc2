"""A class's work as a table and as data, and one learner's as a file that can be read back."""

from __future__ import annotations

import csv
import hmac
import io
import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from lessons.classroom.register import ALWAYS, ClassInfo, LearnerInfo, Rule
from lessons.classroom.standing import ClassWork, Given

CLASS_KIND, WORK_KIND = "glassbox class", "glassbox learner's work"
VERSION = 1
MOST_BYTES = 2 << 20  # of a learner's file
_COLUMNS = (
    *("learner", "lesson", "seed", "scenario_digest", "engine_version", "step", "question"),
    *("attempt", "answer", "right", "points", "of", "hints_open", "prediction", "given_at", "late"),
)
# What a spreadsheet would take for a formula, but for plain numbers.
_FORMULA = re.compile(r"^[\s]*[=+\-@\t\r\n|%]")
_NUMBER = re.compile(r"^-?\d+(\.\d+)?$")


class WorkError(ValueError):
    """A file that is no learner's work; the message says where and why."""


class Work(NamedTuple):
    """A learner's work, as a file has it."""

    learner: str
    class_title: str
    written: str
    attempts: list[dict[str, Any]]
    is_sealed: bool  # it is as this server wrote it


def as_csv(learners: list[LearnerInfo], work: ClassWork, rules: dict[str, Rule]) -> str:
    """A row for each attempt; no cell is a formula to a spreadsheet."""
    names = {learner.id: learner.name for learner in learners}
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\r\n")
    table.writerow(_COLUMNS)
    for row in _attempts(work, rules):
        name = names.get(row["learner_id"], "")
        table.writerow([_cell(value) for value in (name, *list(row.values())[1:])])
    return "\ufeff" + out.getvalue()  # so that spreadsheets read it as UTF-8


def as_json(
    room: ClassInfo, learners: list[LearnerInfo], work: ClassWork, rules: dict[str, Rule]
) -> str:
    """Everything that is kept of a class, but what opens somebody's work."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in _attempts(work, rules):
        rows.setdefault(row.pop("learner_id"), []).append(row)
    value = {
        "kind": CLASS_KIND,
        "version": VERSION,
        "class": {"title": room.title, "began_at": when(room.began_at)},
        "lessons": {
            name: {"open": rule.is_open, "due_at": when(rule.due_at)}
            for name, rule in sorted(rules.items())
        },
        "learners": [
            {
                "name": learner.name,
                "joined_at": when(learner.joined_at),
                "attempts": rows.get(learner.id, []),
            }
            for learner in learners
        ],
    }
    return json.dumps(value, ensure_ascii=False, indent=1)


def as_work(
    room: ClassInfo,
    learner: LearnerInfo,
    work: ClassWork,
    rules: dict[str, Rule],
    written: float,
    seal_key: bytes,
) -> str:
    """One learner's work as a file, with a seal that shows whether somebody changed it."""
    rows = [{k: v for k, v in row.items() if k != "learner_id"} for row in _attempts(work, rules)]
    value = {
        "kind": WORK_KIND,
        "version": VERSION,
        "learner": learner.name,
        "class": room.title,
        "written": when(written),
        "attempts": rows,
    }
    return json.dumps({**value, "seal": _seal(value, seal_key)}, ensure_ascii=False, indent=1)


class _Attempt(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    lesson: str
    seed: int
    scenario_digest: str
    engine_version: str
    step: str
    question: str
    attempt: int
    answer: str
    right: bool
    points: int
    of: int
    hints_open: int
    prediction: bool
    given_at: str
    late: bool


class _Work(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    kind: str
    version: int
    learner: str
    # `class` is no name in Python.
    written: str
    attempts: list[_Attempt]
    seal: str


def read_work(content: bytes, seal_key: bytes) -> Work:
    """A learner's file, read with distrust; raises WorkError."""
    if len(content) > MOST_BYTES:
        raise WorkError(f"the file is larger than {MOST_BYTES >> 20} MB")
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise WorkError("the file is not JSON: take the one that “Save my work” writes") from None
    if not isinstance(value, dict) or value.get("kind") != WORK_KIND:
        raise WorkError("kind: this is no learner's work: take the file of “Save my work”")
    if value.get("version") != VERSION:
        raise WorkError(f"version: {value.get('version')!r:.20}; this server reads {VERSION}")
    title = value.pop("class", None)
    if not isinstance(title, str):
        raise WorkError("class: the title is missing; take the file as it was saved")
    try:
        read = _Work.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise WorkError(f"{where}: {first['msg']}; take the file as it was saved") from None
    seal = value.pop("seal")
    sealed = {**value, "class": title}
    is_sealed = hmac.compare_digest(
        _seal(sealed, seal_key).encode(), seal.encode("utf-8", "replace")
    )
    rows = [attempt.model_dump() for attempt in read.attempts]
    return Work(read.learner[:200], title[:200], read.written[:40], rows, is_sealed)


def when(at: float | None) -> str | None:
    """A time as ISO 8601 has it, in UTC, to the second."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _attempts(work: ClassWork, rules: dict[str, Rule]) -> list[dict[str, Any]]:
    numbers: dict[tuple[int, str, str], int] = {}
    rows = []
    for one in work.given:
        key = (one.run_id, one.step, one.question)
        numbers[key] = numbers.get(key, 0) + 1
        rows.append(_row(one, numbers[key], rules.get(one.lesson, ALWAYS).due_at))
    return rows


def _row(one: Given, number: int, due: float | None) -> dict[str, Any]:
    return {
        "learner_id": one.learner_id,
        "lesson": one.lesson,
        "seed": one.seed,
        "scenario_digest": one.digest,
        "engine_version": one.engine,
        "step": one.step,
        "question": one.question,
        "attempt": number,
        "answer": one.shown,
        "right": one.right,
        "points": one.points,
        "of": one.most,
        "hints_open": one.hints,
        "prediction": one.final,
        "given_at": when(one.at),
        "late": due is not None and one.at > due,
    }


def _cell(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.match(value):
        return f"'{value}"
    return value


def _seal(value: dict[str, Any], key: bytes) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), "sha256").hexdigest()
