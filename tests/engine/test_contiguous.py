"""Contiguous memory beside the paged one: against a slow recomputation from the events alone."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.async_llm import AsyncLLM
from engine.config import SamplingParams
from engine.conformance import Conformance, Workload, WorkloadError, load_workload
from engine.conformance.cycles import AsyncConformance
from engine.conformance.driver import Driver
from engine.contiguous import WAYS, Arena, piece_lengths
from engine.events import RequestFinished, RequestPreempted, RequestScheduled
from engine.memory_parts import ALL_WAYS, PAGED, Memory, Parts
from engine.records import Event, Patch
from engine.request import Request
from engine.trace import State, merge_patch
from tests.engine.workloads import RECORDED, workload_path, workloads


class Slow:
    """The same, slot by slot, from the events of each phase and the tokens in the state."""

    def __init__(self, driver: Driver):
        self.trace, self.config = driver.trace, driver.config
        self.bound = {
            spec.id: min(len(spec.prompt_token_ids) + spec.max_tokens, self.model_len)
            for spec in driver.workload.requests
        }
        self.prompts = {spec.id: len(spec.prompt_token_ids) for spec in driver.workload.requests}
        self.size = (self.config.num_gpu_blocks - 1) * self.config.block_size
        self.slots: dict[str, list[str]] = {way: [""] * self.size for way in WAYS}
        self.lines: dict[str, list[str]] = {way: [] for way in WAYS}
        self.running: list[str] = []
        self.state: State = {}
        merge_patch(self.state, self.trace.header.state)
        self.seen = self.moments = self.stood_in_line = self.shared = 0
        driver.trace.on_phase_end.append(self.look)

    @property
    def model_len(self) -> int:
        assert self.config.max_model_len is not None
        return self.config.max_model_len

    def length(self, way: str, key: str) -> int:
        """By the descriptions of the ways, not by their formulas."""
        prompt, bound = self.prompts[key], self.bound[key]
        if way == "max":
            return self.model_len
        if way == "oracle":
            return bound - 1
        power = 1
        while power < bound - prompt:
            power *= 2
        return min(prompt + power, self.model_len)

    def look(self) -> None:
        for record in self.trace.records[self.seen :]:
            if isinstance(record, Event):
                self.happened(record.facts)
            else:
                self.phase_ended(record)
        self.seen = len(self.trace.records)

    def happened(self, facts: Any) -> None:
        if isinstance(facts, RequestScheduled) and facts.kind != "running":
            self.running.append(facts.request)
            for line in self.lines.values():
                line.append(facts.request)
        elif isinstance(facts, RequestPreempted | RequestFinished):
            if facts.request in self.running:
                self.running.remove(facts.request)
            for way in WAYS:
                self.slots[way] = ["" if s == facts.request else s for s in self.slots[way]]
                self.lines[way] = [key for key in self.lines[way] if key != facts.request]

    def phase_ended(self, patch: Patch) -> None:
        merge_patch(self.state, patch.changes)
        for way in WAYS:
            while self.lines[way] and self.place(way, self.lines[way][0]):
                del self.lines[way][0]
        self.moments += 1
        self.stood_in_line += any(self.lines.values())
        self.compare()

    def place(self, way: str, key: str) -> bool:
        length, slots = self.length(way, key), self.slots[way]
        for start in range(self.size - length + 1):
            if not any(slots[start : start + length]):
                slots[start : start + length] = [key] * length
                return True
        return False

    def compare(self) -> None:
        memory = Memory(self.state, self.config)
        assert sorted(memory.running) == sorted(self.running)
        for way in WAYS:
            pieces = self.state["contiguous"][way]
            starts = {key: piece["start"] for key, piece in pieces.items() if "start" in piece}
            assert starts == {
                key: self.slots[way].index(key) for key in set(self.slots[way]) - {""}
            }
            assert memory.parts(way) == self.contiguous_parts(way)
            assert memory.has_room(way) == len(self.running) - len(self.lines[way])
            assert memory.largest_batch(way) == self.batch(
                [self.length(way, key) for key in (*memory.running, *memory.waiting)], self.size
            )
        assert memory.parts(PAGED) == self.paged_parts()
        self.check(memory)

    def check(self, memory: Memory) -> None:
        """What must hold whatever was recomputed."""
        parts = {way: memory.parts(way) for way in ALL_WAYS}
        assert all(sum(each) == self.size and min(each) >= 0 for each in parts.values())
        empty = parts[PAGED].reserved + parts[PAGED].internal
        assert empty < self.config.block_size * max(1, len(self.running))
        assert parts[PAGED].external == parts["oracle"].internal == 0
        for key in (*memory.running, *memory.waiting):
            lengths = [memory.pieces[way][key]["length"] for way in WAYS]
            assert lengths == sorted(lengths, reverse=True)
        assert memory.has_room(PAGED) == len(self.running)

    def tokens(self, key: str) -> int:
        tokens: int = self.state["requests"][key]["num_computed_tokens"]
        return tokens

    def contiguous_parts(self, way: str) -> Parts:
        slots = self.slots[way]
        kinds = []
        for place, key in enumerate(slots):
            at = place - slots.index(key)
            if not key:
                kinds.append("external" if self.lines[way] else "free")
            elif at < self.tokens(key):
                kinds.append("tokens")
            else:
                kinds.append("reserved" if at < self.bound[key] - 1 else "internal")
        return Parts(*[kinds.count(kind) for kind in Parts._fields])

    def paged_parts(self) -> Parts:
        size = self.config.block_size
        kinds: dict[tuple[int, int], str] = {}
        holders = 0
        for key in self.running:
            for logical, block in self.state["requests"][key].get("block_table", {}).items():
                holders += 1
                for offset in range(size):
                    at = int(logical) * size + offset
                    kind = "reserved" if at < self.bound[key] - 1 else "internal"
                    kind = "tokens" if at < self.tokens(key) else kind
                    # Of several holders the most counts, and the alphabet has the order.
                    kinds[block, offset] = max(kinds.get((block, offset), ""), kind)
        self.shared += holders * size > len(kinds)
        found = [*kinds.values()]
        tokens, reserved, internal = map(found.count, ("tokens", "reserved", "internal"))
        return Parts(tokens, reserved, internal, 0, self.size - len(found))

    @staticmethod
    def batch(lengths: list[int], room: int) -> int:
        for count, length in enumerate(lengths):
            room -= length
            if room < 0:
                return count
        return len(lengths)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_workloads_agree_slot_by_slot(name: str) -> None:
    driver = Conformance(load_workload(workload_path(name))[0])
    slow = Slow(driver)
    assert sum(1 for _ in driver.steps()) > 0
    assert slow.moments > 0 and slow.running == []


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads(), st.booleans())
def test_any_workload_agrees_slot_by_slot(workload: Workload, asynchronous: bool) -> None:
    """Preemption, aborts, resets, shared blocks, both policies; steps that overlap as well."""
    config = workload.config.model_copy(update={"async_scheduling": asynchronous})
    workload = workload.model_copy(update={"config": config})
    driver = AsyncConformance(workload) if asynchronous else Conformance(workload)
    slow = Slow(driver)
    try:
        list(driver.steps())
    except WorkloadError as error:
        assume("awaits no output" not in str(error))
        raise
    assert slow.running == []
    for pieces in slow.state["contiguous"].values():
        assert pieces == {}


def drive(requests: list[tuple[int, int]], **config: Any) -> tuple[Conformance, Slow]:
    """Requests of (prompt, max_tokens), each with a prompt of its own."""
    specs = [
        {"id": f"r{i}", "prompt_token_ids": [100 * i + n for n in range(prompt)], "max_tokens": n}
        for i, (prompt, n) in enumerate(requests)
    ]
    workload = {"name": "w", "config": {"block_size": 4, **config}, "requests": specs}
    driver = Conformance(Workload.model_validate(workload))
    return driver, Slow(driver)


def test_the_same_memory_holds_fewer_requests_in_one_piece_each() -> None:
    driver, slow = drive([(5, 4)] * 4, num_gpu_blocks=11, max_model_len=20)  # 40 slots
    next(driver.steps())
    memory = Memory(slow.state, driver.config)
    assert [memory.has_room(way) for way in ALL_WAYS] == [2, 4, 4, 4]
    assert [memory.largest_batch(way) for way in ALL_WAYS] == [2, 4, 4, 4]
    # 5 tokens each; 3 of the 4 outputs are stored as well.
    assert memory.parts("max") == Parts(tokens=10, reserved=6, internal=24, external=0, free=0)
    assert memory.parts("pow2") == Parts(tokens=20, reserved=12, internal=4, external=0, free=4)
    assert memory.parts("oracle") == Parts(tokens=20, reserved=12, internal=0, external=0, free=8)
    assert memory.parts(PAGED) == Parts(tokens=20, reserved=12, internal=0, external=0, free=8)


def test_a_gap_that_is_too_short_is_external_waste_while_somebody_waits() -> None:
    driver, slow = drive([(3, 2), (9, 30)], num_gpu_blocks=6, max_model_len=19)
    next(driver.steps())
    memory = Memory(slow.state, driver.config)
    assert memory.parts("max") == Parts(tokens=3, reserved=1, internal=15, external=1, free=0)
    assert memory.has_room("max") == 1


def test_a_piece_longer_than_the_arena_never_finds_room() -> None:
    driver, slow = drive([(5, 90), (3, 3)], num_gpu_blocks=8, max_model_len=90)
    for _ in driver.steps():
        memory = Memory(slow.state, driver.config)
        assert memory.has_room("max") == memory.largest_batch("max") == 0
        assert memory.parts("max").tokens == 0
        if slow.tokens("r0") > 20:
            break


def test_what_several_requests_share_is_stored_once() -> None:
    driver = Conformance(load_workload(workload_path("06-prefix-hits"))[0])
    slow = Slow(driver)
    list(driver.steps())
    assert slow.shared > 0


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_sequences_of_one_prompt_share_pages_and_cannot_share_pieces(
    make: Callable[..., AsyncLLM], async_scheduling: bool
) -> None:
    llm = make(num_gpu_blocks=40, block_size=4, async_scheduling=async_scheduling)
    first = SamplingParams(temperature=0.0, max_tokens=1)
    llm.submit("Once upon a time there was a block of sixteen", first)
    while llm.num_unfinished:
        llm.step()
    params = SamplingParams(temperature=1.0, max_tokens=8, n=3, ignore_eos=True)
    llm.submit("Once upon a time there was a block of sixteen", params)
    llm.step()
    memory = Memory(llm.trace.state(), llm.config)
    assert len(memory.running) == 3
    tokens = sum(memory.requests[key]["num_computed_tokens"] for key in memory.running)
    assert memory.parts("oracle").tokens == tokens > memory.parts(PAGED).tokens + 8
    while llm.num_unfinished:
        llm.step()
    assert llm.trace.state()["contiguous"] == {way: {} for way in WAYS}
    llm.close()


@given(
    prompt=st.integers(1, 300), max_tokens=st.integers(1, 300), max_model_len=st.integers(2, 400)
)
def test_the_ways_reserve_ever_less(prompt: int, max_tokens: int, max_model_len: int) -> None:
    assume(prompt < max_model_len)
    request = Request("r", list(range(prompt)), SamplingParams(max_tokens=max_tokens))
    lengths = dict(zip(WAYS, piece_lengths(request, max_model_len), strict=True))
    outputs = min(max_tokens, max_model_len - prompt)
    assert lengths["max"] == max_model_len >= lengths["pow2"]
    assert lengths["oracle"] == prompt + outputs - 1 < lengths["pow2"] <= prompt + 2 * outputs


def test_pow2_is_the_papers_example() -> None:
    request = Request("r", [1] * 10, SamplingParams(max_tokens=25))
    assert piece_lengths(request, 2048)[WAYS.index("pow2")] == 10 + 32


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(0, 30)), max_size=60))
def test_pieces_never_overlap_and_gaps_close(steps: list[tuple[bool, int, int]]) -> None:
    arena, slots, held = Arena(30), [False] * 30, list[tuple[int, int]]()
    for give_back, length, which in steps:
        if give_back and held:
            start, length = held.pop(which % len(held))
            arena.give_back(start, length)
            slots[start : start + length] = [False] * length
            continue
        first = next((i for i in range(31 - length) if not any(slots[i : i + length])), None)
        assert arena.take(length) == first
        if first is not None:
            slots[first : first + length] = [True] * length
            held.append((first, length))
    for start, length in held:
        arena.give_back(start, length)
    assert arena.take(30) == 0


def test_the_largest_batch_counts_who_waits_by_the_blocks_needed_now() -> None:
    driver, slow = drive([(6, 9)] * 5, num_gpu_blocks=9, max_model_len=16, max_num_seqs=2)
    next(driver.steps())
    memory = Memory(slow.state, driver.config)
    assert (len(memory.running), len(memory.waiting)) == (2, 3)
    assert memory.largest_batch(PAGED) == 2 + (8 - 2 * ceil(6 / 4)) // ceil(6 / 4)
    assert memory.largest_batch("max") == 2  # 32 slots
    assert memory.largest_batch("oracle") == 2  # 14 slots each
