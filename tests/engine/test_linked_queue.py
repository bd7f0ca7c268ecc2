"""The queue keeps order under removal from anywhere, and reports whose links moved."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.block_pool import KVCacheBlock
from engine.linked_queue import LinkedQueue


class AgainstAList(RuleBasedStateMachine):
    """Every operation beside the same one on a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: dict[KVCacheBlock, None] = {}
        self.queue: LinkedQueue[KVCacheBlock] = LinkedQueue(self.touched)
        self.model: list[KVCacheBlock] = []
        self.links: dict[KVCacheBlock, tuple[KVCacheBlock | None, KVCacheBlock | None]] = {}
        self.made = 0

    def new(self) -> KVCacheBlock:
        self.made += 1
        return KVCacheBlock(self.made)

    @rule()
    def append(self) -> None:
        block = self.new()
        self.queue.append(block)
        self.model.append(block)

    @rule()
    def appendleft(self) -> None:
        block = self.new()
        self.queue.appendleft(block)
        self.model.insert(0, block)

    @rule(data=st.data())
    def insert_before(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.model)))
        following = self.model[place] if place < len(self.model) else None
        block = self.new()
        self.queue.insert_before(block, following)
        self.model.insert(place, block)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        block = self.model.pop(data.draw(st.integers(0, len(self.model) - 1)))
        self.queue.remove(block)
        assert block.prev is None and block.next is None

    @precondition(lambda self: self.model)
    @rule()
    def popleft(self) -> None:
        assert self.queue.popleft() is self.model.pop(0)

    @invariant()
    def same_order_both_ways(self) -> None:
        assert list(self.queue) == self.model and len(self.queue) == len(self.model)
        backwards, node = [], self.queue.tail
        while node is not None:
            backwards.append(node)
            node = node.prev
        assert backwards == self.model[::-1]

    @invariant()
    def whose_links_moved_was_touched(self) -> None:
        for block in self.model:
            links = (block.prev, block.next)
            assert self.links.get(block) == links or block in self.touched
        self.links = {block: (block.prev, block.next) for block in self.model}
        self.touched.clear()


TestLinkedQueue = AgainstAList.TestCase
