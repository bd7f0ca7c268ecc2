"""A declared workload in, the engine's decisions out, in the form recorded from vLLM 0.26.0.

`python -m engine.conformance WORKLOAD.json` prints the trace as JSON Lines. A sampler that is a
formula stands in for the model, since decisions depend on token ids and lengths only. What a step
did is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.conformance.cycles import AsyncConformance
from engine.conformance.steps import Conformance
from engine.conformance.workload import EOS_TOKEN_ID, Workload, WorkloadError, load_workload

__all__ = [
    "EOS_TOKEN_ID",
    "AsyncConformance",
    "Conformance",
    "Workload",
    "WorkloadError",
    "load_workload",
    "run",
]

TRACE_SCHEMA = 1


def run(path: Path) -> Iterator[dict[str, Any]]:
    """All lines of the trace of a workload file; `WorkloadError`, with its path, where it has none.

    That may turn out only at a later line.
    """
    workload, digest = load_workload(path)
    driver: Conformance | AsyncConformance
    if workload.config.async_scheduling:
        driver, counted = AsyncConformance(workload), "lines"
    else:
        driver, counted = Conformance(workload), "steps"
    yield {
        "trace_schema": TRACE_SCHEMA,
        "workload": workload.name,
        "workload_sha256": digest,
        "engine": driver.engine,
        "config": workload.config.model_dump(),
    }
    count = 0
    try:
        for record in driver.steps():
            count += 1
            yield record
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None
    yield {"end": True, counted: count, "requests": driver.summary()}
