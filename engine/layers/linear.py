"""Linear layers whose weights lie in memory as the CPU's matrix product reads them.

A plain product reads its weights from where they lie, row by row, or sorts them into blocks anew in
every call. oneDNN sorts them once: at one row a product then takes two thirds of the time, at eight
half of it. A row's result hardly depends on how many rows there are beside it: less than with the
plain product, which sums in another order below four rows. No box of the map. Counterpart in vLLM
0.26.0: `dispatch_cpu_unquantized_gemm` in `vllm/model_executor/layers/utils.py`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from engine.layers import few_rows

# Below this many weights the call is what costs, and oneDNN's is the dearer one.
SMALLEST = 1 << 16

_pack: Any = torch.ops.mkldnn._reorder_linear_weight
_packed_bytes: Any = torch.ops.mkldnn._nbytes
_linear: Any = torch.ops.mkldnn._linear_pointwise


class Gating:
    """What a gated MLP asks of its layers, for those whose product does not do it on the way."""

    few_rows = False  # kernels of our own read packed weights alone

    def silu(self, x: Tensor) -> Tensor:
        """SiLU of the result."""
        return silu(self(x))  # type: ignore[operator]  # a module, which is called

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """The result times `factor`, which has its shape."""
        y: Tensor = self(x) * factor  # type: ignore[operator]
        return y


class DenseLinear(Gating, nn.Linear):
    """A layer whose weights lie as they come, where another form was a packed one."""


class PackedLinear(nn.Module):
    """`y = x @ weight.T + bias` with a packed weight: [..., inputs] to [..., outputs]."""

    def __init__(self, weight: Tensor, bias: nn.Parameter | None, plain: nn.Parameter | None):
        """`weight` is [outputs, inputs], and not kept; `plain` is it where others need it too."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed: Tensor = _pack(weight.contiguous())  # no buffer: nothing can be done with it
        self.few_rows = few_rows.can_read(self.packed, weight)  # whether kernels of our own take it
        self.bias = bias
        self.weight = plain

    @property
    def packed_bytes(self) -> int:
        """What the packed weight takes; oneDNN fills the last block of rows up."""
        return int(_packed_bytes(self.packed))

    def forward(self, x: Tensor) -> Tensor:
        """As `nn.Linear`."""
        y: Tensor
        if self.few_rows and few_rows.takes(x):
            y = few_rows.linear(x, self.packed, self.bias, self.out_features)
            return y
        y = _linear(x, self.packed, self.bias, "none", [], "")
        return y

    def silu(self, x: Tensor) -> Tensor:
        """SiLU of the result, applied to each piece of it while it is in cache."""
        y: Tensor = _linear(x, self.packed, self.bias, "swish", [], "")
        return y

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """The result times `factor`, which has its shape."""
        y: Tensor = _linear.binary(x, factor, self.packed, self.bias, "mul")
        return y

    def in_dtype(self, dtype: torch.dtype, parameters: dict[int, Any]) -> nn.Module:
        """The same layer in another dtype, packed where that can be.

        `parameters` has, by the id of each parameter of the model, what it is in that dtype.
        """
        plain = None if self.weight is None else parameters[id(self.weight)]
        bias = None if self.bias is None else parameters[id(self.bias)]
        weight = self.packed.to_dense().to(dtype) if plain is None else plain
        if can_pack(dtype):
            return PackedLinear(weight, bias, plain)
        layer: Any = DenseLinear(self.in_features, self.out_features, bias=False, device="meta")
        layer.weight = nn.Parameter(weight, requires_grad=False) if plain is None else plain
        layer.bias = bias
        dense: nn.Module = layer
        return dense


def joined(layers: Sequence[PackedLinear]) -> PackedLinear:
    """One layer that gives what these give for the same input, one after the other.

    All of them have a bias or none has, and no weight is needed elsewhere.
    """
    biases = [layer.bias for layer in layers if layer.bias is not None]
    bias = nn.Parameter(torch.cat(list(biases)), requires_grad=False) if biases else None
    return PackedLinear(torch.cat([layer.packed.to_dense() for layer in layers]), bias, None)


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this processor's oneDNN has products for it: float16 needs arithmetic in float16."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        _pack(torch.zeros(16, 16, dtype=dtype))
    except RuntimeError:
        return False
    return True


def pack_linears(model: PreTrainedModel, smallest: int = SMALLEST) -> None:
    """Put a packed layer in place of each linear one with at least `smallest` weights.

    One after the other, so that the weights are never in memory twice; a weight that is tied to
    the embedding stays there plain as well, since rows cannot be taken out of a packed one. Nothing
    happens on a GPU, or where oneDNN cannot do it.
    """
    if model.device.type != "cpu" or not can_pack(model.dtype):
        return
    shared = shared_parameters(model)
    large = [name for name, module in model.named_modules() if is_large(module, smallest)]
    for name in large:
        parent, _, last = name.rpartition(".")
        owner = model.get_submodule(parent)
        if not takes_more_than_calls(owner, last):
            setattr(owner, last, packed(getattr(owner, last), shared))
    if large:  # what is left must not keep the file of the weights mapped into memory
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()


def is_large(module: nn.Module, smallest: int) -> TypeGuard[nn.Linear | Conv1D]:
    """Whether it is a linear layer, and no class made of one, with so many weights."""
    weight: Any = module.weight if type(module) in (nn.Linear, Conv1D) else None
    return weight is not None and weight.numel() >= smallest


def takes_more_than_calls(owner: nn.Module, name: str) -> bool:
    """Whether the code of `owner` reads the weight of its layer `name` itself."""
    return f".{name}.weight" in source_of(type(owner).__module__)


@cache
def source_of(module: str) -> str:
    """The code of the model's file."""
    return inspect.getsource(sys.modules[module])


def packed(layer: nn.Linear | Conv1D, shared: set[int]) -> PackedLinear:
    """What takes the layer's place."""
    weight: Any = layer.weight
    by_outputs = weight if isinstance(layer, nn.Linear) else weight.t()
    return PackedLinear(by_outputs, layer.bias, weight if id(weight) in shared else None)


def shared_parameters(model: PreTrainedModel) -> set[int]:
    """Ids of the parameters that several modules have."""
    seen, shared = set[int](), set[int]()
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            (shared if id(parameter) in seen else seen).add(id(parameter))
    return shared
