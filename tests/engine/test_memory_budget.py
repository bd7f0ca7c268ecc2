"""An engine that is given a memory budget measures what it needs, and makes blocks of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine import memory_budget, profile_run
from engine.async_llm import AsyncLLM
from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.cuda_graph.captured import CapturedGraphs
from engine.events import MemorySized
from engine.forward import ModelInputs
from engine.kv_cache import KVCache, KVCacheSpec
from engine.memory_budget import size_memory
from engine.metrics.stats_line import start_texts
from engine.model_loader import LoadedModel
from engine.profile_run import Batch, Kind, measure, peak_bytes
from engine.reasons import CacheLimitsLength
from engine.records import Event
from engine.sessions import POOL_SHARE, Sessions

Make = Callable[..., AsyncLLM]
DEVICE_BYTES = 10_000_000


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 MB, all of them free."""
    monkeypatch.setattr(memory_budget, "memory_bytes", lambda device: DEVICE_BYTES)
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: DEVICE_BYTES)


def first_event(engine: AsyncLLM) -> Event:
    event = engine.trace.records[0]
    assert isinstance(event, Event) and isinstance(event.facts, MemorySized)
    return event


def facts_of(engine: AsyncLLM) -> MemorySized:
    facts = first_event(engine).facts
    assert isinstance(facts, MemorySized)
    return facts


def error(model: LoadedModel, share: int = 1, **config: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        size_memory(model, EngineConfig(num_gpu_blocks=0, **config), share)
    return str(caught.value)


def kind(tokens: int, requests: int = 8) -> Kind:
    return Kind(Batch(tokens, requests), 16, torch.float32, (), "torch")


# --- the measurement ---------------------------------------------------------------------------


def test_the_peak_is_what_was_allocated_at_a_time() -> None:
    def two_then_one() -> None:
        first, second = torch.ones(1_000_000), torch.ones(500_000)
        del first, second
        torch.ones(1_200_000)

    assert peak_bytes(two_then_one, torch.device("cpu")) == 6_000_000


def test_more_tokens_need_more_and_a_second_measurement_finds_the_same(
    tiny_model: LoadedModel,
) -> None:
    found = [measure(tiny_model, kind(tokens)).activations for tokens in (16, 64, 256)]
    assert found == sorted(set(found))
    assert measure(tiny_model, kind(256)).activations == found[-1]
    # Its hidden states alone, in and out of a layer.
    assert found[-1] > 2 * 256 * tiny_model.hidden_size * 4


def test_the_whole_batch_is_run_once(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    run_once = profile_run.run_once

    def run(model: LoadedModel, inputs: ModelInputs, kv_cache: KVCache) -> None:
        ran.append(inputs.metadata.num_tokens)
        run_once(model, inputs, kv_cache)

    monkeypatch.setattr(profile_run, "run_once", run)
    measure(tiny_model, kind(256))
    assert ran == [1, 256]


def test_logits_of_all_requests_count(tiny_model: LoadedModel) -> None:
    few, many = (measure(tiny_model, kind(64, requests)).activations for requests in (1, 64))
    assert many - few > 60 * tiny_model.vocab_size * 4


def test_the_run_writes_to_block_0_alone(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[KVCache] = []
    monkeypatch.setattr(
        profile_run, "KVCache", lambda *args: pools.append(KVCache(*args)) or pools[-1]
    )
    measure(tiny_model, kind(64))
    assert [pool.num_blocks for pool in pools] == [1]
    assert pools[0].layers[0].data.any()


def test_a_step_is_no_longer_than_its_requests_may_be(tiny_model: LoadedModel) -> None:
    config = EngineConfig(max_num_batched_tokens=32_768, max_num_seqs=3, max_model_len=10)
    assert Batch.of(config, 2048) == (30, 3)
    assert Batch.of(EngineConfig(max_num_batched_tokens=10), 2048).query_lens == [2, 2] + [1] * 6


def test_what_was_measured_is_known(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(num_gpu_blocks=0, max_num_batched_tokens=48)
    first = profile_run.profile_run(tiny_model, config)
    monkeypatch.setattr(profile_run, "measure", None)
    again = config.model_copy(update={"num_gpu_blocks": 9, "gpu_memory_utilization": 0.5})
    assert profile_run.profile_run(tiny_model, again) is first


def test_graphs_take_what_was_estimated(tiny_model: LoadedModel) -> None:
    spec = KVCacheSpec.of(tiny_model, 16)
    pool = KVCache(spec, 1, tiny_model.model.device)
    keys = profile_run.graph_keys(EngineConfig())
    assert keys[0].size == 16 and keys[-1].size == 1
    estimate = profile_run.graph_bytes(tiny_model, pool, keys)
    graphs = CapturedGraphs.of(tiny_model, pool)
    for key in keys:
        if key not in graphs.by_key:
            graphs.capture(key, tiny_model, pool)
    assert estimate == max(graphs.by_key[key].graph.num_bytes for key in keys)
    assert profile_run.graph_bytes(tiny_model, pool, ()) == 0


# --- from a budget to blocks ---------------------------------------------------------------------


def test_blocks_fill_the_budget(tiny_model: LoadedModel, small_device: None) -> None:
    config = EngineConfig(num_gpu_blocks=0, gpu_memory_utilization=0.4)
    found = size_memory(tiny_model, config)
    facts = found.facts
    assert facts.budget_bytes == 4_000_000 and facts.set_by == "gpu_memory_utilization"
    assert facts.weight_bytes == tiny_model.weight_bytes
    assert facts.activation_bytes > 0 and facts.profiled_tokens == 64 and facts.graph_bytes > 0
    left = 4_000_000 - facts.weight_bytes - facts.activation_bytes - facts.graph_bytes
    assert facts.available_bytes == left
    block = KVCacheSpec.of(tiny_model, 16).bytes_per_block
    assert facts.num_blocks * block <= left < (facts.num_blocks + 1) * block
    assert found.config.num_gpu_blocks == facts.num_blocks
    assert config.num_gpu_blocks == 0  # what was asked is as it was


def test_bytes_of_the_cache_go_before_the_share(
    tiny_model: LoadedModel, small_device: None
) -> None:
    config = EngineConfig(
        num_gpu_blocks=0, gpu_memory_utilization=0.01, kv_cache_memory_bytes=1_000_000
    )
    facts = size_memory(tiny_model, config).facts
    assert facts.set_by == "kv_cache_memory_bytes" and facts.budget_bytes == 0
    assert facts.num_blocks == 1_000_000 // 16_384


def test_a_number_of_blocks_goes_before_both(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "profile_run", None)  # nothing is measured for it
    config = EngineConfig(gpu_memory_utilization=0.01, kv_cache_memory_bytes=1)
    facts = size_memory(tiny_model, config).facts
    assert (facts.set_by, facts.num_blocks, facts.profiled_tokens) == ("num_gpu_blocks", 64, 0)


def test_half_the_bytes_are_twice_the_blocks(tiny_model: LoadedModel, small_device: None) -> None:
    config = EngineConfig(num_gpu_blocks=0, kv_cache_memory_bytes=1_048_576)
    halved = config.model_copy(update={"kv_cache_dtype": "bfloat16"})
    assert size_memory(tiny_model, config).facts.num_blocks == 64
    assert size_memory(tiny_model, halved).facts.num_blocks == 128


def test_the_cache_limits_a_length_that_nobody_set(
    tiny_model: LoadedModel, small_device: None
) -> None:
    config = EngineConfig(num_gpu_blocks=0, kv_cache_memory_bytes=1_048_576)
    found = size_memory(tiny_model, config)
    assert found.config.max_model_len == found.facts.max_model_len == 63 * 16
    assert found.reason == CacheLimitsLength(63 * 16, 2048)
    named = size_memory(tiny_model, config.model_copy(update={"max_model_len": 500}))
    assert named.reason is None and named.config.max_model_len == 500


def test_the_start_has_vllms_words(tiny_model: LoadedModel, small_device: None) -> None:
    config = EngineConfig(num_gpu_blocks=0, gpu_memory_utilization=0.2)
    facts, reason = size_memory(tiny_model, config)[2:]
    facts = facts._replace(available_bytes=2**29, graph_bytes=2**28, num_blocks=64)
    facts = facts._replace(max_model_len=1008)
    assert start_texts(facts, reason and reason._replace(holds=1008)) == [
        "Estimated CUDA graph memory: 0.25 GiB total",
        "Available KV cache memory: 0.5 GiB",
        "Auto-fit max_model_len: reduced from 2048 to 1008 to fit in available GPU memory "
        "(0.5 GiB available for KV cache)",
        "GPU KV cache size: 1,024 tokens",
        "Maximum concurrency for 1,008 tokens per request: 1.02x",
    ]


# --- what cannot be ----------------------------------------------------------------------------


def test_a_length_above_the_cache_names_the_largest_that_fits(
    tiny_model: LoadedModel, small_device: None
) -> None:
    said = error(tiny_model, kv_cache_memory_bytes=1_048_576, max_model_len=1009)
    assert said == (
        "max_model_len 1009 does not fit the KV cache: 63 blocks of 16 hold 1008 tokens; set it "
        "to 1008 or less, or raise kv_cache_memory_bytes"
    )
    config = EngineConfig(num_gpu_blocks=0, kv_cache_memory_bytes=1_048_576, max_model_len=1008)
    assert size_memory(tiny_model, config).config.max_model_len == 1008


@pytest.mark.parametrize("share", [0.01, 0.05, 0.0661])
def test_weights_above_the_budget_are_told_what_would_do(
    tiny_model: LoadedModel, small_device: None, share: float
) -> None:
    said = error(tiny_model, gpu_memory_utilization=share)
    assert said.startswith(f"gpu_memory_utilization {share}: no memory is left for the KV cache.")
    assert "weights take 658 kB" in said
    enough = float(said.split("raise it to ")[1].split(" ")[0])
    config = EngineConfig(num_gpu_blocks=0, gpu_memory_utilization=enough)
    assert size_memory(tiny_model, config).facts.num_blocks >= 2


def test_a_cache_without_two_blocks_is_told_what_would_do(
    tiny_model: LoadedModel, small_device: None
) -> None:
    said = error(tiny_model, kv_cache_memory_bytes=32_767)
    assert said == (
        "kv_cache_memory_bytes 32767: no memory is left for the KV cache. Two blocks, the fewest, "
        "take 32.8 kB; raise it to 32768 or more"
    )
    config = EngineConfig(num_gpu_blocks=0, kv_cache_memory_bytes=32_768)
    assert size_memory(tiny_model, config).facts.num_blocks == 2


@pytest.mark.parametrize(
    ("free", "share", "why"),
    [
        (DEVICE_BYTES, POOL_SHARE, "a session may take 2.5 MB"),
        (3_000_000, 1, "3 MB are free now"),
    ],
)
def test_more_than_there_is_is_told_what_would_do(
    tiny_model: LoadedModel,
    small_device: None,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    share: int,
    why: str,
) -> None:
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: free)
    for asked in ({"gpu_memory_utilization": 0.92}, {"kv_cache_memory_bytes": 8_000_000}):
        said = error(tiny_model, share, **asked)
        assert why in said
        less = float(said.split("lower it to ")[1].split(" ")[0])
        [name] = asked
        config = EngineConfig.parse({"num_gpu_blocks": 0, name: less})
        assert size_memory(tiny_model, config, share).facts.num_blocks > 1


def test_more_blocks_than_an_engine_may_have_are_refused(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "memory_bytes", lambda device: 2**40)
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: 2**40)
    assert "an engine here has 65,536 at most" in error(tiny_model, gpu_memory_utilization=0.5)


# --- an engine ---------------------------------------------------------------------------------


def test_an_engine_starts_with_a_budget_and_generates(make: Make) -> None:
    engine = make(num_gpu_blocks=0, kv_cache_memory_bytes=500_000)
    facts = facts_of(engine)
    assert engine.config.num_gpu_blocks == facts.num_blocks == 500_000 // 16_384
    assert engine.requested_config.num_gpu_blocks == 0
    assert len(engine.trace.header.state["blocks"]) == facts.num_blocks
    assert (first_event(engine).duration_us or 0) > 0
    stream = engine.submit([1, 2, 3], SamplingParams(max_tokens=2, temperature=0))
    engine.run()
    assert len(list(stream)) >= 2
    assert engine.stats.pool_set_by == "kv_cache_memory_bytes"


def test_a_budget_that_cannot_be_leaves_the_engine_as_it_was(make: Make) -> None:
    engine = make()
    before = engine.trace
    with pytest.raises(ConfigError, match="no memory is left for the KV cache"):
        engine.reset(EngineConfig(num_gpu_blocks=0, kv_cache_memory_bytes=10))
    assert engine.trace is before
    engine.reset(EngineConfig(num_gpu_blocks=0, kv_cache_memory_bytes=500_000))
    assert facts_of(engine).num_blocks == 30
    engine.reset()  # asks for a budget again, not for the blocks that came of it
    assert facts_of(engine).set_by == "kv_cache_memory_bytes"


def test_the_log_of_a_model_begins_with_its_memory(make: Make) -> None:
    engine = make()
    facts = facts_of(engine)
    assert facts.set_by == "num_gpu_blocks" and facts.num_blocks == 64
    assert first_event(engine).duration_us is None  # nothing was measured
    assert engine.is_fresh
    engine.run()
    assert not engine.is_fresh


def test_a_session_has_its_part_of_the_memory(tiny_model: LoadedModel, small_device: None) -> None:
    sessions = Sessions(lambda report: tiny_model)
    sessions.wait_for_model()
    engine = sessions.get(sessions.create())
    assert engine is not None
    with pytest.raises(ConfigError, match=r"a session may take 2\.5 MB"):
        engine.reset(EngineConfig(num_gpu_blocks=0, gpu_memory_utilization=0.9))
    sessions.close()
