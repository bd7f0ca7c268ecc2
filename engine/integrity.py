"""What must hold of scheduler, block tables and pool between any two phases.

No box of its own: it watches the boxes `scheduler` and `block-manager`. Nothing here is mended, and
nothing of the engine calls it: tests do after every phase, and whoever suspects an engine may.
vLLM 0.26.0 has no counterpart in one place; its own checks are assertions along the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.block_pool import BlockPool, KVCacheBlock
from engine.kv_cache_manager import KVCacheManager
from engine.linked_queue import LinkedQueue
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler

if TYPE_CHECKING:
    from engine.core import EngineCore

RULES = {
    "one_place": "each block is held by requests, or stands in the free queue, and never both",
    "ref_count": "a block's reference count is the number of block tables that hold it",
    "queue": "a queue is one unbroken chain without repetition, as long as it says",
    "hash_map": "the hash map leads to the blocks that have this hash, and to all of them",
    "null_block": "block 0 is held by nobody, has no content and is never free",
    "tables": "only running requests hold blocks, and enough for the tokens they have computed",
    "tokens": "no request has computed more tokens than are known of it or in flight",
    "requests": "an unfinished request stands in the queue that its status names",
    "log": "the log, folded, is the engine's state",
}


class Violation(NamedTuple):
    """A rule that does not hold, and where."""

    rule: str  # a key of RULES
    message: str


def check_integrity(core: EngineCore) -> list[Violation]:
    """Every violation there is now: none, or the engine has a defect.

    Folds the whole log, so it takes time; between two phases only.
    """
    found = check_scheduler(core.scheduler)
    if core.is_still and core.trace.state() != core.state():
        found.append(Violation("log", "the fold of the log differs from the live objects"))
    return found


def check_scheduler(scheduler: Scheduler) -> list[Violation]:
    """All rules but that of the log."""
    manager = scheduler.kv_cache_manager
    return [
        *check_pool(manager.block_pool),
        *check_reference_counts(manager),
        *check_tables(scheduler),
        *check_requests(scheduler),
    ]


def check_pool(pool: BlockPool) -> Iterator[Violation]:
    """Free queue, hash map and block 0."""
    yield from check_queue(pool.free_block_queue, "free", "block_id")
    free = set(walk(pool.free_block_queue))
    for block in pool.blocks[1:]:
        if (block in free) != (block.ref_cnt == 0):
            where = "free" if block in free else "not free"
            yield Violation(
                "one_place", f"block {block.block_id} is {where} and has {block.ref_cnt} holders"
            )
    null = pool.null_block
    if null.block_id != 0 or null.ref_cnt != 1 or null.block_hash is not None or null in free:
        yield Violation("null_block", "block 0 is free, shared or has content")
    yield from check_hash_map(pool)


def check_hash_map(pool: BlockPool) -> Iterator[Violation]:
    """Both directions: from the map to its blocks, and from the blocks to the map."""
    for block_hash, blocks in pool.cached.items():
        for block_id, block in blocks.items():
            if block.block_hash != block_hash or block.block_id != block_id:
                yield Violation("hash_map", f"block {block_id} is entered under another's content")
        if not blocks:
            yield Violation("hash_map", f"{block_hash[:8].hex()} is entered with no block")
    for block in pool.blocks:
        if block.block_hash is not None and not entered(pool, block):
            yield Violation("hash_map", f"block {block.block_id} has content and is not entered")


def entered(pool: BlockPool, block: KVCacheBlock) -> bool:
    """Whether the hash map leads to the block."""
    return pool.cached.get(block.block_hash or b"", {}).get(block.block_id) is block


def check_reference_counts(manager: KVCacheManager) -> Iterator[Violation]:
    """Holders are block tables, block 0's apart."""
    holders = Counter(block for table in manager.req_to_blocks.values() for block in table)
    for block in manager.block_pool.blocks[1:]:
        if block.ref_cnt != holders[block]:
            yield Violation(
                "ref_count",
                f"block {block.block_id} counts {block.ref_cnt} holders, "
                f"{holders[block]} tables have it",
            )


def check_tables(scheduler: Scheduler) -> Iterator[Violation]:
    """Block tables belong to running requests and reach as far as their tokens."""
    manager = scheduler.kv_cache_manager
    running = {request.request_id for request in walk(scheduler.running)}
    for key, table in manager.req_to_blocks.items():
        if key not in running:
            yield Violation("tables", f"{key} does not run and holds {len(table)} blocks")
        if len(set(table)) != len(table):
            yield Violation("tables", f"{key} has a block twice")
    for key, count in manager.num_cached_block.items():
        if count > len(manager.req_to_blocks.get(key, [])):
            yield Violation("tables", f"{key} has {count} cached blocks, more than its table")
    for request in walk(scheduler.running):
        yield from check_table(manager, request)


def check_table(manager: KVCacheManager, request: Request) -> Iterator[Violation]:
    """The table of a running request reaches as far as its tokens and holds their content."""
    key = request.request_id
    table = manager.req_to_blocks.get(key, [])
    held = len(table) * manager.block_size
    if request.num_computed_tokens > held:
        yield Violation(
            "tables", f"{key} has computed {request.num_computed_tokens} tokens, blocks for {held}"
        )
    cached = table[: manager.num_cached_block.get(key, 0)]
    for block, block_hash in zip(cached, request.block_hashes, strict=False):
        if block.block_hash != block_hash:
            yield Violation(
                "hash_map", f"block {block.block_id} of {key} is cached under another content"
            )


def check_requests(scheduler: Scheduler) -> Iterator[Violation]:
    """Queues, statuses and counts of tokens."""
    places = (
        ("running", scheduler.running, (RequestStatus.RUNNING,)),
        ("waiting", scheduler.waiting, (RequestStatus.WAITING, RequestStatus.PREEMPTED)),
    )
    queued: list[str] = []
    for name, queue, statuses in places:
        yield from check_queue(queue, name, "request_id")
        for request in walk(queue):
            queued.append(request.request_id)
            if request.status not in statuses:
                yield Violation("requests", f"{request.request_id}, {request.status}, is {name}")
            yield from check_tokens(request)
    if sorted(queued) != sorted(scheduler.requests):
        lost = set(queued) ^ set(scheduler.requests)
        yield Violation(
            "requests", f"not in one queue: {', '.join(sorted(lost)) or 'twice in one'}"
        )


def check_tokens(request: Request) -> Iterator[Violation]:
    """A token must be known, or come from a batch in flight, before its KV can be computed."""
    known = request.num_tokens + request.num_output_placeholders
    if not 0 <= request.num_computed_tokens <= known:
        yield Violation(
            "tokens",
            f"{request.request_id} has computed {request.num_computed_tokens} of "
            f"{known} tokens known or in flight",
        )


def check_queue(queue: LinkedQueue[Any], name: str, label: str) -> Iterator[Violation]:
    """Forward links, backward links and the length tell the same."""
    before, count = None, 0
    for node in walk(queue):
        if node.prev is not before:
            yield Violation("queue", f"{name}: {getattr(node, label)} does not know who is before")
        before, count = node, count + 1
    if count != queue.length or queue.tail is not before or (before and before.next is not None):
        yield Violation("queue", f"{name}: {count} in a chain, {queue.length} counted")


def walk(queue: LinkedQueue[Any]) -> Iterator[Any]:
    """The members from the head on; ends where one comes again."""
    seen: set[int] = set()
    node = queue.head
    while node is not None and id(node) not in seen:
        seen.add(id(node))
        yield node
        node = node.next
