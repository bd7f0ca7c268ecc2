"""Settings become a `vllm serve` command and come back; what cannot come back is named."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import ConfigError, EngineConfig, SpeculativeConfig
from engine.serve_command import (
    OPTIONS,
    WITHOUT_OPTION,
    ReadCommand,
    cautions,
    read_command,
    serve_command,
)
from engine.vllm_options import NAMES, ONE_VALUE, SEVERAL_VALUES, SHORT, SWITCHES

MODEL = "SmolLM2-135M-Instruct"

configs = st.builds(
    EngineConfig,
    block_size=st.integers(1, 128),
    num_gpu_blocks=st.integers(2, 65_536),
    max_num_batched_tokens=st.integers(1, 32_768),
    max_num_seqs=st.integers(1, 1024),
    max_model_len=st.integers(2, 10_000),
    enable_prefix_caching=st.booleans(),
    enable_chunked_prefill=st.booleans(),
    long_prefill_token_threshold=st.integers(0, 10_000),
    scheduling_policy=st.sampled_from(["fcfs", "priority"]),
    watermark=st.floats(0, 0.999),
    scheduler_reserve_full_isl=st.booleans(),
    enforce_eager=st.booleans(),
    cudagraph_mode=st.sampled_from(["NONE", "PIECEWISE", "FULL_AND_PIECEWISE"]),
    cudagraph_capture_sizes=st.none() | st.lists(st.integers(1, 512), min_size=1).map(tuple),
    max_cudagraph_capture_size=st.none() | st.integers(1, 512),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    kv_cache_dtype=st.sampled_from(["auto", "bfloat16", "fp8_e5m2", "int8_per_token_head"]),
    gpu_memory_utilization=st.floats(0.001, 1.0),
    kv_cache_memory_bytes=st.none() | st.integers(1, 2**50),
    seed=st.integers(0, 2**63 - 1),
    speculative_config=st.none()
    | st.builds(
        SpeculativeConfig,
        method=st.sampled_from(["ngram", "eagle"]),
        num_speculative_tokens=st.integers(1, 16),
        prompt_lookup_max=st.none() | st.integers(1, 9),
    ),
)


def read(text: str, now: EngineConfig | None = None, model: str = MODEL) -> ReadCommand:
    return read_command(text, now or EngineConfig(), model)


def changed(text: str) -> dict[str, Any]:
    """The settings that a command makes differ from the defaults; it leaves nothing out."""
    found = read(text)
    assert found.remarks == ()
    return {k: v for k, v in found.config if v != getattr(EngineConfig(), k)}


def remark(text: str) -> str:
    """The one remark on a command."""
    (found,) = read(text).remarks
    return found.text


def test_every_setting_has_an_option_of_vllm() -> None:
    assert [option.setting for option in OPTIONS] != []
    settings = {option.setting for option in OPTIONS}
    assert settings | set(WITHOUT_OPTION) == set(EngineConfig.model_fields)
    assert not settings & set(WITHOUT_OPTION)
    assert {option.name.split(".")[0] for option in OPTIONS} <= NAMES


def test_options_are_of_one_kind() -> None:
    assert len(NAMES) == len(SWITCHES) + len(ONE_VALUE) + len(SEVERAL_VALUES)
    assert set(SHORT.values()) <= NAMES


@given(config=configs, now=configs, model=st.sampled_from([MODEL, "a folder/model", "q'uote"]))
def test_a_command_brings_its_settings_back(
    config: EngineConfig, now: EngineConfig, model: str
) -> None:
    assert read(serve_command(config, model), now, model) == ReadCommand(config, (), ())


def test_the_command_names_what_vllm_would_do_otherwise() -> None:
    command = serve_command(EngineConfig().resolve(8192), MODEL)
    words = shlex.split(command.replace("\\\n", ""))  # as a shell joins the lines
    assert words[:3] == ["vllm", "serve", "HuggingFaceTB/SmolLM2-135M-Instruct"]
    text = " ".join(words[3:])
    assert text == (
        "--block-size 16 --num-gpu-blocks-override 64 --max-model-len 1008 "
        "--max-num-batched-tokens 64 --max-num-seqs 8 --enable-prefix-caching "
        "--enable-chunked-prefill --no-async-scheduling --dtype float32 "
        "--compilation-config.cudagraph_mode FULL_AND_PIECEWISE --generation-config vllm"
    )
    sizes = EngineConfig(cudagraph_capture_sizes=(1, 2, 4))
    assert "--cudagraph-capture-sizes 1 2 4 \\\n" in serve_command(sizes, MODEL)


def test_a_budget_of_memory_is_taken_over() -> None:
    assert changed("vllm serve --num-gpu-blocks-override 64 --kv-cache-memory-bytes 1G") == {
        "kv_cache_memory_bytes": 2**30
    }
    by_memory = EngineConfig(num_gpu_blocks=0)  # no number of blocks is in the way of the budget
    assert read("vllm serve --kv-cache-memory-bytes 1G", by_memory).remarks == ()
    assert "override" not in serve_command(by_memory, MODEL)


def test_auto_is_named_as_what_it_is() -> None:
    """vLLM's own `auto` takes 16 bits."""
    for model in (MODEL, "tiny-random"):
        assert "--dtype float32" in serve_command(EngineConfig(dtype="auto"), model)


def test_defaults_that_are_left_out_are_vllms() -> None:
    """As `vllm/config/scheduler.py`, `model.py` and `cache.py` of 0.26.0 have them."""
    left_out = {o.setting: getattr(EngineConfig(), o.setting) for o in OPTIONS if o.same_default}
    assert left_out == {
        "long_prefill_token_threshold": 0,
        "scheduling_policy": "fcfs",
        "watermark": 0.0,
        "cudagraph_capture_sizes": None,
        "max_cudagraph_capture_size": None,
        "scheduler_reserve_full_isl": True,
        "gpu_memory_utilization": 0.92,
        "kv_cache_memory_bytes": None,
        "kv_cache_dtype": "auto",
        "enforce_eager": False,
        "attention_backend": "auto",
        "compilation_backend": "auto",
        "seed": 0,
        "speculative_config": None,
    }


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("vllm serve --max_num_seqs=4", {"max_num_seqs": 4}),
        ("vllm serve --max-num-seqs '4'", {"max_num_seqs": 4}),
        ("$HOME/bin/vllm serve \\\n  --block-size 32 \\  \r\n --seed 0", {"block_size": 32}),
        (f"vllm serve {MODEL} # --seed 7\n--seed 8", {"seed": 8}),
        ("vllm serve --no-enable_prefix_caching", {"enable_prefix_caching": False}),
        ("vllm serve --no-scheduler-reserve-full-isl", {"scheduler_reserve_full_isl": False}),
        ("vllm serve --max-num-batched-tokens 2K", {"max_num_batched_tokens": 2048}),
        ("vllm serve --max-model-len 1.5k", {"max_model_len": 1500}),
        ("--enforce-eager huggingfacetb/SmolLM2-135M-Instruct", {"enforce_eager": True}),
        ("vllm serve --max-model-len auto", {}),
        ("vllm serve --max-model-len -1", {}),
        ("vllm serve --scheduling-pol priority", {"scheduling_policy": "priority"}),
        ("python -m vllm.entrypoints.openai.api_server --watermark .25", {"watermark": 0.25}),
        (f"docker run --gpus all vllm/vllm-openai:v0.26.0 --model {MODEL} --seed 3", {"seed": 3}),
        ("vllm serve --no-async-scheduling --generation-config vllm", {}),
        ("vllm serve --async-scheduling", {"async_scheduling": True}),
        (
            "vllm serve --dtype=half --kv_cache_dtype bfloat16",
            {"dtype": "float16", "kv_cache_dtype": "bfloat16"},
        ),
        (
            "vllm serve -cc.cudagraph_mode=FULL_DECODE_ONLY",
            {"cudagraph_mode": "FULL_DECODE_ONLY"},
        ),
        (
            "vllm serve --cudagraph-capture-sizes 1 2 --max-cudagraph-capture-size 2",
            {"cudagraph_capture_sizes": (1, 2), "max_cudagraph_capture_size": 2},
        ),
        ("vllm serve --dtype float", {"dtype": "float32"}),
        ("vllm serve --kv-cache-dtype fp8", {"kv_cache_dtype": "fp8"}),
    ],
)
def test_commands_are_read_as_vllm_reads_them(text: str, settings: dict[str, Any]) -> None:
    assert changed(text) == settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm serve --max-num-seqs 0", "max_num_seqs: must be 1 or more (got 0)"),
        ("vllm serve --max-num-seqs 2K", "max_num_seqs: must be a whole number (got '2K')"),
        ("vllm serve --max-num-batched-tokens 1.5K", "must be a whole number (got '1.5K')"),
        ("vllm serve --watermark 1", "watermark: must be less than 1.0 (got 1.0)"),
        ("vllm serve --scheduling-policy lifo", "must be 'fcfs' or 'priority' (got 'lifo')"),
        ("vllm serve --block-size", "block_size: the option needs a value"),
        ("vllm serve --block-size --async-scheduling --no-async-scheduling", "needs a value"),
        ("vllm serve --enforce-eager=1", "write --enforce-eager or --no-enforce-eager"),
        ("vllm serve --port 80", "has no effect here: HOST= and PORT="),
        ("vllm serve --gpu-memory-utilization 0.9", "counts where num_gpu_blocks is 0"),
        ("vllm serve -tp 2", "one process on one device"),
        ("vllm serve --dtype auto", "means float32 here"),
        ("vllm serve --dtype int8", "dtype: must be 'auto', 'float32', 'bfloat16' or 'float16'"),
        ("vllm serve --attention-backend FLASH_ATTN", "attention_backend: must be 'auto'"),
        ("vllm serve --kv-cache-dtype nvfp4", "or 'int8_per_token_head' (got 'nvfp4')"),
        ("vllm serve --trust_remote_code", "has no effect here"),
        ("vllm serve --compilation-config.mode 3", "has no effect here"),
        ("vllm serve -O3", "has no effect here"),
        ("vllm serve -cc 3", "has no effect here"),
        ("vllm serve -cc '{\"mode\": 3}'", "has no effect here"),
        ('vllm serve -cc \'{"cudagraph_mode": "HALF"}\'', "cudagraph_mode: must be 'NONE'"),
        ("vllm serve -cc '{mode}'", "compilation-config: it is no JSON"),
        ("vllm serve -cc '[1]'", "compilation-config: it is no JSON object"),
        ("vllm serve -cc.mode=3", "has no effect here"),
        ("vllm serve --cudagraph-capture-sizes 1 x", "must be a whole number (got 'x')"),
        ("vllm serve -cc.cudagraph_mode=HALF", "cudagraph_mode: must be 'NONE', 'PIECEWISE'"),
        ("vllm serve --kv-transfer-config '{\"a\": 1}'", "has no effect here"),
        ("vllm serve --max-num-sequences 3", "0.26.0; did you mean --max-num-seqs?"),
        ("vllm serve -max-num-seqs 3", "is not known here"),
        ("vllm serve -v", "is not known here"),
        ("vllm serve --max-model-len " + 400 * "9" + ".5k", "must be a whole number"),
        ("vllm serve --colour blue", "is not known here, nor is it an option of vLLM 0.26.0"),
        ("vllm serve --seed 1 --seed 2", "is named twice; the last one counts"),
        (f"vllm serve {MODEL} stray", "belongs to no option"),
        ("vllm serve --seed 1 > log 2>&1", "the shell's business"),
        ("A=1 vllm serve --seed 1", "is an environment variable"),
        ("vllm serve Qwen/Qwen3-0.6B", "start it with MODEL=Qwen/Qwen3-0.6B"),
        ("vllm serve --config x.yaml", "the file is not read"),
        ("vllm serve --seed.a 3", "seed: the option has no fields"),
        ("vllm serve --enforce-eager.a", "enforce_eager: the option has no fields"),
        ("vllm serve --watermark -.5", "watermark: must be 0.0 or more (got -0.5)"),
        (
            "vllm serve --speculative-config " + "[" * 5_000,
            "JSON: it is nested too deeply",
        ),
    ],
)
def test_what_is_not_taken_over_is_named(text: str, said: str) -> None:
    found = read(text).remarks
    assert said in found[0].text
    assert found[0].written in " ".join(shlex.split(text))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("vllm serve --revision a#b --seed 3", ["--revision a#b"]),
        ("vllm serve --revision '|a' --seed 3", ["--revision |a"]),
        ("vllm serve --seed 3; vllm serve --seed 4", ["; vllm serve --seed 4"]),
        ("vllm serve --seed 3&", ["&"]),
        ("cd x && vllm serve --seed 3 2>&1 | tee log --seed 4", ["2>&1 | tee log --seed 4"]),
        ("vllm serve \\\n # --seed 1 \\\n --seed 3", []),
    ],
)
def test_a_line_is_split_as_a_shell_splits_it(text: str, written: list[str]) -> None:
    found = read(text)
    assert found.config == EngineConfig(seed=3)
    assert [item.written for item in found.remarks] == written


@pytest.mark.parametrize(
    "written",
    [
        """--compilation-config '{"cudagraph_mode":"PIECEWISE","cudagraph_capture_sizes":[1,2]}'""",
        """-cc='{"cudagraph_capture_sizes":[1,2],"cudagraph_mode":"PIECEWISE","mode":null}'""",
        """-cc.cudagraph_mode=PIECEWISE -cc.cudagraph_capture_sizes='[1, 2]'""",
    ],
)
def test_fields_of_the_compilation_config_are_settings(written: str) -> None:
    found = read(f"vllm serve {written}")
    assert found.config == EngineConfig(cudagraph_mode="PIECEWISE", cudagraph_capture_sizes=(1, 2))
    assert not found.remarks


def test_a_wrong_value_changes_nothing_and_the_rest_is_taken() -> None:
    now = EngineConfig(block_size=8, seed=4)
    found = read("vllm serve --block-size many --max-num-seqs 3 --foo", now)
    assert found.config == EngineConfig(block_size=8, max_num_seqs=3)
    assert [item.written for item in found.remarks] == ["--block-size many", "--foo"]


def test_what_is_not_named_is_vllms_default_or_stays() -> None:
    now = EngineConfig(block_size=8, num_gpu_blocks=20, watermark=0.5, enforce_eager=True)
    found = read("vllm serve --max-num-seqs 3", now)
    assert found.config == EngineConfig(block_size=8, num_gpu_blocks=20, max_num_seqs=3)
    assert "block_size" in found.kept and "max_num_seqs" not in found.kept


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no `vllm serve`"),
        ("ls -l", "no `vllm serve`"),
        ("vllm bench serve", "no `vllm serve`"),
        ("vllm serve 'model", "No closing quotation"),
        ("vllm serve model \\", "No escaped character"),
    ],
)
def test_what_is_no_command_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read(text)
    assert caught.value.field == "command"


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for command in (text, f"vllm serve {text}"):
        try:
            read(command)
        except ConfigError as error:
            assert str(error).startswith("command: ")


def test_a_backend_that_vllm_lacks_has_no_option_and_a_caution() -> None:
    config = EngineConfig(attention_backend="torch")
    assert serve_command(config, MODEL) == serve_command(EngineConfig(), MODEL)
    (caution,) = cautions(config, "Qwen/Qwen3-0.6B")
    assert "no attention backend like torch" in caution


def test_weights_in_fewer_bits_have_no_option_and_a_caution() -> None:
    config = EngineConfig(quantization="int4_weight_only")
    assert serve_command(config, MODEL) == serve_command(EngineConfig(), MODEL)
    (caution,) = cautions(config, "Qwen/Qwen3-0.6B")
    assert "nothing like quantization int4_weight_only" in caution
    kept = read(serve_command(config.resolve(8192), MODEL), config)
    assert (kept.config.quantization, kept.remarks) == ("int4_weight_only", ())
    for name in ("fp8_per_tensor", "int8_per_channel_weight_only"):
        (found,) = read(f"vllm serve -q {name}", config).remarks
        assert "has others" in found.text
        assert read(f"vllm serve -q {name}", config).config.quantization == "int4_weight_only"


def test_cautions_say_what_vllm_refuses() -> None:
    assert "block_size 12" in cautions(EngineConfig(block_size=12), "Qwen/Qwen3-0.6B")[0]
    assert cautions(EngineConfig(), "Qwen/Qwen3-0.6B") == ()
    assert "tiny-random" in cautions(EngineConfig(), "tiny-random")[0]
    assert "4 bits" in cautions(EngineConfig(), MODEL)[0]


def test_what_vllm_always_does_has_no_option_and_a_caution() -> None:
    correct = EngineConfig(scheduling_policy="priority")
    as_vllm = correct.model_copy(update={"cache_uncomputed_blocks": True})
    assert serve_command(correct, MODEL) == serve_command(as_vllm, MODEL)
    (caution,) = cautions(correct, "Qwen/Qwen3-0.6B")
    assert "always decides as with cache_uncomputed_blocks" in caution
    assert cautions(as_vllm, "Qwen/Qwen3-0.6B") == ()
