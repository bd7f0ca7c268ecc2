"""A recorded trace to play: the tiny model under a mixed load, made by the real engine."""

from __future__ import annotations

import random

from benchmarks.engines import hand_in
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.model_loader import load_model
from engine.model_loader.tiny import TINY_MODEL
from engine.model_runner import ModelRunner
from engine.output_processor import OutputProcessor
from engine.trace import Trace
from engine.trace_header import trace_header

SEED = 7
UNFINISHED = 10  # more than the default engine has seats for: some always wait


def recorded_trace(steps: int) -> str:
    """JSON Lines of so many steps: chunked prefills, full batches, evictions, a waiting queue."""
    model = load_model(TINY_MODEL)
    config = EngineConfig().resolve(model.max_model_len)
    trace = Trace(trace_header(model, config))
    outputs = OutputProcessor(model.tokenizer, trace)
    core = EngineCore(config, ModelRunner(model, config, trace), trace, outputs)
    chance = random.Random(SEED)
    for step in range(steps):
        while len(outputs.open) < UNFINISHED:
            ids = [chance.randrange(3, model.vocab_size) for _ in range(chance.randrange(8, 120))]
            key = f"r{step}-{len(outputs.open)}"
            hand_in(core, outputs, model, key, ids, chance.randrange(8, 60))
        core.step()
    return "\n".join(trace.lines()) + "\n"
