"""Capture, dispatch and replay of batches (map: CUDA graph).

On a CPU a captured graph is a recorded list of operations (`recorded_graph.py`), on a GPU a real
CUDA graph (`device_graph.py`). Counterpart in vLLM 0.26.0: `vllm/v1/cudagraph_dispatcher.py` and
`vllm/compilation/cuda_graph.py`.
"""

from engine.cuda_graph.captured import CapturedGraph, CapturedGraphs, Graph, GraphKey
from engine.cuda_graph.dispatcher import (
    BatchDescriptor,
    CudagraphDispatcher,
    CudagraphMode,
    Dispatch,
)
from engine.cuda_graph.inductor import check_inductor
from engine.cuda_graph.operations import OperationList, Span
from engine.cuda_graph.recorder import CannotRecord

__all__ = [
    "BatchDescriptor",
    "CannotRecord",
    "CapturedGraph",
    "CapturedGraphs",
    "CudagraphDispatcher",
    "CudagraphMode",
    "Dispatch",
    "Graph",
    "GraphKey",
    "OperationList",
    "Span",
    "check_inductor",
]
