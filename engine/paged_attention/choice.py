"""Which backend computes an engine's attention, and why one that was asked for cannot.

Part of the box PagedAttention. Counterpart in vLLM 0.26.0: `vllm/v1/attention/selector.py` and the
`get_attn_backend_cls` of its platforms (`vllm/platforms/`), which refuse a backend by the reasons
of its `validate_configuration`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.config import ConfigError, EngineConfig
from engine.kv_cache import KVCacheSpec, LayerKVCache
from engine.layers.numba_threads import numba_is_installed
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import kv_cache_dtype, weights_dtype
from engine.model_loader.fetch import Report
from engine.paged_attention.metadata import AttentionOptions, PagedAttentionMetadata
from engine.paged_attention.numba_backend import (
    NumbaPagedAttention,
    compile_for,
    refuse_numba,
)
from engine.paged_attention.torch_backend import TorchPagedAttention
from engine.paged_attention.triton import support


class AttentionBackend(Protocol):
    """One step's attention over the paged cache."""

    name: str

    def forward(
        self,
        layer: LayerKVCache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """Write K and V, attend, return [rows, heads, dim]; see TorchPagedAttention."""


class Asked(NamedTuple):
    """What a backend must be able to do, for a model under an engine's settings."""

    device: torch.device
    dtype: torch.dtype  # of queries and results
    spec: KVCacheSpec
    softcap: bool  # some layer caps its scores
    sinks: bool  # some layer has attention sinks

    @classmethod
    def of(cls, model: LoadedModel, config: EngineConfig) -> Asked:
        """By the model's configuration and its parameters."""
        text = model.model.config.get_text_config(decoder=True)
        return cls(
            device=model.model.device,
            dtype=weights_dtype(model, config),
            spec=KVCacheSpec.of(model, config.block_size, kv_cache_dtype(model, config)),
            softcap=getattr(text, "attn_logit_softcapping", None) is not None,
            sinks=any(name.endswith(".sinks") for name, _ in model.model.named_parameters()),
        )


class Backend(NamedTuple):
    """How one is made for a step, and when it cannot be."""

    make: Callable[[PagedAttentionMetadata, torch.device], AttentionBackend]
    # Why it cannot do what is asked and what would mend it, to follow the backend's name; None: it
    # can.
    refuse: Callable[[Asked], str | None]
    prepare: Callable[[torch.dtype], None] = lambda cache_dtype: None  # for a pool of this dtype


def _never(asked: Asked) -> str | None:
    return None


BACKENDS: dict[str, Backend] = {
    "torch": Backend(TorchPagedAttention.of, _never),
    "numba": Backend(NumbaPagedAttention.of, refuse_numba, compile_for),
    "triton": Backend(support.make_triton, support.refuse_triton),
    "triton-interpret": Backend(support.make_interpreted, support.refuse_interpreted),
}

# What `auto` takes: the first of the device's that can do what is asked.
PREFERRED = {"cpu": ("numba", "torch"), "cuda": ("triton", "torch")}


def choose_backend(model: LoadedModel, config: EngineConfig) -> str:
    """The name of the backend that an engine has; ConfigError where it cannot be the one asked for.

    torch can do whatever is asked, on any device.
    """
    asked = Asked.of(model, config)
    name: str = config.attention_backend
    if name == "auto":
        names = PREFERRED.get(asked.device.type, ("torch",))
        name = next(name for name in names if BACKENDS[name].refuse(asked) is None)
    refusal = BACKENDS[name].refuse(asked)
    if refusal is not None:
        raise ConfigError(f"attention_backend: {name} {refusal}")
    return name


def prepare_backend(model: LoadedModel, config: EngineConfig) -> None:
    """Have all compiled that an engine's steps will call, once a process; ConfigError as above.

    The first time on a machine it can take a minute.
    """
    BACKENDS[choose_backend(model, config)].prepare(kv_cache_dtype(model, config))


def prepare_default(report: Report) -> None:
    """The same for the default settings, when there is no model yet: beside its load."""
    if not torch.cuda.is_available() and PREFERRED["cpu"][0] == "numba" and numba_is_installed():
        compile_for(torch.float32, report)


def make_backend(
    name: str, metadata: PagedAttentionMetadata, device: torch.device
) -> AttentionBackend:
    """The attention of one step over `metadata`'s batch, by the backend of this name."""
    return BACKENDS[name].make(metadata, device)
