"""CUDA graphs: whole forwards and pieces, with rows to spare and drafts.

On a CPU by a stand-in for torch.cuda, and on a GPU where there is one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from engine.events import GraphCaptured, GraphReplayed, RequestPreempted, StepDispatched
from engine.model_loader import LoadedModel
from engine.reasons import CannotCapture
from tests.engine.cuda_on_cpu import GraphOnCpu, on_device, stand_in
from tests.engine.test_cuda_graph import Peeking, fresh_llama
from tests.engine.test_model_runner import Engine, random_prompt
from tests.engine.tiny_configs import CONFIGS, plain_greedy, tiny

DRAFTER = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 1}
Make = Callable[..., Engine]


@pytest.fixture(params=["stand-in", pytest.param("cuda", marks=pytest.mark.gpu)])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes engines with CUDA graphs."""
    if request.param == "stand-in":
        stand_in(monkeypatch)

    def engine(model: LoadedModel, **settings: Any) -> Engine:
        settings = {"block_size": 4, "max_num_batched_tokens": 16, **settings}
        if request.param == "stand-in":
            return on_device(Engine(model, **settings))
        return Engine(replace(model, model=deepcopy(model.model).cuda()), **settings)

    return engine


def run(engine: Engine, name: str, prompts: dict[str, list[int]], max_tokens: int = 8) -> None:
    """To the end, and every text is what the model writes on a CPU."""
    for key, prompt in prompts.items():
        engine.add(key, prompt, max_tokens=max_tokens)
    outputs = engine.run()
    for key, prompt in prompts.items():
        assert outputs[key] == plain_greedy(tiny(name), prompt, max_tokens), key


def replayed(engine: Engine) -> set[tuple[str, int, int]]:
    """Mode, rows and padded rows of every step that was."""
    assert not [e for e in engine.events(StepDispatched) if isinstance(e.reason, CannotCapture)]
    return {(f.mode, f.num_tokens, f.num_padded_tokens) for f in engine.facts(GraphReplayed)}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_step_replays_in_pieces_or_whole(make: Make, name: str) -> None:
    """In a small pool: new inputs, padding, requests that start anew in others' blocks."""
    rng = random.Random(3)
    engine = make(tiny(name), num_gpu_blocks=14, max_num_batched_tokens=14)
    run(engine, name, {f"r{i}": random_prompt(rng, rng.randrange(3, 20)) for i in range(5)})
    found = replayed(engine)
    assert {mode for mode, _, _ in found} == {"FULL", "PIECEWISE"}
    assert any(rows < padded for _, rows, padded in found)
    assert engine.facts(RequestPreempted)
    assert {(f.mode, f.pieces) for f in engine.facts(GraphReplayed)} == {
        ("FULL", 1),
        ("PIECEWISE", engine.runner.model.num_layers + 1),
    }


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_a_full_graph_takes_drafts(make: Make, name: str) -> None:
    engine = make(tiny(name), max_num_batched_tokens=32, speculative_config=DRAFTER)
    run(engine, name, {f"r{i}": [5 + i, 6, 5 + i, 6] for i in range(3)}, 24)
    assert ("FULL", 9) in {(mode, rows) for mode, rows, _ in replayed(engine)}


def test_mode_full_takes_any_batch(make: Make) -> None:
    engine = make(tiny("llama"), cudagraph_mode="FULL")
    run(engine, "llama", {"a": [5, 6, 7], "b": [8, 9, 10, 11, 12, 13, 14], "c": [3, 4]})
    found = replayed(engine)
    assert {mode for mode, _, _ in found} == {"FULL"}
    assert max(rows for _, rows, _ in found) == 12


def test_pools_have_graphs_of_their_own(make: Make) -> None:
    """They hold the addresses of one."""
    engines = [make(tiny("llama"), num_gpu_blocks=blocks) for blocks in (30, 40)]
    for engine in engines:
        run(engine, "llama", {"a": [5, 6, 7], "b": [8, 9]})
        assert not any(facts.shared for facts in engine.facts(GraphCaptured))


@pytest.mark.parametrize("mode", ["FULL", "PIECEWISE"])
def test_the_log_names_what_a_graph_holds(make: Make, mode: str) -> None:
    engine = make(tiny("llama"), cudagraph_mode=mode)
    run(engine, "llama", {"a": [5, 6, 7, 8]})
    facts = engine.facts(GraphCaptured)[0]
    assert (facts.mode, facts.size, facts.backend, facts.shared) == (mode, 4, "CUDA graph", False)
    between = {
        "FULL": ("slot_mapping", "block_table", "seq_lens"),
        "PIECEWISE": ("query", "key", "value", "attention"),
    }[mode]
    assert facts.buffer_names == ("input_ids", "positions", *between, "hidden_states")
    assert facts.num_bytes > 0 and facts.max_difference == 0
    assert "paged_attention" in " ".join(facts.operations)
    assert facts.recorded == facts.replayed + facts.folded + facts.views


@pytest.mark.parametrize("mode", ["FULL", "PIECEWISE"])
def test_a_capture_that_fails_is_over(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """The steps run eagerly then, and another size can be tried."""
    stand_in(monkeypatch)
    model = fresh_llama()
    layers: Any = model.model.model.layers
    peek = Peeking(layers[1].mlp, lambda x: x.sum().item() if GraphOnCpu.capturing else 1.0)
    layers[1].mlp = peek
    engine = on_device(Engine(model, block_size=4, max_num_batched_tokens=16, cudagraph_mode=mode))
    engine.add("a", [5, 6, 7], max_tokens=8)
    outputs = engine.run()
    refused = [e for e in engine.events(StepDispatched) if isinstance(e.reason, CannotCapture)]
    assert {event.facts.num_tokens for event in refused} == {3, 1}
    assert all("not permitted" in event.reason.message for event in refused)
    assert not engine.facts(GraphReplayed) and not GraphOnCpu.capturing
    layers[1].mlp = peek.inner
    assert outputs["a"] == plain_greedy(model, [5, 6, 7], 8)
