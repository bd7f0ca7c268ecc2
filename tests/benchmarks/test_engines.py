"""The engines that benchmarks compare do the same work."""

from __future__ import annotations

from benchmarks.engines import PROMPT_TOKENS, WARM_STEPS, Decoding, UnloggedDecoding
from benchmarks.recording import recorded_trace
from benchmarks.replay import LAUNCH_BOUND_LAYERS, decode, launch_bound_model
from engine.core import EngineCore
from engine.events import STEP_PHASES
from engine.model_loader import load_model
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
    found = decode(eager)
    assert 0 < found.forward_ms < found.step_ms and not found.replayed
    assert eager.dispatch().reason == "enforce_eager"
    assert decode(graph).replayed
    assert tokens(graph.core) == tokens(eager.core)


def test_a_recording_has_all_its_steps() -> None:
    trace = Trace.parse(recorded_trace(30).splitlines())
    assert trace.records[-1].step == 29
    assert {record.phase for record in trace.records} >= set(STEP_PHASES)
    queue = trace.state()["queues"]
    assert queue["waiting"]["length"] > 0 and queue["running"]["length"] > 1
