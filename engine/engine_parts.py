"""What an engine is put together of: its memory divided, its log, its core, its outputs.

Part of box `async-engine`. vLLM 0.26.0: `EngineCore.__init__` in `vllm/v1/engine/core.py`, and
`AsyncLLM.__init__`. Engines of sessions and those of comparisons are put together here alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from engine.async_core import AsyncEngineCore
from engine.config import ConfigError, EngineConfig
from engine.core import EngineCore, Runner
from engine.engine_thread import EngineThread
from engine.events import MemorySized
from engine.limits import limit, named
from engine.output_processor import OutputProcessor
from engine.reasons import CacheLimitsLength
from engine.trace import MAX_RECORDS, EventLog, Trace
from engine.trace_header import trace_header
from engine.two_lanes import TwoLaneTrace

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

# Of a step, since every other engine may wait for it.
MAX_STEP_TOKENS = limit("MAX_STEP_TOKENS", 16_384)

MakeRunner = Callable[["LoadedModel", EngineConfig, EventLog], Runner]


class EngineParts(NamedTuple):
    """An engine that has done nothing yet; its log is empty until `log_start`."""

    core: EngineCore
    outputs: OutputProcessor
    sized: MemorySized
    limited: CacheLimitsLength | None  # why its max_model_len is less than the model's
    took_us: float | None  # of measuring the memory; None where nothing was measured

    def log_start(self) -> None:
        """Begin the log with how the memory was divided."""
        self.core.note(self.sized, self.limited, self.took_us)


def build_engine(
    model: LoadedModel,
    config: EngineConfig,
    thread: EngineThread,
    *,
    document: str = "",
    make_runner: MakeRunner | None = None,
    pool_share: int = 1,
    max_records: int = MAX_RECORDS,
) -> EngineParts:
    """Put an engine together; must run on `thread`, where forwards do: it may run one.

    `pool_share`: its KV cache may take one part in so many of the memory. Raises ConfigError.
    """
    from engine.memory_budget import size_memory  # torch is imported only now

    check_step(config)
    make_runner = make_runner or make_model_runner
    began = time.perf_counter()
    fitted, resolved, sized, limited = size_memory(model, config, pool_share)
    took_us = (time.perf_counter() - began) * 1e6 if sized.profiled_tokens else None
    header = trace_header(fitted, resolved, document)
    core: EngineCore
    if resolved.async_scheduling:  # what logs in the executor lane writes into that lane
        lanes = TwoLaneTrace(header, max_records)
        runner = make_runner(fitted, resolved, lanes.executor)
        outputs = OutputProcessor(model.tokenizer, lanes)
        core = AsyncEngineCore(resolved, runner, lanes, outputs, thread.executor)
    else:
        trace = Trace(header, max_records)
        runner = make_runner(fitted, resolved, trace)
        outputs = OutputProcessor(model.tokenizer, trace)
        core = EngineCore(resolved, runner, trace, outputs)
    sized = sized._replace(pool_bytes=runner.pool_bytes())
    return EngineParts(core, outputs, sized, limited, took_us)


def check_step(config: EngineConfig) -> None:
    """Raise ConfigError where a step would be so long that all other engines wait for it."""
    if config.max_num_batched_tokens > MAX_STEP_TOKENS:
        raise ConfigError(
            f"max_num_batched_tokens {config.max_num_batched_tokens:,} is more than the "
            f"{MAX_STEP_TOKENS:,} that a step may have on this server, whose engines take turns "
            f"step by step {named('MAX_STEP_TOKENS')}",
            field="max_num_batched_tokens",
        )


def make_model_runner(model: LoadedModel, config: EngineConfig, trace: EventLog) -> Runner:
    """The runner that really runs the model; torch is imported only now."""
    from engine.model_runner import ModelRunner

    return ModelRunner(model, config, trace)
