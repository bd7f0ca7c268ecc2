"""Which blocks a request has: look-up of known prefixes, allocation, caching, release.

Box `block-manager`. vLLM 0.26.0: `vllm/v1/core/kv_cache_manager.py` (`KVCacheManager`:
`get_computed_blocks`, `allocate_slots`, `free`).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

from engine.block_pool import BlockPool, KVCacheBlock, block_ids, short_hash
from engine.config import EngineConfig
from engine.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksCached,
    BlocksHit,
    BlocksLeftUncomputed,
    BlocksUncached,
    PrefixLookedUp,
)
from engine.reasons import (
    BlockFilled,
    BlockNotFull,
    DoesNotFit,
    FirstMiss,
    Fits,
    LastHitGivenUp,
    LastTokenNeeded,
    NeverComputed,
    Reason,
)
from engine.request import Request
from engine.trace import Trace


class KVCacheManager:
    """The block tables of all requests, over one pool."""

    def __init__(self, config: EngineConfig, trace: Trace):
        self.block_size = config.block_size
        self.enable_caching = config.enable_prefix_caching
        drafter = config.speculative_config
        self.num_lookahead_tokens = drafter.num_lookahead_tokens if drafter else 0
        self.gives_up_last_hit = drafter is not None and drafter.method == "eagle"
        self.max_model_len = config.max_model_len or 0
        self.watermark_blocks = int(config.watermark * config.num_gpu_blocks)
        self.trace = trace
        self.block_pool = BlockPool(config.num_gpu_blocks, trace)
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}  # of the requests that hold blocks
        self.num_cached_block: dict[str, int] = {}  # leading blocks of a table that are hashed

    # -- prefix look-up -------------------------------------------------------------------------

    def get_computed_blocks(self, request: Request) -> list[KVCacheBlock]:
        """The longest cached prefix of a waiting request, in whole blocks.

        One token at least must be computed, for there is nothing to sample from otherwise: at
        most `num_tokens - 1` tokens hit. Nothing is looked up, and nothing logged, where caching is
        off or the request skips it.
        """
        if not self.looks_up(request):
            return []
        update_block_hashes(request, self.block_size)
        limit = (request.num_tokens - 1) // self.block_size
        hits: list[KVCacheBlock] = []
        for block_hash in request.block_hashes[:limit]:
            block = self.block_pool.get_cached_block(block_hash)
            if block is None:
                break
            hits.append(block)
        if self.gives_up_last_hit and hits:
            hits.pop()
        self._log_lookup(request, hits, limit)
        return hits

    def looks_up(self, request: Request) -> bool:
        """Whether the request's prefix is looked for in the cache."""
        return self.enable_caching and not request.skip_reading_prefix_cache

    def _log_lookup(self, request: Request, hits: list[KVCacheBlock], limit: int) -> None:
        self.trace.event(
            PrefixLookedUp(
                request.request_id,
                request.num_tokens,
                len(hits) * self.block_size,
                request.num_preemptions > 0,
                block_ids(hits),
            ),
            self._end_of_walk(request, len(hits), limit),
        )

    def _end_of_walk(self, request: Request, block: int, limit: int) -> Reason:
        """Why the logical block `block` is the first that did not hit."""
        if block < limit:
            block_hash = request.block_hashes[block]
            if self.gives_up_last_hit and self.block_pool.get_cached_block(block_hash):
                return LastHitGivenUp(block)
            return FirstMiss(block, short_hash(block_hash))
        rest = request.num_tokens - limit * self.block_size
        if rest < self.block_size:
            return BlockNotFull(block, rest)
        return LastTokenNeeded(limit * self.block_size)

    # -- allocation -----------------------------------------------------------------------------

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        hits: Sequence[KVCacheBlock] = (),
        reserve: int = 0,
        watermark_blocks: int = 0,
    ) -> list[KVCacheBlock] | DoesNotFit:
        """New blocks for the next `num_new_tokens` of a request, or the numbers why not.

        They follow its `hits`, which it takes as well. `reserve`: the known sequence (tokens) that
        must fit as a whole for the request to be admitted; nothing is set aside for it.
        `watermark_blocks` must stay free beside it.
        """
        held = len(self.req_to_blocks.get(request.request_id, ())) + len(hits)
        num_tokens = request.num_computed_tokens + len(hits) * self.block_size + num_new_tokens
        lookahead = self._lookahead_beyond(num_tokens)
        needs = -(-(num_tokens + lookahead) // self.block_size) - held
        new_blocks: list[KVCacheBlock] = []
        if needs > 0 or reserve:
            most = max(needs, -(-reserve // self.block_size) - held)
            # Hits that nobody holds stand in the free queue: taking them makes it shorter.
            most += sum(block.ref_cnt == 0 for block in hits)
            free = self.block_pool.get_num_free_blocks()
            if most + watermark_blocks > free:
                shortage = DoesNotFit(most, free, watermark_blocks, lookahead)
                self.trace.event(AllocationFailed(request.request_id), shortage)
                return shortage
            if hits:
                self._take_hits(request, hits)
            if needs > 0:
                fits = Fits(most, free, watermark_blocks, lookahead)
                new_blocks = self._take_new(request, needs, fits)
        if self.enable_caching:
            self.cache_blocks(request, min(num_tokens, request.num_tokens))
        return new_blocks

    def _lookahead_beyond(self, num_tokens: int) -> int:
        """Slots behind so many tokens into which the drafter will write; none beyond the model."""
        if not self.num_lookahead_tokens:
            return 0
        return min(self.num_lookahead_tokens, self.max_model_len - num_tokens)

    def _take_hits(self, request: Request, hits: Sequence[KVCacheBlock]) -> None:
        taken = self.block_pool.touch(hits)
        self.req_to_blocks.setdefault(request.request_id, []).extend(hits)
        self.num_cached_block[request.request_id] = len(hits)
        uncomputed = block_ids([block for block in hits if block.uncomputed])
        self.trace.event(BlocksHit(request.request_id, block_ids(hits), taken, uncomputed))

    def _take_new(self, request: Request, count: int, reason: Fits) -> list[KVCacheBlock]:
        blocks = self.block_pool.get_new_blocks(count, request.request_id)
        self.req_to_blocks.setdefault(request.request_id, []).extend(blocks)
        self.trace.event(BlocksAllocated(request.request_id, block_ids(blocks)), reason)
        return blocks

    # -- caching --------------------------------------------------------------------------------

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Enter the request's blocks that are full at `num_tokens` and not entered yet."""
        first = self.num_cached_block.get(request.request_id, 0)
        last = num_tokens // self.block_size
        if last <= first:
            return
        update_block_hashes(request, self.block_size)
        hashes = request.block_hashes[first:last]
        blocks = self.req_to_blocks[request.request_id][first:last]
        for block, block_hash in zip(blocks, hashes, strict=True):
            self.block_pool.cache(block, block_hash)
        self.num_cached_block[request.request_id] = last
        parent = short_hash(request.block_hashes[first - 1]) if first else ""
        self.trace.event(
            BlocksCached(
                request.request_id,
                first,
                parent,
                block_ids(blocks),
                tuple([short_hash(block_hash) for block_hash in hashes]),
            ),
            BlockFilled((last - first) * self.block_size),
        )

    def uncache_blocks(self, request: Request, num_computed_tokens: int) -> list[KVCacheBlock]:
        """Forget the content of blocks that will not be computed: all past the computed tokens.

        Blocks are entered when their tokens are scheduled. Where the step is taken back before
        it ran, they would promise KV that nobody wrote.
        """
        blocks = self._cached_beyond(request, num_computed_tokens)
        if blocks:
            for block in blocks:
                self.block_pool.uncache(block)
            self.num_cached_block[request.request_id] -= len(blocks)
            self.trace.event(
                BlocksUncached(request.request_id, block_ids(blocks)),
                NeverComputed(num_computed_tokens),
            )
        return blocks

    def leave_uncomputed(self, request: Request, num_computed_tokens: int) -> None:
        """Keep those same blocks in the cache, as vLLM 0.26.0 does: whoever hits them reads KV
        of something else."""
        blocks = self._cached_beyond(request, num_computed_tokens)
        if blocks:
            for block in blocks:
                self.block_pool.mark_uncomputed(block)
            self.trace.event(
                BlocksLeftUncomputed(request.request_id, block_ids(blocks)),
                NeverComputed(num_computed_tokens),
            )

    def _cached_beyond(self, request: Request, num_computed_tokens: int) -> list[KVCacheBlock]:
        """The request's cached blocks that hold more than its computed tokens."""
        first = num_computed_tokens // self.block_size
        last = self.num_cached_block.get(request.request_id, 0)
        return self.req_to_blocks.get(request.request_id, [])[first:last]

    # -- release --------------------------------------------------------------------------------

    def free(self, request: Request) -> None:
        """Let go of all blocks of a request, last to first."""
        blocks = self.req_to_blocks.pop(request.request_id, [])
        self.num_cached_block.pop(request.request_id, None)
        if blocks:
            self.block_pool.free_blocks(request.request_id, reversed(blocks))

    def num_common_prefix_blocks(self, request: Request) -> int:
        """Leading blocks of `request` that every holder of blocks shares."""
        if not self.enable_caching:
            return 0
        holders = len(self.req_to_blocks)
        count = 0
        for block in self.req_to_blocks.get(request.request_id, []):
            if block.ref_cnt != holders:
                break
            count += 1
        return count


def update_block_hashes(request: Request, block_size: int) -> None:
    """Hash the full blocks of the request's known tokens that have no hash yet.

    A block's hash covers its tokens and, through its parent's, all before it (SHA-256, as in
    vLLM; unlike there the chain starts from a fixed value, so that hashes can be compared). A
    request's salt goes into the first one, and so no block of it is one of another salt.
    """
    hashes, tokens = request.block_hashes, request.all_token_ids
    for start in range(len(hashes) * block_size, len(tokens) - block_size + 1, block_size):
        parent = hashes[-1] if hashes else salt_hash(request.cache_salt)
        content = array("q", tokens[start : start + block_size]).tobytes()
        hashes.append(hashlib.sha256(parent + content).digest())


def salt_hash(cache_salt: str) -> bytes:
    """What stands for the parent of a first block."""
    return hashlib.sha256(cache_salt.encode()).digest() if cache_salt else b""
