"""The same kernels compiled, on a GPU: equal to plain attention, to torch's, and in CUDA graphs."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from engine.events import GraphReplayed, RequestPreempted
from engine.kv_cache import LayerKVCache
from engine.model_loader import LoadedModel
from engine.paged_attention import TorchPagedAttention, make_backend
from tests.engine.test_cuda_graph import decoding
from tests.engine.test_model_runner import Engine
from tests.engine.test_triton_kernels import BF16, CASES, FP16, FP32, MIXED, Case
from tests.engine.tiny_configs import plain_greedy, tiny

pytestmark = pytest.mark.gpu
TOLERANCE = {FP32: 2e-5, BF16: 2e-2, FP16: 2e-3}


def on_gpu(case: Case) -> Case:
    """The same with its tensors there, so that `plain` is computed there, too."""
    case = replace(case)
    case.layer = LayerKVCache(*(part if part is None else part.cuda() for part in case.layer))  # type: ignore[arg-type]
    case.query, case.key, case.value = (
        states.cuda() for states in (case.query, case.key, case.value)
    )
    sinks = case.options.sinks
    case.options = case.options._replace(sinks=None if sinks is None else sinks.cuda())
    case.batch = case.batch._replace(slot_mapping=case.batch.slot_mapping.cuda())
    return case


def attend(case: Case, name: str = "triton") -> torch.Tensor:
    backend = make_backend(name, case.batch, torch.device("cuda"))
    if case.splits is not None and name == "triton":
        backend.splits = case.splits  # type: ignore[attr-defined]
    return backend.forward(case.layer, case.query, case.key, case.value, case.options)


@pytest.mark.parametrize("name", CASES)
def test_compiled_kernels_equal_plain_attention(name: str) -> None:
    case = on_gpu(CASES[name])
    if case.cache is torch.float8_e4m3fn and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU cannot convert fp8_e4m3")
    output = attend(case).double()
    expected = case.plain().to(output)
    error = (output - expected).abs().nan_to_num(float("inf")).max()
    assert error < TOLERANCE[case.dtype]


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_the_torch_backend_gives_the_same(dtype: torch.dtype) -> None:
    case = on_gpu(Case(heads=6, dim=64, block_size=16, chunks=MIXED, dtype=dtype, padding=2))
    case.layer.data.nan_to_num_(0)  # torch multiplies what it has masked
    triton = attend(case)
    assert isinstance(make_backend("torch", case.batch, torch.device("cuda")), TorchPagedAttention)
    assert (triton - attend(case, "torch")).abs().max() < TOLERANCE[dtype]


@pytest.mark.parametrize("splits", [1, 4])
def test_a_cuda_graph_reads_what_its_buffers_say_at_each_replay(splits: int) -> None:
    from engine.paged_attention.triton.backend import TritonPagedAttention
    from engine.paged_attention.triton.launch import Decodes

    case = on_gpu(Case(heads=6, dim=64, block_size=16, chunks=((1, 60), (1, 33), (1, 48))))
    case.layer.data.nan_to_num_(0)
    device = torch.device("cuda")
    tables = torch.zeros(3, 4, dtype=torch.int64, device=device)
    lens = torch.ones(3, dtype=torch.int64, device=device)
    slots = torch.zeros(3, dtype=torch.int64, device=device)
    rows = torch.arange(3, device=device)
    backend = TritonPagedAttention.decoding(slots, Decodes(tables, lens, rows))
    backend.splits = splits

    def run() -> torch.Tensor:
        return backend.forward(case.layer, case.query, case.key, case.value, case.options)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = run()
    for i, table in enumerate(case.tables):
        tables[i, : len(table)] = torch.tensor(table, device=device)
    lens.copy_(torch.tensor(case.batch.seq_lens, device=device))
    slots.copy_(case.batch.slot_mapping)
    graph.replay()
    assert torch.equal(output, run())
    assert (output - case.plain().to(output)).abs().max() < TOLERANCE[FP32]


def copy_on_gpu(model: LoadedModel) -> LoadedModel:
    return replace(model, model=deepcopy(model.model).cuda())


@pytest.mark.parametrize("name", ["llama", "llama-mqa", "mistral", "gemma2"])
def test_an_engine_writes_the_same_text_as_the_cpu_with_rows_to_spare(name: str) -> None:
    cpu = tiny(name)
    engine = decoding(copy_on_gpu(cpu), 3, max_tokens=9, num_gpu_blocks=40)  # 3 rows of 4
    outputs = engine.run()
    assert engine.runner.kv_cache.attention_backend == "triton"
    assert engine.facts(GraphReplayed)
    for key, request in engine.requests.items():
        assert outputs[key] == plain_greedy(cpu, request.all_token_ids[:4], 9)


def test_a_preempted_request_goes_on_with_the_same_text() -> None:
    cpu = tiny("llama")
    engine = Engine(copy_on_gpu(cpu), block_size=4, num_gpu_blocks=9, max_num_batched_tokens=64)
    for i in range(3):
        engine.add(f"r{i}", [5 + i, 6, 7, 8 + i], max_tokens=12)
    outputs = engine.run()
    assert engine.facts(RequestPreempted)
    for key, request in engine.requests.items():
        assert outputs[key] == plain_greedy(cpu, request.all_token_ids[:4], 12)
