"""How much memory there is, how much a KV cache may take, and what is said of one that wants more.

Box `physical-vram`. vLLM 0.26.0: `MemorySnapshot` in `vllm/utils/mem_utils.py`. How many blocks fit
is asked in `engine/memory_budget.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import ConfigError

if TYPE_CHECKING:
    import torch

    from engine.kv_cache import KVCacheSpec

FALLBACK_BYTES = 8 << 30  # where the system does not tell


def memory_bytes(device: torch.device) -> int:
    """All the memory of the device, in use or not."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not on this system
        return FALLBACK_BYTES


def free_bytes(device: torch.device) -> int:
    """The memory of the device that could be had now."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
        return int(found["MemAvailable"][0]) * 1024
    except (OSError, KeyError, ValueError):  # not on this system
        return memory_bytes(device)


def check_pool(spec: KVCacheSpec, num_blocks: int, device: torch.device, share: int = 1) -> None:
    """Raise ConfigError where the pool wants more than one part in `share` of the memory."""
    limit = memory_bytes(device) // share
    if num_blocks * spec.bytes_per_block <= limit:
        return
    whose = "the machine has" if share == 1 else "a session may take"
    fits = limit // spec.bytes_per_block
    raise pool_too_large(
        spec, num_blocks, f"and {whose} {limit / 1e9:.1f} GB", f"set it to {fits} or less"
    )


def pool_too_large(spec: KVCacheSpec, num_blocks: int, why: str, advice: str) -> ConfigError:
    """What is said of a pool that cannot be."""
    wanted = num_blocks * spec.bytes_per_block
    return ConfigError(
        f"num_gpu_blocks {num_blocks} needs {wanted / 1e9:.1f} GB for the KV cache "
        f"({spec.bytes_per_block:,} bytes a block of {spec.block_size} tokens), {why}; {advice}"
    )
