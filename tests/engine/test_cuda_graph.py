"""Captured graphs: a replay gives, bit by bit, what the modules give, and the log is true of it."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from engine.cuda_graph import (
    CapturedGraphs,
    CudagraphMode,
    GraphKey,
    OperationList,
    Span,
)
from engine.cuda_graph import captured as captured_module
from engine.cuda_graph.arena import Life, allocate
from engine.cuda_graph.flat_list import FlatList
from engine.events import (
    BlockEvicted,
    ForwardRun,
    GraphCaptured,
    GraphReplayed,
    ModulesTimed,
    StepDispatched,
    TokensReturned,
)
from engine.forward import ModelInputs, context_of, run_eagerly
from engine.kv_cache import KVCache, KVCacheSpec
from engine.model_loader import LoadedModel
from engine.model_runner import ModelRunner
from engine.paged_attention import TorchPagedAttention
from engine.reasons import CannotCapture, NotUniformDecode, UniformDecode
from engine.records import Phase
from tests.engine.test_model_runner import Engine, random_prompt
from tests.engine.tiny_configs import CONFIGS, plain_greedy, tiny

CPU = torch.device("cpu")


def decoding(model: LoadedModel, requests: int, max_tokens: int = 6, **config: Any) -> Engine:
    """An engine whose next step decodes: every prompt is computed already, by the modules."""
    settings = {"max_num_batched_tokens": 64, "cudagraph_mode": "FULL_DECODE_ONLY", **config}
    engine = Engine(model, block_size=4, **settings)
    for i in range(requests):
        engine.add(f"r{i}", [5 + i, 6, 7, 8 + i], max_tokens=max_tokens)
    engine.core.step()
    return engine


def run_padded(runner: ModelRunner, inputs: ModelInputs, size: int) -> Tensor:
    """The logits that the modules give for the batch with its rows of padding."""
    rows = inputs.metadata.num_tokens
    ids, positions = torch.zeros(2, 1, size, dtype=torch.int64)
    ids[:, :rows], positions[:, :rows] = inputs.input_ids, inputs.positions
    wanted, metadata = inputs.logits_to_keep, inputs.metadata.padded_to(size)
    padded = ModelInputs(ids, positions, wanted, metadata)
    with torch.inference_mode():
        forward = run_eagerly(
            runner.model, padded, context_of(padded, runner.kv_cache, runner.timer)
        )
    return forward.logits


class ComparingRunner(ModelRunner):
    """Runs every batch that is to be replayed through the modules as well."""

    compared = 0

    def execute_model(self) -> None:
        inputs, dispatch = self._inputs, self._dispatch
        if inputs is None or dispatch is None or dispatch.mode == "NONE":
            return super().execute_model()
        before = [layer.data.clone() for layer in self.kv_cache.layers]
        expected = run_padded(self, inputs, dispatch.num_padded_tokens)
        written = [layer.data.clone() for layer in self.kv_cache.layers]
        for layer, content in zip(self.kv_cache.layers, before, strict=True):
            layer.data.copy_(content)
        super().execute_model()
        assert self._logits is not None and torch.equal(self._logits, expected)
        for layer, content in zip(self.kv_cache.layers, written, strict=True):
            assert torch.equal(layer.data[:, 1:], content[:, 1:])
        self.compared += 1


def comparing(model: LoadedModel, **config: Any) -> Any:
    """An engine that does so."""
    engine: Any = Engine(model, block_size=4, **config)
    runner = ComparingRunner(model, engine.core.config, engine.trace)
    engine.runner = engine.core.runner = runner
    return engine


# --- a replay is the forward -------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_replays_equal_the_padded_forward_while_blocks_are_evicted(name: str) -> None:
    """Every step of a run in a small pool: new inputs, padding, blocks that were others'."""
    model, rng = tiny(name), random.Random(3)
    engine = comparing(model, num_gpu_blocks=22, max_num_batched_tokens=14)
    for i in range(9):
        engine.add(f"r{i}", random_prompt(rng, rng.randrange(3, 20)), max_tokens=8)
    outputs = engine.run()
    dispatched = {
        (f.num_tokens, f.num_padded_tokens)
        for f in engine.facts(StepDispatched)
        if f.mode != "NONE"
    }
    assert engine.facts(BlockEvicted)
    assert any(tokens < padded for tokens, padded in dispatched), dispatched
    assert {"FULL", "PIECEWISE"} <= {f.mode for f in engine.facts(StepDispatched)}
    assert engine.runner.compared == len(engine.facts(GraphReplayed)) > 8
    for key, request in engine.requests.items():
        assert outputs[key] == plain_greedy(model, request.all_token_ids[:-8], 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_replays_equal_the_padded_forward_in_other_dtypes(dtype: torch.dtype) -> None:
    """A model of another dtype is another model, with graphs of its own."""
    engine = comparing(fresh_llama(dtype))
    for i in range(3):
        engine.add(f"r{i}", [5 + i, 6, 7], max_tokens=6)
    engine.run()
    assert engine.runner.compared == 6  # the prompts in pieces, then decodes
    assert engine.runner.kv_cache.layers[0].data.dtype is dtype


def test_decodes_with_drafts_replay_a_full_graph() -> None:
    """Uniform batches of more than one row a request, and mixed ones where a draft is missing."""
    drafter = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 1}
    model = tiny("llama")
    engine = comparing(model, max_num_batched_tokens=32, speculative_config=drafter)
    for i in range(3):
        engine.add(f"r{i}", [5 + i, 6, 5 + i, 6], max_tokens=24)
    outputs = engine.run()
    decided = engine.events(StepDispatched)
    assert any(e.reason == UniformDecode(3, 3) and e.facts.mode == "FULL" for e in decided)
    assert engine.runner.compared == len(engine.facts(GraphReplayed)) > 5
    for key, request in engine.requests.items():
        assert outputs[key] == plain_greedy(model, request.all_token_ids[:4], 24)


def test_engines_with_other_pools_share_a_list() -> None:
    model = fresh_llama()
    engines = [
        Engine(model, block_size=block_size, num_gpu_blocks=blocks, max_num_batched_tokens=64)
        for block_size, blocks in ((4, 30), (16, 9), (1, 80))
    ]
    prompts = {"a": [5, 6, 7], "b": [9, 8, 7, 6], "c": [3, 4]}
    for engine in engines:
        for key, prompt in prompts.items():
            engine.add(key, prompt, max_tokens=9)
    while any(engine.core.has_work() for engine in engines):
        for engine in engines:
            if engine.core.has_work():
                engine.core.step_phase()  # another's replay comes before this one's sampling
    told = [engine.facts(GraphCaptured) for engine in engines]
    assert [[(f.mode, f.size, f.shared) for f in facts] for facts in told] == [
        [("PIECEWISE", 16, shared), ("FULL", 4, shared)] for shared in (False, True, True)
    ]
    assert len({id(engine.runner.graphs) for engine in engines}) == 1
    for engine in engines:
        for key, prompt in prompts.items():
            assert engine.requests[key].output_token_ids == plain_greedy(model, prompt, 9)


def test_logits_outlive_the_next_replay() -> None:
    engine = decoding(tiny("llama"), 2)
    engine.until(Phase.SAMPLE)
    logits = engine.runner._logits
    assert logits is not None
    kept = logits.clone()
    decoding(tiny("llama"), 2).run()
    assert torch.equal(logits, kept)


def test_a_prompt_s_chunk_of_one_token_rides_along_and_samples_nothing() -> None:
    model = tiny("llama")
    engine = Engine(model, block_size=4, max_num_batched_tokens=2, max_num_seqs=2)
    prompts = {"a": [7], "b": random_prompt(random.Random(0), 6)}
    for key, prompt in prompts.items():
        engine.add(key, prompt, max_tokens=9)
    outputs = engine.run()
    sampled = {event.step: event.facts.num_tokens for event in engine.events(TokensReturned)}
    replays = engine.events(GraphReplayed)
    assert {(e.facts.num_tokens, sampled[e.step]) for e in replays} >= {(2, 1), (2, 2)}
    for key, prompt in prompts.items():
        assert outputs[key] == plain_greedy(model, prompt, 9)


@pytest.mark.parametrize("phase", [Phase.EXECUTE, Phase.SAMPLE])
def test_an_abort_around_a_replay_leaves_the_others_alone(phase: Phase) -> None:
    model = tiny("llama")
    engine = decoding(model, 3)
    engine.until(phase)
    engine.core.abort_requests(["r1"])
    outputs = engine.run()
    replayed = [f for f in engine.facts(GraphReplayed) if f.mode == "FULL"]
    sizes = [(f.num_tokens, f.num_padded_tokens) for f in replayed]
    assert sizes[0] == ((2, 2) if phase is Phase.EXECUTE else (3, 4))
    for key in ("r0", "r2"):
        assert outputs[key] == plain_greedy(model, engine.requests[key].all_token_ids[:4], 6)


# --- nothing else runs, and nothing else is written ---------------------------------------------


@contextmanager
def counted_modules() -> Iterator[list[str]]:
    calls: list[str] = []
    hook = nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: calls.append(type(module).__name__)
    )
    try:
        yield calls
    finally:
        hook.remove()


def test_no_module_is_called_during_a_replay() -> None:
    engine = decoding(tiny("llama"), 3)
    engine.core.step()
    with counted_modules() as calls:
        engine.core.step()
    assert engine.facts(StepDispatched)[-1] == StepDispatched("FULL", 3, 4)
    assert calls == ["LlamaForCausalLM", "LlamaModel", "Linear"]  # the head, and what calls it
    eager = decoding(tiny("llama"), 3, enforce_eager=True)
    with counted_modules() as calls:
        eager.core.step()
    assert "LlamaMLP" in calls  # the hook would have seen them


def listed(facts: GraphCaptured) -> list[str]:
    """All operations of the log's list, layer after layer."""
    rows = list(
        zip(facts.first_layers, facts.last_layers, facts.kinds, facts.operations, strict=True)
    )
    names = []
    while rows:
        first, last = rows[0][:2]
        block = [row for row in rows if row[:2] == (first, last)]
        together = next((i for i, row in enumerate(rows) if row[:2] != (first, last)), len(rows))
        block, rows = rows[:together], rows[together:]
        for _ in range(first, last + 1):
            names += [name for row in block for name in row[3].split()]
    return names


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_the_operations_listed_are_those_executed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = decoding(tiny(name), 2, attention_backend="torch")
    engine.core.step()
    executed: list[str] = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            executed.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    replay, attend = FlatList.replay, TorchPagedAttention.forward

    def noting_replay(*arguments: Any) -> None:
        with Noting():
            replay(*arguments)

    def noting_attention(*arguments: Any) -> Tensor:
        executed.append("paged_attention")
        with _disable_current_modes():
            return attend(*arguments)

    monkeypatch.setattr(FlatList, "replay", noting_replay)
    monkeypatch.setattr(TorchPagedAttention, "forward", noting_attention)
    engine.core.step()
    (facts,) = engine.facts(GraphCaptured)
    expected = []
    for operation in listed(facts):
        if operation == "paged_attention":
            expected += ["paged_attention", "copy_"]  # its result into the buffer
        elif operation == "native_layer_norm":
            expected += ["native_layer_norm", "copy_", "copy_", "copy_"]  # it has three results
        else:
            expected.append("copy_" if operation in ("_to_copy", "clone") else operation)
    assert executed == expected
    assert facts.replayed == len(listed(facts))
    assert engine.facts(GraphReplayed)[-1].operations == facts.replayed
    assert facts.recorded == facts.replayed + facts.folded + facts.views


def test_a_capture_writes_to_nothing_but_block_0() -> None:
    model = fresh_llama()
    cache = KVCache(KVCacheSpec.of(model, 4), 6, CPU)
    for layer in cache.layers:
        layer.data.uniform_(-1, 1)
    before = [layer.data.clone() for layer in cache.layers]
    graphs = CapturedGraphs.of(model, cache)
    for mode in (CudagraphMode.FULL, CudagraphMode.PIECEWISE):
        for size in (1, 4, 8):
            graphs.capture(GraphKey(mode, size), model, cache)
    for layer, content in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.data[:, 1:], content[:, 1:])
        assert not torch.equal(layer.data[:, 0], content[:, 0])


def test_what_lies_in_block_0_matters_to_nobody() -> None:
    model = tiny("llama")
    engine = Engine(model, block_size=4, max_num_batched_tokens=64)
    prompts = {"a": [5], "b": [5, 6, 7, 8], "c": [5, 6, 7, 8, 9]}  # on one, two and two pages
    for key, prompt in prompts.items():
        engine.add(key, prompt, max_tokens=6)
    engine.core.step()
    engine.core.step()  # what has to be captured is captured
    for layer in engine.runner.kv_cache.layers:
        layer.data[:, 0] = float("nan")
    outputs = engine.run()
    for key, prompt in prompts.items():
        assert outputs[key] == plain_greedy(model, prompt, 6)


# --- what cannot be captured --------------------------------------------------------------------


def fresh_llama(dtype: torch.dtype = torch.float32) -> LoadedModel:
    """A model that nobody has captured anything of."""
    model = tiny("llama")
    return replace(model, model=deepcopy(model.model).to(dtype))


class Peeking(nn.Module):
    """A part of a model whose Python looks at a value."""

    def __init__(self, inner: nn.Module, look: Any):
        super().__init__()
        self.inner, self.look = inner, look

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x) * self.look(x)
        return result


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda x: 1.0 if x.sum().item() < 1e9 else 2.0, "what runs depends on values"),
        (lambda x: 1.0 + float(x.numpy().sum()) * 1e-3, "gives other logits"),
        (lambda x: 1.0 + torch.rand(()) * 1e-9, "it draws random numbers (rand)"),
        (lambda x: x.no_such_thing, "AttributeError: "),
    ],
)
def test_a_model_that_is_no_list_runs_eagerly_and_says_why(look: Any, message: str) -> None:
    model = fresh_llama()
    layers: Any = model.model.model.layers
    engine = decoding(model, 3, max_tokens=4)
    inner = layers[1].mlp

    def only_in_captures(x: Tensor) -> Any:
        return look(x) if capturing else 1.0

    capturing = False
    layers[1].mlp = Peeking(inner, only_in_captures)
    original = CapturedGraphs.capture

    def capture(*arguments: Any) -> Any:
        nonlocal capturing
        capturing = True
        try:
            return original(*arguments)
        finally:
            capturing = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CapturedGraphs, "capture", capture)
        outputs = engine.run()
    layers[1].mlp = inner
    modes = [(f.mode, f.num_padded_tokens) for f in engine.facts(StepDispatched)]
    assert modes == [("NONE", 12), ("FULL", 4), ("NONE", 3), ("NONE", 3), ("NONE", 3)]
    reasons = [event.reason for event in engine.events(StepDispatched)][2:]
    assert all(isinstance(r, CannotCapture) and message in r.message for r in reasons), reasons
    assert not engine.facts(GraphCaptured, GraphReplayed)
    for key, request in engine.requests.items():
        assert outputs[key] == plain_greedy(model, request.all_token_ids[:4], 4)


def test_why_a_capture_failed_is_told_in_one_line() -> None:
    """Torch's errors have pages, and the log says the reason again at each step."""

    def fail(*_: Any) -> None:
        raise RuntimeError("no memory\nException raised from ...")

    engine = decoding(fresh_llama(), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured_module, "Recording", fail)
        engine.run()
    reason = engine.events(StepDispatched)[-1].reason
    assert reason == CannotCapture("RuntimeError: no memory")


def test_a_forward_that_changes_what_outlives_it_is_refused() -> None:
    model = fresh_llama()
    inner: Any = model.model.model.layers[0]
    inner.mlp.count = torch.zeros(())
    inner.mlp.register_forward_pre_hook(lambda module, _: (module.count.add_(1), None)[1])
    engine = decoding(model, 1)
    assert engine.events(StepDispatched)[-1].reason == NotUniformDecode(1, 1, 4)
    engine.core.step()
    reason = engine.events(StepDispatched)[-1].reason
    assert isinstance(reason, CannotCapture) and "outlive" in reason.message


def test_graphs_go_with_their_model() -> None:
    model = fresh_llama()
    decoding(model, 1).run()
    count = len(captured_module._graphs)
    del model
    gc.collect()
    assert len(captured_module._graphs) < count


# --- the log -------------------------------------------------------------------------------------


def test_the_log_of_a_capture_and_its_replays() -> None:
    engine = decoding(fresh_llama(), 3, max_tokens=4)
    engine.run()
    (capture,) = engine.events(GraphCaptured)
    facts = capture.facts
    assert (facts.size, facts.shared, capture.phase) == (4, False, Phase.EXECUTE)
    assert capture.duration_us > facts.eager_us > 0 and facts.replay_us > 0
    assert (facts.mode, facts.backend, facts.pieces) == ("FULL", "recorded list", 1)
    assert facts.num_bytes > 0
    assert facts.buffer_names == ("input_ids", "positions", "results", "hidden_states")
    assert facts.buffer_holds[0] == "int64[1,4]"
    assert (facts.first_layers[0], facts.kinds[0]) == (-1, "embed")
    assert (0, 2, "attention", "paged_attention") in zip(
        facts.first_layers, facts.last_layers, facts.kinds, facts.operations, strict=True
    )
    replays, forwards = engine.events(GraphReplayed), engine.events(ForwardRun)[1:]
    assert [e.facts for e in replays] == [GraphReplayed("FULL", 3, 4, 1, facts.replayed)] * 3
    assert [e.duration_us for e in replays] == [e.duration_us for e in forwards]
    for forward, times in zip(forwards, engine.facts(ModulesTimed)[1:], strict=True):
        assert sum(times.durations_us) == pytest.approx(forward.duration_us, abs=1.0)
        assert dict(zip(times.kinds, times.calls, strict=True))["mlp"] == 3
    assert engine.trace.state() == engine.core.state()
    assert engine.core.state()["graphs"]["FULL 4"]["replayed"] == facts.replayed


def test_layers_that_do_the_same_are_listed_once() -> None:
    def layer(index: int, *names: str) -> list[Span]:
        return [span(index, "norm", "mul"), span(index, "mlp", *names)]

    def span(layer: int, kind: str, *names: str) -> Span:
        return Span(layer, kind, names, ("float32[2]",) * len(names))

    spans = [span(-1, "embed", "embedding"), *layer(0, "mm"), *layer(1, "mm")]
    spans += [*layer(2, "mm", "add"), *layer(3, "mm"), span(-1, "lm_head", "mm")]
    found = OperationList.of(spans, recorded=20, folded=1, views=2)
    assert list(zip(*found[4:-1], strict=True)) == [
        (-1, -1, "embed", "embedding"),
        (0, 1, "norm", "mul"),
        (0, 1, "mlp", "mm"),
        (2, 2, "norm", "mul"),
        (2, 2, "mlp", "mm add"),
        (3, 3, "norm", "mul"),
        (3, 3, "mlp", "mm"),
        (-1, -1, "lm_head", "mm"),
    ]
    assert found.replayed == 11
    assert found.results[4] == "float32[2] float32[2]"


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_buffers_that_live_together_never_overlap(seed: int) -> None:
    rng = random.Random(seed)
    lives = []
    for key in range(60):
        first = rng.randrange(100)
        lives.append(Life(key, first, first + rng.randrange(12), rng.randrange(1, 900)))
    places, size = allocate(lives)
    for life in lives:
        assert places[life.storage] % 64 == 0
        assert places[life.storage] + life.num_bytes <= size
        for other in lives:
            together = life.first <= other.last and other.first <= life.last
            if other is not life and together:
                a, b = places[life.storage], places[other.storage]
                assert a + life.num_bytes <= b or b + other.num_bytes <= a
    assert size < sum(life.num_bytes for life in lives) / 2
