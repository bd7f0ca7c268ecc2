"""What a kernel is run on: a layer's real query, the real pages, and what the engine makes of them.

Part of the boxes `paged-attn` and `shared-gqa`; only looks on. No forward keeps its queries, so the
model is run again over the request's own rows, up to the layer that is asked for. Attention reads
the live pages meanwhile, in which K and V of these rows stand already; what the second run would
write goes to block 0, which is nobody's. That it computes what the first one did shows in the K and
V of the rows: they are compared with those in the pool.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.device import DEVICE
from engine.forward import ModelInputs, context_of, run_eagerly
from engine.kernel_trace.errors import KernelTraceError
from engine.kernel_trace.rows import TracedRows
from engine.kv_cache import KVCacheSpec, LayerKVCache
from engine.model_runner import ModelRunner
from engine.paged_attention import AttentionBackend, AttentionOptions, PagedAttentionMetadata


class Gpu(NamedTuple):
    """What decides into how many shares a decode's pages are split."""

    name: str
    processors: int  # streaming multiprocessors


H100 = Gpu("H100 SXM", 132)


class KernelInputs(NamedTuple):
    """Copies of all that one layer's attention had for some rows of one request."""

    rows: TracedRows
    layer: int
    kv_head: int
    group: int  # query heads of a KV head
    spec: KVCacheSpec
    num_blocks: int  # of the pool
    pages: LayerKVCache  # the blocks of `rows.blocks` in that order, of this KV head alone
    query: Tensor  # [group, rows, head_dim]
    output: Tensor  # [rows, group, head_dim]: what the engine's own attention makes of them
    options: AttentionOptions
    backend: str  # that made it
    gpu: Gpu  # that the walk is split for
    kv_difference: float  # largest, between K and V of the rows in the pool and those computed now

    @property
    def query_heads(self) -> range:
        """The query heads that share this KV head."""
        first = self.kv_head * self.group
        return range(first, first + self.group)


class AttentionReached(Exception):
    """The layer that was asked for has run; the rest of the forward is not wanted."""

    def __init__(self, query: Tensor, output: Tensor, options: AttentionOptions, difference: float):
        super().__init__()
        self.query = query
        self.output = output
        self.options = options
        self.difference = difference


class UpToLayer:
    """An attention backend that ends the forward with AttentionReached at one layer."""

    def __init__(self, backend: AttentionBackend, wanted: LayerKVCache, slots: Tensor):
        self.name = backend.name
        self.backend = backend
        self.wanted = wanted
        self.slots = slots

    def forward(
        self,
        layer: LayerKVCache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """As the backend's own."""
        output = self.backend.forward(layer, query, key, value, options)
        if layer is self.wanted:
            difference = kv_difference(layer, self.slots, key, value)
            raise AttentionReached(query.clone(), output.clone(), options, difference)
        return output


def take_inputs(runner: ModelRunner, rows: TracedRows, layer: int, kv_head: int) -> KernelInputs:
    """Run the model over `rows` again, up to `layer`, and copy what one KV head's attention needs.

    On the thread that the engine runs on, between two phases.
    """
    cache = runner.kv_cache
    check_place("layer", layer, len(cache.layers))
    check_place("kv_head", kv_head, cache.spec.num_kv_heads)
    reached, backend = attention_at(runner, rows, layer)
    group = reached.query.shape[0] // cache.spec.num_kv_heads
    heads = slice(kv_head * group, (kv_head + 1) * group)
    sinks = reached.options.sinks
    return KernelInputs(
        rows=rows,
        layer=layer,
        kv_head=kv_head,
        group=group,
        spec=cache.spec,
        num_blocks=cache.num_blocks,
        pages=pages_of(cache.layers[layer], rows.blocks, kv_head),
        query=reached.query[heads].cpu().contiguous(),
        output=reached.output[:, heads].cpu(),
        options=reached.options._replace(sinks=None if sinks is None else sinks[heads].cpu()),
        backend=backend,
        gpu=gpu_of(runner.device),
        kv_difference=reached.difference,
    )


def gpu_of(device: torch.device) -> Gpu:
    """The engine's; where it has none, an H100."""
    if device.type != "cuda":
        return H100
    found = torch.cuda.get_device_properties(device)
    return Gpu(found.name, found.multi_processor_count)


def attention_at(runner: ModelRunner, rows: TracedRows, layer: int) -> tuple[AttentionReached, str]:
    """What the attention of `layer` gets and makes for these rows, and the backend's name."""
    cache = runner.kv_cache
    wanted, device = cache.layers[layer], runner.device
    slots = torch.tensor(rows.slots, device=device)
    inputs = ModelInputs(
        input_ids=torch.tensor([rows.input_ids], device=device),
        positions=torch.tensor([rows.positions], device=device),
        logits_to_keep=torch.tensor([len(rows.slots) - 1], device=device),
        metadata=PagedAttentionMetadata(
            query_start_loc=(0, len(rows.slots)),
            seq_lens=(rows.seq_len,),
            block_tables=(rows.blocks,),
            slot_mapping=torch.zeros_like(slots),
            block_size=cache.spec.block_size,
        ),
    )
    context = context_of(inputs, cache, runner.timer)
    context.backend = UpToLayer(context.backend, wanted, slots)
    with DEVICE, torch.inference_mode():
        try:
            run_eagerly(runner.model, inputs, context)
        except AttentionReached as reached:
            return reached, context.backend.name
    raise RuntimeError(f"the forward ended without attention in layer {layer}")


def check_place(field: str, place: int, number: int) -> None:
    """Raise KernelTraceError where the model has no such layer or head."""
    if not 0 <= place < number:
        raise KernelTraceError(
            f"{field}: there is no {place}; this model has 0 to {number - 1}", "not_found", field
        )


def pages_of(layer: LayerKVCache, blocks: tuple[int, ...], kv_head: int) -> LayerKVCache:
    """What these blocks hold of one KV head, copied to the CPU: [2, blocks, block_size, 1, dim]."""
    index = torch.tensor(blocks, device=layer.data.device)
    heads = slice(kv_head, kv_head + 1)
    scales = None if layer.scales is None else layer.scales[:, index][..., heads].cpu()
    return LayerKVCache(layer.data[:, index][..., heads, :].cpu().contiguous(), scales)


def kv_difference(layer: LayerKVCache, slots: Tensor, key: Tensor, value: Tensor) -> float:
    """The largest difference between what `slots` hold and K and V, [kv_heads, rows, head_dim].

    K and V are rounded to the pool's dtype first; where the pool has scales, what is left is the
    error of its integers.
    """
    held = layer.data.flatten(1, 2)[:, slots].float()
    computed = torch.stack((key, value)).transpose(1, 2)
    if layer.scales is None:
        computed = computed.to(layer.data.dtype)
    else:
        held = held * layer.scales.flatten(1, 2)[:, slots].unsqueeze(-1)
    return float((held - computed.float()).abs().max())
