"""Weights in 8 and 4 bits: what is rounded, to what, and what stays as it was."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from engine.async_llm import AsyncLLM
from engine.config import ConfigError, EngineConfig
from engine.events import MemorySized, WeightsRead
from engine.kv_error import compare_kv
from engine.layers import FusedAttention
from engine.layers.linear import can_pack
from engine.layers.quantized import (
    KINDS,
    Int4Linear,
    Int8Linear,
    LinearLayers,
    QuantizedLinear,
    can_quantize,
    shape_of,
    to_quantize,
)
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import Form, bytes_in, in_dtype
from tests.engine.test_dtypes import facts_of, log_of, paged_in, tokens_of
from tests.engine.test_layers import packed_tiny
from tests.engine.test_model_runner import Engine
from tests.engine.tiny_configs import CONFIGS, plain_logits, tiny

NAMES = tuple(KINDS)


def plainly_rounded(weight: Tensor, name: str) -> Tensor:
    """What a weight becomes, number by number: the rule written out."""
    found = torch.empty_like(weight)
    size = weight.shape[1] if name == "int8_weight_only" else 32
    for output, row in enumerate(weight.tolist()):
        for start in range(0, len(row), size):
            group = row[start : start + size]
            if name == "int8_weight_only":
                step, middle, low, high = max(map(abs, group)) / 127, 0.0, -127, 127
            else:
                step, low, high = (max(group) - min(group)) / 15, -8, 7
                step = in_bfloat16(step)
                middle = in_bfloat16(min(group) + 8 * step)
            step = in_bfloat16(step)
            for i, value in enumerate(group):
                steps = min(high, max(low, round((value - middle) / step)))
                found[output, start + i] = steps * step + middle
    return found


def in_bfloat16(number: float) -> float:
    return float(torch.tensor(number).bfloat16())


def quantized_tiny(name: str, quantization: str, dtype: str = "auto") -> LoadedModel:
    config = EngineConfig.parse({"quantization": quantization, "dtype": dtype})
    return in_dtype(tiny(name), config)


# --- a layer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(16, 32), (48, 96), (64, 64), (112, 160), (192, 576)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_layer_multiplies_by_the_rounded_weight(
    name: str, shape: tuple[int, int], with_bias: bool
) -> None:
    weight, x = torch.randn(*shape) * 0.05, torch.randn(2, 9, shape[1])
    bias = nn.Parameter(torch.randn(shape[0])) if with_bias else None
    layer = KINDS[name](weight, bias)
    wanted = x.bfloat16().double() @ plainly_rounded(weight, name).double().T
    if bias is not None:
        wanted = wanted + bias.detach()
    found = layer(x).detach()
    assert found.dtype == torch.float32
    # What is left: the result in bfloat16, and what lies in the middle between two steps.
    assert float((found - wanted).norm() / wanted.norm()) < 0.004
    assert layer.num_bytes == layer.expected_bytes(*shape)
    gated = layer.times(x, layer.silu(x))
    torch.testing.assert_close(gated, found * nn.functional.silu(found))


@pytest.mark.parametrize("name", NAMES)
def test_rounding_a_weight_costs_what_its_bits_cost(name: str) -> None:
    weight = torch.randn(64, 320)
    error = float((plainly_rounded(weight, name) - weight).norm() / weight.norm())
    least, most = (0.005, 0.009) if name == "int8_weight_only" else (0.06, 0.09)
    assert least < error < most


def test_a_weight_on_the_grid_stays_what_it_is() -> None:
    """So does one that was in 4 bits, a step and a least value a group, before."""
    steps = torch.randint(0, 16, (16, 64)).float()
    steps[:, 0::32], steps[:, 1::32] = 0, 15
    weight = steps * 0.25 - 2
    x = torch.eye(64)
    assert torch.equal(Int4Linear(weight, None)(x), weight.T)
    whole = torch.randint(-127, 128, (16, 64)).float()
    whole[:, 0] = 127
    assert torch.equal(Int8Linear(whole * 0.5, None)(x), (whole * 0.5).T)


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_of_zeros_or_of_one_value_divides_by_nothing(name: str) -> None:
    x = torch.randn(3, 32).bfloat16().float()
    assert torch.equal(KINDS[name](torch.zeros(16, 32), None)(x), torch.zeros(3, 16))
    layer = KINDS[name](torch.full((16, 32), 0.5), None)
    torch.testing.assert_close(
        layer(x), x.sum(1, keepdim=True).expand(3, 16) / 2, atol=0.05, rtol=0.01
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_in_any_company_and_rows_may_lie_apart(name: str) -> None:
    layer, wide = KINDS[name](torch.randn(192, 576), None), torch.randn(1, 40, 1152)
    for x in (wide[..., :576], wide[..., ::2]):
        whole = layer(x)
        assert torch.equal(whole, layer(x.contiguous()))
        for rows in (1, 2, 3, 4, 5, 8, 17):
            assert torch.equal(layer(x[:, :rows]), whole[:, :rows])


# --- a model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("quantization", NAMES)
def test_every_architecture_runs_near_its_plain_logits(name: str, quantization: str) -> None:
    model, made = tiny(name), quantized_tiny(name, quantization)
    layers = LinearLayers.of(made.model)
    assert 0 < layers.quantized < layers.total == LinearLayers.of(model.model).total
    for layer in made.model.modules():
        assert not isinstance(layer, QuantizedLinear) or can_quantize(*shape_of(layer))
    sequences = paged_in(model, EngineConfig.parse({"quantization": quantization}))
    logits = torch.cat(sequences.run()).float()
    wanted = torch.cat([plain_logits(model, tokens) for tokens in sequences.tokens])
    error = float((logits - wanted).norm() / wanted.norm())
    assert 1e-3 < error < (0.12 if quantization == "int8_weight_only" else 1.0)


def test_the_head_stays_and_so_does_what_no_product_takes() -> None:
    made: Any = quantized_tiny("llama-mqa", "int8_weight_only").model
    attention = made.model.layers[0].self_attn
    kinds = [
        type(attention.get_submodule(name)) for name in ("q_proj", "k_proj", "v_proj", "o_proj")
    ]
    assert kinds == [Int8Linear, nn.Linear, nn.Linear, Int8Linear]  # of 8 outputs
    assert type(made.lm_head) is nn.Linear
    assert LinearLayers.of(made) == (3 * 5, 3 * 7 + 1)
    assert not can_quantize(8, 32) and not can_quantize(32, 48) and can_quantize(16, 32)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_stays_where_products_would_take_it(tied: bool) -> None:
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            tie_word_embeddings=tied,
        )
    )
    chosen = to_quantize(model)
    assert len(chosen) == 7 and all(layer is not model.lm_head for layer in chosen)
    assert can_quantize(*shape_of(model.lm_head))


@pytest.mark.skipif(not can_pack(torch.float32), reason="this torch has no oneDNN")
@pytest.mark.parametrize("quantization", NAMES)
def test_packed_weights_become_the_same(quantization: str) -> None:
    for name in ("llama", "gemma", "gpt2"):
        packed = packed_tiny(name)
        config = EngineConfig.parse({"quantization": quantization})
        made, wanted = in_dtype(packed, config), quantized_tiny(name, quantization)
        joined = 2 * sum(type(module) is FusedAttention for module in made.model.modules())
        quantized = LinearLayers.of(made.model).quantized
        assert quantized + joined == LinearLayers.of(wanted.model).quantized
        # The head is packed in one and not in the other.
        torch.testing.assert_close(
            plain_logits(made, [5, 6, 7]), plain_logits(wanted, [5, 6, 7]), atol=1e-4, rtol=1e-4
        )
        if name == "gemma":  # tied
            assert made.model.lm_head.weight is made.model.model.embed_tokens.weight


@pytest.mark.parametrize("quantization", NAMES)
@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_bytes_are_measured_and_foretold(quantization: str, dtype: str) -> None:
    model = tiny("llama")
    made = quantized_tiny("llama", quantization, dtype)
    held = {p.data_ptr(): p.nbytes for p in made.model.parameters()}
    for layer in made.model.modules():
        if isinstance(layer, QuantizedLinear):
            held |= {t.data_ptr(): t.nbytes for t in (layer.data, layer.scales)}
    assert made.weight_bytes == sum(held.values())
    name = "float32" if dtype == "auto" else dtype
    assert bytes_in(model, Form(name, quantization)) == made.weight_bytes
    assert made.weight_bytes < in_dtype(model, EngineConfig.parse({"dtype": dtype})).weight_bytes
    log = log_of(model, EngineConfig.parse({"quantization": quantization, "dtype": dtype}))
    facts = log.header.model
    assert (facts["weight_bytes"], facts["dtype"]) == (made.weight_bytes, name)
    assert (facts["quantization"], facts["quantized_layers"]) == (quantization, 21)
    assert facts["linear_layers"] == 22
    assert facts_of(MemorySized, log)[0].weight_bytes == made.weight_bytes
    assert {f.num_bytes for f in facts_of(WeightsRead, log)} == {made.read_bytes}


def test_a_quantized_model_is_made_once_and_freed_with_its_last_engine() -> None:
    model = tiny("llama")
    one, other = quantized_tiny("llama", NAMES[0]), quantized_tiny("llama", NAMES[0])
    assert one is other is not quantized_tiny("llama", NAMES[0], "bfloat16")
    assert one.model is not model.model and model.quantization is None
    assert LinearLayers.of(model.model).quantized == 0  # the loaded one is as it was
    weak = weakref.ref(one.model)
    del one, other
    gc.collect()
    assert weak() is None


@pytest.mark.parametrize("quantization", NAMES)
@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_graphs_replay_what_the_quantized_model_writes(
    tiny_model: LoadedModel, quantization: str, dtype: str
) -> None:
    settings = {"quantization": quantization, "dtype": dtype}
    eager, none = tokens_of(tiny_model, settings | {"enforce_eager": True})
    replayed, some = tokens_of(tiny_model, settings)
    assert (replayed, none) == (eager, 0)
    assert some > 0


@pytest.mark.parametrize("quantization", NAMES)
def test_text_is_that_of_a_plain_model_with_the_rounded_weights(
    tiny_model: LoadedModel, quantization: str
) -> None:
    """Greedy, against Transformers over weights that were rounded in fp32."""
    plain: Any = tiny_model_with_rounded_weights(tiny_model, quantization)
    tokens, _ = tokens_of(tiny_model, {"quantization": quantization})
    for text, found in zip(("one", "two two", "three"), tokens, strict=True):
        known = tiny_model.tokenizer.encode(text)
        for token in found:
            logits = plain(input_ids=torch.tensor([known]), use_cache=False).logits[0, -1]
            # Where two are as good as equal, rounding to bfloat16 may choose the other.
            assert float(logits.max() - logits[token]) < 0.03 * float(logits.std())
            known.append(token)


def tiny_model_with_rounded_weights(model: LoadedModel, quantization: str) -> nn.Module:
    from engine.model_loader.tiny import tiny_llama

    plain = tiny_llama()
    for name, layer in plain.named_modules():
        if isinstance(layer, nn.Linear) and name != "lm_head":
            layer.weight.data = plainly_rounded(layer.weight.data, quantization)
    return plain


# --- settings, and what is told ----------------------------------------------------------------


def test_an_unknown_name_and_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="quantization: .*'int8_weight_only'"):
        EngineConfig.parse({"quantization": "fp8"})
    assert EngineConfig().quantization is None
    model = tiny("llama")
    monkeypatch.setattr(type(model.model), "device", torch.device("cuda"))
    with pytest.raises(ConfigError, match="is for a CPU, and the model is on cuda") as caught:
        in_dtype(model, EngineConfig(quantization="int4_weight_only"))
    assert caught.value.field == "quantization"


def test_weights_that_do_not_fit_are_refused(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.model_loader.dtypes.free_bytes", lambda device: 200_000)
    llm = AsyncLLM(tiny_model)
    with pytest.raises(ConfigError, match="leave it empty to run those that are loaded"):
        llm.reset(EngineConfig(quantization="int8_weight_only"))
    llm.reset(EngineConfig(quantization="int4_weight_only"))  # which takes less
    llm.thread.stop()


@pytest.mark.parametrize("quantization", NAMES)
def test_a_comparison_tells_the_weights_part_by_itself(quantization: str) -> None:
    model = tiny("llama")
    found = {}
    for cache in ("auto", "fp8_e5m2"):
        made = in_dtype(model, EngineConfig.parse({"quantization": quantization}))
        engine = Engine(made, kv_cache_dtype=cache)
        request = engine.add("a", [5, 6, 7, 8, 9], max_tokens=6)
        for _ in range(4):
            engine.core.step()
        found[cache] = compare_kv(model, engine.core, request)
        assert found[cache].weights == quantization
        tokens = request.all_token_ids
        wanted, own = (plain_logits(each, tokens)[4:] for each in (model, made))
        error = float((own - wanted).norm() / wanted.norm())
        assert found[cache].logits_error == pytest.approx(error, rel=0.02)
    assert max(found["auto"].key_rounding) == 0 < min(found["fp8_e5m2"].key_rounding)
    engine = Engine(model)
    request = engine.add("a", [5, 6, 7], max_tokens=2)
    engine.core.step()
    exact = compare_kv(model, engine.core, request)
    assert (exact.weights, exact.logits_error) == ("float32", 0.0)
