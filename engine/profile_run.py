"""What a model needs beside weights and KV cache: measured, by running it on made-up tokens.

Box `physical-vram`. vLLM 0.26.0: `profile_run` and `profile_cudagraph_memory` in
`vllm/v1/worker/gpu_model_runner.py`. As there, the batch is a step's whole budget of fresh tokens,
shared by as many requests as may run, and all of them sample. Their K and V go to block 0 of a pool
that has no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from engine.config import EngineConfig, SamplingParams
from engine.cuda_graph import CannotRecord, CapturedGraphs, CudagraphDispatcher, GraphKey
from engine.device import in_turn
from engine.forward import ModelInputs, context_of, run_eagerly
from engine.kv_cache import KVCache, KVCacheSpec
from engine.model_loader import LoadedModel
from engine.model_loader.dtypes import kv_cache_dtype
from engine.module_timer import ModuleTimer
from engine.paged_attention import PagedAttentionMetadata, choose_backend
from engine.paged_attention.torch_backend import forget_workspaces
from engine.sampler import Sampler, SamplingRow

SAMPLING = SamplingParams(temperature=0.5, top_p=0.9)  # sorts whole rows of logits


class Batch(NamedTuple):
    """How many made-up tokens are run, and of how many requests."""

    num_tokens: int
    num_requests: int

    @classmethod
    def of(cls, config: EngineConfig, model_max_len: int) -> Batch:
        """A step with all its tokens, as far as its requests may be so long."""
        longest = config.max_model_len or model_max_len
        num_tokens = min(config.max_num_batched_tokens, config.max_num_seqs * longest)
        return cls(num_tokens, min(num_tokens, config.max_num_seqs))

    @property
    def query_lens(self) -> list[int]:
        """Tokens of each request: as even as can be."""
        each, over = divmod(self.num_tokens, self.num_requests)
        return [each + (place < over) for place in range(self.num_requests)]


SMALLEST = Batch(1, 1)


class Profile(NamedTuple):
    """What was found. All in bytes but the tokens."""

    num_tokens: int
    activations: int
    graphs: int
    graph_sizes: tuple[int, ...]


class Kind(NamedTuple):
    """What a profile depends on, beside the model."""

    batch: Batch
    block_size: int
    cache_dtype: torch.dtype
    graphs: tuple[GraphKey, ...]  # that can be captured, largest first
    attention_backend: str


_profiles: WeakKeyDictionary[PreTrainedModel, dict[Kind, Profile]] = WeakKeyDictionary()


def profile_run(model: LoadedModel, config: EngineConfig) -> Profile:
    """Measure, once for all engines of the model that could have the same batch."""
    kind = Kind(
        Batch.of(config, model.max_model_len),
        config.block_size,
        kv_cache_dtype(model, config),
        graph_keys(config),
        choose_backend(model, config),
    )
    known = _profiles.setdefault(model.model, {})
    if kind not in known:
        known[kind] = measure(model, kind)
    return known[kind]


@in_turn
def measure(model: LoadedModel, kind: Kind) -> Profile:
    """One forward with sampling, and one capture; nothing else may compute, or it would count.

    A small forward comes first: what libraries, and the model, set up for good is no activation.
    (The whole batch for that would take as long again, which on a CPU can be a minute.)
    """
    spec = KVCacheSpec.of(model, kind.block_size, kind.cache_dtype)
    kv_cache = KVCache(spec, 1, model.model.device, kind.attention_backend)
    run_once(model, made_up_inputs(kind._replace(batch=SMALLEST), model), kv_cache)
    inputs = made_up_inputs(kind, model)
    activations = peak_bytes(lambda: run_once(model, inputs, kv_cache), model.model.device)
    graphs = graph_bytes(model, kv_cache, kind.graphs)
    sizes = sorted({key.size for key in kind.graphs}, reverse=True) if graphs else ()
    return Profile(kind.batch.num_tokens, activations, graphs, tuple(sizes))


def run_once(model: LoadedModel, inputs: ModelInputs, kv_cache: KVCache) -> None:
    """The forward and the sampler's work on its logits."""
    rows = [
        SamplingRow(SAMPLING, seed, 0, model.eos_token_ids)
        for seed in range(len(inputs.logits_to_keep))
    ]
    with torch.inference_mode():
        context = context_of(inputs, kv_cache, ModuleTimer.of(model.model))
        logits = run_eagerly(model, inputs, context).logits
        Sampler().sample(logits, rows)


def made_up_inputs(kind: Kind, model: LoadedModel) -> ModelInputs:
    """Fresh requests: each token looks back at those before it, all of them in block 0."""
    lens, device = kind.batch.query_lens, model.model.device
    positions = [position for length in lens for position in range(length)]
    starts = [0]
    for length in lens:
        starts.append(starts[-1] + length)
    return ModelInputs(
        input_ids=torch.zeros(1, len(positions), dtype=torch.int64, device=device),
        positions=torch.tensor([positions], device=device),
        logits_to_keep=torch.tensor(starts[1:], device=device) - 1,
        metadata=PagedAttentionMetadata(
            query_start_loc=tuple(starts),
            seq_lens=tuple(lens),
            block_tables=tuple((0,) * -(-length // kind.block_size) for length in lens),
            slot_mapping=torch.tensor(positions, device=device) % kind.block_size,
            block_size=kind.block_size,
        ),
    )


# --- peaks -------------------------------------------------------------------------------------


def peak_bytes(run: Callable[[], None], device: torch.device) -> int:
    """Most bytes that `run` had allocated at a time, as torch's own allocator counts them."""
    if device.type == "cuda":
        return cuda_peak(run, device)
    return cpu_peak(run)


def cuda_peak(run: Callable[[], None], device: torch.device) -> int:
    """By the allocator's statistics."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def cpu_peak(run: Callable[[], None]) -> int:
    """By torch's profiler: the CPU's allocator keeps no statistics, and tells it of each block."""
    forget_workspaces()  # attention's memory is kept from step to step, and counts as well
    with quiet_profiler() as profiler:
        run()
    results: Any = profiler.profiler
    found = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    most = allocated = 0
    for event in sorted(found, key=lambda event: event.start_ns()):
        allocated += event.nbytes()  # below 0 where a block is given back
        most = max(most, allocated)
    return most


@contextmanager
def quiet_profiler() -> Iterator[torch.profiler.profile]:
    """Torch's profiler of memory, which else says on the console that it starts and stops."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True) as profiler:
        yield profiler


def graph_keys(config: EngineConfig) -> tuple[GraphKey, ...]:
    """The graphs that an engine can come to capture, largest first."""
    found = CudagraphDispatcher.of(config).keys.items()
    keys = (GraphKey(mode, key.num_tokens) for mode, keys in found for key in keys)
    return tuple(sorted(keys, key=lambda key: key.size, reverse=True))


def graph_bytes(model: LoadedModel, kv_cache: KVCache, keys: tuple[GraphKey, ...]) -> int:
    """Of all these graphs: the largest is captured, and the others lie in its memory.

    Graphs are captured when they are first needed; that is why this is an estimate. What inductor
    compiles takes about as much as a plain list.
    """
    if not keys:
        return 0
    graphs = CapturedGraphs.of(model, kv_cache)
    try:
        captured = graphs.by_key.get(keys[0]) or graphs.capture(keys[0], model, kv_cache)
    except CannotRecord:  # its forward always runs eagerly then
        return 0
    return captured.graph.num_bytes
