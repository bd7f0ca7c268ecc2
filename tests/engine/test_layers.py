"""Packed layers: what the model computes stays, its weights are there once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import linear
from transformers.models.llama import modeling_llama
from transformers.pytorch_utils import Conv1D

from engine.config import EngineConfig
from engine.events import GraphReplayed, WeightsRead
from engine.layers import FusedAttention, GatedMLP, PackedLinear, few_rows, optimize
from engine.layers.code import same_code
from engine.layers.linear import DenseLinear, can_pack
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import in_dtype
from engine.model_loader.loader import WeightBytes
from tests.engine.test_cuda_graph import comparing
from tests.engine.test_paged_attention import LENGTHS, PagedSequences
from tests.engine.tiny_configs import CONFIGS, plain_greedy, plain_logits, tiny

pytestmark = pytest.mark.skipif(not can_pack(torch.float32), reason="this torch has no oneDNN")


GATED_BY_SILU = {"llama", "llama-mha", "llama-mqa", "qwen2", "qwen3", "mistral"}
GATED_BY_SILU |= {"olmo2", "smollm3", "granite"}
ATTENDING_AS_LLAMA = {"llama", "llama-mha", "llama-mqa", "gemma", "granite"}


def packed_tiny(name: str) -> LoadedModel:
    """A model with all its linear layers packed, however small they are."""
    model = tiny.__wrapped__(name)
    optimize(model.model, smallest=0)
    return replace(model, **WeightBytes.of(model.model)._asdict())


def count(model: LoadedModel, *kinds: type[nn.Module]) -> int:
    return sum(type(module) in kinds for module in model.model.modules())


@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture_gives_the_logits_of_plain_transformers(name: str) -> None:
    model, plain = packed_tiny(name), tiny(name)
    # GPT-2 names the weight of some layers itself, where it draws them at random.
    left = 6 if name == "gpt2" else 0
    fused = 3 if name in ATTENDING_AS_LLAMA else 0
    assert count(model, FusedAttention) == fused
    assert count(model, PackedLinear) == count(plain, nn.Linear, Conv1D) - left - 2 * fused > 0
    assert count(model, GatedMLP) == (3 if name in GATED_BY_SILU else 0)
    sequences = PagedSequences(model, LENGTHS)
    for rows, tokens in zip(sequences.run(), sequences.tokens, strict=True):
        # In float64, the plain model's logits are up to 9e-6 from its own in float32.
        torch.testing.assert_close(rows, plain_logits(plain, tokens), atol=2e-5, rtol=0)


def test_kernels_that_are_not_there_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numba, or on a processor that they are not written for."""
    monkeypatch.setattr(few_rows, "available", lambda: False)
    monkeypatch.setattr(few_rows, "kernels", lambda: pytest.fail("a kernel was asked"))
    model = packed_tiny("llama")
    with torch.inference_mode():
        model.model(input_ids=torch.tensor([[5, 6, 7]]))


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_replays_equal_the_forward_to_the_bit_and_the_text_is_the_plain_model_s(name: str) -> None:
    engine = comparing(packed_tiny(name))
    for i in range(3):
        engine.add(f"r{i}", [5 + i, 6, 7], max_tokens=6)
    outputs = engine.run()
    assert engine.runner.compared == len(engine.facts(GraphReplayed)) == 6  # and the prefill
    for i in range(3):
        assert outputs[f"r{i}"] == plain_greedy(tiny(name), [5 + i, 6, 7], 6)


@pytest.mark.parametrize("shape", [(192, 576), (48, 33), (1030, 64)])
def test_a_row_is_the_same_in_any_company(shape: tuple[int, int]) -> None:
    weight, x = torch.randn(*shape), torch.randn(1, 40, shape[1])
    layer = PackedLinear(weight, nn.Parameter(torch.randn(shape[0])), None)
    whole = layer(x)
    torch.testing.assert_close(whole, linear(x, weight, layer.bias), atol=1e-4, rtol=1e-4)
    for rows in (2, 3, 4, 7, 16, 33):
        assert torch.equal(layer(x[:, :rows]), whole[:, :rows])


def test_rows_may_lie_apart() -> None:
    layer = PackedLinear(torch.randn(16, 8), None, None)
    wide = torch.randn(2, 5, 16)
    for x in (wide[..., :8], wide[..., ::2], wide.transpose(0, 1)[..., 8:]):
        assert torch.equal(layer(x), layer(x.contiguous()))


def test_attention_with_a_bias_is_joined_and_one_with_a_bias_in_parts_is_not() -> None:
    plain, model = tiny.__wrapped__("llama"), tiny.__wrapped__("llama")
    for each in (plain, model):
        layers: Any = each.model.model.layers  # type: ignore[union-attr]
        for layer, names in zip(layers, (("q", "k", "v"), ("k",)), strict=False):
            torch.manual_seed(1)
            for name in names:
                linear = getattr(layer.self_attn, f"{name}_proj")
                linear.bias = nn.Parameter(torch.randn(linear.out_features), requires_grad=False)
    optimize(model.model, smallest=0)
    assert [type(layer.self_attn) is FusedAttention for layer in layers] == [True, False, True]
    torch.testing.assert_close(
        plain_logits(model, [5, 6, 7]), plain_logits(plain, [5, 6, 7]), atol=1e-5, rtol=0
    )


def test_other_code_is_not_the_same_nor_the_same_code_that_calls_another() -> None:
    def calling(name: str) -> Any:
        space: dict[str, Any] = {}
        exec("def forward(x):\n    return rotate_half(x)", space)
        space["rotate_half"] = getattr(modeling_llama, name)
        return space["forward"]

    one, same, other = calling("rotate_half"), calling("rotate_half"), calling("repeat_kv")
    assert same_code(one, same, ("rotate_half",))
    assert same_code(one, other) and not same_code(one, other, ("rotate_half",))
    assert not same_code(one, modeling_llama.rotate_half)
    assert not same_code(one, same, ("missing",))


def test_weights_are_there_once_and_a_tied_embedding_twice() -> None:
    plain, model = tiny("gemma"), packed_tiny("gemma")  # tied
    embedding = plain.model.get_input_embeddings().weight.nbytes  # type: ignore[operator,union-attr]
    packed = [m for m in model.model.modules() if isinstance(m, PackedLinear)]
    filled_up = sum(m.packed_bytes - 4 * m.in_features * m.out_features for m in packed)
    assert filled_up >= 0  # much of these tiny ones: a block is 48 or 64 rows
    assert model.weight_bytes == plain.weight_bytes + embedding + filled_up
    assert (plain.read_bytes, model.read_bytes) == (
        plain.weight_bytes,
        model.weight_bytes - embedding,
    )
    assert model.model.lm_head.weight is model.model.model.embed_tokens.weight
    engine = comparing(model)
    engine.add("r", [5, 6, 7], max_tokens=1)
    engine.run()
    assert engine.facts(WeightsRead) == [WeightsRead(model.read_bytes)]


def test_small_layers_and_what_is_more_than_called_stay() -> None:
    model: Any = tiny.__wrapped__("llama")
    optimize(model.model)
    assert count(model, PackedLinear) == 0
    optimize(model.model, smallest=64 * 32)
    assert count(model, PackedLinear) == 3 * 3 + 1  # gate, up and down, and the head
    mixture: Any = tiny.__wrapped__("qwen3_moe")
    optimize(mixture.model, smallest=0)
    assert not isinstance(mixture.model.model.layers[0].mlp.gate, PackedLinear)


@pytest.mark.parametrize("name", ["gemma", "smollm3"])  # tied; the second with fused MLPs
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_another_dtype_is_made_of_packed_weights(name: str, dtype: str) -> None:
    model, config = packed_tiny(name), EngineConfig.parse({"dtype": dtype})
    made, wanted = in_dtype(model, config), in_dtype(tiny(name), config)
    kind = PackedLinear if can_pack(getattr(torch, dtype)) else DenseLinear
    assert type(made.model.lm_head) is type(made.model.model.layers[0].mlp.up_proj) is kind
    assert made.model.lm_head.weight is made.model.model.embed_tokens.weight
    error = plain_logits(made, [5, 6, 7]) - plain_logits(wanted, [5, 6, 7])
    assert float(error.abs().max()) < 0.05 * float(plain_logits(wanted, [5, 6, 7]).abs().max())
