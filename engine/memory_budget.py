"""An engine starts: how its memory is divided, and how many blocks that makes.

Box `physical-vram`. vLLM 0.26.0: `Worker.determine_available_memory` in
`vllm/v1/worker/gpu_worker.py` and `get_kv_cache_configs` in `vllm/v1/core/kv_cache_utils.py`. As
there, `num_gpu_blocks` overrides the budget, `kv_cache_memory_bytes` is the KV cache's alone, and
of `gpu_memory_utilization` it has what weights, activations and graphs leave. Unlike there, the
weights are in memory before the first engine is, and shared by all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from engine.config import MAX_BLOCKS, ConfigError, EngineConfig
from engine.events import MemorySized
from engine.kv_cache import KVCacheSpec
from engine.memory import check_pool, free_bytes, memory_bytes
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import in_dtype, kv_cache_dtype
from engine.profile_run import Profile, profile_run
from engine.reasons import CacheLimitsLength

NOT_PROFILED = Profile(0, 0, 0, ())


class Sized(NamedTuple):
    """What an engine is built from, and how its memory was divided."""

    model: LoadedModel  # in the dtype that the settings want
    config: EngineConfig  # resolved: with its number of blocks and its max_model_len
    facts: MemorySized
    reason: CacheLimitsLength | None


def size_memory(model: LoadedModel, config: EngineConfig, share: int = 1) -> Sized:
    """Divide the memory as `config` says; the pool may take one part in `share` of it.

    Raises ConfigError where it cannot be so. Must run where forwards do: it may run one.
    """
    spec = KVCacheSpec.of(model, config.block_size, kv_cache_dtype(model, config))
    device = model.model.device
    if config.num_gpu_blocks:
        resolved = config.resolve(model.max_model_len)
        check_pool(spec, config.num_gpu_blocks, device, share)
        available = config.num_gpu_blocks * spec.bytes_per_block
        return sized(in_dtype(model, config), config, resolved, spec, available, NOT_PROFILED)
    converted = in_dtype(model, config)
    profile = profile_run(converted, config)
    budget = Budget(config, spec, converted.weight_bytes, profile, memory_bytes(device))
    budget.check(free_bytes(device), share)
    resolved = config.resolve(model.max_model_len, budget.num_blocks)
    return sized(converted, config, resolved, spec, budget.available, profile)


def sized(
    model: LoadedModel,
    asked: EngineConfig,
    resolved: EngineConfig,
    spec: KVCacheSpec,
    available: int,
    profile: Profile,
) -> Sized:
    """The division as the log has it."""
    device_bytes = memory_bytes(model.model.device)
    by_share = asked.pool_set_by == "gpu_memory_utilization"
    longest, holds = resolved.max_model_len or 0, resolved.largest_request()
    facts = MemorySized(
        set_by=asked.pool_set_by,
        device_bytes=device_bytes,
        budget_bytes=budget_bytes(asked, device_bytes) if by_share else 0,
        weight_bytes=model.weight_bytes,
        activation_bytes=profile.activations,
        profiled_tokens=profile.num_tokens,
        graph_bytes=profile.graphs,
        graph_sizes=profile.graph_sizes,
        available_bytes=available,
        pool_bytes=0,  # there is none yet
        bytes_per_block=spec.bytes_per_block,
        num_blocks=resolved.num_gpu_blocks,
        block_size=resolved.block_size,
        max_model_len=longest,
    )
    limited = asked.max_model_len is None and longest == holds < model.max_model_len
    reason = CacheLimitsLength(holds, model.max_model_len) if limited else None
    return Sized(model, resolved, facts, reason)


def budget_bytes(config: EngineConfig, device_bytes: int) -> int:
    """What the engine may take of the device's memory."""
    return math.ceil(device_bytes * config.gpu_memory_utilization)


class Budget(NamedTuple):
    """What there is for an engine, and what is taken of it before the KV cache."""

    config: EngineConfig
    spec: KVCacheSpec
    weights: int
    profile: Profile
    device_bytes: int

    @property
    def taken(self) -> int:
        """By weights, activations and graphs."""
        return self.weights + self.profile.activations + self.profile.graphs

    @property
    def available(self) -> int:
        """What is the KV cache's; below 0 where the rest does not fit the budget."""
        given = self.config.kv_cache_memory_bytes
        if given is not None:
            return given
        return budget_bytes(self.config, self.device_bytes) - self.taken

    @property
    def num_blocks(self) -> int:
        """Whole blocks that fit."""
        return max(0, self.available // self.spec.bytes_per_block)

    def check(self, free: int, share: int) -> None:
        """Raise ConfigError, with what would do, where the cache would be too small or too large.

        Two blocks are the fewest: the null block and one to give.
        """
        block = self.spec.bytes_per_block
        if self.num_blocks < 2:
            raise ConfigError(
                f"{self.said}: no memory is left for the KV cache. {self._too_small(2 * block)}; "
                f"raise it to {self._leaving(2 * block, math.ceil)} or more"
            )
        quota = self.device_bytes // share
        whose = "a session may take" if share > 1 else "the machine has"
        most, why = min(
            (quota, f"{whose} {in_words(quota)}"),
            (MAX_BLOCKS * block, f"an engine here has {MAX_BLOCKS:,} at most"),
            (self._room(free), f"{in_words(free)} are free now"),
        )
        if self.available > most:
            raise ConfigError(
                f"{self.said} leaves {in_words(self.available)} to the KV cache, "
                f"{self.num_blocks:,} blocks, and {why}; lower it to "
                f"{self._leaving(most, math.floor)} or less, or set num_gpu_blocks"
            )

    @property
    def said(self) -> str:
        """The setting with its value."""
        name = self.config.pool_set_by
        return f"{name} {getattr(self.config, name)}"

    def _too_small(self, fewest: int) -> str:
        two = in_words(fewest)
        if self.config.kv_cache_memory_bytes is not None:
            return f"Two blocks, the fewest, take {two}"
        return (
            f"It is a budget of {in_words(budget_bytes(self.config, self.device_bytes))}, and "
            f"weights take {in_words(self.weights)}, activations "
            f"{in_words(self.profile.activations)} and graphs {in_words(self.profile.graphs)}; "
            f"two blocks, the fewest, take {two}"
        )

    def _room(self, free: int) -> int:
        """What of the free memory the cache may take: the weights are there already."""
        return free - self.profile.activations - self.profile.graphs

    def _leaving(self, cache_bytes: int, rounded: Callable[[float], int]) -> str:
        """The setting's value that leaves so many bytes to the cache."""
        if self.config.kv_cache_memory_bytes is not None:
            return str(cache_bytes)
        share = (self.taken + cache_bytes) / self.device_bytes
        return f"{rounded(share * 10_000) / 10_000:g}"


def in_words(num_bytes: int) -> str:
    """Bytes in the unit that suits them: `538 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes} bytes"
