"""Each decision is told with its reason, and its numbers are those of the engine at that moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from engine.async_llm import AsyncLLM
from engine.config import SamplingParams
from engine.conformance import (
    AsyncConformance,
    Conformance,
    SpeculativeConformance,
    Workload,
    driver_of,
    load_workload,
)
from engine.events import (
    AdmissionStopped,
    BatchScheduled,
    BlockEvicted,
    BlocksAllocated,
    BlocksCached,
    BlocksFreed,
    BlocksHit,
    Facts,
    PrefixLookedUp,
    RequestArrived,
    RequestFinished,
    RequestPassedOver,
    RequestPreempted,
    RequestScheduled,
)
from engine.origins import Numbers, Origins
from engine.reasons import (
    BudgetLeft,
    BudgetSpent,
    DoesNotFit,
    FirstMiss,
    LastRunning,
    PreemptedThisStep,
    Reason,
    SeatsFull,
    WholeRequest,
)
from engine.records import FACTS_BY_TYPE, REASONS_BY_CODE, Event, Patch
from engine.request import Request
from engine.trace import Trace, fold
from engine.vllm_symbols import DECIDED_BY, decided_by
from engine.why import Why, decisions_about
from tests.engine.workloads import (
    ASYNC_FOLDER,
    FOLDER,
    RECORDED,
    RECORDED_ASYNC,
    RECORDED_SPEC,
    SPEC_FOLDER,
    drafted_workloads,
    workload_path,
    workloads,
)

Driver = Conformance | AsyncConformance
# What says how a request that waits or runs fared in a step that was scheduled.
FATES = {"admitted", "resumed", "scheduled", "passed_over", "skipped"}
FATES |= {"kept_waiting", "behind", "preempted"}
MUST_HAVE_REASONS = (
    RequestScheduled,
    RequestPassedOver,
    AdmissionStopped,
    RequestPreempted,
    BlockEvicted,
    RequestFinished,
    PrefixLookedUp,
    BlocksAllocated,
)


def recorded() -> list[Any]:
    """Every recorded workload, by the driver that it is for."""
    kinds = (
        (Conformance, FOLDER, "", RECORDED),
        (AsyncConformance, ASYNC_FOLDER, "async-", RECORDED_ASYNC),
        (SpeculativeConformance, SPEC_FOLDER, "spec-", RECORDED_SPEC),
    )
    return [
        pytest.param(driver, workload_path(name, folder), id=kind + name)
        for driver, folder, kind, names in kinds
        for name in names
    ]


def run(driver: Driver) -> Trace:
    list(driver.steps())
    return driver.trace


def play(requests: list[dict[str, Any]], **config: Any) -> Trace:
    """A small workload, in blocks of 4; a prompt given as a number has tokens of its own."""
    for index, spec in enumerate(requests):
        spec.setdefault("id", f"r{index}")
        spec.setdefault("max_tokens", 2)
        if isinstance(spec["prompt_token_ids"], int):
            length = spec["prompt_token_ids"]
            spec["prompt_token_ids"] = [1000 * index + n for n in range(length)]
    workload = {"name": "w", "config": {"block_size": 4, **config}, "requests": requests}
    return run(Conformance(Workload.model_validate(workload)))


def told(trace: Trace, request: str, step: int, decision: str) -> Why:
    found = [item for item in trace.why(request, step) if item.decision == decision]
    assert len(found) == 1, trace.why(request, step)
    return found[0]


def events(trace: Trace) -> Iterator[Event]:
    return (record for record in trace.records if isinstance(record, Event))


# --- complete ----------------------------------------------------------------------------------


def check_everything_is_explained(trace: Trace) -> None:
    """A reason in each decision, and a fate for each request in each step that was scheduled."""
    origins = Origins(trace.header, trace.records)
    alive: dict[str, None] = {}
    for event in events(trace):
        match event.facts:
            case RequestArrived(request=request):
                alive[request] = None
            case RequestFinished(request=request):
                alive.pop(request, None)
            case BatchScheduled():
                for request in alive:
                    items = decisions_about(origins, request, event.step)
                    fates = [item for item in items if item.decision in FATES]
                    assert fates, f"nothing explains what {request} got in step {event.step}"
                    assert all(item.reason is not None for item in fates)
                    assert all(item.symbol is not None for item in fates)
        if isinstance(event.facts, MUST_HAVE_REASONS):
            assert event.reason is not None, event


@pytest.mark.parametrize(("driver", "path"), recorded())
def test_every_decision_of_every_recorded_workload_is_explained(driver: Any, path: Any) -> None:
    workload, _ = load_workload(path)
    check_everything_is_explained(run(driver(workload)))


@given(workloads() | drafted_workloads())
@settings(max_examples=60, deadline=None)
def test_every_decision_of_any_workload_is_explained(workload: Workload) -> None:
    driver = driver_of(workload)
    witness = Witness(driver)
    check_everything_is_explained(run(driver))
    witness.check()


def test_each_symbol_is_of_an_event_and_a_reason() -> None:
    for key in DECIDED_BY:
        kind, _, code = key.partition(" ")
        assert kind in FACTS_BY_TYPE and (not code or code in REASONS_BY_CODE)
    stop = decided_by("request_finished", "stop_string")
    assert stop is not None and stop.name == "OutputProcessor.process_outputs"
    assert decided_by("blocks_uncached", "never_computed") is None


# --- true: the numbers, from the live objects --------------------------------------------------


class Witness:
    """Looks at the engine's own objects at every event, and expects the log to give the same."""

    def __init__(self, driver: Driver):
        self.driver = driver
        self.manager = driver.scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.expected: list[tuple[int, Numbers]] = []
        self.seen: dict[str, Request] = {}
        # Of a block: who held it when its content came, and since which step nobody holds it.
        self.entered_by: dict[int, tuple[bytes, str, int]] = {}
        self.unused: dict[int, int] = {}
        self.write = driver.trace.event
        driver.trace.event = self.event  # type: ignore[method-assign]

    def event(
        self, facts: Facts, reason: Reason | None = None, duration_us: float | None = None
    ) -> None:
        trace = self.driver.trace
        numbers = self.numbers_of(facts, reason)
        if numbers:
            self.expected.append((trace.next_seq, numbers))
        self.write(facts, reason, duration_us)
        self.look()

    def look(self) -> None:
        """Remember whose content is where and what nobody holds."""
        self.seen |= self.driver.scheduler.requests
        step = self.driver.trace.step
        for block in self.pool.blocks[1:]:
            key = block.block_id
            if block.ref_cnt:
                self.unused.pop(key, None)
            else:
                self.unused.setdefault(key, step)
            if block.block_hash is None:
                self.entered_by.pop(key, None)
            elif self.entered_by.get(key, (b"", "", 0))[0] != block.block_hash:
                holder = self.holders([key])[0]
                self.entered_by[key] = (block.block_hash, holder, step)

    def holders(self, blocks: Any, but: str = "") -> list[str]:
        return [
            name
            for name, table in self.manager.req_to_blocks.items()
            if name != but and any(block.block_id in blocks for block in table)
        ]

    def numbers_of(self, facts: Facts, reason: Reason | None) -> Numbers:
        """What the log should say of the moment; sets where no order is promised."""
        match facts:
            case RequestScheduled(kind="new" | "resumed"):
                return {"seat": len(self.driver.scheduler.running)}
            case PrefixLookedUp(request=request, hit_blocks=blocks):
                sources: dict[str, int] = {}
                for block in blocks:
                    name = self.entered_by[block][1]
                    sources[name] = sources.get(name, 0) + 1
                parting = self.parting(request, reason) if isinstance(reason, FirstMiss) else {}
                return {"sources": sources, **parting}
            case BlocksHit(request=request, blocks=blocks):
                return {"holders": set(self.holders(blocks, but=request))}
            case BlockEvicted(block=block):
                _, name, step = self.entered_by[block]
                unused = self.unused[block]
                return {"cached_by": name, "cached_step": step, "unused_since": unused}
            case BlocksFreed(blocks=blocks, returned=returned):
                content = [self.pool.blocks[block].block_hash for block in returned]
                kept = sum(block_hash is not None for block_hash in content)
                return {"kept": kept, "holders": set(self.holders(blocks))}
            case BlocksCached(blocks=blocks):
                copies: set[int] = set()
                for block in blocks:
                    block_hash = self.pool.blocks[block].block_hash
                    copies |= self.pool.cached[block_hash or b""].keys()
                return {"copies": copies - set(blocks)}
        return {}

    def parting(self, request: str, reason: FirstMiss) -> Numbers:
        """Where the request leaves the cached chain it has most tokens in common with."""
        size = self.manager.block_size
        asker = self.driver.scheduler.requests[request]
        most = -1
        for other in {**self.seen, **self.driver.scheduler.requests}.values():
            for index, block_hash in enumerate(other.block_hashes):
                if block_hash not in self.pool.cached:
                    break
                pairs = zip(
                    asker.all_token_ids,
                    other.all_token_ids[: (index + 1) * size],
                    strict=False,
                )
                same = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
                if same is not None and index == reason.block:
                    most = max(most, same)
        if most < reason.block * size:
            return {}
        return {"position": most, "token": asker.all_token_ids[most]}

    def check(self) -> None:
        trace = self.driver.trace
        origins = Origins(trace.header, trace.records)
        for seq, wanted in self.expected:
            numbers = origins.numbers.get(seq, {})
            for name, value in wanted.items():
                got = numbers.get(name)
                if isinstance(value, set):
                    assert set(got or ()) == value, (trace.records[seq], name)
                elif isinstance(value, dict):
                    assert dict(got or ()) == value, (trace.records[seq], name)
                elif name in ("position", "token") and numbers["miss"] != "parted":
                    assert numbers["miss"] in ("evicted", "uncached", "reset")
                else:
                    assert got == value, (trace.records[seq], name, numbers)


@pytest.mark.parametrize(("driver", "path"), recorded())
def test_numbers_are_those_of_the_engine_at_that_moment(driver: Any, path: Any) -> None:
    workload, _ = load_workload(path)
    made = driver(workload)
    witness = Witness(made)
    run(made)
    witness.check()
    assert witness.expected


@pytest.mark.parametrize(("driver", "path"), recorded())
def test_the_place_in_the_queue_is_that_of_the_state(driver: Any, path: Any) -> None:
    workload, _ = load_workload(path)
    trace = run(driver(workload))
    origins = Origins(trace.header, trace.records)
    for event in events(trace):
        if not isinstance(event.facts, AdmissionStopped):
            continue
        end = next(
            i
            for i, record in enumerate(trace.records)
            if record.seq > event.seq and not isinstance(record, Event)
        )
        state = fold(trace.header.state, trace.records[: end + 1])
        queue, at = [], state["queues"]["waiting"].get("head")
        while at is not None:
            queue.append(at)
            at = state["requests"][at].get("next")
        for place, request in enumerate(queue[1:], 1):
            items = decisions_about(origins, request, event.step)
            behind = [item for item in items if item.decision == "behind"]
            assert [item.numbers["ahead"] for item in behind] == [place]
            assert behind[0].event.facts == event.facts and queue[0] in behind[0].requests


# --- small, one kind at a time -----------------------------------------------------------------


def test_admitted_to_which_seat_after_how_long() -> None:
    trace = play([{"prompt_token_ids": 4}, {"prompt_token_ids": 4}], max_num_seqs=1)
    first, second = told(trace, "r0", 0, "admitted"), told(trace, "r1", 2, "admitted")
    assert (first.numbers, first.reason) == ({"seat": 1, "waited": 0}, WholeRequest(4))
    assert (second.numbers, second.reason) == ({"seat": 1, "waited": 2}, WholeRequest(4))
    assert second.symbol is not None and second.symbol.name == "Scheduler.schedule"


def test_kept_waiting_at_the_head_and_behind_it() -> None:
    trace = play([{"prompt_token_ids": 4} for _ in range(4)], max_num_seqs=1)
    head = told(trace, "r1", 1, "kept_waiting")
    assert (head.reason, head.numbers) == (SeatsFull(1, 1), {"waited": 1})
    behind = told(trace, "r3", 1, "behind")
    assert behind.reason == SeatsFull(1, 1)
    assert behind.numbers == {"ahead": 2, "waited": 1} and behind.requests == ("r1",)


def test_kept_waiting_for_how_many_blocks() -> None:
    trace = play([{"prompt_token_ids": 8}, {"prompt_token_ids": 20}], num_gpu_blocks=6 + 1)
    item = told(trace, "r1", 0, "kept_waiting")
    assert item.reason == DoesNotFit(5, 4, 0) and item.numbers["short"] == 1
    assert item.symbol is not None and item.symbol.name == "KVCacheManager.allocate_slots"


def test_chunked_by_which_limit() -> None:
    trace = play([{"prompt_token_ids": 20}], max_num_batched_tokens=16)
    assert told(trace, "r0", 0, "admitted").reason == BudgetLeft(20, 16)
    assert told(trace, "r0", 1, "scheduled").reason == WholeRequest(4)


def test_preempted_by_whom_for_how_many_blocks_and_resumed_with_what_of_its_own() -> None:
    requests = [{"prompt_token_ids": 8, "max_tokens": 8} for _ in range(2)]
    trace = play(requests, num_gpu_blocks=7)
    event = next(e for e in events(trace) if isinstance(e.facts, RequestPreempted))
    assert event.facts == RequestPreempted("r1", "r0", 1, 0, 12, 0)
    victim = told(trace, "r1", event.step, "preempted")
    assert victim.reason == LastRunning(2) and victim.requests == ("r1", "r0")
    assert told(trace, "r0", event.step, "made_room").event == victim.event
    assert told(trace, "r1", event.step, "freed").numbers["holders"] == ()
    resumed = next(
        item
        for step in range(event.step, 99)
        for item in trace.why("r1", step)
        if item.decision == "resumed"
    )
    facts = resumed.event.facts
    assert isinstance(facts, RequestScheduled) and facts.num_computed_tokens > 0
    assert resumed.numbers["own_hits"] == facts.num_computed_tokens  # r0 has other tokens
    assert resumed.numbers["computed"] == 12


def test_what_a_step_gave_a_victim_before_it_preempts_it_is_taken_back() -> None:
    workload, _ = load_workload(workload_path("27-priority-victim-in-step", FOLDER))
    driver = Conformance(workload)
    list(driver.steps())
    event = next(e for e in events(driver.trace) if isinstance(e.facts, RequestPreempted))
    victim = told(driver.trace, "low", event.step, "preempted")
    share = told(driver.trace, "low", event.step, "scheduled").event.facts
    assert isinstance(share, RequestScheduled)
    assert victim.numbers["taken_back"] == share.num_tokens == 8


def test_who_shares_a_step_with_a_preemption_is_told_who_the_victim_was() -> None:
    requests = [{"prompt_token_ids": 8, "max_tokens": 8} for _ in range(2)]
    requests.append({"prompt_token_ids": 4, "arrival_step": 1})
    trace = play(requests, num_gpu_blocks=6)
    event = next(e for e in events(trace) if isinstance(e.facts, RequestPreempted))
    assert event.step == 1
    stopped = told(trace, "r1", event.step, "kept_waiting")
    assert stopped.reason == PreemptedThisStep(1) and stopped.numbers["victims"] == ("r1",)
    assert told(trace, "r2", event.step, "behind").numbers["victims"] == ("r1",)


def test_running_requests_behind_a_spent_budget_are_told_of() -> None:
    specs = [{"id": f"r{n}", "prompt_token_ids": [n, n], "max_tokens": 9} for n in range(3)]
    driver = Conformance(Workload.model_validate({"name": "w", "requests": specs}))
    driver.step(0)
    scheduler = driver.scheduler
    scheduler.config = scheduler.config.model_copy(update={"max_num_batched_tokens": 1})
    driver.step(1)
    assert told(driver.trace, "r1", 1, "passed_over").reason == BudgetSpent(1)
    skipped = told(driver.trace, "r2", 1, "skipped")
    assert skipped.reason == BudgetSpent(1) and skipped.requests == ("r1",)


SYSTEM = [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_first_miss_names_the_tokens_that_differ_from_the_nearest_content() -> None:
    trace = play(
        [
            {"prompt_token_ids": [*SYSTEM, 10, 11, 12, 13, 14], "max_tokens": 5},
            {"prompt_token_ids": [*SYSTEM, 10, 21, 22, 23, 24], "arrival_step": 1},
            {"prompt_token_ids": [*SYSTEM, 10, 21, 22, 33, 34], "arrival_step": 2},
        ],
        max_num_seqs=3,
    )
    assert told(trace, "r0", 0, "looked_up").numbers == {"miss": "new"}
    numbers = told(trace, "r1", 1, "looked_up").numbers
    assert numbers["sources"] == (("r0", 2),)
    assert (numbers["miss"], numbers["position"]) == ("parted", 9)
    assert (numbers["token"], numbers["other_token"], numbers["other"]) == (21, 11, "r0")
    numbers = told(trace, "r2", 2, "looked_up").numbers
    assert (numbers["position"], numbers["token"], numbers["other_token"]) == (11, 33, 23)
    assert numbers["other"] == "r1"
    assert told(trace, "r2", 2, "hit").numbers["holders"] == ("r0", "r1")


def test_a_first_miss_tells_of_another_salt(make: Callable[..., AsyncLLM]) -> None:
    llm = make(block_size=8)
    params = SamplingParams(max_tokens=1)
    for text, salt in (("Once upon a time", "a"), ("Once upon a time", "b"), ("Once more", "c")):
        llm.submit(text, params, cache_salt=salt)
        llm.step()
    missed = [told(llm.trace, f"r{n}", n, "looked_up").numbers for n in range(3)]
    assert [numbers["miss"] for numbers in missed] == ["new", "salted", "new"]
    assert missed[1]["other"] == "r0"


def test_a_first_miss_tells_that_the_content_was_evicted() -> None:
    requests = [{"prompt_token_ids": SYSTEM + [9], "max_tokens": 1}]
    requests += [{"prompt_token_ids": 19, "max_tokens": 1, "arrival_step": 2}]
    requests += [{"prompt_token_ids": SYSTEM + [9], "max_tokens": 1, "arrival_step": 4}]
    trace = play(requests, num_gpu_blocks=6)
    evicted = [item for item in trace.why("r1", 2) if item.decision == "evicted"]
    assert [item.numbers for item in evicted] == [
        {"cached_by": "r0", "cached_step": 0, "logical": 1, "unused_since": 0},
        {"cached_by": "r0", "cached_step": 0, "logical": 0, "unused_since": 0},
    ]
    assert told(trace, "r2", 4, "looked_up").numbers == {
        "miss": "evicted",
        "cached_by": "r0",
        "cached_step": 0,
        "lost_step": 2,
        "lost_to": "r1",
    }


def test_blocks_let_go_tell_who_holds_them_still_and_what_is_kept() -> None:
    trace = play(
        [
            {"prompt_token_ids": [*SYSTEM, 10], "max_tokens": 2},
            {"prompt_token_ids": [*SYSTEM, 20], "max_tokens": 5, "arrival_step": 1},
        ]
    )
    item = told(trace, "r0", 1, "freed")
    assert item.numbers == {"kept": 0, "holders": ("r1",)}
    assert isinstance(item.event.facts, BlocksFreed) and len(item.event.facts.returned) == 1


def test_the_same_content_in_another_block_is_told() -> None:
    trace = play([{"prompt_token_ids": SYSTEM}, {"prompt_token_ids": SYSTEM, "arrival_step": 1}])
    first = told(trace, "r0", 0, "cached")
    assert isinstance(first.event.facts, BlocksCached) and first.numbers == {}
    assert told(trace, "r1", 1, "cached").numbers == {"copies": (first.event.facts.blocks[1],)}


def test_a_log_that_has_lost_its_beginning_tells_what_it_still_knows() -> None:
    workload, _ = load_workload(workload_path("24-random-d"))
    whole = run(Conformance(workload))
    known = Origins(whole.header, whole.records)
    patches = [n for n, record in enumerate(whole.records, 1) if isinstance(record, Patch)]
    for count in patches[:-1:9]:
        state = fold(whole.header.state, whole.records[:count])
        rest = Origins(
            whole.header.model_copy(update={"state": state, "base_seq": count}),
            whole.records[count:],
        )
        for step in rest.events:
            for request in state["requests"]:
                items = decisions_about(known, request, step)
                assert [(item.decision, item.seq) for item in items if item.seq >= count] == [
                    (item.decision, item.seq) for item in decisions_about(rest, request, step)
                ]


def test_a_saved_trace_tells_the_same() -> None:
    workload, _ = load_workload(workload_path("21-random-a"))
    trace = run(Conformance(workload))
    again = Trace.parse(list(trace.lines()))
    for step in range(0, trace.records[-1].step + 1, 5):
        assert again.why("r1", step) == trace.why("r1", step)


def test_nothing_is_told_of_whom_the_log_does_not_know() -> None:
    trace = play([{"prompt_token_ids": 4}])
    assert trace.why("nobody", 0) == [] and trace.why("r0", 99) == []
