"""What the log of an engine says before its first record: the model, the settings, the packages.

No counterpart in vLLM.
"""

from __future__ import annotations

import secrets
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from engine.model_loader.dtypes import dtype_name, kv_cache_dtype
from engine.source_sites import source_version
from engine.trace import SCHEMA_VERSION, TraceHeader

if TYPE_CHECKING:
    from engine.model_loader import LoadedModel

PACKAGES = ("torch", "transformers", "tokenizers", "triton")


def trace_header(model: LoadedModel, config: EngineConfig, document: str = "") -> TraceHeader:
    """The header of a log that begins now; `document` is the title of what stands beside it."""
    return TraceHeader(
        schema_version=SCHEMA_VERSION,
        trace_id=secrets.token_hex(8),
        config=config.model_dump(mode="json"),
        model=model_facts(model, config),
        document=document,
        versions={**package_versions(), "glassbox": source_version()},
        started_at=time.time(),
        state={},
    )


def model_facts(model: LoadedModel, config: EngineConfig | None = None) -> dict[str, Any]:
    """The model as the log's header has it; without settings, as it is by itself."""
    from engine.kv_cache import KVCacheSpec
    from engine.layers.quantized import LinearLayers

    layers = LinearLayers.of(model.model)
    cache_dtype = kv_cache_dtype(model, config or EngineConfig())
    return {
        "name": model.name,
        "num_layers": model.num_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "weight_bytes": model.weight_bytes,
        "kv_bytes_per_token": KVCacheSpec.of(model, 1, cache_dtype).bytes_per_token,
        "max_model_len": model.max_model_len,
        "dtype": dtype_name(model.model.dtype),
        "quantization": model.quantization or "",
        "quantized_layers": layers.quantized,
        "linear_layers": layers.total,
        "kv_cache_dtype": dtype_name(cache_dtype),
        "device": model.model.device.type,
    }


@cache
def package_versions() -> dict[str, str]:
    """Of the packages whose version can change what a log shows."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
