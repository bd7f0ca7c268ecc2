"""Which graph a batch gets: the recorded answers, and the reason for each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.config import ConfigError, EngineConfig
from engine.conformance import WorkloadError
from engine.conformance.dispatch import answer_cases
from engine.cuda_graph import BatchDescriptor, CudagraphDispatcher, CudagraphMode
from engine.cuda_graph.capture_sizes import capture_sizes, for_decode_query_len
from engine.reasons import (
    AboveLargestDecodeSize,
    AboveLargestSize,
    EnforceEager,
    ModeForAnyBatch,
    NotUniformDecode,
    Reason,
    UniformDecode,
)

RECORDED = Path(__file__).parents[1] / "conformance" / "dispatch.json"


def dispatcher(**settings: Any) -> CudagraphDispatcher:
    speculative = settings.pop("num_speculative_tokens", 0)
    if speculative:
        drafter = {"method": "ngram", "num_speculative_tokens": speculative}
        settings["speculative_config"] = drafter
    return CudagraphDispatcher.of(EngineConfig.parse(settings))


# --- as recorded -------------------------------------------------------------------------------


def test_sizes_keys_and_answers_are_as_recorded() -> None:
    for ours, recorded in zip(
        answer_cases(RECORDED), json.loads(RECORDED.read_text()), strict=True
    ):
        assert json.loads(json.dumps(ours)) == recorded


def test_the_command_prints_what_was_recorded() -> None:
    command = [sys.executable, "-m", "engine.conformance", "dispatch", str(RECORDED)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == RECORDED.read_text()


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ("{", "invalid JSON"),
        ("{}", "value: "),
        ('[{"cudagraph_mode": "HALF"}]', "0.cudagraph_mode: must be 'NONE', 'PIECEWISE'"),
        ("[{}]", "0.max_num_seqs: field required"),
        ('[{"max_num_seqs": 0}]', "0.max_num_seqs: must be 1 or more"),
        ('[{"cudagraph_capture_sizes": [4, 0]}]', "0.cudagraph_capture_sizes.1: must be 1 or more"),
        ('[{"speculate": 3}]', "0.speculate: there is no such setting"),
        (
            '[{"cudagraph_mode": "FULL_DECODE_ONLY", "max_num_seqs": 8, "num_speculative_tokens": '
            '2, "max_num_batched_tokens": 64}]',
            "0.cudagraph_capture_sizes: 4 tokens are no whole number of decodes of 3",
        ),
    ],
)
def test_cases_that_are_none_are_named_with_their_path(
    tmp_path: Path, cases: str, message: str
) -> None:
    path = tmp_path / "cases.json"
    path.write_text(cases)
    with pytest.raises(WorkloadError) as error:
        answer_cases(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


# --- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seats", "budget", "more", "expected"),
    [
        (8, 64, {}, (1, 2, 4, 8, 16)),
        (8, 13, {}, (1, 2, 4, 8, 13)),  # the budget itself, since no size lies above it
        (2, 64, {}, (1, 2, 4)),
        (2, 3, {}, (1, 2, 3)),
        (8, 64, {"largest": 3}, (1, 2)),
        (8, 64, {"wanted": (9, 3, 3, 100)}, (3, 9)),
        (8, 64, {"wanted": (9, 3), "largest": 9}, (3, 9)),
        (8, 64, {"wanted": (100,)}, ()),
        (8, 640, {"uniform_decode_query_len": 4}, (1, 2, 4, *range(8, 65, 8))),
    ],
)
def test_capture_sizes(
    seats: int, budget: int, more: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert capture_sizes(seats, budget, **more) == expected


def test_a_largest_size_that_is_not_the_largest_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_cudagraph_capture_size 8 is not the largest of"):
        dispatcher(cudagraph_capture_sizes=[2, 4], max_cudagraph_capture_size=8)


def test_decode_graphs_hold_whole_requests() -> None:
    assert for_decode_query_len((1, 2, 4, 8, 16), 3) == (3, 6, 9)
    assert for_decode_query_len((1, 2, 4, 8, 16), 1) == (1, 2, 4, 8, 16)
    assert for_decode_query_len((5,), 4) == (4,)
    assert for_decode_query_len((1, 4), 5) == ()
    speculating = dispatcher(num_speculative_tokens=2, max_num_seqs=2, max_num_batched_tokens=32)
    assert speculating.sizes == (3, 6)
    assert speculating.keys[CudagraphMode.FULL] == (
        BatchDescriptor(3, 1, uniform=True),
        BatchDescriptor(6, 2, uniform=True),
    )


# --- decisions and their reasons ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "query_lens", "mode", "padded", "reason"),
    [
        ({}, (1, 1, 1), "FULL", 4, UniformDecode(3, 1)),
        ({}, (1, 5), "PIECEWISE", 8, NotUniformDecode(1, 1, 5)),
        ({}, (17,), "NONE", 17, AboveLargestSize(17, 16)),
        ({"max_num_seqs": 3}, (1, 1, 1), "PIECEWISE", 4, AboveLargestDecodeSize(3, 2)),
        ({"cudagraph_mode": "FULL_DECODE_ONLY"}, (2,), "NONE", 2, NotUniformDecode(1, 1, 2)),
        ({"cudagraph_mode": "FULL"}, (1, 5), "FULL", 8, ModeForAnyBatch("FULL")),
        ({"cudagraph_mode": "PIECEWISE"}, (1,), "PIECEWISE", 1, ModeForAnyBatch("PIECEWISE")),
        ({"cudagraph_mode": "NONE"}, (1,), "NONE", 1, ModeForAnyBatch("NONE")),
        ({"enforce_eager": True}, (1,), "NONE", 1, EnforceEager()),
        ({"num_speculative_tokens": 3}, (4, 4, 4), "FULL", 16, UniformDecode(3, 4)),
        ({"num_speculative_tokens": 3}, (4, 1), "PIECEWISE", 8, NotUniformDecode(4, 1, 1)),
    ],
)
def test_each_decision_has_its_reason(
    settings: dict[str, Any], query_lens: tuple[int, ...], mode: str, padded: int, reason: Reason
) -> None:
    decision = dispatcher(**settings).dispatch(query_lens)
    assert (decision.mode, decision.num_padded_tokens) == (mode, padded)
    assert decision.reason == reason
