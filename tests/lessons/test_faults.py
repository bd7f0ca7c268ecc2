"""Each fault breaks the rule that it says it breaks, and a sound engine keeps that rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.async_llm import AsyncLLM
from engine.config import EngineConfig, SamplingParams
from engine.engine_thread import EngineThread
from engine.input_processor import Submission
from engine.integrity import check_integrity
from engine.model_loader import load_model
from lessons.expressions import Expression, Scope
from lessons.faults import FAULTS
from lessons.map_names import DOCUMENT, read_map
from lessons.probes import Moment

A, B = list(range(10, 18)), list(range(30, 38))  # the tokens of two blocks


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    thread = EngineThread()
    yield AsyncLLM(load_model("tiny-random"), thread=thread)
    thread.stop()


def begin(llm: AsyncLLM, fault: str | None, **settings: Any) -> None:
    llm.reset(EngineConfig.parse({"block_size": 8, "num_gpu_blocks": 16, **settings}))
    if fault is not None:
        llm.thread.call(lambda: FAULTS[fault].put_into(llm.core))


def send(llm: AsyncLLM, *prompts: list[int], tokens: int = 1) -> None:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    llm.submit_many([Submission(prompt, params) for prompt in prompts])


def run(llm: AsyncLLM, steps: int = 60) -> None:
    for _ in range(steps):
        if not llm.status.has_work:
            return
        llm.step()


def read(llm: AsyncLLM, text: str) -> Any:
    return Expression.parse(text).value(Scope({}, Moment.of(llm.trace, llm.trace.next_seq - 1)))


def broken_rules(llm: AsyncLLM) -> set[str]:
    return {each.rule for each in llm.thread.call(lambda: check_integrity(llm.core)).violations}


def gives_back(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault)
    send(llm, A + B, tokens=4)
    llm.step()
    llm.abort("r0")
    llm.step()
    assert bool(broken_rules(llm) & {"leaks", "ref_count"}) == (fault is not None)
    return bool(read(llm, "free_blocks()") == 15)


def hits_only_the_same(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault)
    send(llm, A + B + A)
    run(llm)
    send(llm, B + A + B)  # which nobody has sent
    run(llm)
    return bool(read(llm, "hit_tokens('r1')") == 0)


def evicts_the_oldest(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, num_gpu_blocks=5, max_num_seqs=1)
    send(llm, A + [1], B + [2], list(range(50, 58)) + [3], list(range(70, 78)) + [4])
    run(llm)
    send(llm, B + [2])
    run(llm)
    return bool(read(llm, "hit_tokens('r4')") == 8)


def computes_something(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault)
    send(llm, A + B)
    run(llm)
    send(llm, A + B)
    run(llm, 6)
    assert broken_rules(llm) == set()  # nothing is wrong with the books: the request just waits
    return bool(read(llm, "status('r1')") == "finished")


def preempts_the_last(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, num_gpu_blocks=6)
    send(llm, A + [1], B + [2], tokens=20)
    for _ in range(30):
        if read(llm, "count('request_preempted')"):
            break
        llm.step()
    assert broken_rules(llm) == set()
    return bool(read(llm, "fact('request_preempted', 'request')") == "r1")


def keeps_its_budget(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, max_num_batched_tokens=16, max_num_seqs=8)
    send(llm, A[:4], B[:4], tokens=9)
    llm.step()
    send(llm, list(range(60, 100)))
    llm.step()
    given = [int(read(llm, f"fact('request_scheduled', 'num_tokens', 'r{n}')")) for n in range(3)]
    return sum(given) <= 16


def caches_only_full_ones(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault)
    send(llm, A + [1, 2], tokens=9)
    llm.step()
    return cached(llm) == 1


def cached(llm: AsyncLLM) -> int:
    moment = Moment.of(llm.trace, llm.trace.next_seq - 1)
    return sum(len(event.facts.blocks) for event in moment.events("blocks_cached"))  # type: ignore[union-attr]


def admits_what_fits(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, num_gpu_blocks=5)  # four of them can be given
    send(llm, A + B, list(range(50, 66)), tokens=9)
    llm.step()
    assert broken_rules(llm) == set()
    return bool(read(llm, "status('r1')") == "running")


def fills_its_seats(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, max_num_seqs=2)
    send(llm, A, B)
    llm.step()
    return bool(read(llm, "count('request_scheduled')") == 2)


def serves_the_urgent_first(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, max_num_seqs=1, scheduling_policy="priority")
    params = SamplingParams(max_tokens=1, ignore_eos=True)
    llm.submit_many([Submission(A, params, 5), Submission(B, params, 0)])
    run(llm)
    assert broken_rules(llm) == set()
    return bool(read(llm, "step_of('request_scheduled', 'r1')") == 0)


def frees_the_last_first(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault)
    send(llm, A + B)
    run(llm)
    blocks = read(llm, "fact('blocks_freed', 'blocks', 'r0')")
    return bool(blocks == tuple(reversed(read(llm, "first_blocks('r0')"))))


def pads_to_the_smallest(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, cudagraph_capture_sizes=[2, 4, 8])
    send(llm, [1, 2, 3])
    llm.step()
    return bool(read(llm, "fact('step_dispatched', 'num_padded_tokens')") == 4)


def fills_an_empty_pool(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, num_gpu_blocks=6, watermark=0.4)  # 2 of its 5 blocks stay free
    send(llm, A + B + A + [1])
    llm.step()
    return bool(read(llm, "status('r0')") == "finished")


def ends_at_its_length(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault, max_model_len=12)
    params = SamplingParams(max_tokens=9, min_tokens=9)
    llm.submit_many([Submission(A, params)])
    run(llm, 9)
    assert llm.failed is None and broken_rules(llm) == set()
    return bool(read(llm, "status('r0')") == "finished")


def takes_off_what_was_given(llm: AsyncLLM, fault: str | None) -> bool:
    drafts = {"method": "ngram", "num_speculative_tokens": 4}
    begin(llm, fault, long_prefill_token_threshold=3, speculative_config=drafts)
    send(llm, A + [1], tokens=20)
    run(llm, 5)
    send(llm, A + [1], tokens=4)  # it wants one token, and is padded
    run(llm, 2)
    assert llm.failed is None and read(llm, "hit_tokens('r1')") == 8
    return bool(read(llm, "fact('request_scheduled', 'num_computed_tokens', 'r1')") == 9)


def admits_who_waits(llm: AsyncLLM, fault: str | None) -> bool:
    begin(llm, fault)
    send(llm, A + [1])
    run(llm, 3)
    assert llm.failed is None
    return bool(read(llm, "status('r0')") == "finished")


KEEPS: dict[str, Callable[[AsyncLLM, str | None], bool]] = {
    "never-frees": gives_back,
    "ignores-parent": hits_only_the_same,
    "evicts-newest": evicts_the_oldest,
    "serves-all": computes_something,
    "preempts-first": preempts_the_last,
    "decodes-for-free": keeps_its_budget,
    "always-watermark": fills_an_empty_pool,
    "outlives-its-length": ends_at_its_length,
    "schedules-nothing": admits_who_waits,
    "hashes-partial": caches_only_full_ones,
    "reserves-answer": admits_what_fits,
    "wastes-a-seat": fills_its_seats,
    "ignores-priority": serves_the_urgent_first,
    "frees-first-first": frees_the_last_first,
    "pads-to-largest": pads_to_the_smallest,
    "rejects-more-than-given": takes_off_what_was_given,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_rule(llm: AsyncLLM, name: str) -> None:
    assert not KEEPS[name](llm, name)


@pytest.mark.parametrize("name", FAULTS)
def test_a_sound_engine_keeps_it(llm: AsyncLLM, name: str) -> None:
    assert KEEPS[name](llm, None)
    assert broken_rules(llm) == set()


def test_a_reset_makes_an_engine_sound_again(llm: AsyncLLM) -> None:
    assert not evicts_the_oldest(llm, "evicts-newest")
    assert evicts_the_oldest(llm, None)


def test_each_fault_names_a_box_of_the_map() -> None:
    boxes = read_map(DOCUMENT).boxes
    assert all(fault.box in boxes and fault.rule for fault in FAULTS.values())
