"""Logs of an engine that schedules asynchronously: stepped by hand, and with both threads at work.

In each, requests end by length, by a stop token while one more of theirs is in flight, by an abort
in flight; and the prefix cache is reset, which makes tokens in flight void.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.async_llm import AsyncLLM, make_model_runner
from engine.config import EngineConfig, SamplingParams
from engine.engine_thread import EngineThread

if TYPE_CHECKING:
    from engine.core import Runner
    from engine.model_loader import LoadedModel
    from engine.trace import EventLog

CONFIG = EngineConfig(
    async_scheduling=True,
    num_gpu_blocks=24,
    block_size=8,
    max_num_batched_tokens=32,
    max_num_seqs=4,
)
TEXTS = ("A block holds tokens", "A block holds tokens, and then?", "Once upon a time, long ago")
FORWARD_S = 0.03  # longer than whatever the engine's thread does meanwhile


def slow_runner(model: LoadedModel, config: EngineConfig, trace: EventLog) -> Runner:
    """The model's own runner, whose forward takes its time."""
    runner = make_model_runner(model, config, trace)
    forward = runner.execute_model

    def execute_model() -> None:
        time.sleep(FORWARD_S)
        forward()

    runner.execute_model = execute_model  # type: ignore[method-assign]
    return runner


def second_token(model: LoadedModel, thread: EngineThread) -> int:
    """What the model says second to the second text."""
    engine = AsyncLLM(model, CONFIG, thread, running=True)
    stream = engine.submit(TEXTS[1], greedy(2))
    tokens = [token for output in stream for token in output.token_ids]
    engine.close()
    return tokens[1]


def greedy(max_tokens: int, *stops: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens, temperature=0.0, ignore_eos=True, stop_token_ids=list(stops)
    )


def async_trace(model: LoadedModel, by_hand: bool) -> str:
    """The log as a file."""
    thread = EngineThread()
    try:
        stop = second_token(model, thread)
        engine = AsyncLLM(model, CONFIG, thread, make_runner=None if by_hand else slow_runner)
        drive(engine, stop, by_hand)
        text = "\n".join(engine.trace.lines()) + "\n"
        engine.close()
    finally:
        thread.stop()
    return text


def drive(engine: AsyncLLM, stop: int, by_hand: bool) -> None:
    """The same story, a phase at a time or as fast as it goes."""

    def go_on(steps: int) -> None:
        until = len(engine.trace.records) and last_step(engine) + steps
        if not by_hand:
            engine.run()
        while engine.num_unfinished and last_step(engine) < until:
            if by_hand:
                engine.step_phase()
            else:
                time.sleep(0.001)

    streams = [engine.submit(TEXTS[0], greedy(6)), engine.submit(TEXTS[1], greedy(9, stop))]
    go_on(2)
    streams.append(engine.submit(TEXTS[2], greedy(12)))
    streams.append(engine.submit(TEXTS[1] * 2, greedy(9)))
    go_on(4)
    engine.abort(streams[2].request_id)
    go_on(2)
    engine.thread.call(lambda: engine.core.reset_prefix_cache(reset_running_requests=True))
    go_on(100)


def last_step(engine: AsyncLLM) -> int:
    """The newest step that has begun."""
    return engine.trace.records[-1].step
