"""The watch over the engine's rules: silent on a sound engine, and each rule can be broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.conformance import Conformance, load_workload
from engine.core import EngineCore
from engine.integrity import RULES, check_integrity
from engine.request import RequestStatus
from engine.scheduler import Scheduler
from tests.engine.workloads import workload_path


def busy_core() -> EngineCore:
    """Requests run with shared and private blocks, others wait, and some blocks are cached."""
    conformance = Conformance(load_workload(workload_path("25-random-e"))[0])
    for _ in conformance.steps():
        scheduler = conformance.scheduler
        tables = scheduler.kv_cache_manager.req_to_blocks.values()
        if len(scheduler.running) >= 2 and scheduler.waiting.head and min(map(len, tables)) >= 2:
            return conformance.core
    raise AssertionError("the workload has no such step")


def test_a_sound_engine_violates_nothing() -> None:
    assert check_integrity(busy_core()) == []


def free_a_held_block(s: Scheduler) -> None:
    s.kv_cache_manager.block_pool.free_block_queue.append(held_block(s))


def held_block(s: Scheduler):  # type: ignore[no-untyped-def]
    return next(iter(s.kv_cache_manager.req_to_blocks.values()))[-1]


def lose_a_free_block(s: Scheduler) -> None:
    s.kv_cache_manager.block_pool.free_block_queue.popleft()


def count_a_holder_too_many(s: Scheduler) -> None:
    held_block(s).ref_cnt += 1


def miscount_a_queue(s: Scheduler) -> None:
    s.waiting.length += 1


def close_a_ring(s: Scheduler) -> None:
    queue = s.kv_cache_manager.block_pool.free_block_queue
    assert queue.tail is not None
    queue.tail.next = queue.head


def forget_who_is_before(s: Scheduler) -> None:
    assert s.running.tail is not None
    s.running.tail.prev = None


def drop_an_entry(s: Scheduler) -> None:
    s.kv_cache_manager.block_pool.cached.popitem()


def change_the_content(s: Scheduler) -> None:
    blocks = next(iter(s.kv_cache_manager.block_pool.cached.values()))
    next(iter(blocks.values())).block_hash = b"another"


def give_block_0(s: Scheduler) -> None:
    s.kv_cache_manager.block_pool.null_block.ref_cnt += 1


def keep_blocks_of_the_gone(s: Scheduler) -> None:
    manager = s.kv_cache_manager
    key = next(iter(manager.req_to_blocks))
    manager.req_to_blocks["gone"] = manager.req_to_blocks.pop(key)


def shorten_a_table(s: Scheduler) -> None:
    next(iter(s.kv_cache_manager.req_to_blocks.values())).clear()


def compute_the_unknown(s: Scheduler) -> None:
    assert s.running.head is not None
    s.running.head.num_computed_tokens = s.running.head.num_tokens + 1


def misname_a_status(s: Scheduler) -> None:
    assert s.running.head is not None
    s.running.head.status = RequestStatus.WAITING


def lose_a_request(s: Scheduler) -> None:
    s.requests.popitem()


def change_unseen(s: Scheduler) -> None:
    s.counters.generation_tokens += 1


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (free_a_held_block, "one_place"),
        (lose_a_free_block, "one_place"),
        (count_a_holder_too_many, "ref_count"),
        (miscount_a_queue, "queue"),
        (close_a_ring, "queue"),
        (forget_who_is_before, "queue"),
        (drop_an_entry, "hash_map"),
        (change_the_content, "hash_map"),
        (give_block_0, "null_block"),
        (keep_blocks_of_the_gone, "tables"),
        (shorten_a_table, "tables"),
        (compute_the_unknown, "tokens"),
        (misname_a_status, "requests"),
        (lose_a_request, "requests"),
        (change_unseen, "log"),
    ],
)
def test_a_broken_rule_is_named(damage: Callable[[Scheduler], None], rule: str) -> None:
    core = busy_core()
    damage(core.scheduler)
    assert rule in {violation.rule for violation in check_integrity(core)} <= RULES.keys()
