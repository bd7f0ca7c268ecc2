"""Which box of the document is which box of the engine, and where its code stands.

The engine's events name components and connections; a document is *live* where one of its ids is
bound to such a name. By default an id is bound to the same id; `BINDINGS` holds the exceptions by
the title of the document. What is not bound is drawn as static, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from views.document.model import Document


class Code(NamedTuple):
    """A place in this project: a file and the class or function in it."""

    path: str
    symbol: str


# The components of the engine's events, in the order of a request, each with its own code.
COMPONENT_CODE: dict[str, tuple[Code, ...]] = {
    "client-req": (Code("engine/api/server.py", "create_openai_api"),),
    "async-engine": (
        Code("engine/async_llm.py", "AsyncLLM"),
        Code("engine/engine_loop.py", "EngineLoop"),
        Code("engine/input_processor.py", "InputProcessor"),
        Code("engine/admission.py", "Admission"),
    ),
    "scheduler": (
        Code("engine/scheduler.py", "Scheduler"),
        Code("engine/async_scheduler.py", "AsyncScheduler"),
        Code("engine/speculative_scheduler.py", "SpeculativeScheduler"),
    ),
    "block-manager": (
        Code("engine/kv_cache_manager.py", "KVCacheManager"),
        Code("engine/block_pool.py", "BlockPool"),
    ),
    "gpu-runner": (
        Code("engine/model_runner.py", "ModelRunner"),
        Code("engine/input_batch.py", "CachedRequestState"),
        Code("engine/sampler.py", "Sampler"),
        Code("engine/rejection_sampler.py", "verify"),
        Code("engine/spec_decode/ngram_proposer.py", "NgramProposer"),
    ),
    "cuda-graph": (
        Code("engine/cuda_graph/dispatcher.py", "CudagraphDispatcher"),
        Code("engine/cuda_graph/captured.py", "CapturedGraphs"),
        Code("engine/cuda_graph/recorded_graph.py", "RecordedGraph"),
        Code("engine/cuda_graph/device_graph.py", "DeviceGraph"),
    ),
    "paged-attn": (
        Code("engine/paged_attention/choice.py", "choose_backend"),
        Code("engine/paged_attention/torch_backend.py", "TorchPagedAttention"),
        Code("engine/paged_attention/numba_backend.py", "NumbaPagedAttention"),
        Code("engine/paged_attention/triton/backend.py", "TritonPagedAttention"),
    ),
    "physical-vram": (
        Code("engine/kv_cache.py", "KVCache"),
        Code("engine/memory_budget.py", "size_memory"),
        Code("engine/kv_quantization.py", "quantize"),
        Code("engine/kv_error.py", "compare_kv"),
    ),
    "shared-gqa": (Code("engine/kv_cache.py", "KVCacheSpec"),),
}
ENGINE_COMPONENTS: tuple[str, ...] = tuple(COMPONENT_CODE)

# The connections of the engine's events: who calls, and who is called.
CONNECTION_ENDS: dict[str, tuple[str, str]] = {
    "client-to-engine": ("client-req", "async-engine"),
    "engine-to-sched": ("async-engine", "scheduler"),
    "sched-to-block": ("scheduler", "block-manager"),
    "block-to-sched": ("block-manager", "scheduler"),
    "block-to-runner": ("block-manager", "gpu-runner"),
    "sched-to-runner": ("scheduler", "gpu-runner"),
    "runner-to-graph": ("gpu-runner", "cuda-graph"),
    "runner-to-kernel": ("gpu-runner", "paged-attn"),
    "runner-to-vram": ("gpu-runner", "physical-vram"),
    "kernel-to-vram": ("paged-attn", "physical-vram"),
    "kernel-to-gqa": ("paged-attn", "shared-gqa"),
    "runner-to-sched": ("gpu-runner", "scheduler"),
    "sched-to-engine": ("scheduler", "async-engine"),
    "engine-to-client": ("async-engine", "client-req"),
}
ENGINE_CONNECTIONS: tuple[str, ...] = tuple(CONNECTION_ENDS)


@dataclass(frozen=True)
class Bindings:
    """The engine's name for the ids of a document; what is missing has no live counterpart."""

    components: dict[str, str] = field(default_factory=dict)
    connections: dict[str, str] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Say whether anything of the document is lit by the engine."""
        return bool(self.components)


# Title of a document -> the ids that are called otherwise there than in the engine. What one
# connection of the engine's hands over may pass several boxes of a document on its way.
BINDINGS: dict[str, Bindings] = {
    "vLLM V1 Process Topology": Bindings(
        connections={
            "requests-to-core": "engine-to-sched",
            "requests-to-sched": "engine-to-sched",
            "decision-to-core": "sched-to-runner",
            "step-to-executor": "sched-to-runner",
            "step-to-worker": "sched-to-runner",
            "step-to-runner": "sched-to-runner",
            "tokens-to-worker": "runner-to-sched",
            "tokens-to-executor": "runner-to-sched",
            "tokens-to-core": "runner-to-sched",
            "tokens-to-sched": "runner-to-sched",
            "outputs-to-core": "sched-to-engine",
            "outputs-to-front": "sched-to-engine",
        },
    ),
}


def bind(document: Document) -> Bindings:
    """Return what the engine calls the components and connections of a document.

    A connection that the table does not name is live only between the boxes that the engine's
    connection joins; the same word on another arrow means something else.
    """
    table = BINDINGS.get(document.meta.title, Bindings())
    components: dict[str, str] = {}
    for component in document.components:
        name = table.components.get(component.id, component.id)
        if name in COMPONENT_CODE:
            components[component.id] = name
    connections: dict[str, str] = {}
    for own, edge in zip(document.connection_ids(), document.connections, strict=True):
        ends = components.get(edge.source), components.get(edge.target)
        if own in table.connections:
            connections[own] = table.connections[own]
        elif CONNECTION_ENDS.get(own) == ends:
            connections[own] = own
    return Bindings(components, connections)


def code_of(engine_id: str | None) -> tuple[Code, ...]:
    """Return our files and classes behind an engine box; nothing for a static one."""
    return COMPONENT_CODE.get(engine_id or "", ())
