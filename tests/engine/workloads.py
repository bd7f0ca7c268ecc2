"""Random workloads of the recorded form, for tests that want more than the recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from engine.conformance import Workload

FOLDER = Path(__file__).parent.parent / "conformance"
ASYNC_FOLDER = FOLDER / "asynchronous"
SPEC_FOLDER = FOLDER / "speculative"
RECORDED = sorted(path.stem for path in (FOLDER / "workloads").glob("*.json"))
RECORDED_ASYNC = sorted(path.stem for path in (ASYNC_FOLDER / "workloads").glob("*.json"))
RECORDED_SPEC = sorted(path.stem for path in (SPEC_FOLDER / "workloads").glob("*.json"))


def workload_path(name: str, folder: Path = FOLDER) -> Path:
    """The file of a recorded workload."""
    return folder / "workloads" / f"{name}.json"


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Small pools, shared prefixes, aborts, stops and both policies."""
    block_size = draw(st.sampled_from([1, 2, 4, 16]))
    max_model_len = draw(st.integers(8, 40))
    least = -(-max_model_len // block_size) + 1
    config = {
        "block_size": block_size,
        "num_gpu_blocks": draw(st.integers(least, least + 12)),
        "max_num_batched_tokens": draw(st.integers(max_model_len, max_model_len + 16)),
        "max_num_seqs": draw(st.integers(1, 5)),
        "max_model_len": max_model_len,
        "enable_prefix_caching": draw(st.booleans()),
        "enable_chunked_prefill": draw(st.booleans()),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 3, 7])),
        "policy": draw(st.sampled_from(["fcfs", "priority"])),
        "watermark": draw(st.sampled_from([0.0, 0.0, 0.1])),
        "scheduler_reserve_full_isl": draw(st.booleans()),
    }
    if config["enable_chunked_prefill"]:
        config["max_num_batched_tokens"] = draw(st.integers(1, 24))
    requests = [draw(request(index, max_model_len)) for index in range(draw(st.integers(1, 7)))]
    actions = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "step": st.integers(0, 12),
                    "op": st.just("reset_prefix_cache"),
                    "reset_running_requests": st.booleans(),
                }
            ),
            max_size=2,
        )
    )
    return Workload.model_validate(
        {"name": "random", "config": config, "requests": requests, "actions": actions}
    )


@st.composite
def drafted_workloads(draw: st.DrawFn) -> Workload:
    """The same with drafts, of every kind of drafter."""
    workload: Workload = draw(workloads())
    config = workload.config
    method = draw(st.sampled_from(["ngram", "draft_model", "eagle"]))
    slots = config.max_num_seqs if method == "draft_model" else 0
    formula = st.tuples(st.integers(0, 4), st.integers(0, 4))
    drafts = {
        "num_speculative_tokens": draw(st.integers(1, 4)),
        "spec_method": method,
        "accept": draw(formula),
        "draft_len": draw(st.none() | formula),
        "max_num_batched_tokens": config.max_num_batched_tokens + slots,
    }
    return workload.model_copy(update={"config": config.model_copy(update=drafts)})


@st.composite
def request(draw: st.DrawFn, index: int, max_model_len: int) -> dict[str, Any]:
    """A request whose prompt often begins as others do."""
    shared = list(range(100, 100 + draw(st.sampled_from([0, 4, 8, 17]))))
    own = [7 * index + n for n in range(draw(st.integers(1, 12)))]
    max_tokens = draw(st.integers(1, 14))
    spec: dict[str, Any] = {
        "id": f"r{index}",
        "arrival_step": draw(st.integers(0, 10)),
        "prompt_token_ids": (shared + own)[: max_model_len - 1],
        "max_tokens": max_tokens,
        "priority": draw(st.integers(0, 2)),
        "min_tokens": min(max_tokens, draw(st.sampled_from([0, 0, 3]))),
    }
    if draw(st.booleans()):
        spec["eos_at"] = draw(st.integers(1, 6))
    if draw(st.integers(0, 3)) == 0:
        spec["abort_step"] = draw(st.integers(0, 14))
        spec["abort_phase"] = draw(st.sampled_from(["before", "during"]))
    return spec
