"""Linear layers whose weights are kept in 8 or 4 bits, and multiplied in bfloat16.

What `quantization` asks for, on a CPU. Weights alone are rounded: torch's product widens them as it
reads them, takes what comes in as bfloat16, sums in fp32 and gives bfloat16. So a decode, which
waits for its weights, reads a quarter or less of their bytes; a long prompt, which computes,
gains nothing. No box of the map. vLLM 0.26.0 has nothing like it for linear layers on a CPU: of its
own schemes, int8_per_channel_weight_only is for the experts of a mixture.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from engine.layers.linear import (
    Gating,
    PackedLinear,
    shared_parameters,
    takes_more_than_calls,
)

GROUP = 32  # inputs of an output that share a scale, in 4 bits
ROWS = 16  # torch's product in 4 bits takes outputs by so many

_int8_product: Any = torch.ops.aten._weight_int8pack_mm.default
_int4_product: Any = torch.ops.aten._weight_int4pack_mm_for_cpu.default
_int4_pack: Any = torch.ops.aten._convert_weight_to_int4pack_for_cpu.default
_LEAST = torch.finfo(torch.bfloat16).tiny  # of a scale: nothing is divided by 0


class QuantizedLinear(Gating, nn.Module):
    """`y = x @ weight.T + bias`, [..., inputs] to [..., outputs] in the dtype of x."""

    def __init__(self, weight: Tensor, bias: nn.Parameter | None):
        """`weight` is [outputs, inputs], of sizes that `can_quantize` takes, and not kept."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        # No buffers: they are in a dtype of their own, whatever the model is in.
        self.data, self.scales = self.rounded(weight.float().contiguous())

    @property
    def num_bytes(self) -> int:
        """What the weight takes, its scales among it."""
        return self.data.nbytes + self.scales.nbytes

    def forward(self, x: Tensor) -> Tensor:
        """As `nn.Linear`."""
        rows = x.reshape(-1, self.in_features).to(torch.bfloat16).contiguous()
        y = self.product(rows).to(x.dtype).view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    @staticmethod
    def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
        """A weight in fp32 as the product reads it, and its scales in bfloat16."""
        raise NotImplementedError

    def product(self, rows: Tensor) -> Tensor:
        """[rows, inputs] to [rows, outputs], both in bfloat16."""
        raise NotImplementedError

    @staticmethod
    def expected_bytes(outputs: int, inputs: int) -> int:
        """What a weight of this shape will take."""
        raise NotImplementedError


class Int8Linear(QuantizedLinear):
    """Each output has a scale: its largest weight is 127 of it."""

    @staticmethod
    def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
        """int8, [outputs, inputs], and [outputs]."""
        scales = (weight.abs().amax(1) / 127).clamp_min(_LEAST).to(torch.bfloat16)
        # By the scale as it is kept: its own rounding then costs nothing.
        data = (weight / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
        return data, scales

    def product(self, rows: Tensor) -> Tensor:
        """As `QuantizedLinear.product`."""
        y: Tensor = _int8_product(rows, self.data, self.scales)
        return y

    @staticmethod
    def expected_bytes(outputs: int, inputs: int) -> int:
        """As `QuantizedLinear.expected_bytes`."""
        return outputs * (inputs + 2)


class Int4Linear(QuantizedLinear):
    """Each GROUP of an output's weights has 16 even steps from its least to its largest.

    Without a zero point, that is with steps around 0, the error is nearly twice as large.
    """

    @staticmethod
    def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
        """Packed by torch, [outputs, inputs / 2], and [inputs / GROUP, outputs, (step, middle)]."""
        outputs, inputs = weight.shape
        groups = weight.reshape(outputs, inputs // GROUP, GROUP)
        low, high = groups.aminmax(dim=2, keepdim=True)
        step = ((high - low) / 15).clamp_min(_LEAST).to(torch.bfloat16)
        middle = (low + 8 * step.float()).to(torch.bfloat16)
        steps = ((groups - middle.float()) / step.float()).round().clamp(-8, 7) + 8
        data = _int4_pack(steps.view(outputs, inputs).int(), 1)
        return data, torch.cat([step, middle], dim=2).transpose(0, 1).contiguous()

    def product(self, rows: Tensor) -> Tensor:
        """As `QuantizedLinear.product`."""
        y: Tensor = _int4_product(rows, self.data, GROUP, self.scales)
        return y

    @staticmethod
    def expected_bytes(outputs: int, inputs: int) -> int:
        """As `QuantizedLinear.expected_bytes`."""
        return outputs * (inputs // 2 + inputs // GROUP * 4)


KINDS: dict[str, type[QuantizedLinear]] = {
    "int8_weight_only": Int8Linear,
    "int4_weight_only": Int4Linear,
}


class LinearLayers(NamedTuple):
    """How many of a model's linear layers are quantized, of how many."""

    quantized: int
    total: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> LinearLayers:
        """Those that are modules: the experts of a mixture may be one tensor."""
        layers = [module for module in model.modules() if is_linear(module)]
        return cls(sum(isinstance(layer, QuantizedLinear) for layer in layers), len(layers))


def is_linear(module: nn.Module) -> bool:
    """In any form."""
    return isinstance(module, (nn.Linear, Conv1D, PackedLinear, QuantizedLinear))


def to_quantize(model: PreTrainedModel) -> list[Any]:
    """The linear layers of a plain model that are quantized.

    Not the head, as in vLLM: its weight may be the embedding's, and every token is chosen by it.
    Not those whose sizes torch's product does not take, nor those whose weights somebody else reads
    as well.
    """
    shared, head = shared_parameters(model), model.get_output_embeddings()
    return [
        layer
        for owner in model.modules()
        for name, layer in owner.named_children()
        if type(layer) in (nn.Linear, Conv1D, PackedLinear)  # and no class made of one
        and layer is not head
        and id(layer.weight) not in shared
        and not takes_more_than_calls(owner, name)
        and can_quantize(*shape_of(layer))
    ]


def can_quantize(outputs: int, inputs: int) -> bool:
    """Whether torch's products take a weight of these sizes; they may read past the end of others.

    One rule for both, which is that of 4 bits.
    """
    return outputs % ROWS == 0 and inputs % GROUP == 0


def shape_of(layer: Any) -> tuple[int, int]:
    """Outputs and inputs of a linear layer."""
    if isinstance(layer, Conv1D):
        return layer.nf, layer.nx
    return layer.out_features, layer.in_features


def quantize(layer: Any, name: str, bias: nn.Parameter | None) -> QuantizedLinear:
    """The layer with its weight as `name` has it, and this bias."""
    if isinstance(layer, PackedLinear):
        weight = layer.packed.to_dense()
    else:
        weight = layer.weight.t() if isinstance(layer, Conv1D) else layer.weight
    return KINDS[name](weight, bias)
