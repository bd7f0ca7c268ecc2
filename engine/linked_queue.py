"""A doubly linked list through its members, so that any of them can be taken out at once.

The free blocks, the waiting and the running requests are such queues. vLLM has it for blocks
(`vllm/v1/core/kv_cache_utils.py`, `FreeKVCacheBlockQueue`); here one class serves all three, and
the links of its members are what the log records: a queue's change is the links that moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, Self, TypeVar


class Node(Protocol):
    """A member: it is in at most one queue at a time."""

    prev: Self | None
    next: Self | None


T = TypeVar("T", bound=Node)


class LinkedQueue(Generic[T]):
    """First in, first out, with removal from the middle in constant time.

    `touched` collects every member whose links changed, for the log.
    """

    def __init__(self, touched: dict[T, None]):
        self.head: T | None = None
        self.tail: T | None = None
        self.length = 0
        self.touched = touched

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[T]:
        node = self.head
        while node is not None:
            following = node.next  # the caller may take `node` out
            yield node
            node = following

    def append(self, node: T) -> None:
        """Put `node` at the end."""
        self._link(self.tail, node, None)

    def appendleft(self, node: T) -> None:
        """Put `node` at the front."""
        self._link(None, node, self.head)

    def insert_before(self, node: T, following: T | None) -> None:
        """Put `node` before `following`; at the end where that is None."""
        self._link(self.tail if following is None else following.prev, node, following)

    def popleft(self) -> T:
        """Take the first member out; IndexError where there is none."""
        if self.head is None:
            raise IndexError("the queue is empty")
        node = self.head
        self.remove(node)
        return node

    def remove(self, node: T) -> None:
        """Take `node`, which must be a member, out of wherever it stands."""
        before, after = node.prev, node.next
        if before is None:
            self.head = after
        else:
            before.next = after
            self.touched[before] = None
        if after is None:
            self.tail = before
        else:
            after.prev = before
            self.touched[after] = None
        node.prev = node.next = None
        self.touched[node] = None
        self.length -= 1

    def _link(self, before: T | None, node: T, after: T | None) -> None:
        node.prev, node.next = before, after
        if before is None:
            self.head = node
        else:
            before.next = node
            self.touched[before] = None
        if after is None:
            self.tail = node
        else:
            after.prev = node
            self.touched[after] = None
        self.touched[node] = None
        self.length += 1
