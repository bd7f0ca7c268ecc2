"""Recorded traces to play: the tiny model under a mixed load, made by the real engine.

README.md, "playback" and "seek", says what is in them.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from benchmarks.engines import hand_in
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.model_loader import load_model
from engine.model_loader.tiny import TINY_MODEL
from engine.model_runner import ModelRunner
from engine.output_processor import OutputProcessor
from engine.trace import Trace, fold
from engine.trace_header import trace_header

SEED = 7
UNBOUNDED = 1 << 40


class Load(NamedTuple):
    """What an engine is given: so many requests at any time, of lengths drawn from two ranges."""

    unfinished: int
    prompts: tuple[int, int]
    outputs: tuple[int, int]
    settings: dict[str, Any]


# Fifty run, ten wait, and so many prompts are cached that each step evicts.
LARGE = Load(
    unfinished=60,
    prompts=(200, 1_200),
    outputs=(30, 120),
    settings={"num_gpu_blocks": 16_384, "max_num_seqs": 50, "max_num_batched_tokens": 1_024},
)
# So many steps are as many records as the page takes only where few requests run.
LONG = Load(
    unfinished=4,
    prompts=(8, 300),
    outputs=(40, 200),
    settings={"num_gpu_blocks": 16_384, "max_num_seqs": 3, "max_num_batched_tokens": 256},
)


def recorded_trace(load: Load, steps: int, before: int = 0) -> str:
    """JSON Lines of `steps` steps; those `before` are in the state that it begins with."""
    model = load_model(TINY_MODEL)
    config = EngineConfig(**load.settings).resolve(model.max_model_len)
    trace = Trace(trace_header(model, config), max_records=UNBOUNDED)
    outputs = OutputProcessor(model.tokenizer, trace)
    core = EngineCore(config, ModelRunner(model, config, trace), trace, outputs)
    chance = random.Random(SEED)
    first = 0
    for step in range(before + steps):
        if step == before:
            first = len(trace.records)
        while len(outputs.open) < load.unfinished:
            length = chance.randrange(*load.prompts)
            ids = [chance.randrange(3, model.vocab_size) for _ in range(length)]
            key = f"r{step}-{len(outputs.open)}"
            hand_in(core, outputs, model, key, ids, chance.randrange(*load.outputs))
        core.step()
    return "\n".join(from_record(trace, first).lines()) + "\n"


def from_record(trace: Trace, first: int) -> Trace:
    """The same log with what is before a record folded into the state that it begins with."""
    state = fold(trace.header.state, trace.records[:first])
    base_seq = trace.header.base_seq + first
    rest = Trace(trace.header.model_copy(update={"state": state, "base_seq": base_seq}))
    rest.records = trace.records[first:]
    return rest
