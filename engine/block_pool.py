"""The blocks of the KV cache: who holds them, what is in them, which is given next.

Box `block-manager`. vLLM 0.26.0: `vllm/v1/core/block_pool.py` (`BlockPool`),
`vllm/v1/core/kv_cache_utils.py` (`KVCacheBlock`, `FreeKVCacheBlockQueue`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.events import BlockEvicted, BlocksFreed, PrefixCacheReset
from engine.linked_queue import LinkedQueue
from engine.reasons import BlocksInUse, FreeQueueHead
from engine.trace import Trace


class KVCacheBlock:
    """One block of the pool; `prev` and `next` are its neighbours in the free queue."""

    __slots__ = ("block_hash", "block_id", "next", "prev", "ref_cnt", "uncomputed")

    def __init__(self, block_id: int):
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: bytes | None = None  # of its tokens and all before, once it is full
        self.uncomputed = False  # the hash promises KV that nobody wrote
        self.prev: KVCacheBlock | None = None
        self.next: KVCacheBlock | None = None


def short_hash(block_hash: bytes) -> str:
    """A block hash as the log shows it: its first 16 hexadecimal digits."""
    return block_hash[:8].hex()


def block_ids(blocks: Sequence[KVCacheBlock]) -> tuple[int, ...]:
    """Their ids, in the same order; most often there are none."""
    return tuple([block.block_id for block in blocks]) if blocks else ()


class BlockPool:
    """All blocks, the queue of the free ones, and the map from content to block."""

    def __init__(self, num_gpu_blocks: int, trace: Trace):
        self.trace = trace
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_gpu_blocks)]
        self.touched: dict[KVCacheBlock, None] = {}  # what the next patch has to look at
        self.free_block_queue: LinkedQueue[KVCacheBlock] = LinkedQueue(self.touched)
        for block in self.blocks:
            self.free_block_queue.append(block)
        # The blocks of each content, the one entered first at the front.
        self.cached: dict[bytes, dict[int, KVCacheBlock]] = {}
        # Block 0 is nobody's: padding and masked rows write there.
        self.null_block = self.free_block_queue.popleft()
        self.null_block.ref_cnt = 1

    def restore(
        self,
        free: Sequence[int],
        cached: Mapping[bytes, Sequence[int]],
        uncomputed: Iterable[int],
        held: Mapping[int, int],
    ) -> None:
        """Become what another pool was: its free queue, its content, and how many hold each block.

        Of a pool that nobody has used yet. Whether all this fits together, `engine/integrity.py`
        checks.
        """
        while self.free_block_queue.head is not None:
            self.free_block_queue.popleft()
        for block_id in free:
            self.free_block_queue.append(self.blocks[block_id])
        for block_hash, block_ids_of in cached.items():
            for block_id in block_ids_of:
                self.cache(self.blocks[block_id], block_hash)
        for block_id in uncomputed:
            self.mark_uncomputed(self.blocks[block_id])
        for block_id, holders in held.items():
            self.blocks[block_id].ref_cnt = holders

    def get_num_free_blocks(self) -> int:
        """Blocks that can be given; those with cached content count."""
        return self.free_block_queue.length

    def get_cached_block(self, block_hash: bytes) -> KVCacheBlock | None:
        """The block with this content that was entered first, or None."""
        blocks = self.cached.get(block_hash)
        return next(iter(blocks.values())) if blocks else None

    def get_new_blocks(self, count: int, request_id: str) -> list[KVCacheBlock]:
        """Take `count` blocks from the front of the free queue, evicting what they cache."""
        if count > self.get_num_free_blocks():
            raise ValueError(f"{count} blocks wanted, {self.get_num_free_blocks()} are free")
        return [self._take_first(request_id) for _ in range(count)]

    def _take_first(self, request_id: str) -> KVCacheBlock:
        block = self.free_block_queue.popleft()
        block.ref_cnt = 1
        if block.block_hash is not None:
            evicted = BlockEvicted(block.block_id, short_hash(block.block_hash), request_id)
            self.uncache(block)
            self.trace.event(evicted, FreeQueueHead(self.get_num_free_blocks() + 1))
        return block

    def cache(self, block: KVCacheBlock, block_hash: bytes) -> None:
        """Enter a full block's content; other blocks may have the same."""
        block.block_hash = block_hash
        self.cached.setdefault(block_hash, {})[block.block_id] = block
        self.touched[block] = None

    def uncache(self, block: KVCacheBlock) -> None:
        """Forget a block's content."""
        assert block.block_hash is not None
        same = self.cached[block.block_hash]
        del same[block.block_id]
        if not same:
            del self.cached[block.block_hash]
        block.block_hash = None
        block.uncomputed = False
        self.touched[block] = None

    def mark_uncomputed(self, block: KVCacheBlock) -> None:
        """A block keeps its content's hash although its content will not be computed."""
        assert block.block_hash is not None
        block.uncomputed = True
        self.touched[block] = None

    def touch(self, blocks: Iterable[KVCacheBlock]) -> int:
        """Hold cached blocks once more; returns how many of them nobody held before."""
        taken = 0
        for block in blocks:
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
                taken += 1
            block.ref_cnt += 1
            self.touched[block] = None
        return taken

    def free_blocks(self, request_id: str, blocks: Iterable[KVCacheBlock]) -> None:
        """Let go of `blocks` in the given order.

        What nobody holds any more goes back: without content to the front of the queue, to be
        given next; with content to the back, to stay cached as long as can be.
        """
        released: list[int] = []
        empty: list[KVCacheBlock] = []
        returned: list[int] = []
        for block in blocks:
            released.append(block.block_id)
            block.ref_cnt -= 1
            self.touched[block] = None
            if block.ref_cnt == 0:
                returned.append(block.block_id)
                if block.block_hash is None:
                    empty.append(block)
                else:
                    self.free_block_queue.append(block)
        for block in reversed(empty):
            self.free_block_queue.appendleft(block)
        self.trace.event(BlocksFreed(request_id, tuple(released), tuple(returned)))

    def reset_prefix_cache(self) -> bool:
        """Forget all content; refused (False) while a block other than block 0 is held."""
        used = len(self.blocks) - 1 - self.get_num_free_blocks()
        if used:
            self.trace.event(PrefixCacheReset(False, 0), BlocksInUse(used))
            return False
        hashed = [block for block in self.blocks if block.block_hash is not None]
        for block in hashed:
            self.uncache(block)
        self.trace.event(PrefixCacheReset(True, len(hashed)))
        return True
