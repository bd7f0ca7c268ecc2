"""The pool has the size that its spec says, and one that cannot be is refused in plain words."""

from __future__ import annotations

import pytest
import torch

from engine.config import ConfigError
from engine.kv_cache import KVCache, KVCacheSpec
from engine.model_loader import LoadedModel
from tests.engine.tiny_configs import tiny

CPU = torch.device("cpu")


def test_spec_of_a_model() -> None:
    spec = KVCacheSpec.of(tiny("llama"), block_size=16)
    assert spec == (3, 2, 8, torch.float32, 16)
    assert spec.bytes_per_token == 2 * 3 * 2 * 8 * 4
    assert spec.bytes_per_block == 16 * spec.bytes_per_token


def test_spec_of_a_model_that_names_no_kv_heads() -> None:
    assert KVCacheSpec.of(tiny("gpt2"), block_size=16).num_kv_heads == 4


def test_published_sizes() -> None:
    """KV bytes a token in bf16, from the published configurations."""
    assert KVCacheSpec(30, 3, 64, torch.bfloat16, 16).bytes_per_token == 23_040
    assert KVCacheSpec(28, 4, 128, torch.bfloat16, 16).bytes_per_token == 57_344
    assert KVCacheSpec(80, 8, 128, torch.bfloat16, 16).bytes_per_token == 327_680


def test_the_pool_is_its_spec_and_nothing_more() -> None:
    spec = KVCacheSpec.of(tiny("llama"), block_size=4)
    cache = KVCache(spec, 10, CPU)
    assert [tuple(layer.data.shape) for layer in cache.layers] == [(2, 10, 4, 2, 8)] * 3
    assert cache.num_bytes == sum(layer.nbytes for layer in cache.layers)
    assert cache.num_bytes == 10 * spec.bytes_per_block


def test_a_pool_larger_than_the_machine_is_refused(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = KVCacheSpec.of(tiny_model, 128)._replace(head_dim=1 << 20)
    monkeypatch.setattr("engine.memory.memory_bytes", lambda device: 7 * spec.bytes_per_block)
    with pytest.raises(
        ConfigError, match=r"num_gpu_blocks 65536 needs .* GB .* set it to 7 or less"
    ) as e:
        KVCache(spec, 65_536, CPU)
    assert e.value.field == "num_gpu_blocks"
