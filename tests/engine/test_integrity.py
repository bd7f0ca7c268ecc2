"""The watch over the engine's rules: silent on a sound engine, and each rule can be broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.async_llm import AsyncLLM, EngineError
from engine.config import EngineConfig, SamplingParams
from engine.core import EngineCore
from engine.integrity import RULES, LogReader, check_integrity
from engine.kv_cache_manager import KVCacheBlock
from engine.model_loader import LoadedModel
from engine.records import Phase
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler
from tests.engine.hashing_runner import HashingRunner
from tests.engine.traces import make_trace


@pytest.fixture
def core(tiny_model: LoadedModel) -> EngineCore:
    """Two run with shared and private blocks, one waits for a seat, another has just come."""
    config = EngineConfig(block_size=4, num_gpu_blocks=24, max_num_seqs=2).resolve(64)
    trace = make_trace(config)
    core = EngineCore(config, HashingRunner(tiny_model, config, trace), trace)
    for key, last in (("a", 50), ("b", 51), ("c", 52)):
        params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
        core.add_request(Request(key, [*range(10, 18), last], params))
    for _ in range(3):
        core.step()
    core.add_request(Request("d", [7], SamplingParams()))
    return core


def test_a_sound_engine_violates_nothing(core: EngineCore) -> None:
    report = check_integrity(core)
    assert report.violations == []
    assert report.checked == {
        "one_place": 23,
        "ref_count": 23,
        "leaks": 23,
        "queue": 23 - 4 + 3,  # free blocks: two of the prefix are shared; and three requests
        "hash_map": 2,
        "null_block": 1,
        "tables": 2,
        "tokens": 3,
        "requests": 3,
        "runner": 2,
        "log": sum(map(len, core.state().values())),
    }


def test_every_phase_of_a_step_is_sound(core: EngineCore) -> None:
    """The runner knows less than the scheduler before `prepare`, and more before `update`."""
    log = LogReader(core.trace)
    for _ in range(30 * 7):
        core.step_phase()
        if core.next_phase is Phase.EXECUTE and core.step_index == 9:
            core.abort_requests(["a"])
        report = check_integrity(core, log)
        assert not report.violations
        assert report.checked["runner"] or core.step_index > 20


def test_a_reader_goes_on_where_the_log_was_folded(core: EngineCore) -> None:
    log = LogReader(core.trace)
    for _ in range(3):
        assert log.state() == core.state()
        core.step()
        core.trace._fold_oldest(len(core.trace.records))
        core.step()


def free_a_held_block(s: Scheduler) -> None:
    s.kv_cache_manager.block_pool.free_block_queue.append(held_block(s))


def held_block(s: Scheduler) -> KVCacheBlock:
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


def lose_a_block_and_its_count(s: Scheduler) -> None:
    """Its table is gone, and nobody gave it back: counts and tables agree."""
    key, table = s.kv_cache_manager.req_to_blocks.popitem()
    for block in table:
        block.ref_cnt -= 1


def submit_twice(s: Scheduler) -> None:
    assert s.running.head is not None
    twin = Request("a", [1], SamplingParams())
    twin.status = RequestStatus.WAITING
    s.waiting.append(twin)


def change_unseen(s: Scheduler) -> None:
    s.counters.generation_tokens += 1


def free_a_block_unseen(s: Scheduler) -> None:
    s.kv_cache_manager.block_pool.free_block_queue.popleft()
    s.kv_cache_manager.block_pool.touched.clear()


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
        (submit_twice, "requests"),
        (lose_a_block_and_its_count, "leaks"),
        (change_unseen, "log"),
        (free_a_block_unseen, "log"),
    ],
)
def test_a_broken_rule_is_named(
    core: EngineCore, damage: Callable[[Scheduler], None], rule: str
) -> None:
    damage(core.scheduler)
    assert rule in {violation.rule for violation in check_integrity(core).violations}


def forget_a_block(core: EngineCore) -> None:
    core.runner.requests["b"].block_ids.pop()


def keep_an_old_block(core: EngineCore) -> None:
    core.runner.requests["b"].block_ids[0] = 23


def lose_a_token(core: EngineCore) -> None:
    core.runner.requests["b"].token_ids.pop()


def change_a_token(core: EngineCore) -> None:
    core.runner.requests["b"].token_ids[3] = 99


def remember_the_gone(core: EngineCore) -> None:
    core.runner.requests["gone"] = core.runner.requests["b"]


@pytest.mark.parametrize(
    "damage",
    [forget_a_block, keep_an_old_block, lose_a_token, change_a_token, remember_the_gone],
)
def test_a_runner_that_went_astray_is_named(
    core: EngineCore, damage: Callable[[EngineCore], None]
) -> None:
    damage(core)
    (violation,) = check_integrity(core).violations
    assert violation.rule == "runner"
    assert violation.request == ("gone" if damage is remember_the_gone else "b")


def test_a_violation_says_which_block_or_request(core: EngineCore) -> None:
    key = held_block(core.scheduler).block_id
    count_a_holder_too_many(core.scheduler)
    found = {violation.rule: violation for violation in check_integrity(core).violations}
    assert found["ref_count"].block == found["log"].block == key
    assert found["ref_count"].message == f"block {key} counts 2 holders; tables that hold it: 1"
    assert found["log"].message.startswith(f"blocks.{key}.ref_cnt differs")


def test_the_rules_are_those_that_are_counted(core: EngineCore) -> None:
    assert list(check_integrity(core).checked) == list(RULES)


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_running_engine_is_checked_between_phases_and_runs_on(
    make: Callable[..., AsyncLLM], async_scheduling: bool
) -> None:
    engine = make(running=True, async_scheduling=async_scheduling)
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    streams = [engine.submit("abc" * n, params) for n in (1, 9, 20)]
    while not all(stream.ended for stream in streams):
        assert engine.check_integrity().num_violations == 0
    assert all(len(list(stream)) == 60 for stream in streams)
    engine.pause()
    assert engine.check_integrity().num_violations == 0


def test_an_engine_that_failed_can_be_checked(make: Callable[..., AsyncLLM]) -> None:
    engine = make()
    engine.submit("abc")
    engine.step()
    engine.core.runner.execute_model = None  # type: ignore[assignment, method-assign]
    with pytest.raises(EngineError):
        engine.step()
    found = engine.check_integrity()
    assert found.before == "execute" and found.checked[0] == 63
