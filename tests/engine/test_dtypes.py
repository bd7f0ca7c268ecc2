"""Weights and KV cache in 16 bits: close to fp32, half the bytes, made once and freed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from engine.async_llm import AsyncLLM
from engine.config import ConfigError, EngineConfig, SamplingParams
from engine.events import GraphReplayed, KVWritten, MemorySized, PagesRead, WeightsRead
from engine.input_processor import Submission
from engine.kv_cache import KVCache, KVCacheSpec, LayerKVCache
from engine.kv_quantization import dequantize, quantize
from engine.memory_budget import size_memory
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import by_name, in_dtype, kv_cache_dtype
from engine.module_timer import ModuleTimer
from engine.records import Event
from engine.sessions import POOL_SHARE
from engine.trace import Trace
from tests.engine.test_paged_attention import (
    BLOCK_SIZE,
    CPU,
    LENGTHS,
    NUM_BLOCKS,
    PagedSequences,
)
from tests.engine.tiny_configs import plain_logits, tiny

HALVES = ["bfloat16", "float16"]
QUANTIZED = ["fp8_e4m3", "fp8_e5m2", "int8_per_token_head"]


def paged_in(model: LoadedModel, config: EngineConfig) -> PagedSequences:
    """Sequences over a pool of the dtype that these settings want, run by such a model."""
    sequences = PagedSequences(in_dtype(model, config), LENGTHS)
    spec = KVCacheSpec.of(sequences.model, BLOCK_SIZE, kv_cache_dtype(model, config))
    sequences.cache = KVCache(spec, NUM_BLOCKS, CPU)
    return sequences


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "qwen3", "gpt2"])
@pytest.mark.parametrize(
    ("dtype", "cache", "least", "most"),
    [
        ("bfloat16", "auto", 1e-3, 0.04),
        ("float16", "auto", 1e-4, 0.005),
        ("auto", "bfloat16", 1e-4, 0.01),
        ("auto", "float16", 1e-5, 0.001),
        ("bfloat16", "float16", 1e-3, 0.04),
        ("auto", "int8_per_token_head", 1e-4, 0.03),
        ("auto", "fp8_e4m3", 1e-3, 0.1),
        ("bfloat16", "fp8_e5m2", 1e-3, 0.2),
    ],
)
def test_logits_are_close_to_fp32_and_not_the_same(
    name: str, dtype: str, cache: str, least: float, most: float
) -> None:
    model = tiny(name)
    sequences = paged_in(model, EngineConfig.parse({"dtype": dtype, "kv_cache_dtype": cache}))
    logits = torch.cat(sequences.run()).float()
    wanted = torch.cat([plain_logits(model, tokens) for tokens in sequences.tokens])
    error = float((logits - wanted).norm() / wanted.norm())
    assert least < error < most


@pytest.mark.parametrize("cache", [*HALVES, *QUANTIZED])
def test_a_narrow_cache_is_one_of_fp32_that_holds_rounded_values(cache: str) -> None:
    """Cast at the write and upcast at the read, and nothing else is rounded."""
    model = tiny("llama")
    config = EngineConfig.parse({"kv_cache_dtype": cache})
    wide = PagedSequences(model, LENGTHS)
    wide.cache.layers = tuple(
        LayerKVCache(Rounding.of(layer.data, by_name(cache))) for layer in wide.cache.layers
    )
    narrow = paged_in(model, config)
    for one, other in zip(narrow.run(), wide.run(), strict=True):
        assert torch.equal(one, other.as_subclass(torch.Tensor))


class Rounding(torch.Tensor):
    """A pool in fp32 whose slots take only what a narrower dtype can hold."""

    narrow: torch.dtype

    @classmethod
    def of(cls, layer: torch.Tensor, narrow: torch.dtype) -> Rounding:
        made = layer.as_subclass(cls)
        cls.narrow = narrow
        return made

    def index_copy_(self, dim, index, source):  # type: ignore[no-untyped-def]
        source = source.contiguous()
        rounded = dequantize(*quantize(source, Rounding.narrow), torch.empty_like(source))
        return self.as_subclass(torch.Tensor).index_copy_(dim, index, rounded)


def test_auto_and_the_same_dtype_are_the_loaded_model() -> None:
    model = tiny("llama")
    for name in ("auto", "float32"):
        assert in_dtype(model, EngineConfig.parse({"dtype": name})) is model
    assert kv_cache_dtype(model, EngineConfig()) == torch.float32
    assert kv_cache_dtype(model, EngineConfig(dtype="float16")) == torch.float16


@pytest.mark.parametrize("dtype", HALVES)
def test_weights_are_converted_once_and_freed_with_their_last_engine(dtype: str) -> None:
    model, config = tiny("llama"), EngineConfig.parse({"dtype": dtype})
    one, other = in_dtype(model, config), in_dtype(model, config)
    assert one is other and one.model is not model.model
    weak = weakref.ref(one.model)
    del one, other
    gc.collect()
    assert weak() is None


def test_an_engine_that_replayed_graphs_lets_go_of_its_weights(tiny_model: LoadedModel) -> None:
    config = EngineConfig(dtype="bfloat16")
    llm = AsyncLLM(tiny_model, config)
    llm.submit("Hello", SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
    while llm.status.has_work:
        llm.step()
    assert facts_of(GraphReplayed, llm.trace)
    weak = weakref.ref(in_dtype(tiny_model, config).model)
    gc.collect()
    assert weak() is not None
    llm.reset(EngineConfig())
    gc.collect()
    assert weak() is None
    llm.thread.stop()


def test_a_conversion_leaves_ties_buffers_and_the_loaded_model_alone(
    tiny_model: LoadedModel,
) -> None:
    ModuleTimer.of(tiny_model.model)  # has hooks on its modules
    made = in_dtype(tiny_model, EngineConfig(dtype="bfloat16"))
    assert {p.dtype for p in made.model.parameters()} == {torch.bfloat16}
    assert made.model.lm_head.weight is made.model.model.embed_tokens.weight
    assert {b.dtype for b in made.model.buffers()} == {torch.float32}
    assert not any(module._forward_hooks for module in made.model.modules())
    assert made.weight_bytes * 2 == tiny_model.weight_bytes
    assert (made.name, made.tokenizer) == (tiny_model.name, tiny_model.tokenizer)
    assert tiny_model.model.dtype == tiny_model.model.config.dtype == torch.float32
    assert any(module._forward_hooks for module in tiny_model.model.modules())


def test_weights_that_do_not_fit_are_refused(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.model_loader.dtypes.free_bytes", lambda device: 300_000)
    llm = AsyncLLM(tiny_model)
    before = llm.trace
    with pytest.raises(ConfigError, match="float16 needs 0.0 GB .* set it to auto") as caught:
        llm.reset(EngineConfig(dtype="float16"))
    assert caught.value.field == "dtype"
    assert llm.trace is before
    llm.thread.stop()


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    ("settings", "weights", "cache"), [(("dtype",), 2, 2), (("kv_cache_dtype",), 1, 2)]
)
def test_every_figure_of_the_log_is_of_the_dtypes_that_run(
    tiny_model: LoadedModel, half: str, settings: tuple[str, ...], weights: int, cache: int
) -> None:
    before = log_of(tiny_model, EngineConfig())
    after = log_of(tiny_model, EngineConfig.parse(dict.fromkeys(settings, half)))
    whole, less = before.header.model, after.header.model
    assert (whole["dtype"], whole["kv_cache_dtype"]) == ("float32", "float32")
    assert less["dtype"] == ("float32" if weights == 1 else half)
    assert less["kv_cache_dtype"] == half
    assert whole["weight_bytes"] == weights * less["weight_bytes"]
    assert whole["kv_bytes_per_token"] == cache * less["kv_bytes_per_token"]
    for kind, times in ((WeightsRead, weights), (KVWritten, cache), (PagesRead, cache)):
        sizes = [fact.num_bytes for fact in facts_of(kind, before)]
        assert sizes and sizes == [times * fact.num_bytes for fact in facts_of(kind, after)]


@pytest.mark.parametrize("cache", QUANTIZED)
def test_a_pool_takes_the_bytes_that_its_log_says(tiny_model: LoadedModel, cache: str) -> None:
    log = log_of(tiny_model, EngineConfig.parse({"kv_cache_dtype": cache}))
    assert log.header.model["kv_cache_dtype"] == cache


def log_of(model: LoadedModel, config: EngineConfig) -> Trace:
    """What an engine logs of one step; its pool takes the bytes that its log says."""
    llm = AsyncLLM(model, config)
    llm.submit("Hello", SamplingParams(max_tokens=2, ignore_eos=True))
    llm.step()
    pool = sum(layer.nbytes for layer in llm.core.runner.kv_cache.layers)  # type: ignore[attr-defined]
    tokens = llm.config.num_gpu_blocks * llm.config.block_size
    assert pool == tokens * llm.trace.header.model["kv_bytes_per_token"]
    (sized,) = facts_of(MemorySized, llm.trace)
    assert sized.pool_bytes == pool == sized.num_blocks * sized.bytes_per_block
    llm.thread.stop()
    return llm.trace


def facts_of(kind: type[Any], log: Trace) -> list[Any]:
    events = (record for record in log.records if isinstance(record, Event))
    return [event.facts for event in events if isinstance(event.facts, kind)]


def test_a_session_may_have_twice_the_blocks_of_half_the_bytes(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = KVCacheSpec.of(tiny_model, 16).bytes_per_block
    monkeypatch.setattr("engine.memory.memory_bytes", lambda device: 4 * 64 * block)

    def size(**config: Any) -> int:
        return size_memory(tiny_model, EngineConfig(**config), POOL_SHARE).facts.num_blocks

    assert size(num_gpu_blocks=128, kv_cache_dtype="bfloat16") == 128
    assert size(num_gpu_blocks=128, dtype="float16") == 128
    assert size(num_gpu_blocks=256, kv_cache_dtype="fp8") == 256
    with pytest.raises(ConfigError, match="num_gpu_blocks 256 needs"):  # of the scales
        size(num_gpu_blocks=256, kv_cache_dtype="int8_per_token_head")
    with pytest.raises(ConfigError, match="num_gpu_blocks 128 needs"):
        size(num_gpu_blocks=128)
    with pytest.raises(ConfigError, match="num_gpu_blocks 129 needs"):
        size(num_gpu_blocks=129, kv_cache_dtype="float16")


def test_captured_graphs_serve_pools_of_every_dtype(tiny_model: LoadedModel) -> None:
    """One recorded list of a model, over pools of its own dtype and of others."""
    pairs = [("auto", cache) for cache in ("auto", *HALVES, *QUANTIZED)]
    pairs += [("bfloat16", "auto"), ("bfloat16", "fp8"), ("float16", "bfloat16")]
    for dtype, cache in pairs:
        precision = {"dtype": dtype, "kv_cache_dtype": cache}
        eager, none = tokens_of(tiny_model, {**precision, "enforce_eager": True})
        replayed, some = tokens_of(tiny_model, precision)
        assert (replayed, none) == (eager, 0), precision
        assert some > 0, precision


def tokens_of(model: LoadedModel, settings: dict[str, Any]) -> tuple[list[list[int]], int]:
    """Greedy tokens of three requests, and how often a graph was replayed for them."""
    llm = AsyncLLM(model, EngineConfig.parse(settings))
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    streams = llm.submit_many([Submission(text, params) for text in ("one", "two two", "three")])
    while llm.status.has_work:
        llm.step()
    tokens = [[t for output in stream for t in output.token_ids] for stream in streams]
    replays = facts_of(GraphReplayed, llm.trace)
    llm.thread.stop()
    return tokens, len(replays)
