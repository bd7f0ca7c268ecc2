"""The rules of the pool, one by one (tests/conformance has them together)."""

from __future__ import annotations

import pytest

from engine.block_pool import BlockPool, KVCacheBlock
from engine.events import BlockEvicted, BlocksFreed
from engine.reasons import FreeQueueHead
from engine.records import Event
from tests.engine.traces import make_trace


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(8, make_trace())


def free_ids(pool: BlockPool) -> list[int]:
    return [block.block_id for block in pool.free_block_queue]


def last_event(pool: BlockPool) -> Event:
    record = pool.trace.records[-1]
    assert isinstance(record, Event)
    return record


def with_content(pool: BlockPool, blocks: list[KVCacheBlock]) -> None:
    for block in blocks:
        pool.cache(block, bytes([block.block_id]) * 32)


def test_block_0_is_never_given(pool: BlockPool) -> None:
    assert [block.block_id for block in pool.get_new_blocks(7, "r")] == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(ValueError, match="1 blocks wanted, 0 are free"):
        pool.get_new_blocks(1, "r")


def test_freed_without_content_goes_to_the_front_tail_first(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(3, "r")
    pool.free_blocks("r", reversed(blocks))
    assert free_ids(pool) == [3, 2, 1, 4, 5, 6, 7]


def test_freed_with_content_goes_to_the_back_tail_first(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(3, "r")
    with_content(pool, blocks[:2])
    pool.free_blocks("r", reversed(blocks))
    assert free_ids(pool) == [3, 4, 5, 6, 7, 2, 1]
    assert last_event(pool).facts == BlocksFreed("r", (3, 2, 1), (3, 2, 1))


def test_a_shared_block_stays_with_the_other_holder(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(2, "r")
    assert pool.touch(blocks[:1]) == 0
    pool.free_blocks("r", reversed(blocks))
    assert blocks[0].ref_cnt == 1 and free_ids(pool) == [2, 3, 4, 5, 6, 7]
    assert last_event(pool).facts == BlocksFreed("r", (2, 1), (2,))


def test_a_hit_takes_a_block_out_of_the_middle(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(3, "r")
    with_content(pool, blocks)
    pool.free_blocks("r", reversed(blocks))
    assert pool.touch([blocks[1]]) == 1
    assert free_ids(pool) == [4, 5, 6, 7, 3, 1]
    assert blocks[1].block_hash is not None


def test_taking_a_cached_block_evicts_it_and_says_so(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(7, "r")
    with_content(pool, blocks)
    pool.free_blocks("r", reversed(blocks))
    block_hash = blocks[6].block_hash
    assert block_hash is not None
    assert pool.get_new_blocks(1, "r") == [blocks[6]]
    assert pool.get_cached_block(block_hash) is None
    assert last_event(pool).facts == BlockEvicted(7, "07" * 8, "r")
    assert last_event(pool).reason == FreeQueueHead(7)


def test_of_two_with_the_same_content_the_first_entered_is_found(pool: BlockPool) -> None:
    first, second = pool.get_new_blocks(2, "r")
    pool.cache(second, b"x" * 32)
    pool.cache(first, b"x" * 32)
    assert pool.get_cached_block(b"x" * 32) is second
    pool.uncache(second)
    assert pool.get_cached_block(b"x" * 32) is first


def test_reset_is_refused_while_a_block_is_held(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(2, "r")
    with_content(pool, blocks)
    assert pool.reset_prefix_cache() is False and pool.cached
    pool.free_blocks("r", reversed(blocks))
    order = free_ids(pool)
    assert pool.reset_prefix_cache() is True
    assert not pool.cached and free_ids(pool) == order
