"""The loaded weights in another dtype: made once, shared by all engines that ask for it.

No box of the map. vLLM 0.26.0 loads its one model in one dtype (`vllm/config/model.py`); here the
process keeps what it has loaded, and engines of several dtypes live beside each other.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

from engine.config import ConfigError, EngineConfig
from engine.memory import free_bytes
from engine.model_loader.loader import LoadedModel, WeightBytes

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    # By the model as it was loaded. An entry lives as long as an engine runs it.
    Made = WeakKeyDictionary[PreTrainedModel, WeakValueDictionary[str, LoadedModel]]

_made: Made = WeakKeyDictionary()
_lock = threading.Lock()


def weights_dtype(model: LoadedModel, config: EngineConfig) -> torch.dtype:
    """The dtype of weights and activations under these settings."""
    return model.model.dtype if config.dtype == "auto" else by_name(config.dtype)


def kv_cache_dtype(model: LoadedModel, config: EngineConfig) -> torch.dtype:
    """The dtype of the KV cache under these settings."""
    name = config.kv_cache_dtype
    return weights_dtype(model, config) if name == "auto" else by_name(name)


# What settings call otherwise than torch does; vLLM's names (`CacheDType` in
# `vllm/config/cache.py`), of which the last for a dtype is the one that logs have.
_TORCH_NAMES = {
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "int8_per_token_head": "int8",
}
_NAMES = {torch_name: name for name, torch_name in _TORCH_NAMES.items()}


def by_name(name: str) -> torch.dtype:
    """`float16` as torch has it."""
    import torch

    dtype: torch.dtype = getattr(torch, _TORCH_NAMES.get(name, name))
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype as settings and logs call it."""
    name = str(dtype).removeprefix("torch.")
    return _NAMES.get(name, name)


def in_dtype(model: LoadedModel, config: EngineConfig) -> LoadedModel:
    """`model`, or what was made of it, in the dtype that `config` wants.

    Raises ConfigError where the memory that is free does not hold it.
    """
    if config.dtype == "auto" or weights_dtype(model, config) == model.model.dtype:
        return model
    with _lock:
        made = _made.setdefault(model.model, WeakValueDictionary())
        found = made.get(config.dtype)
        if found is None:
            found = made[config.dtype] = _converted(model, config.dtype)
        return found


def _converted(model: LoadedModel, name: str) -> LoadedModel:
    dtype = by_name(name)
    needed = model.weight_bytes * dtype.itemsize // model.model.dtype.itemsize
    free = free_bytes(model.model.device)
    if needed > free:
        raise ConfigError(
            f"dtype: {name} needs {needed / 1e9:.1f} GB for weights of its own, and "
            f"{free / 1e9:.1f} GB are free; set it to auto to run those that are loaded"
        )
    try:
        converted = _copy_in(model.model, dtype)
    except (RuntimeError, MemoryError):  # torch.OutOfMemoryError is a RuntimeError
        raise ConfigError(
            f"dtype: there is not enough memory for the weights in {name}; set it to auto to run "
            "those that are loaded"
        ) from None
    return dataclasses.replace(model, model=converted, **WeightBytes.of(converted)._asdict())


def _copy_in(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A copy with its parameters in `dtype`; tied ones stay tied, buffers keep their dtype.

    Rotary frequencies, for one, are buffers, and Transformers computes with them in fp32 always.
    """
    from torch import nn

    from engine.layers import PackedLinear

    # What a deep copy finds here it takes instead of a copy: the fp32 weights are never doubled.
    instead: dict[int, nn.Module | nn.Parameter] = {
        id(p): nn.Parameter(p.to(dtype), requires_grad=False) for p in model.parameters()
    }
    for module in model.modules():
        if isinstance(module, PackedLinear):
            instead[id(module)] = module.in_dtype(dtype, instead)
    copied = copy.deepcopy(model, instead)
    copied.config.dtype = dtype
    for module in copied.modules():  # the hooks belong to the original's timer
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return copied
