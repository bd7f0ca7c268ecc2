"""An empty log, for tests of what writes into one."""

from __future__ import annotations

from engine.config import EngineConfig
from engine.trace import SCHEMA_VERSION, Trace, TraceHeader


def make_trace(config: EngineConfig | None = None) -> Trace:
    """A log of an engine with these settings, before its first record."""
    header = TraceHeader(
        schema_version=SCHEMA_VERSION,
        trace_id="t",
        config={} if config is None else config.model_dump(),
        model={},
        document="",
        versions={},
        started_at=0.0,
        state={},
    )
    return Trace(header)
