"""The engine's settings as a form: which fields, in which groups, and what a change would do.

The fields, their types and their descriptions are `EngineConfig`'s own; a field that is added
there and to no group here appears under "more".
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from engine.config import EngineConfig, SpeculativeConfig

Kind = Literal["whole", "number", "switch", "choice", "list"]

_DRAFTER = "speculative_config"  # a table of settings, each a field here; no method: none of it
_METHOD = f"{_DRAFTER}.method"

GROUPS: dict[str, tuple[str, ...]] = {
    "Memory": (
        "block_size",
        "num_gpu_blocks",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "max_model_len",
        "watermark",
        "enable_prefix_caching",
        "cache_uncomputed_blocks",
    ),
    "Scheduling": (
        "max_num_batched_tokens",
        "max_num_seqs",
        "long_prefill_token_threshold",
        "scheduling_policy",
        "enable_chunked_prefill",
        "scheduler_reserve_full_isl",
        "async_scheduling",
    ),
    "Execution": ("dtype", "quantization", "kv_cache_dtype", "attention_backend", "seed"),
    "Graphs": (
        "enforce_eager",
        "cudagraph_mode",
        "cudagraph_capture_sizes",
        "max_cudagraph_capture_size",
        "compilation_backend",
    ),
    "Speculation": tuple(f"{_DRAFTER}.{name}" for name in SpeculativeConfig.model_fields),
}


# What a form has to say beside the descriptions, which are written for code.
_HELP = {
    "num_gpu_blocks": "The option of `vllm serve` for it is `--num-gpu-blocks-override`; without "
    "it, vLLM takes as many blocks as its memory budget holds. So does this engine at 0: it then "
    "runs its model over a whole step of made-up tokens, to measure what that needs beside the "
    "weights.",
    "gpu_memory_utilization": "On a CPU it is a share of main memory, as in vLLM's build for CPUs. "
    "What weights, activations and graphs do not take of it is the KV cache's.",
    "kv_cache_memory_bytes": "Goes before gpu_memory_utilization. vLLM's build for CPUs reads it, "
    "in GiB, from `VLLM_CPU_KVCACHE_SPACE` as well.",
    "cache_uncomputed_blocks": "A defect of vLLM 0.26.0, which always does so. Under the priority "
    "policy a victim may have got tokens in the step that takes its blocks; the blocks that these "
    "would have filled are in the cache already. Whoever hits them reads what stood there before, "
    "and writes another text. Off, they leave the cache.",
    "dtype": "A sum of numbers that are rounded to 16 bits depends on the order in which it is "
    "built, and that on the shape of the batch: a request can get another text beside others than "
    "alone. In bfloat16, 4 of 8 prompts did (SmolLM2, greedy, 32 tokens, alone and in a batch of "
    "8); in float16 and float32, none did. Another dtype takes memory for weights of its own. On a "
    "CPU without float16 arithmetic, prompts take far longer in it than in float32 (3 to 12 times, "
    "measured).",
    "quantization": "Weights alone are rounded, when the first engine asks for it; products take "
    "and give bfloat16. `int8_weight_only` has a scale for each output, `int4_weight_only` a step "
    "and a middle for each 32 weights of one. The head and the embedding stay as they are. A step "
    "that waits for its weights (one request, or a few) gets faster, a long prompt slower, and "
    "texts change: *Beside fp32* in the view Virtual KV Cache Allocation measures by how much. "
    "The loaded weights stay in memory as well, for other engines. vLLM 0.26.0 has nothing like "
    "it.",
    "attention_backend": "`torch` gathers the pages of a request and attends by torch's own "
    "functions. `numba` reads decodes' pages where they lie, by kernels that it compiles (`pip "
    "install numba`; auto takes it where it is). `triton` has the kernels for a GPU, and "
    "`triton-interpret` runs the same ones step by step on a CPU, to look at: seconds a step. The "
    "log's attention_run says which one ran.",
    "kv_cache_dtype": "Keys and values are rounded when they are written and widened when they are "
    "read. Of a token's bytes in float32, 16 bits take a half and fp8 a quarter; "
    "int8_per_token_head also has a scale of 4 bytes for each token and KV head. float32 itself is "
    "there as auto, beside weights in float32. What the rounding does to a request is measured in "
    "the view Virtual KV Cache Allocation.",
    "cudagraph_mode": "FULL: attention is inside of the graph. PIECEWISE: it runs between the "
    "graph's pieces, over the batch as it is. The names with two parts tell decode batches from "
    "all others.",
    "cudagraph_capture_sizes": "Numbers with spaces between. A batch is padded to the next size; "
    "one that is larger than the largest runs eagerly. Each is captured when it is first needed.",
    "compilation_backend": "`inductor`, which needs a C++ compiler, makes one kernel of each norm, "
    "of the rotary embedding and of what else lies between matrix products. The first size takes "
    "half a minute or more, and a kernel rounds otherwise: the log has the largest difference.",
    _METHOD: "The other methods need a second model, and none can be loaded here: the scheduler "
    "alone knows what they take (`python -m engine.conformance`).",
}


# What stands in an empty field.
_EMPTY = {
    "kv_cache_memory_bytes": "by utilization",
    "quantization": "none",
    "cudagraph_capture_sizes": "by vLLM's rule",
    "max_cudagraph_capture_size": "by vLLM's rule",
    _METHOD: "off",
    f"{_DRAFTER}.num_speculative_tokens": "none",
    f"{_DRAFTER}.prompt_lookup_min": "as the other, or 5",
    f"{_DRAFTER}.prompt_lookup_max": "as the other, or 5",
}


_LISTS = ("cudagraph_capture_sizes",)  # fields of text that are lists as settings


@dataclass(frozen=True)
class Setting:
    """One field of the form."""

    name: str
    kind: Kind
    description: str
    choices: tuple[str, ...] = ()
    optional: bool = False
    help: str | None = None
    empty: str = "as many as fit"


def settings_by_group() -> dict[str, list[Setting]]:
    """Return every field of `EngineConfig` under its group, in the form's order."""
    placed = {name for names in GROUPS.values() for name in names}
    groups = dict(GROUPS)
    names = form_values(EngineConfig())
    rest = tuple(name for name in names if name not in placed)
    if rest:
        groups["More"] = rest
    return {title: [_setting(name) for name in names] for title, names in groups.items()}


def form_values(config: EngineConfig) -> dict[str, Any]:
    """Return what the form's fields hold for these settings; a table's are empty without it."""
    values = config.model_dump()
    table = values.pop(_DRAFTER) or {}
    names = SpeculativeConfig.model_fields
    values |= {name: as_text(value) for name, value in values.items() if isinstance(value, tuple)}
    return values | {f"{_DRAFTER}.{name}": table.get(name) for name in names}


def form_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that the fields of a whole form stand for."""
    prefix = f"{_DRAFTER}."
    table = {name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
    settings = {name: value for name, value in values.items() if not name.startswith(prefix)}
    for name in _LISTS:
        settings[name] = str(settings[name]).split() if settings.get(name) else None
    return settings | {_DRAFTER: without_gaps(table) if table["method"] else None}


def as_text(items: tuple[int, ...]) -> str:
    """Return a list as its field holds it."""
    return " ".join(map(str, items))


def _setting(name: str) -> Setting:
    in_table = name.startswith(f"{_DRAFTER}.")
    fields = SpeculativeConfig.model_fields if in_table else EngineConfig.model_fields
    field = fields[name.removeprefix(f"{_DRAFTER}.")]
    kind, choices, optional = _kind(field.annotation)
    description = (field.description or "").replace("None: ", "empty: ")
    return Setting(
        name,
        kind,
        description,
        choices,
        optional or in_table,
        _HELP.get(name),
        empty_text(name),
    )


def empty_text(name: str) -> str:
    """Return what stands in this field while it is empty."""
    return _EMPTY.get(name, Setting.empty)


def _kind(annotation: Any) -> tuple[Kind, tuple[str, ...], bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        inner = next(a for a in get_args(annotation) if a is not type(None))
        kind, choices, _ = _kind(inner)
        return kind, choices, True
    if get_origin(annotation) is Literal:
        return "choice", tuple(str(choice) for choice in get_args(annotation)), False
    if get_origin(annotation) is tuple:
        return "list", (), False
    kinds: dict[Any, Kind] = {bool: "switch", int: "whole", float: "number"}
    return kinds[annotation], (), False


def without_gaps(values: dict[str, Any]) -> dict[str, Any]:
    """Drop fields that were left empty: the engine's default stands for them."""
    return {name: value for name, value in values.items() if value is not None}
