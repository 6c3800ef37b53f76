"""A bounded queue between a socket and the owner of its channel."""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

MAX_QUEUED_MESSAGES = 1024
"""Longest queue, per connection when sending and per end when receiving."""

MAX_QUEUED_BYTES = 64 << 20
"""Most encoded bytes that wait for the owner of an end."""


class Inbox(Generic[Item]):
    """A queue with a limit on items and on their bytes. For one thread at a time.

    Args:
        max_messages: most items that wait.
        max_bytes: bytes from which on no more is taken in.
    """

    def __init__(self, *, max_messages: int = MAX_QUEUED_MESSAGES, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._items: deque[Item] = deque()
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        """True when no more is taken in."""
        return len(self._items) >= self._max_messages or self._num_bytes >= self._max_bytes

    def put(self, item: Item, num_bytes: int) -> bool:
        """Add an item; False if the queue was full before."""
        if self.is_full:
            return False
        self._items.append(item)
        self._num_bytes += num_bytes
        return True

    def put_always(self, item: Item) -> None:
        """Add a small item that must not be lost."""
        self._items.append(item)

    def take(self) -> list[Item]:
        """Everything that waits, in order."""
        items = list(self._items)
        self._items.clear()
        self._num_bytes = 0
        return items
