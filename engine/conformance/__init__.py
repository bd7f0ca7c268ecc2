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
from engine.conformance.drafts import SpeculativeConformance
from engine.conformance.steps import Conformance
from engine.conformance.workload import EOS_TOKEN_ID, Workload, WorkloadError, load_workload

__all__ = [
    "EOS_TOKEN_ID",
    "AsyncConformance",
    "Conformance",
    "SpeculativeConformance",
    "Workload",
    "WorkloadError",
    "driver_of",
    "load_workload",
    "run",
]

TRACE_SCHEMA = 1


def run(path: Path) -> Iterator[dict[str, Any]]:
    """All lines of the trace of a workload file; `WorkloadError`, with its path, where it has none.

    That may turn out only at a later line.
    """
    workload, digest = load_workload(path)
    driver = driver_of(workload)
    yield {
        "trace_schema": TRACE_SCHEMA,
        "workload": workload.name,
        "workload_sha256": digest,
        "engine": driver.engine,
        "config": workload.config.described(),
    }
    count = 0
    try:
        for record in driver.steps():
            count += 1
            yield record
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None
    counted = "lines" if workload.config.async_scheduling else "steps"
    yield {"end": True, counted: count, "requests": driver.summary()}


def driver_of(workload: Workload) -> Conformance | AsyncConformance:
    """What drives a workload: it may be asynchronous, or have drafts."""
    if workload.config.async_scheduling:
        return AsyncConformance(workload)
    speculates = workload.config.num_speculative_tokens is not None
    return SpeculativeConformance(workload) if speculates else Conformance(workload)
