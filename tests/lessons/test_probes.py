"""Probes against the recorded traces of vLLM, and against the engine's own log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.cuda_graph.dispatcher import CudagraphDispatcher
from engine.memory_parts import ALL_WAYS, Memory
from engine.records import TYPE_OF_FACTS, Event, Patch, Phase
from lessons.expressions import Expression, Scope
from lessons.probes import PROBES, Moment, ProbeError, arguments_of
from tests.engine.workloads import FOLDER
from tests.lessons.small import recorded


def moments(name: str, phase: Phase) -> dict[int, Moment]:
    """The log at the end of a phase, by step."""
    trace = recorded(name)
    ends = [r for r in trace.records if isinstance(r, Patch) and r.phase is phase]
    return {record.step: Moment.of(trace, record.seq) for record in ends}


def vllm(name: str) -> list[dict[str, Any]]:
    lines = (FOLDER / "traces" / f"{name}.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "step" in record]


def read(moment: Moment, text: str) -> object:
    return Expression.parse(text).value(Scope({}, moment))


@pytest.mark.parametrize("name", ["02-block-boundary", "06-prefix-hits", "09-preempt-recompute"])
def test_blocks_and_tokens_are_those_of_vllm(name: str) -> None:
    at = moments(name, Phase.SCHEDULE)
    compared = 0
    for record in vllm(name):
        for entry in record["scheduled"]:
            moment, key = at[record["step"]], entry["id"]
            assert read(moment, f"blocks('{key}')") == len(entry["blocks"])
            assert read(moment, f"block('{key}', 0)") == entry["blocks"][0]
            computed = entry["num_computed"] + entry["num_tokens"]
            assert read(moment, f"computed_tokens('{key}')") == computed
            if entry["kind"] == "new":
                assert read(moment, f"hit_tokens('{key}')") == entry["hit_tokens"]
            compared += 1
    assert compared > 10


def test_a_request_that_ended_holds_nothing_but_was_given_its_blocks() -> None:
    end = moments("02-block-boundary", Phase.OUTPUT)[3]
    assert read(end, "status('r0')") == "finished"
    assert read(end, "blocks('r0')") == 0
    assert read(end, "blocks_taken('r0')") == 2  # 15 + 2 of 18 tokens, in blocks of 16
    assert read(end, "known_tokens('r0') - computed_tokens('r0')") == 1
    assert read(end, "output_tokens('r0')") == 3
    assert read(end, "null_block()") == 0


def test_events_are_read_from_the_end() -> None:
    trace = recorded("09-preempt-recompute")
    moment = Moment.of(trace, trace.next_seq - 1)
    events = [r for r in trace.records if isinstance(r, Event)]
    scheduled = [e for e in events if TYPE_OF_FACTS[type(e.facts)] == "request_scheduled"]
    assert read(moment, "count('request_scheduled')") == len(scheduled)
    assert read(moment, "seq('request_scheduled')") == scheduled[-1].seq
    assert read(moment, "first_seq('request_scheduled')") == scheduled[0].seq
    assert read(moment, "box('request_preempted')") == "scheduler"
    assert read(moment, "reason('request_preempted')") == "last_running"
    assert read(moment, "because('request_preempted')") == "the last of 2 running"
    assert read(moment, "counter('num_preemptions')") == read(moment, "count('request_preempted')")


def test_the_old_ways_are_read_beside_the_paged_one() -> None:
    at = moments("09-preempt-recompute", Phase.SCHEDULE)
    for moment in at.values():
        memory = Memory(moment.state, EngineConfig.parse(moment.header.config))
        for way in ALL_WAYS:
            for part, count in memory.parts(way)._asdict().items():
                assert read(moment, f"slots('{way}', '{part}')") == count
            assert read(moment, f"have_room('{way}')") == memory.has_room(way)
            assert read(moment, f"largest_batch('{way}')") == memory.largest_batch(way)
        for key in memory.running:
            assert read(
                moment, f"reserves('paged', '{key}') == config('block_size') * blocks('{key}')"
            )
            assert read(moment, f"reserves('max', '{key}') == config('max_model_len')")


def test_decisions_are_read_with_the_numbers_behind_them() -> None:
    at = moments("09-preempt-recompute", Phase.SCHEDULE)
    assert read(at[5], "decision('r2')") == "kept_waiting"  # preempted, and first in the queue
    assert read(at[5], "why('preempted', 'by', 'r2')") == "r0"
    assert read(at[5], "why('preempted', 'needs', 'r2')") == 1
    assert read(at[5], "why('behind', 'ahead', 'r3')") == 1
    assert read(at[3], "why('kept_waiting', 'short', 'r3')") == 1
    with pytest.raises(ProbeError, match="no decision 'resumed' about r2 fell"):
        read(at[5], "why('resumed', 'seat', 'r2')")
    with pytest.raises(ProbeError, match="nothing was decided about r3"):
        read(at[0], "decision('r3')")


def test_queues_and_holders_are_those_of_vllm() -> None:
    ends = moments("09-preempt-recompute", Phase.UPDATE)
    for record in vllm("09-preempt-recompute"):
        moment = ends[record["step"]]
        free = read(moment, "queue('free')")
        assert isinstance(free, tuple)
        assert list(free[: len(record["free_head"])]) == record["free_head"]
        assert len(free) == record["free"]
        assert read(moment, "len(queue('waiting'))") == record["num_waiting"]
        assert read(moment, "len(queue('running'))") == record["num_running"]
    at = moments("09-preempt-recompute", Phase.SCHEDULE)
    assert read(at[1], "queue('running')") == ("r0", "r1", "r2")
    assert read(at[5], "queue('waiting')") == ("r2", "r3")
    assert read(at[1], "ref_cnt(block('r0', 0)) - ref_cnt(queue('free')[0])") == 1
    first = moments("17-identical-same-step", Phase.SCHEDULE)[0]
    tables = [entry["blocks"] for entry in vllm("17-identical-same-step")[0]["scheduled"]]
    held = [block for table in tables for block in table]
    assert max(held.count(block) for block in held) > 1
    for block in held:
        assert read(first, f"ref_cnt({block})") == held.count(block)


def test_events_are_told_apart_by_their_step_and_a_step_lasts_as_long_as_its_phases() -> None:
    trace = recorded("09-preempt-recompute")
    ends = [r for r in trace.records if isinstance(r, Patch)]
    events = [r for r in trace.records if isinstance(r, Event)]
    shares = [e.step for e in events if TYPE_OF_FACTS[type(e.facts)] == "request_scheduled"]
    for end in [r for r in ends if r.phase is Phase.SCHEDULE]:
        moment = Moment.of(trace, end.seq)
        assert read(moment, "in_step('request_scheduled')") == shares.count(end.step)
    moment = Moment.of(trace, ends[-1].seq)
    assert read(moment, "step_of('request_scheduled')") == max(shares)
    took = sum(end.duration_us or 0 for end in ends if end.step == 2) / 1000
    assert read(moment, "step_milliseconds(2)") == pytest.approx(took)


def test_captured_sizes_are_those_of_the_dispatcher() -> None:
    moment = moments("02-block-boundary", Phase.SCHEDULE)[0]
    config = EngineConfig(max_num_seqs=8, max_num_batched_tokens=64)
    moment = moment._replace(state={"dispatcher": CudagraphDispatcher.of(config).record()})
    assert read(moment, "captured_sizes('FULL')") == (1, 2, 4, 8)
    assert read(moment, "captured_sizes('PIECEWISE')") == (1, 2, 4, 8, 16)
    with pytest.raises(ProbeError, match="no graphs of mode 'NONE'; there are PIECEWISE, FULL"):
        read(moment, "captured_sizes('NONE')")


def test_a_moment_knows_nothing_of_what_came_later() -> None:
    first = moments("02-block-boundary", Phase.SCHEDULE)[0]
    assert read(first, "phase()") == "schedule"
    assert read(first, "step()") == 0
    with pytest.raises(ProbeError, match="no event request_finished"):
        read(first, "seq('request_finished')")
    with pytest.raises(ProbeError, match="no request 'r1'"):
        read(first, "blocks('r1')")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fact('request_scheduled', 'tokens')", "there are request, kind, num_tokens"),
        ("count('request_schedule')", "there is no event"),
        ("config('blocksize')", "there are block_size"),
        ("block('r0', 7)", "no block at place 7"),
        ("queue('ready')", "there are free, waiting, running"),
        ("ref_cnt(999)", "no block 999"),
        ("step_milliseconds(999)", "no step 999"),
        ("milliseconds('request_arrived')", "without a duration"),
        ("slots('buddy', 'tokens')", "there are max, pow2, oracle, paged"),
        ("slots('max', 'waste')", "there are tokens, reserved, internal, external, free"),
        ("reserves('max', 'r9')", "has ended, or is not known"),
    ],
)
def test_what_is_not_in_the_log_is_said(text: str, says: str) -> None:
    with pytest.raises(ProbeError, match=says):
        read(moments("02-block-boundary", Phase.SCHEDULE)[0], text)


def test_each_probe_says_what_it_is() -> None:
    for name, function in PROBES.items():
        assert function.__doc__, name
        assert arguments_of(name) is not None
