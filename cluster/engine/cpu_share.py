"""Which cores a thread and its passes may use: two threads that compute at once must not get in each other's way.

A limit holds for the thread that sets it; passes read it through `share_of`, so that neither a target nor a draft model
has to know who runs beside it.
"""

import os
import threading
from collections.abc import Collection, Iterable

_of_thread = threading.local()


def share_of(num_threads: int) -> int:
    """Threads of a pass that would take `num_threads` if the calling thread were alone; at least 1."""
    limit: int | None = getattr(_of_thread, "limit", None)
    return num_threads if limit is None else max(1, min(num_threads, limit))


def limit_threads(limit: int | None) -> None:
    """Let passes that the calling thread starts from now on use at most so many threads, itself included."""
    _of_thread.limit = limit


class Pinning:
    """Keeps threads on cores for a while. Does nothing where the system knows no such thing.

    A thread that has ended meanwhile is left out: the system refuses its id.
    """

    def __init__(self) -> None:
        self._before: dict[int, set[int]] = {}

    def pin(self, thread_ids: Iterable[int], cores: Collection[int]) -> None:
        """Let threads run on these cores only.

        Args:
            thread_ids: the system's, as `threading.get_native_id` gives them.
            cores: at least one that the process may use.
        """
        if not hasattr(os, "sched_setaffinity"):
            return
        for thread_id in thread_ids:
            try:
                before = os.sched_getaffinity(thread_id)
                os.sched_setaffinity(thread_id, cores)
            except OSError:
                continue
            self._before.setdefault(thread_id, before)

    def release(self) -> None:
        """Let all of them run where they could before."""
        for thread_id, cores in self._before.items():
            try:
                os.sched_setaffinity(thread_id, cores)
            except OSError:
                continue
        self._before.clear()
