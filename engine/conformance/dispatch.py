"""Cases of graph dispatch in, the engine's answers out, in the form recorded from vLLM 0.26.0.

Box CUDA graph; vLLM 0.26.0: `vllm/v1/cudagraph_dispatcher.py`, whose answers are these. The sizes
are those before `adjust_cudagraph_sizes_for_spec_decode`, which is none of the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from engine.config import GraphSize, describe
from engine.conformance.workload import WorkloadError, read
from engine.cuda_graph.capture_sizes import capture_sizes
from engine.cuda_graph.dispatcher import CudagraphDispatcher, CudagraphMode, NotWholeRequests

RECORDED = ("sizes", "uniform_decode_query_len", "keys", "mixed", "uniform")  # of each case
PAST_THE_LARGEST = 2  # numbers of tokens above the largest size that are answered as well


class DispatchCase(BaseModel):
    """What decides about the sizes and the keys."""

    model_config = ConfigDict(extra="forbid")

    cudagraph_mode: Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
    max_num_seqs: int = Field(ge=1)
    max_num_batched_tokens: int = Field(ge=1)
    num_speculative_tokens: int = Field(ge=0)
    cudagraph_capture_sizes: list[GraphSize] | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _drop_what_was_recorded(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name not in RECORDED}


_CASES = TypeAdapter(list[DispatchCase])
Answer = tuple[str, int | None, int | None]  # mode, padded tokens, requests


def answer_cases(path: Path) -> list[dict[str, Any]]:
    """Each case of a file with what follows from it; `WorkloadError`, with its path, if it is none.

    Of a recorded case only the input counts; what was recorded is left out and answered anew.
    """
    try:
        cases = _CASES.validate_json(read(path))
    except ValidationError as error:
        raise WorkloadError(f"{path}: {describe(error)}") from None
    answers = []
    for index, case in enumerate(cases):
        try:
            answers.append(answered(case))
        except NotWholeRequests as error:
            raise WorkloadError(f"{path}: {index}.cudagraph_capture_sizes: {error}") from None
    return answers


def answered(case: DispatchCase) -> dict[str, Any]:
    """The case with its sizes, keys, and answers by number of tokens."""
    mode, query_len = CudagraphMode(case.cudagraph_mode), 1 + case.num_speculative_tokens
    sizes = capture_sizes(
        case.max_num_seqs, case.max_num_batched_tokens, query_len, case.cudagraph_capture_sizes
    )
    dispatcher = CudagraphDispatcher(mode, sizes, case.max_num_seqs, query_len)
    return {
        **case.model_dump(exclude_unset=True),
        "sizes": list(dispatcher.sizes),
        "uniform_decode_query_len": query_len,
        "keys": {str(mode): sorted(map(list, keys)) for mode, keys in dispatcher.keys.items()},
        "mixed": [*runs(dispatcher, uniform=False)],
        "uniform": [*runs(dispatcher, uniform=True)],
    }


def runs(dispatcher: CudagraphDispatcher, uniform: bool) -> Iterator[list[Any]]:
    """`[first, last, mode, padded tokens, requests]` of numbers of tokens with one answer."""
    step = dispatcher.uniform_decode_query_len if uniform else 1
    run: list[Any] | None = None
    for num_tokens in range(step, max(dispatcher.sizes, default=0) + PAST_THE_LARGEST + 1, step):
        answer = answer_to(dispatcher, num_tokens, uniform)
        if run is not None and tuple(run[2:]) == answer:
            run[1] = num_tokens
            continue
        if run is not None:
            yield run
        run = [num_tokens, num_tokens, *answer]
    if run is not None:
        yield run


def answer_to(dispatcher: CudagraphDispatcher, num_tokens: int, uniform: bool) -> Answer:
    """The answer to one batch; REFUSED where it would pad a decode batch within a request."""
    try:
        mode, key = dispatcher.choose(num_tokens, uniform)
    except NotWholeRequests:
        return "REFUSED", None, None
    if key is None:
        return str(mode), None, None
    return str(mode), key.num_tokens, key.num_reqs
