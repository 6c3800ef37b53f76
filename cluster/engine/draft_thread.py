"""The thread that drafts while the engine's own runs the target: one job at a time, on cores or a stream of its own."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from cluster.engine.cpu_share import limit_threads

DRAFT_THREADS = 1
"""Threads of a pass in the draft thread, on CPU."""


class Lane(Protocol):
    """Where the draft thread's work runs, and how it is ordered against the target's."""

    def fork(self) -> None:
        """A job is about to be given: what the calling thread has started so far comes before it."""
        ...

    def work(self) -> AbstractContextManager[None]:
        """Around the job, in the draft thread."""
        ...

    def join(self) -> None:
        """The job has ended: what the calling thread starts from now on comes after it."""
        ...


class CpuLane:
    """Threads need no order beyond that of the jobs themselves."""

    def fork(self) -> None:
        """Nothing to do."""

    def work(self) -> AbstractContextManager[None]:
        """Nothing to do."""
        return nullcontext()

    def join(self) -> None:
        """Nothing to do."""


class CudaLane:
    """A stream beside the current one, ordered by events; the host never waits for the device here.

    The drafter's kernels are short, and each waits for the one before it: the stream has the higher priority, so that
    they do not queue behind the target's long ones.

    Args:
        cuda: `torch.cuda`, or what stands for it.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._stream = cuda.Stream(priority=-1)
        self._forked, self._joined = cuda.Event(), cuda.Event()

    def fork(self) -> None:
        """Note where the calling thread's stream is."""
        self._forked.record(self._cuda.current_stream())

    def work(self) -> AbstractContextManager[None]:
        """Run on the stream of its own, behind the fork, and note where that ends."""
        return _OnStream(self._cuda, self._stream, self._forked, self._joined)

    def join(self) -> None:
        """Let the calling thread's stream wait for the job's end."""
        self._cuda.current_stream().wait_event(self._joined)


class _OnStream:
    """Enters a stream behind one event, and records another when it leaves."""

    def __init__(self, cuda: Any, stream: Any, after: Any, done: Any) -> None:
        self._context, self._stream, self._after, self._done = cuda.stream(stream), stream, after, done

    def __enter__(self) -> None:
        self._stream.wait_event(self._after)
        self._context.__enter__()

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)
        self._done.record(self._stream)


class DraftThread:
    """Runs one job at a time beside the thread that gives it. Only that thread may call these methods.

    Args:
        lane: where jobs run.
    """

    def __init__(self, lane: Lane | None = None) -> None:
        self._lane = lane or CpuLane()
        self._given, self._done = threading.Event(), threading.Event()
        self._done.set()
        self._job: Callable[[], object] | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="draft", daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int:
        """The system's id of the thread."""
        assert self._thread.native_id is not None, "it runs"
        return self._thread.native_id

    @property
    def is_idle(self) -> bool:
        """True while no job runs."""
        return self._done.is_set()

    def start(self, job: Callable[[], object]) -> None:
        """Give a job to the idle thread."""
        assert self.is_idle, "a job runs already"
        self._lane.fork()
        self._job = job
        self._done.clear()
        self._given.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the job's end, at most so long.

        Returns:
            False while it still runs.

        Raises:
            Exception: whatever the job raised.
        """
        if not self._done.wait(timeout_s):
            return False
        self._lane.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return True

    def close(self, timeout_s: float) -> bool:
        """End the thread; False where its job still ran after so long, and it ends with that job."""
        self._job = None
        self._given.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        limit_threads(DRAFT_THREADS)
        while True:
            self._given.wait()
            self._given.clear()
            job, self._job = self._job, None
            if job is None:
                return
            try:
                with self._lane.work():
                    job()
            except Exception as error:  # noqa: BLE001 -- raised again by `join`, in the engine's thread
                self._error = error
            del job
            self._done.set()
