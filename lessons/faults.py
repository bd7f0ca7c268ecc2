"""Named faults: engines that are broken on purpose, for a learner to find what is wrong.

Nothing of them is in `engine/`. A fault changes methods of one engine's own objects, just after it
began; with its next reset the engine is sound again. A page says that such an engine is broken.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from engine.block_pool import KVCacheBlock, short_hash
from engine.core import EngineCore
from engine.events import BlocksCached
from engine.outputs import ScheduledKind
from engine.reasons import (
    BlockFilled,
    DoesNotFit,
    LastRunning,
    PaddedToUniform,
    Reason,
    SeatsFull,
)
from engine.request import FinishReason, Request


class Fault(NamedTuple):
    """A fault: the box that has it, the rule that it breaks, and how an engine gets it."""

    box: str
    rule: str  # what holds in a sound engine
    put_into: Callable[[EngineCore], None]


def never_frees(core: EngineCore) -> None:
    """An aborted request's blocks stay taken, though no table has them."""
    manager = core.scheduler.kv_cache_manager
    free = manager.free

    def keep(request: Request) -> None:
        if request.finish_reason is FinishReason.ABORT:
            manager.req_to_blocks.pop(request.request_id, None)
            manager.num_cached_block.pop(request.request_id, None)
        else:
            free(request)

    _replace(manager, "free", keep)


def ignores_parent(core: EngineCore) -> None:
    """A block's hash covers its own tokens alone, not those before it."""
    manager = core.scheduler.kv_cache_manager
    look_up, cache = manager.get_computed_blocks, manager.cache_blocks

    def hash_alone(request: Request) -> None:
        size, tokens = manager.block_size, request.all_token_ids
        for start in range(len(request.block_hashes) * size, len(tokens) - size + 1, size):
            content = array("q", tokens[start : start + size]).tobytes()
            request.block_hashes.append(hashlib.sha256(content).digest())

    def looked_up(request: Request) -> list[KVCacheBlock]:
        hash_alone(request)
        return look_up(request)

    def cached(request: Request, num_tokens: int) -> None:
        hash_alone(request)
        cache(request, num_tokens)

    _replace(manager, "get_computed_blocks", looked_up)
    _replace(manager, "cache_blocks", cached)


def evicts_newest(core: EngineCore) -> None:
    """New blocks come from the back of the free queue, where the freshest content stands."""
    pool = core.scheduler.kv_cache_manager.block_pool
    take_first = pool._take_first

    def take_last(request_id: str) -> KVCacheBlock:
        last = pool.free_block_queue.tail
        assert last is not None
        pool.free_block_queue.remove(last)
        pool.free_block_queue.appendleft(last)
        return take_first(request_id)

    _replace(pool, "_take_first", take_last)


def serves_all(core: EngineCore) -> None:
    """A prompt may hit to its last token, and then has none left to be computed."""
    manager = core.scheduler.kv_cache_manager
    look_up = manager.get_computed_blocks

    def all_of_it(request: Request) -> list[KVCacheBlock]:
        hits = look_up(request)
        if request.num_tokens == (len(hits) + 1) * manager.block_size:
            last = manager.block_pool.get_cached_block(request.block_hashes[len(hits)])
            hits += [last] if last is not None else []
        return hits

    _replace(manager, "get_computed_blocks", all_of_it)


def preempts_first(core: EngineCore) -> None:
    """Where blocks are short, the request that has run longest loses its own."""
    scheduler = core.scheduler

    def first() -> tuple[Request, Reason]:
        assert scheduler.running.head is not None
        return scheduler.running.head, LastRunning(len(scheduler.running))

    _replace(scheduler, "_choose_victim", first)


def decodes_for_free(core: EngineCore) -> None:
    """A decode's token is not taken off the step's budget."""
    scheduler = core.scheduler
    give, close = scheduler._give, scheduler._close_step

    def give_free(request: Request, kind: ScheduledKind, num_tokens: int, *rest: Any) -> None:
        give(request, kind, num_tokens, *rest)
        if kind == "running" and num_tokens == 1:
            scheduler._budget += 1

    def close_honestly() -> Any:  # the runner must be told how many rows there are
        given = sum(entry.num_tokens for entry in scheduler._scheduled.values())
        scheduler._budget = scheduler.config.max_num_scheduled_tokens - given
        return close()

    _replace(scheduler, "_give", give_free)
    _replace(scheduler, "_close_step", close_honestly)


def always_watermark(core: EngineCore) -> None:
    """The blocks of the watermark stay free at every admission, whoever runs."""
    scheduler = core.scheduler
    manager = scheduler.kv_cache_manager

    def with_watermark(
        request: Request, num_tokens: int, hits: list[KVCacheBlock]
    ) -> list[KVCacheBlock] | DoesNotFit:
        known, watermark = request.num_tokens, manager.watermark_blocks
        return manager.allocate_slots(request, num_tokens, hits, known, watermark)

    _replace(scheduler, "_allocate_for_admission", with_watermark)


def outlives_its_length(core: EngineCore) -> None:
    """Below its least number of tokens nothing ends a request, not even the greatest length."""
    scheduler = core.scheduler
    check = scheduler._check_stop

    def below_nothing(request: Request, token: int) -> tuple[FinishReason, Reason] | None:
        below = request.num_output_tokens < request.sampling_params.min_tokens
        return None if below else check(request, token)

    _replace(scheduler, "_check_stop", below_nothing)


def schedules_nothing(core: EngineCore) -> None:
    """The loop asks for batches and gets empty ones, as if what decides were gone."""
    for name in ("_schedule_running", "_schedule_waiting"):
        _replace(core.scheduler, name, lambda: None)


def hashes_partial(core: EngineCore) -> None:
    """The last block of a prompt is entered in the cache although it is not full."""
    manager = core.scheduler.kv_cache_manager
    cache = manager.cache_blocks

    def cache_rest(request: Request, num_tokens: int) -> None:
        cache(request, num_tokens)
        full, rest = divmod(num_tokens, manager.block_size)
        table = manager.req_to_blocks.get(request.request_id, [])
        if not rest or full >= len(table) or table[full].block_hash is not None:
            return
        parent = request.block_hashes[full - 1] if full else b""
        tokens = request.all_token_ids[full * manager.block_size : num_tokens]
        found = hashlib.sha256(parent + array("q", tokens).tobytes()).digest()
        manager.block_pool.cache(table[full], found)
        entered = BlocksCached(
            request.request_id,
            full,
            short_hash(parent) if full else "",
            (table[full].block_id,),
            (short_hash(found),),
        )
        manager.trace.event(entered, BlockFilled(rest))

    _replace(manager, "cache_blocks", cache_rest)


def reserves_answer(core: EngineCore) -> None:
    """Nobody is admitted before the longest answer fits that a request may get."""
    scheduler = core.scheduler
    manager = scheduler.kv_cache_manager

    def allocate(
        request: Request, num_tokens: int, hits: list[KVCacheBlock]
    ) -> list[KVCacheBlock] | DoesNotFit:
        longest = request.num_prompt_tokens + request.sampling_params.max_tokens
        return manager.allocate_slots(request, num_tokens, hits, reserve=longest)

    _replace(scheduler, "_allocate_for_admission", allocate)


def wastes_a_seat(core: EngineCore) -> None:
    """Nobody is admitted any more while one seat is still empty."""
    scheduler = core.scheduler
    closed = scheduler._closed_to_all
    seats = scheduler.config.max_num_seqs

    def closed_early() -> Reason | None:
        running = len(scheduler.running)
        return closed() or (SeatsFull(running, seats) if running == seats - 1 else None)

    _replace(scheduler, "_closed_to_all", closed_early)


def ignores_priority(core: EngineCore) -> None:
    """Whoever comes joins the waiting queue at its end, whatever its priority."""
    scheduler = core.scheduler
    _replace(scheduler, "_num_ahead", lambda request: len(scheduler.waiting))
    _replace(scheduler, "_enqueue", scheduler.waiting.append)


def frees_first_first(core: EngineCore) -> None:
    """A request lets go of its blocks from the first to the last."""
    pool = core.scheduler.kv_cache_manager.block_pool
    free = pool.free_blocks

    def in_order(request_id: str, blocks: Iterable[KVCacheBlock]) -> None:
        free(request_id, reversed(list(blocks)))

    _replace(pool, "free_blocks", in_order)


def rejects_more_than_given(core: EngineCore) -> None:
    """Where a limit cuts a request's padding, all of the padding is taken off as rejected."""
    scheduler = core.scheduler
    give = scheduler._give

    def give_padding(
        request: Request,
        kind: ScheduledKind,
        num_tokens: int,
        new_blocks: list[KVCacheBlock],
        reason: Reason,
        *rest: Any,
    ) -> None:
        give(request, kind, num_tokens, new_blocks, reason, *rest)
        if isinstance(reason, PaddedToUniform):
            request.num_draft_tokens = reason.num_speculative_tokens

    _replace(scheduler, "_give", give_padding)


def pads_to_largest(core: EngineCore) -> None:
    """Every batch that any graph holds is padded to the largest."""
    dispatcher = core.runner.dispatcher  # type: ignore[attr-defined]
    choose = dispatcher.choose

    def largest(num_tokens: int, uniform: bool) -> Any:
        if not dispatcher.sizes or num_tokens > dispatcher.sizes[-1]:
            return choose(num_tokens, uniform)
        return choose(dispatcher.sizes[-1], uniform)

    _replace(dispatcher, "choose", largest)


def _replace(owner: object, name: str, method: Callable[..., Any]) -> None:
    """This one object has another method from now on."""
    setattr(owner, name, method)


FAULTS: dict[str, Fault] = {
    "never-frees": Fault("block-manager", "a request that ends gives its blocks back", never_frees),
    "ignores-parent": Fault(
        "block-manager", "a block hits only where all tokens before it are the same", ignores_parent
    ),
    "evicts-newest": Fault(
        "block-manager", "the block is evicted that nobody has used for longest", evicts_newest
    ),
    "serves-all": Fault("block-manager", "one token at least of a request is computed", serves_all),
    "preempts-first": Fault(
        "scheduler", "the request is preempted that was admitted last", preempts_first
    ),
    "decodes-for-free": Fault(
        "scheduler", "a step has no more tokens than its budget", decodes_for_free
    ),
    "always-watermark": Fault(
        "scheduler", "where nobody runs, nothing is kept free", always_watermark
    ),
    "outlives-its-length": Fault(
        "scheduler", "a request ends at the greatest length", outlives_its_length
    ),
    "schedules-nothing": Fault(
        "scheduler", "who waits is admitted as soon as there is room", schedules_nothing
    ),
    "hashes-partial": Fault("block-manager", "only full blocks are cached", hashes_partial),
    "reserves-answer": Fault(
        "scheduler", "a request is admitted where what is known of it fits", reserves_answer
    ),
    "wastes-a-seat": Fault("scheduler", "as many requests run as there are seats", wastes_a_seat),
    "ignores-priority": Fault(
        "scheduler", "the more urgent request stands before the others", ignores_priority
    ),
    "frees-first-first": Fault(
        "block-manager", "a request lets go of its last block first", frees_first_first
    ),
    "rejects-more-than-given": Fault(
        "scheduler", "no more drafts are rejected than were given", rejects_more_than_given
    ),
    "pads-to-largest": Fault(
        "cuda-graph", "a batch is padded to the smallest graph that holds it", pads_to_largest
    ),
}
