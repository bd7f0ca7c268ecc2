"""Rounded K and V: off by what their dtype is, read as they were written, and no worse."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.events import BlocksHit, GraphReplayed, RequestPreempted
from engine.kv_cache import KVCache, KVCacheSpec
from engine.kv_quantization import FP8, dequantize, quantize, values_of_pairs
from engine.model_loader.dtypes import by_name, dtype_name
from engine.paged_attention import torch_backend
from tests.engine.test_dtypes import QUANTIZED, paged_in
from tests.engine.test_model_runner import Engine, random_prompt
from tests.engine.tiny_configs import plain_logits, tiny

CPU = torch.device("cpu")

# Relative errors of numbers spread as a bell: the least and the most of it that may be measured.
ROUNDING = {
    "float16": (0.0002, 0.0003),
    "bfloat16": (0.0015, 0.0018),
    "int8_per_token_head": (0.004, 0.008),
    "fp8_e4m3": (0.025, 0.028),
    "fp8_e5m2": (0.050, 0.055),
}


def restored(states: torch.Tensor, name: str) -> torch.Tensor:
    """What a pool of this dtype gives back of K or V."""
    states = states.contiguous()
    return dequantize(*quantize(states, by_name(name)), torch.empty_like(states))


def relative(values: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((values - wanted).norm() / wanted.norm())


# --- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROUNDING)
def test_the_error_is_that_of_the_dtype(name: str) -> None:
    states = torch.randn(2, 500, 3, 64, generator=torch.Generator().manual_seed(0))
    least, most = ROUNDING[name]
    assert least < relative(restored(states, name), states) < most


@pytest.mark.parametrize("fp8", FP8)
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16, torch.float16])
def test_the_table_of_fp8_is_torch_s_own_conversion(fp8: torch.dtype, wide: torch.dtype) -> None:
    """For every pair of bytes, infinities and what is no number too."""
    data = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(fp8)
    one_by_one = data.to(wide)
    found = dequantize(data, None, torch.empty_like(one_by_one))
    assert torch.equal(found.nan_to_num(9.0), one_by_one.nan_to_num(9.0))
    assert torch.equal(found.isnan(), one_by_one.isnan())
    assert values_of_pairs(fp8, wide).nbytes == 2 * wide.itemsize << 16


@pytest.mark.parametrize(("name", "largest"), [("fp8_e4m3", 448.0), ("fp8_e5m2", 57_344.0)])
def test_what_is_too_large_for_fp8_becomes_its_largest(name: str, largest: float) -> None:
    states = torch.tensor([1e6, -1e9, float("inf"), largest, 1.0, 0.0])
    wanted = [largest, -largest, largest, largest, 1.0, 0.0]
    assert restored(states, name).tolist() == wanted


numbers = st.floats(-(2.0**99), 2.0**99, width=32)


@settings(max_examples=200)
@given(heads=st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=1, max_size=6))
def test_int8_is_off_by_half_a_step_at_most(heads: list[list[float]]) -> None:
    states = torch.tensor(heads)
    data, scales = quantize(states, torch.int8)
    assert scales is not None and bool((scales > 0).all())
    largest = states.abs().amax(-1)
    assert data.abs().amax(-1).tolist() == [
        127 if each >= 127e-6 else pytest.approx(each / 1e-6, abs=0.5) for each in largest.tolist()
    ]
    found = dequantize(data, scales, torch.empty_like(states))
    assert bool(((found - states).abs() <= scales[:, None] * 0.5001).all())
    assert bool((found[states == 0] == 0).all())


def test_an_outlier_costs_the_numbers_of_its_own_token_and_head_alone() -> None:
    states = torch.randn(2, 5, 3, 16, generator=torch.Generator().manual_seed(1))
    before = restored(states, "int8_per_token_head")
    states[0, 2, 1, 7] = 1000.0
    after = restored(states, "int8_per_token_head")
    changed = (before != after).any(-1).nonzero().tolist()
    assert changed == [[0, 2, 1]]
    assert after[0, 2, 1, 7] == pytest.approx(1000.0)


def test_what_is_no_number_is_not_hidden() -> None:
    for name in QUANTIZED:
        assert restored(torch.tensor([[float("nan"), 1.0]]), name).isnan().any(), name
    huge = torch.tensor([[float("inf"), 1.0], [3e38, 3e38]])
    assert not restored(huge, "int8_per_token_head").isnan().any()


def test_halves_round_away_from_zero_as_in_vllm() -> None:
    data, _ = quantize(torch.tensor([[127.0, 2.5, -2.5, 3.5, 0.4]]), torch.int8)
    assert data.tolist() == [[127, 3, -3, 4, 0]]


# --- the pool ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bfloat16", *QUANTIZED])
def test_a_pool_is_read_as_it_was_written_and_takes_the_bytes_it_says(name: str) -> None:
    spec = KVCacheSpec(2, 3, 8, by_name(name), 4)
    cache = KVCache(spec, 6, CPU)
    key, value = torch.randn(2, 3, 7, 8, generator=torch.Generator().manual_seed(2))
    slots = torch.tensor([20, 4, 11, 5, 9, 23, 6])
    layer = cache.layers[1]
    layer.write(slots, key, value)
    for part, states in enumerate((key, value)):
        wanted = restored(states.transpose(0, 1), name)
        assert torch.equal(layer.read(torch.tensor([5, 2, 1]))[part, [0, 7, 3]], wanted[[0, 2, 5]])
    assert not layer.read(torch.tensor([0, 3])).any()
    assert not cache.layers[0].read(torch.arange(6)).any()
    assert cache.num_bytes == 6 * spec.bytes_per_block == sum(part.nbytes for part in cache.layers)


def test_fp8_takes_half_the_bytes_of_16_bits_and_int8_a_scale_more() -> None:
    def bytes_of(name: str) -> int:
        return KVCacheSpec(30, 3, 64, by_name(name), 16).bytes_per_token

    assert bytes_of("bfloat16") == 23_040
    assert bytes_of("fp8") == bytes_of("fp8_e4m3") == bytes_of("fp8_e5m2") == 11_520
    assert bytes_of("int8_per_token_head") == 11_520 + 2 * 30 * 3 * 4


def test_logs_have_the_names_of_the_settings() -> None:
    for name in ("float32", "bfloat16", *QUANTIZED):
        assert dtype_name(by_name(name)) == name
    assert dtype_name(by_name("fp8")) == "fp8_e4m3"


# --- attention ---------------------------------------------------------------------------------


def error_of_logits(cache: str) -> float:
    model = tiny("llama")
    sequences = paged_in(model, EngineConfig.parse({"kv_cache_dtype": cache}))
    wanted = torch.cat([plain_logits(model, tokens) for tokens in sequences.tokens])
    return relative(torch.cat(sequences.run()), wanted)


def test_with_the_scales_of_another_token_the_result_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = error_of_logits("int8_per_token_head")

    def shifted(data: torch.Tensor, scales: Any, out: torch.Tensor) -> torch.Tensor:
        return dequantize(data, scales if scales is None else scales.roll(1, dims=2), out)

    monkeypatch.setattr(torch_backend, "dequantize", shifted)
    assert error_of_logits("int8_per_token_head") > 5 * right


@pytest.mark.parametrize("cache", QUANTIZED)
def test_greedy_text_is_the_same_whatever_the_scheduler_does(cache: str) -> None:
    """Alone, and in a small pool with chunks, hits, preemption, replay and blocks used again."""
    model, rng = tiny("llama"), random.Random(7)
    prefix = random_prompt(rng, 8)
    prompts = {f"r{i}": random_prompt(rng, n) for i, n in enumerate((3, 17, 6, 11))}
    prompts |= {f"p{i}": prefix + random_prompt(rng, n) for i, n in enumerate((2, 7, 1))}
    alone = {}
    for key, prompt in prompts.items():
        engine = Engine(
            model, block_size=4, kv_cache_dtype=cache, max_num_batched_tokens=64, enforce_eager=True
        )
        engine.add(key, prompt)
        alone |= engine.run()
    engine = Engine(
        model,
        block_size=4,
        kv_cache_dtype=cache,
        num_gpu_blocks=15,
        max_num_batched_tokens=9,
        max_num_seqs=4,
    )
    for key, prompt in prompts.items():
        engine.add(key, prompt)
    assert engine.run() == alone
    for kind in (BlocksHit, RequestPreempted, GraphReplayed):
        assert engine.facts(kind), kind
