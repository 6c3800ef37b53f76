"""Reading an asynchronous stream with time limits that do not disturb it."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

T = TypeVar("T")


class Pump(Generic[T]):
    """Reads items of a stream.

    Args:
        stream: closed by `close`.
    """

    def __init__(self, stream: AsyncGenerator[T, None]) -> None:
        self._stream = stream
        self._next: asyncio.Task[T | None] | None = None

    async def next(self, timeout_s: float | None = None) -> T | None:
        """The next item; None at the end.

        Raises:
            TimeoutError: nothing came in time; the item is not lost.
            Exception: what the stream raises.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._read())
        done, _ = await asyncio.wait({self._next}, timeout=timeout_s)
        if not done:
            raise TimeoutError
        task, self._next = self._next, None
        return task.result()

    async def close(self) -> None:
        """Close the stream; if it has not ended, that aborts what feeds it."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
            self._next = None
        await self._stream.aclose()

    async def _read(self) -> T | None:
        return await anext(self._stream, None)
