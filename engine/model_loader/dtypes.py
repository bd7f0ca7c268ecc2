"""The loaded weights in another dtype, or in fewer bits: made once, shared by all that ask for it.

No box of the map. vLLM 0.26.0 loads its one model in one form (`vllm/config/model.py`); here the
process keeps what it has loaded, and engines of several forms live beside each other.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from engine.config import ConfigError, EngineConfig
from engine.doing import doing, holding, tell
from engine.memory import free_bytes
from engine.model_loader.loader import LoadedModel, WeightBytes

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    # By the model as it was loaded. An entry lives as long as an engine runs it.
    Made = WeakKeyDictionary[PreTrainedModel, WeakValueDictionary["Form", LoadedModel]]


class Form(NamedTuple):
    """What weights are kept in."""

    dtype: str  # of those that are not quantized, and of what is computed
    quantization: str | None  # of linear layers

    def __str__(self) -> str:
        return " beside ".join(filter(None, (self.quantization, self.dtype)))


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
    """`model`, or what was made of it, in the dtype and the quantization that `config` wants.

    Raises ConfigError where the memory that is free does not hold it, or where the weights are on
    a GPU and are to be quantized.
    """
    form = Form(dtype_name(weights_dtype(model, config)), config.quantization)
    if form == Form(dtype_name(model.model.dtype), None):
        return model
    if form.quantization and model.model.device.type != "cpu":
        raise ConfigError(
            f"quantization: {form.quantization} is for a CPU, and the model is on "
            f"{model.model.device}; leave it empty"
        )
    with holding(_lock, "waiting for weights that are made for another engine"):
        made = _made.setdefault(model.model, WeakValueDictionary())
        found = made.get(form)
        if found is None:
            with doing(f"making the weights in {form}"):
                found = made[form] = _converted(model, form)
        return found


def _converted(model: LoadedModel, form: Form) -> LoadedModel:
    field, mend = (
        ("quantization", "leave it empty") if form.quantization else ("dtype", "set it to auto")
    )
    mend += " to run those that are loaded"
    needed, free = bytes_in(model, form), free_bytes(model.model.device)
    if needed > free:
        raise ConfigError(
            f"{field}: {form} needs {needed / 1e9:.1f} GB for weights of its own, and "
            f"{free / 1e9:.1f} GB are free; {mend}"
        )
    try:
        converted = _copy_in(model.model, form)
    except (RuntimeError, MemoryError):  # torch.OutOfMemoryError is a RuntimeError
        raise ConfigError(
            f"{field}: there is not enough memory for the weights in {form}; {mend}"
        ) from None
    return dataclasses.replace(
        model,
        model=converted,
        quantization=form.quantization,
        **WeightBytes.of(converted)._asdict(),
    )


def bytes_in(model: LoadedModel, form: Form) -> int:
    """What the weights will take in this form."""
    from engine.layers import quantized

    loaded, dtype = model.model.dtype, by_name(form.dtype)
    plain, rounded = model.weight_bytes, 0
    if form.quantization:
        for layer in quantized.to_quantize(model.model):
            shape = quantized.shape_of(layer)
            plain -= shape[0] * shape[1] * loaded.itemsize
            rounded += quantized.KINDS[form.quantization].expected_bytes(*shape)
    return plain * dtype.itemsize // loaded.itemsize + rounded


def _copy_in(model: PreTrainedModel, form: Form) -> PreTrainedModel:
    """A copy with its parameters in this form; tied ones stay tied, buffers keep their dtype.

    Rotary frequencies, for one, are buffers, and Transformers computes with them in fp32 always.
    """
    from torch import nn

    from engine.layers import PackedLinear
    from engine.layers.quantized import quantize, to_quantize

    dtype = by_name(form.dtype)
    rounded = to_quantize(model) if form.quantization else []
    own = {id(layer.weight) for layer in rounded}
    # What a deep copy finds here it takes instead of a copy: the fp32 weights are never doubled.
    instead: dict[int, nn.Module | nn.Parameter] = {
        id(p): nn.Parameter(p.to(dtype), requires_grad=False)
        for p in model.parameters()
        if id(p) not in own
    }
    for done, layer in enumerate(rounded):
        tell("rounding", done, len(rounded), "layers")
        bias: Any = None if layer.bias is None else instead[id(layer.bias)]
        instead[id(layer)] = quantize(layer, str(form.quantization), bias)
    for module in model.modules():
        if isinstance(module, PackedLinear) and id(module) not in instead:
            instead[id(module)] = module.in_dtype(dtype, instead)
    copied = copy.deepcopy(model, instead)
    copied.config.dtype = dtype
    for module in copied.modules():  # the hooks belong to the original's timer
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return copied
