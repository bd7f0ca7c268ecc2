"""A card's memory becomes blocks as in vLLM: golden numbers, arithmetic, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import ConfigError
from engine.sizing import (
    CARDS,
    GIB,
    SHAPES,
    CacheSize,
    Deployment,
    Sizing,
    kv_bytes_per_token,
    length_text,
    main,
    size,
)

# Of transformers: the architecture of each published configuration.
ARCHITECTURES = {
    "SmolLM2-135M": "Llama",
    "Qwen3-0.6B": "Qwen3",
    "Mistral-7B": "Mistral",
    "Qwen2.5-7B": "Qwen2",
    "Llama-3-8B": "Llama",
    "Llama-3-70B": "Llama",
}


def sized(**options: Any) -> Sizing:
    return size(Deployment(**options))


def taken(sizing: Sizing, name: str) -> int:
    return next(part.num_bytes for part in sizing.taken if part.name == name)


@pytest.mark.parametrize(
    ("model", "golden"),
    [
        ("Qwen2.5-7B", 57_344),
        ("Llama-3-8B", 131_072),
        ("Llama-3-70B", 327_680),
        ("SmolLM2-135M", 23_040),
    ],
)
def test_kv_bytes_a_token_are_the_published_models(model: str, golden: int) -> None:
    assert sized(model=model, card="H200").bytes_per_token.num_bytes == golden
    shape = SHAPES[model]
    heads = shape.num_kv_heads, shape.head_dim
    assert kv_bytes_per_token(shape.num_layers, *heads, 2) == golden
    in_fp8 = sized(model=model, card="H200", kv_cache_dtype="fp8")
    assert in_fp8.bytes_per_token.num_bytes == golden // 2
    in_int8 = sized(model=model, card="H200", kv_cache_dtype="int8_per_token_head")
    scales = 2 * shape.num_layers * shape.num_kv_heads * 4  # fp32: one of each K and each V
    assert in_int8.bytes_per_token.num_bytes == golden // 2 + scales


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("SmolLM2-135M", 134_515_008),
        ("Qwen3-0.6B", 596_049_920),
        ("Mistral-7B", 7_248_023_552),
        ("Qwen2.5-7B", 7_615_616_512),
        ("Llama-3-8B", 8_030_261_248),
        ("Llama-3-70B", 70_553_706_496),
    ],
)
def test_parameters_are_those_that_the_architecture_makes(model: str, parameters: int) -> None:
    import torch
    import transformers

    shape, name = SHAPES[model], ARCHITECTURES[model]
    config = getattr(transformers, f"{name}Config")(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tie_word_embeddings,
    )
    with torch.device("meta"):
        built = getattr(transformers, f"{name}ForCausalLM")(config)
    assert sum(p.numel() for p in built.parameters()) == parameters
    assert shape.num_parameters == parameters


def test_weights_are_what_vllm_has_logged() -> None:
    """Llama-3-8B in bf16, 14.96 GiB with one GPU and 7.48 with each of two: pull request 10511."""
    for gpus, gib in ((1, "14.96"), (2, "7.48")):
        found = sized(model="Llama-3-8B", card="H100", tensor_parallel_size=gpus)
        assert f"{taken(found, 'weights') / GIB:.2f}" == gib
        # With 256 rows of logits, 1.26 GiB of activations, however many GPUs: an estimate here.
        rows = sized(
            model="Llama-3-8B", card="A100", tensor_parallel_size=gpus, max_num_batched_tokens=8192
        )
        assert taken(rows, "activations") / GIB == pytest.approx(1.26, rel=0.05)


@given(
    model=st.sampled_from(list(SHAPES)),
    card=st.sampled_from(list(CARDS)),
    utilization=st.floats(0.1, 1.0),
    gpus=st.sampled_from([1, 2, 4]),
    block_size=st.sampled_from([1, 16, 32]),
    cache=st.sampled_from(["auto", "fp8"]),
    longest=st.none() | st.integers(1, 50_000),
)
def test_parts_make_up_the_budget_and_blocks_fit_what_is_left(
    model: str,
    card: str,
    utilization: float,
    gpus: int,
    block_size: int,
    cache: str,
    longest: int | None,
) -> None:
    found = sized(
        model=model,
        card=card,
        gpu_memory_utilization=utilization,
        tensor_parallel_size=gpus,
        block_size=block_size,
        kv_cache_dtype=cache,
        max_model_len=longest,
    )
    left = found.budget.num_bytes - sum(part.num_bytes for part in found.taken)
    block = found.bytes_per_token.num_bytes * block_size
    assert found.available.num_bytes == left
    assert found.cache.num_blocks == max(0, left // block)
    if found.problem:
        return
    assert 0 < found.cache.num_blocks * block <= left < (found.cache.num_blocks + 1) * block
    assert found.cache.max_model_len <= found.longest <= found.cache.largest_request
    if longest is not None:  # what fits is allowed, and what is one longer than the longest is not
        longer = found.deployment.model_copy(update={"max_model_len": found.longest + 1})
        assert f"set it to {found.longest:,} or less" in size(longer).problem


def test_a_length_that_does_not_fit_is_told_the_largest_that_does() -> None:
    found = sized(model="Llama-3-8B", card="RTX 4090", gpu_memory_utilization=0.75)
    assert found.problem == "" and found.longest == found.cache.largest_request == 6_528
    assert "would not start" in length_text(found) and "6,528" in length_text(found)
    asked = sized(
        model="Llama-3-8B", card="RTX 4090", gpu_memory_utilization=0.75, max_model_len=8192
    )
    assert "does not fit the KV cache, which holds 6,528 tokens; set it to 6,528" in asked.problem
    assert not sized(
        model="Llama-3-8B", card="RTX 4090", gpu_memory_utilization=0.75, max_model_len=6_528
    ).problem
    beyond = sized(model="Llama-3-8B", card="H100", max_model_len=8_193)
    assert "more than the 8,192 positions" in beyond.problem


def test_weights_that_are_more_than_the_budget_leave_nothing() -> None:
    found = sized(model="Llama-3-70B", card="H100")
    assert found.cache.num_blocks == 0 and found.available.num_bytes < 0
    assert "No memory is left for the KV cache" in found.problem
    assert not sized(model="Llama-3-70B", card="H100", tensor_parallel_size=4).problem
    assert "cannot be shared by 8" in sized(model="Qwen2.5-7B", tensor_parallel_size=8).problem


def test_graphs_take_nothing_where_none_are_captured() -> None:
    eager, usual = sized(enforce_eager=True), sized()
    assert taken(eager, "graphs") == 0
    assert eager.available.num_bytes - usual.available.num_bytes == taken(usual, "graphs") > 0


def test_every_figure_says_where_it_comes_from() -> None:
    found = sized(model="Qwen2.5-7B", tensor_parallel_size=2)
    parts = (found.budget, *found.taken, found.available, found.bytes_per_token)
    assert all(part.how for part in parts)
    assert found.bytes_per_token.how == "2 (K and V) × 28 layers × 2 KV heads × 128 × 2 bytes"
    assert "assumed" in found.taken[2].how and "assumed" in found.taken[3].how
    assert "estimate" in found.taken[1].how


def test_vllm_counts_tokens_by_the_longest_requests() -> None:
    cache = CacheSize(num_blocks=512, block_size=16, max_model_len=1000)
    assert cache.texts() == (
        "GPU KV cache size: 8,126 tokens",
        "Maximum concurrency for 1,000 tokens per request: 8.13x",
    )
    assert cache.largest_request == 511 * 16


def test_the_command_prints_the_division(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "Qwen2.5-7B", "--card", "A100", "--kv-cache-dtype", "fp8"]) == 0
    out = capsys.readouterr().out
    assert "All figures are derived" in out and "KV bytes a token: 28,672" in out
    assert "GPU KV cache size: " in out and "Maximum concurrency for 32,768 tokens" in out
    assert main(["--model", "Llama-3-70B", "--card", "A100"]) == 1
    assert "No memory is left" in capsys.readouterr().out
    assert main(["--model", "GPT-5", "--gpu-memory-utilization", "2"]) == 2
    err = capsys.readouterr().err
    assert "model: must be" in err and "gpu_memory_utilization: must be 1.0 or less" in err


def test_sizing_needs_no_torch() -> None:
    """Its command answers at once, and lessons may import it."""
    script = "import sys, engine.sizing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_options_that_cannot_be_are_named() -> None:
    with pytest.raises(ConfigError, match="max_model_len: must be 1 or more"):
        Deployment.parse({"max_model_len": 0})
