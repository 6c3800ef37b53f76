"""Work that may never end, in a few threads: a bound on its time for whoever waits, and the event loop goes on.

A thread cannot be killed, so the number of threads bounds what such work can take.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cluster.errors import UnavailableError

MAX_COMPILES = 2
"""Grammars that a process compiles at once; others wait for as long as one may take."""

T = TypeVar("T")


def grammar_workers() -> "WorkerPool":
    """Threads that compile grammars."""
    return WorkerPool(MAX_COMPILES, refusal="grammars cannot be compiled now; try again", thread_name="grammar")


class WorkerPool:
    """A few threads for work that clients cause; used from one event loop.

    Args:
        num_workers: threads, and so most pieces of work at once.
        refusal: what a caller is told who finds none.
        thread_name: of its threads.
    """

    def __init__(self, num_workers: int, *, refusal: str, thread_name: str) -> None:
        self._num_workers, self._refusal = num_workers, refusal
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix=thread_name)
        self._free = asyncio.Semaphore(num_workers)
        self._num_stuck = 0

    async def run(self, work: Callable[[], T], timeout_s: float) -> T:
        """What the work returns or raises.

        Args:
            work: runs in a thread.
            timeout_s: longest time that it may take, and longest time to wait for a thread.

        Raises:
            TimeoutError: it takes longer; its thread is lost until it ends.
            UnavailableError: all threads are lost, or none came free in time.
        """
        if self._num_stuck >= self._num_workers:
            raise UnavailableError(self._refusal)
        try:
            await asyncio.wait_for(self._free.acquire(), timeout_s)
        except TimeoutError:
            raise UnavailableError(self._refusal) from None
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(self._release)
        done, _ = await asyncio.wait({future}, timeout=timeout_s)
        if not done:
            self._num_stuck += 1
            future.add_done_callback(self._unstick)
            raise TimeoutError
        return future.result()

    def close(self) -> None:
        """Let the threads go; one that hangs is left behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _release(self, future: "asyncio.Future[T]") -> None:
        self._free.release()
        if not future.cancelled():
            future.exception()  # Whoever waited may be gone.

    def _unstick(self, _: object) -> None:
        self._num_stuck -= 1
