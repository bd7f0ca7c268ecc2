"""What must hold of scheduler, block tables, pool and runner between any two phases.

No box of its own: it watches the boxes `scheduler`, `block-manager` and `gpu-runner`. Nothing here
is mended. Tests look after every phase, the page on demand (`AsyncLLM.check_integrity`).
vLLM 0.26.0 has no counterpart in one place; its own checks are assertions along the way.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.block_pool import BlockPool, KVCacheBlock
from engine.events import IntegrityChecked
from engine.kv_cache_manager import KVCacheManager
from engine.linked_queue import LinkedQueue
from engine.records import Phase
from engine.request import Request, RequestStatus
from engine.scheduler import Scheduler
from engine.trace import State, Trace, fold_sharing

if TYPE_CHECKING:
    from engine.core import EngineCore, RunnerRequest

RULES = {
    "one_place": "each block is held by requests, or stands in the free queue, and never both",
    "ref_count": "a block's reference count is the number of block tables that hold it",
    "leaks": "a block that no running request holds is free",
    "queue": "a queue is one unbroken chain without repetition, as long as it says",
    "hash_map": "the hash map leads to the blocks that have this hash, and to all of them",
    "null_block": "block 0 is held by nobody, has no content and is never free",
    "tables": "only running requests hold blocks, and enough for the tokens they have computed",
    "tokens": "no request has computed more tokens than are known of it or in flight",
    "requests": "an unfinished request stands in the queue that its status names",
    "runner": "the runner has the scheduler's block tables and tokens, as far as it was told",
    "log": "the log, folded, is the engine's state",
}
MOST_DIFFERENCES = 8  # between log and state that are named
MOST_VIOLATIONS = 50  # that go into the log


class Violation(NamedTuple):
    """A rule that does not hold, and where."""

    rule: str  # a key of RULES
    message: str
    block: int | None = None
    request: str | None = None


class Report:
    """What was looked at under each rule, and what does not hold."""

    def __init__(self) -> None:
        self.checked = dict.fromkeys(RULES, 0)
        self.violations: list[Violation] = []

    def broken(
        self, rule: str, message: str, block: int | None = None, request: str | None = None
    ) -> None:
        """Note a violation, and the block or the request that it is about."""
        self.violations.append(Violation(rule, message, block, request))

    def facts(self, before: Phase) -> IntegrityChecked:
        """As the log has it."""
        listed = self.violations[:MOST_VIOLATIONS]
        return IntegrityChecked(
            str(before),
            tuple(self.checked),
            tuple(self.checked.values()),
            len(self.violations),
            tuple(violation.rule for violation in listed),
            tuple(violation.message for violation in listed),
            tuple(-1 if violation.block is None else violation.block for violation in listed),
            tuple(violation.request or "" for violation in listed),
        )


def check_integrity(core: EngineCore, log: LogReader | None = None) -> Report:
    """Whether every rule holds now, between two phases; a violation is a defect of the engine.

    Without a `log` that has read the older records already, the whole log is folded. What the
    executor may be changing is left alone: `EngineCore.rest` comes first.
    """
    report = check_scheduler(core.scheduler)
    if core.is_still:
        check_runner(core, report)
        check_log(core, (log or LogReader(core.trace)).state(), report)
    return report


def check_scheduler(scheduler: Scheduler) -> Report:
    """All rules but those of runner and log."""
    report, manager = Report(), scheduler.kv_cache_manager
    check_pool(manager.block_pool, report)
    check_hash_map(manager.block_pool, report)
    check_holders(scheduler, report)
    check_tables(scheduler, report)
    check_requests(scheduler, report)
    return report


# --- blocks ------------------------------------------------------------------------------------


def check_pool(pool: BlockPool, report: Report) -> None:
    """Free queue and block 0."""
    check_queue(pool.free_block_queue, "free", "block_id", report)
    free = set(walk(pool.free_block_queue))
    for block in pool.blocks[1:]:
        report.checked["one_place"] += 1
        if (block in free) != (block.ref_cnt == 0):
            where = "free" if block in free else "not free"
            message = f"block {block.block_id} is {where} and has {block.ref_cnt} holders"
            report.broken("one_place", message, block.block_id)
    null = pool.null_block
    report.checked["null_block"] += 1
    if null.block_id != 0 or null.ref_cnt != 1 or null.block_hash is not None or null in free:
        report.broken("null_block", "block 0 is free, shared or has content", null.block_id)


def check_hash_map(pool: BlockPool, report: Report) -> None:
    """Both directions: from the map to its blocks, and from the blocks to the map."""
    for block_hash, blocks in pool.cached.items():
        for block_id, block in blocks.items():
            report.checked["hash_map"] += 1
            if block.block_hash != block_hash or block.block_id != block_id:
                message = f"block {block_id} is entered under another's content"
                report.broken("hash_map", message, block_id)
        if not blocks:
            report.broken("hash_map", f"{block_hash[:8].hex()} is entered with no block")
    for block in pool.blocks:
        if block.block_hash is not None and not entered(pool, block):
            message = f"block {block.block_id} has content and is not entered"
            report.broken("hash_map", message, block.block_id)


def entered(pool: BlockPool, block: KVCacheBlock) -> bool:
    """Whether the hash map leads to the block."""
    return pool.cached.get(block.block_hash or b"", {}).get(block.block_id) is block


def check_holders(scheduler: Scheduler, report: Report) -> None:
    """Holders are block tables, block 0's apart; what running requests do not hold is free."""
    manager = scheduler.kv_cache_manager
    holders = Counter(block for table in manager.req_to_blocks.values() for block in table)
    running = [request.request_id for request in walk(scheduler.running)]
    held = {block for key in running for block in manager.req_to_blocks.get(key, ())}
    free = set(walk(manager.block_pool.free_block_queue))
    for block in manager.block_pool.blocks[1:]:
        report.checked["ref_count"] += 1
        report.checked["leaks"] += 1
        key, count = block.block_id, holders[block]
        if block.ref_cnt != count:
            message = f"block {key} counts {block.ref_cnt} holders; tables that hold it: {count}"
            report.broken("ref_count", message, key)
        if block not in free and block not in held:
            report.broken("leaks", f"block {key} is not free, and nobody runs with it", key)


# --- requests ----------------------------------------------------------------------------------


def check_tables(scheduler: Scheduler, report: Report) -> None:
    """Block tables belong to running requests and reach as far as their tokens."""
    manager = scheduler.kv_cache_manager
    running = {request.request_id for request in walk(scheduler.running)}
    for key, table in manager.req_to_blocks.items():
        report.checked["tables"] += 1
        if key not in running:
            report.broken("tables", f"{key} does not run and holds {len(table)} blocks", None, key)
        if len(set(table)) != len(table):
            report.broken("tables", f"{key} has a block twice", None, key)
    for key in manager.num_cached_block.keys() - running:
        report.broken("tables", f"{key} does not run and has cached blocks counted", None, key)
    for request in walk(scheduler.running):
        check_table(manager, request, report)


def check_table(manager: KVCacheManager, request: Request, report: Report) -> None:
    """The table of a running request reaches as far as its tokens and holds their content."""
    key, computed = request.request_id, request.num_computed_tokens
    table = manager.req_to_blocks.get(key, [])
    held = len(table) * manager.block_size
    if computed > held:
        message = f"{key} has computed {computed} tokens, and blocks for {held}"
        report.broken("tables", message, None, key)
    count = manager.num_cached_block.get(key, 0)
    full = min(computed, request.num_tokens) // manager.block_size
    if count > min(full, len(table), len(request.block_hashes)):
        message = f"{key} has {count} cached blocks of {full} that are full"
        report.broken("tables", message, None, key)
    for block, block_hash in zip(table[:count], request.block_hashes, strict=False):
        if block.block_hash != block_hash:
            message = f"block {block.block_id} of {key} is cached under another content"
            report.broken("hash_map", message, block.block_id, key)


def check_requests(scheduler: Scheduler, report: Report) -> None:
    """Queues, statuses and counts of tokens."""
    places = (
        ("running", scheduler.running, (RequestStatus.RUNNING,)),
        ("waiting", scheduler.waiting, (RequestStatus.WAITING, RequestStatus.PREEMPTED)),
    )
    queued: list[str] = []
    for name, queue, statuses in places:
        check_queue(queue, name, "request_id", report)
        for request in walk(queue):
            key = request.request_id
            queued.append(key)
            report.checked["requests"] += 1
            if request.status not in statuses:
                report.broken("requests", f"{key}, {request.status}, is {name}", None, key)
            check_tokens(request, report)
    for key, times in (Counter(queued) - Counter(scheduler.requests.keys())).items():
        message = f"{key} is in a queue, {times} times more than it should be"
        report.broken("requests", message, None, key)
    for key in scheduler.requests.keys() - set(queued):
        report.broken("requests", f"{key} is in no queue", None, key)


def check_tokens(request: Request, report: Report) -> None:
    """A token must be known, or come from a batch in flight, before its KV can be computed."""
    report.checked["tokens"] += 1
    key, computed = request.request_id, request.num_computed_tokens
    known = request.num_tokens + request.num_output_placeholders + request.num_draft_tokens
    if not 0 <= computed <= known:
        message = f"{key} has computed {computed} of {known} tokens known, drafted or in flight"
        report.broken("tokens", message, None, key)


def check_queue(queue: LinkedQueue[Any], name: str, label: str, report: Report) -> None:
    """Forward links, backward links and the length tell the same."""
    before, count = None, 0
    for node in walk(queue):
        if node.prev is not before:
            message = f"{name}: {getattr(node, label)} does not know who is before"
            block = getattr(node, "block_id", None)
            report.broken("queue", message, block, getattr(node, "request_id", None))
        before, count = node, count + 1
    report.checked["queue"] += count
    if count != queue.length or queue.tail is not before or (before and before.next is not None):
        report.broken("queue", f"{name}: {count} in a chain, {queue.length} counted")


def walk(queue: LinkedQueue[Any]) -> Iterator[Any]:
    """The members from the head on; ends where one comes again."""
    seen: set[int] = set()
    node = queue.head
    while node is not None and id(node) not in seen:
        seen.add(id(node))
        yield node
        node = node.next


# --- runner ------------------------------------------------------------------------------------


def check_runner(core: EngineCore, report: Report) -> None:
    """What the runner keeps for itself is what the scheduler told it.

    It is told in `prepare`: until then it knows neither the step's new blocks nor who is gone.
    """
    scheduler, untold = core.scheduler, core.untold_requests()
    for key, known in core.runner.known_requests().items():
        if key in untold:
            continue
        report.checked["runner"] += 1
        request = scheduler.requests.get(key)
        if request is None or request.status is not RequestStatus.RUNNING:
            report.broken("runner", f"the runner keeps {key}, which does not run", None, key)
        else:
            check_told(core, request, known, report)


def check_told(core: EngineCore, request: Request, known: RunnerRequest, report: Report) -> None:
    """The runner's block table and tokens of a running request."""
    key = request.request_id
    blocks = core.scheduler.kv_cache_manager.req_to_blocks.get(key, ())
    table = [block.block_id for block in blocks]
    told = len(table) - core.num_untold_blocks(key)
    if list(known.block_ids) != table[:told]:
        message = f"{key} has the blocks {table[:told]}, in the runner {list(known.block_ids)}"
        report.broken("runner", message, None, key)
    # Tokens that a reset made void are the oldest in flight, and the runner knows them no more.
    ahead = core.sampled_ahead(key)[request.async_tokens_to_discard :]
    if list(known.token_ids) != [*request.all_token_ids, *ahead]:
        message = f"{key} has other tokens in the runner than its {request.num_tokens} known ones"
        report.broken("runner", message, None, key)


# --- log ---------------------------------------------------------------------------------------


class LogReader:
    """Follows one log as a reader on the page does; each record is folded once."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self._seq = -1
        self._state: State = {}

    def state(self) -> State:
        """The state after the last record. It shares its parts with the log: only read it."""
        header, records = self.trace.after(self._seq, limit=sys.maxsize)
        base = self._state if header is None else header.state
        self._state = fold_sharing(base, records)
        self._seq = self.trace.next_seq - 1
        return self._state


def check_log(core: EngineCore, folded: State, report: Report) -> None:
    """The fold of the log, against the live objects."""
    state = core.state()
    report.checked["log"] += sum(len(part) for part in state.values())
    if folded == state:
        return
    for path in list(differences(folded, state))[:MOST_DIFFERENCES]:
        part, _, rest = path.partition(".")
        name = rest.partition(".")[0]
        report.broken(
            "log",
            f"{path} differs between the log and the engine",
            int(name) if part == "blocks" else None,
            name if part == "requests" else None,
        )


def differences(folded: State, state: State, path: str = "") -> Iterator[str]:
    """The paths at which two states differ."""
    for key in sorted(folded.keys() | state.keys()):
        before, now = folded.get(key), state.get(key)
        here = f"{path}{key}"
        if isinstance(before, dict) and isinstance(now, dict):
            yield from differences(before, now, f"{here}.")
        elif before != now:
            yield here
