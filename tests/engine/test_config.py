"""Settings that cannot be are named with what would do."""

from __future__ import annotations

import math

import pytest

from engine.config import ConfigError, EngineConfig, SamplingParams, SpeculativeConfig

NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


def test_max_model_len_defaults_to_what_model_and_pool_both_allow() -> None:
    assert EngineConfig().resolve(8192).max_model_len == 63 * 16
    assert EngineConfig().resolve(512).max_model_len == 512


def test_a_pool_that_holds_no_request_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_gpu_blocks 2: .* allow 1"):
        EngineConfig(num_gpu_blocks=2, block_size=1).resolve(8192)


def test_without_chunked_prefill_a_step_must_hold_a_whole_sequence() -> None:
    config = EngineConfig(enable_chunked_prefill=False, max_num_batched_tokens=64)
    assert config.resolve(8192).max_model_len == 64
    with pytest.raises(ConfigError, match="64 is less than max_model_len 65") as caught:
        config.model_copy(update={"max_model_len": 65}).resolve(8192)
    assert caught.value.field == "max_num_batched_tokens"


def test_one_block_holds_and_two_hold() -> None:
    for blocks, said in ((2, "1 block of 16 holds 16 tokens"), (3, "2 blocks of 16 hold 32")):
        with pytest.raises(ConfigError, match=said):
            EngineConfig(num_gpu_blocks=blocks, max_model_len=100).resolve(8192)


@pytest.mark.parametrize(
    ("wanted", "model", "message"),
    [
        (600, 512, "600 is more than the 512 positions the model knows; set it to 512"),
        (1009, 8192, "63 blocks of 16 hold 1008 tokens; set it to 1008"),
    ],
)
def test_max_model_len_that_cannot_be(wanted: int, model: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig(max_model_len=wanted).resolve(model)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"block_size": 0}, "block_size: must be 1 or more \\(got 0\\)"),
        ({"num_gpu_blocks": "many"}, "number; 0 takes all that the memory holds \\(got 'many'"),
        ({"num_gpu_blocks": None}, "number; 0 takes all that the memory holds \\(got None"),
        ({"blocksize": 4}, "blocksize: there is no such setting"),
        ({"seed": -1, "watermark": 1}, "watermark: .*; seed: "),
        ({"speculative_config": "ngram"}, "speculative_config: must be an object of settings"),
        ({"cudagraph_capture_sizes": 4}, "cudagraph_capture_sizes: must be a list \\(got 4"),
        ({"cudagraph_capture_sizes": []}, "cudagraph_capture_sizes: must have 1 or more"),
        # Not, as well, that too few are left.
        ({"cudagraph_capture_sizes": [0]}, "^cudagraph_capture_sizes.0: [^;]*$"),
    ],
)
def test_every_wrong_field_is_named(values: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        EngineConfig.parse(values)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ("",)}, "stop"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"stop_token_ids": (-1,)}, "stop_token_ids"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"seed": 2**63}, "seed"),
        ({"n": 17}, "n"),
        ({"n": 2, "temperature": 0.0}, "n"),
        ({"min_p": 1.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": math.inf}, "repetition_penalty"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {-1: 1}}, "logit_bias"),
        ({"logit_bias": {1: math.nan}}, "logit_bias"),
        ({"logit_bias": dict.fromkeys(range(1_025), 0)}, "logit_bias"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ],
)
def test_a_wrong_sampling_parameter_is_named(values: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SamplingParams.parse(values)
    assert caught.value.field == field


def test_a_bias_beyond_the_limits_counts_as_the_limit() -> None:
    params = SamplingParams.model_validate({"logit_bias": {"5": 300, 6: -1e9, "7": 1.5}})
    assert params.logit_bias == {5: 100.0, 6: -100.0, 7: 1.5}


def test_temperatures_near_zero_are_raised_and_zero_stays_greedy() -> None:
    assert SamplingParams(temperature=1e-9).temperature == 0.01
    assert not SamplingParams(temperature=1e-9).is_greedy
    assert SamplingParams(temperature=0.0).is_greedy


def test_a_seed_of_minus_one_is_none_and_others_count() -> None:
    assert SamplingParams(seed=-1).seed is None
    assert SamplingParams(seed=-2).seed == -2


def test_a_step_has_a_token_for_every_seat() -> None:
    with pytest.raises(ConfigError, match=r"max_num_batched_tokens 7 .* 8.* raise it to 8") as why:
        EngineConfig(max_num_batched_tokens=7).resolve(512)
    assert why.value.field == "max_num_batched_tokens"
    EngineConfig(max_num_batched_tokens=8).resolve(512)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [({}, (5, 5)), ({"min": 2}, (2, 2)), ({"max": 3}, (3, 3)), ({"min": 2, "max": 3}, (2, 3))],
)
def test_one_lookup_size_stands_for_the_other(
    given: dict[str, int], sizes: tuple[int, int]
) -> None:
    named = {f"prompt_lookup_{end}": size for end, size in given.items()}
    drafter = SpeculativeConfig(method="ngram", num_speculative_tokens=2, **named)
    assert (drafter.prompt_lookup_min, drafter.prompt_lookup_max) == sizes


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        ({"method": "ngram"}, "speculative_config.num_speculative_tokens: field required"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "must be 1 or more"),
        ({"method": "medusa", "num_speculative_tokens": 1}, "speculative_config.method: must be"),
        ({"method": "ngram", "num_speculative_tokens": 1, "model": "x"}, "no such setting"),
        (
            {**NGRAM, "prompt_lookup_min": 3, "prompt_lookup_max": 2},
            "speculative_config: prompt_lookup_min 3 is more than prompt_lookup_max 2",
        ),
    ],
)
def test_a_wrong_speculative_config_is_named(drafter: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig.parse({"speculative_config": drafter})


def test_what_no_engine_can_run_is_refused_at_its_start() -> None:
    assert EngineConfig.parse({"speculative_config": NGRAM}).resolve(512).num_speculative_tokens
    other = EngineConfig.parse({"speculative_config": {**NGRAM, "method": "eagle"}})
    with pytest.raises(ConfigError, match="method eagle needs a second model"):
        other.resolve(512)
    both = EngineConfig.parse({"speculative_config": NGRAM, "async_scheduling": True})
    with pytest.raises(ConfigError, match="switch one of them off"):
        both.resolve(512)


def test_a_draft_model_takes_a_slot_for_every_seat() -> None:
    drafter = {**NGRAM, "method": "draft_model"}
    values = {"max_num_batched_tokens": 9, "max_num_seqs": 8, "speculative_config": drafter}
    assert EngineConfig.parse(values).max_num_scheduled_tokens == 1
    with pytest.raises(ConfigError, match="leaves none; raise it to 9 or more"):
        EngineConfig.parse({**values, "max_num_batched_tokens": 8})


@pytest.mark.parametrize(
    ("short", "name"),
    [("bf16", "bfloat16"), ("fp16", "float16"), ("int8", "int8_per_token_head"), ("fp8", "fp8")],
)
def test_a_cache_dtype_may_have_its_short_name(short: str, name: str) -> None:
    assert EngineConfig.parse({"kv_cache_dtype": short}).kv_cache_dtype == name
