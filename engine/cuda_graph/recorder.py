"""Records one forward as a flat list of operations: what a CUDA stream capture does, on any device.

The model runs once, for real, while a dispatch mode notes every ATen operation with its arguments
and its result, and PagedAttention as one operation. Nothing is traced symbolically: the tensors
that the forward made become the static buffers that a replay writes again. Part of the box CUDA
graph; counterpart in vLLM 0.26.0: the capture in `vllm/compilation/cuda_graph.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from engine.doing import tell
from engine.kv_cache import LayerKVCache
from engine.module_timer import ModuleTimer
from engine.paged_attention import AttentionBackend, AttentionOptions

TOLD_EVERY = 50  # operations
NO_LAYER = -1  # of an operation outside of the decoder layers


class CannotRecord(Exception):
    """The forward is no fixed list of operations; the message says why."""


class Attention(NamedTuple):
    """PagedAttention of one layer. Which pool and which blocks it reads is told at replay."""

    layer: int
    query: Tensor  # [heads, rows, dim], as `AttentionBackend.forward` takes them
    key: Tensor
    value: Tensor
    options: AttentionOptions

    def run(self, backend: AttentionBackend, layers: Sequence[LayerKVCache]) -> Tensor:
        """Attend by `backend` over the pool `layers`; [rows, heads, dim]."""
        return backend.forward(layers[self.layer], self.query, self.key, self.value, self.options)

    def run_into(
        self, output: Tensor, rows: int, backend: AttentionBackend, layers: Sequence[LayerKVCache]
    ) -> None:
        """The same over the first `rows` rows; the others of `output` become nothing (zeros)."""
        attention = self
        if rows < output.shape[0]:  # `len` of a tensor takes ten times as long
            output[rows:].zero_()
            query, key, value = (t[:, :rows] for t in (self.query, self.key, self.value))
            attention, output = self._replace(query=query, key=key, value=value), output[:rows]
        output.copy_(attention.run(backend, layers))


class RecordedOp(NamedTuple):
    """One operation as it ran."""

    func: Any  # torch._ops.OpOverload; None for attention
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any  # a tensor or several
    kind: str  # of module, as `module_timer` names them
    layer: int  # index of the decoder layer, or NO_LAYER
    attention: Attention | None = None

    @property
    def name(self) -> str:
        """`mm`, or `paged_attention`."""
        return "paged_attention" if self.func is None else str(self.func.overloadpacket.__name__)

    def inputs(self) -> list[Tensor]:
        """The tensors it was given."""
        return tensors((self.args, self.kwargs, self.attention))

    def outputs(self) -> list[Tensor]:
        """The tensors it gave."""
        return tensors(self.result)

    def changed(self) -> list[Tensor]:
        """The tensors it was given and wrote to (`add_`, `copy_`, `index_put_`)."""
        if self.func is None or not self.func._schema.is_mutable:
            return []
        arguments = self.func._schema.arguments
        given = dict(zip((a.name for a in arguments), self.args, strict=False)) | self.kwargs
        written = (a.name for a in arguments if a.alias_info and a.alias_info.is_write)
        return tensors([given.get(name) for name in written])


class Recorder(TorchDispatchMode):
    """While it is entered, notes every operation of this thread in `ops`.

    Operations that PyTorch composes of others appear as those others, which needs gradients off by
    `no_grad` and not by `inference_mode`.
    """

    def __init__(self, timer: ModuleTimer, layers: Iterable[nn.Module]):
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[RecordedOp] = []
        self._timer = timer
        self._layers = layers
        self._layer = NO_LAYER
        self._hooks = ExitStack()

    def __enter__(self) -> Recorder:
        for index, layer in enumerate(self._layers):
            self._hooks.callback(layer.register_forward_pre_hook(self._layer_is(index)).remove)
            self._hooks.callback(layer.register_forward_hook(self._layer_is(NO_LAYER)).remove)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.close()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _layer_is(self, index: int) -> Any:
        def hook(*_: Any) -> None:
            self._layer = index

        return hook

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.ops.append(RecordedOp(func, args, kwargs, result, self._timer.kind, self._layer))
        if len(self.ops) % TOLD_EVERY == 0:
            tell("recording", len(self.ops), unit="operations")
        return result

    def attend(
        self, backend: AttentionBackend, layers: Sequence[LayerKVCache], attention: Attention
    ) -> Tensor:
        """Run attention as the one operation that it is in the list."""
        with _disable_current_modes():
            result = attention.run(backend, layers)
        self.ops.append(RecordedOp(None, (), {}, result, "attention", attention.layer, attention))
        return result


class RecordedAttention:
    """A backend that runs another one and has the recorder note it."""

    def __init__(
        self, recorder: Recorder, backend: AttentionBackend, layers: Sequence[LayerKVCache]
    ):
        self.name = backend.name
        self._recorder, self._backend, self._layers = recorder, backend, layers

    def forward(
        self,
        layer: LayerKVCache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """As every backend's."""
        index = next(i for i, own in enumerate(self._layers) if own is layer)
        attention = Attention(index, query, key, value, options)
        return self._recorder.attend(self._backend, self._layers, attention)


def tensors(tree: Any) -> list[Tensor]:
    """All tensors in nested lists, tuples and dicts, but for packed weights: they have no storage
    that could be told, and never change.
    """
    if isinstance(tree, Tensor):
        return [tree] if tree.layout == torch.strided else []
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list | tuple):
        return []
    return [tensor for item in tree for tensor in tensors(item)]


def storage_of(tensor: Tensor) -> int:
    """What tells whether two tensors share memory."""
    return int(tensor.untyped_storage()._cdata)


def storages(several: Iterable[Tensor]) -> set[int]:
    """`storage_of` each."""
    return {storage_of(tensor) for tensor in several}
