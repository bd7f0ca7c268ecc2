"""The engines that benchmarks compare do the same work."""

from __future__ import annotations

import pytest

from benchmarks.engines import PROMPT_TOKENS, WARM_STEPS, Chunking, Decoding, UnloggedDecoding
from benchmarks.recording import Load, recorded_trace
from benchmarks.replay import (
    DECODES_BESIDE_CHUNK,
    LAUNCH_BOUND_LAYERS,
    ROWS,
    launch_bound_model,
    step,
)
from engine.core import EngineCore
from engine.events import BatchScheduled
from engine.model_loader import load_model
from engine.records import STEP_PHASES, Event
from engine.trace import Trace

STEPS = 20


def tokens(core: EngineCore) -> list[list[int]]:
    """Of all requests, prompts included."""
    return [request.all_token_ids for request in core.scheduler.requests.values()]


def test_an_engine_without_its_log_writes_nothing_and_decodes_the_same() -> None:
    model = load_model("tiny-random")
    logged = Decoding(model, 3, STEPS)
    silent = UnloggedDecoding(model, 3, STEPS)
    for _ in range(STEPS - 1):
        logged.step()
        silent.step()
    assert tokens(silent.core) == tokens(logged.core)
    assert {len(ids) for ids in tokens(silent.core)} == {PROMPT_TOKENS + WARM_STEPS + STEPS - 1}
    assert silent.trace.records == [] and logged.trace.records
    scheduler = silent.core.scheduler
    assert not scheduler.touched and not scheduler.progressed
    assert not scheduler.kv_cache_manager.block_pool.touched


def test_the_launch_bound_model_is_replayed_unless_it_may_not_be() -> None:
    model = launch_bound_model()
    assert len(model.model.model.layers) == LAUNCH_BOUND_LAYERS
    eager, graph = Decoding(model, 2, 3, enforce_eager=True), Decoding(model, 2, 3)
    found = step(eager)
    assert 0 < found.forward_ms < found.step_ms and found.mode == "NONE"
    assert eager.dispatch().reason == "enforce_eager"
    assert step(graph).mode == "FULL"
    assert tokens(graph.core) == tokens(eager.core)


@pytest.mark.parametrize("decodes", DECODES_BESIDE_CHUNK)
def test_each_step_of_a_long_prompt_replays_pieces(decodes: int) -> None:
    model = load_model("tiny-random")
    eager = Chunking(model, decodes, ROWS, STEPS, enforce_eager=True)
    graph = Chunking(model, decodes, ROWS, STEPS)
    for _ in range(STEPS):
        assert [step(engine).mode for engine in (eager, graph)] == ["NONE", "PIECEWISE"]
    batches = [
        record.facts
        for record in graph.trace.records
        if isinstance(record, Event) and isinstance(record.facts, BatchScheduled)
    ]
    shares = {(batch.prefill_tokens, batch.decode_tokens) for batch in batches[-STEPS:]}
    assert shares == {(ROWS - decodes, decodes)}
    assert tokens(graph.core) == tokens(eager.core)


def test_a_recording_has_all_its_steps_and_begins_where_the_others_ended() -> None:
    load = Load(
        unfinished=10,
        prompts=(8, 120),
        outputs=(8, 60),
        settings={"num_gpu_blocks": 64, "max_num_seqs": 8, "max_num_batched_tokens": 64},
    )
    trace = Trace.parse(recorded_trace(load, 30, before=12).splitlines())
    assert trace.records[0].step == 12 and trace.records[-1].step == 41
    assert trace.header.state["engine"]["step"] == 12
    assert {record.phase for record in trace.records} >= set(STEP_PHASES)
    queue = trace.state()["queues"]
    assert queue["waiting"]["length"] > 0 and queue["running"]["length"] > 1
