"""A run as a whole: what it writes to a file, for people who compare two of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.harness.figures import Figure
from benchmarks.harness.machine import Machine

SCHEMA_VERSION = 1
RESULTS = Path("bench-results")


class ReportError(ValueError):
    """A file that is no run's result; the message says which and why."""


class Outcome(BaseModel):
    """What became of one benchmark."""

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    seconds: float
    figures: tuple[Figure, ...]
    error: str  # why it could not run; "" where it did


class Report(BaseModel):
    """One run of some benchmarks on one machine."""

    model_config = ConfigDict(frozen=True)

    schema_version: int = SCHEMA_VERSION
    started_at: datetime
    quick: bool  # few samples: shows that it works, and is no measurement
    machine: Machine
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> bool:
        """Whether a benchmark could not run; a missed goal is a result like any other."""
        return any(outcome.error for outcome in self.outcomes)

    def save(self, folder: Path) -> Path:
        """Write the report to a file of its own and return which."""
        folder.mkdir(parents=True, exist_ok=True)
        moment = self.started_at.astimezone(UTC).strftime("%Y%m%d-%H%M%S")
        path = folder / f"{moment}-{self.machine.commit.rstrip('+') or 'unknown'}.json"
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return path


def load_report(path: Path) -> Report:
    """Read a report; ReportError where the file is none, or another version's."""
    try:
        report = Report.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: cannot be read ({error})") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise ReportError(
            f"{path}: not the result of a run ({where}: {first['msg']}); name a file that "
            "`make bench` wrote"
        ) from None
    if report.schema_version != SCHEMA_VERSION:
        raise ReportError(
            f"{path}: schema version {report.schema_version}, this program reads {SCHEMA_VERSION}; "
            "measure both sides with the same benchmarks"
        )
    return report
