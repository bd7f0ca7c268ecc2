"""Graphs whose small operations inductor compiles: they compute what the modules do, nearly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from engine.config import ConfigError, EngineConfig
from engine.cuda_graph import (
    CannotRecord,
    CapturedGraphs,
    CudagraphMode,
    GraphKey,
    check_inductor,
    inductor,
)
from engine.cuda_graph.captured import mixed_rows
from engine.cuda_graph.inductor import tolerance
from engine.events import GraphCaptured, GraphReplayed
from engine.kv_cache import KVCache, KVCacheSpec
from tests.engine.test_cuda_graph import fresh_llama
from tests.engine.test_model_runner import Engine, random_prompt
from tests.engine.tiny_configs import plain_greedy, tiny

CPU = torch.device("cpu")
INDUCTOR = EngineConfig(compilation_backend="inductor")


def compiler_missing() -> str:
    """Why there is no inductor here, or nothing."""
    try:
        check_inductor(INDUCTOR, CPU)
    except ConfigError as error:
        return str(error)
    return ""


def test_an_engine_is_refused_by_name_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="compilation_backend inductor: .* is on cuda; set it"):
        check_inductor(INDUCTOR, torch.device("cuda"))

    def none_found() -> str:
        raise RuntimeError

    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", none_found)
    with pytest.raises(ConfigError, match="needs a C.. compiler, and none was found; install"):
        Engine(tiny("llama"), compilation_backend="inductor")
    check_inductor(EngineConfig(), CPU)  # nobody else needs one


def test_replays_write_the_models_text_and_say_how_far_they_are_off() -> None:
    """Both modes, with padding, while blocks are evicted; both modes share what is compiled."""
    if missing := compiler_missing():
        pytest.skip(missing)
    model, rng = tiny("llama"), random.Random(3)
    settings = {"compilation_backend": "inductor", "cudagraph_capture_sizes": (8,)}
    engine = Engine(model, block_size=4, num_gpu_blocks=14, max_num_batched_tokens=8, **settings)
    for i in range(5):
        engine.add(f"r{i}", random_prompt(rng, rng.randrange(3, 12)), max_tokens=6)
    outputs = engine.run()
    for key, request in engine.requests.items():
        assert outputs[key] == plain_greedy(model, request.all_token_ids[:-6], 6)
    assert {"FULL", "PIECEWISE"} == {facts.mode for facts in engine.facts(GraphReplayed)}
    plain = CapturedGraphs.of(model, engine.runner.kv_cache)
    assert engine.runner.graphs is not plain  # that of an engine without inductor
    key = GraphKey(CudagraphMode.FULL, 8)
    as_recorded = plain.by_key.get(key) or plain.capture(key, model, engine.runner.kv_cache)
    for facts in engine.facts(GraphCaptured):
        assert facts.backend == "list compiled by inductor"
        assert any("rsqrt+mul" in name for name in facts.operations)
        assert facts.replayed < as_recorded.graph.operations.replayed / 2
        assert 0 <= facts.max_difference < 1e-3

    graph = engine.runner.graphs.by_key[GraphKey(CudagraphMode.PIECEWISE, 8)].graph
    kv_cache: KVCache = engine.runner.kv_cache
    with torch.inference_mode():
        rows = mixed_rows(8, 2, model, kv_cache)
        eager = graph.run_eagerly(rows, model, kv_cache).logits
        replay = graph.replay(rows, model, kv_cache).logits
    off = float((eager - replay).abs().max())
    assert off <= tolerance(torch.float32) * float(eager.abs().max())


@pytest.mark.parametrize("mode", [CudagraphMode.FULL, CudagraphMode.PIECEWISE])
@pytest.mark.parametrize(
    ("factor", "is_taken"),
    [(1.0, True), (1 + 3e-6, True), (1.01, False), (float("nan"), False)],
)
def test_a_graph_that_is_off_by_more_than_rounding_is_refused(
    monkeypatch: pytest.MonkeyPatch, mode: CudagraphMode, factor: float, is_taken: bool
) -> None:
    """What compiles is a stand-in here, whose kernels give this many times the right result."""

    def compiled(module: fx.GraphModule, given: Sequence[Tensor]) -> Any:
        def kernel(arguments: list[Tensor]) -> None:
            module(*arguments)
            arguments[-1].mul_(factor)

        return kernel

    monkeypatch.setattr(inductor, "compiled", compiled)
    model = fresh_llama()
    kv_cache = KVCache(KVCacheSpec.of(model, 4), 6, CPU)
    graphs, key = CapturedGraphs(CPU, {}), GraphKey(mode, 4)
    if not is_taken:
        with pytest.raises(CannotRecord, match="gives other logits"):
            graphs.capture(key, model, kv_cache)
        assert key in graphs.refused and not graphs.by_key
        return
    difference = graphs.capture(key, model, kv_cache).max_difference
    assert (difference > 0) == (factor != 1)
