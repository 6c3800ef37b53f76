"""The thread that drafts beside the target: one job at a time, errors come back, nothing stays behind."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cluster.engine.cpu_share import share_of
from cluster.engine.draft_thread import DRAFT_THREADS, CudaLane, DraftThread


@pytest.fixture
def thread() -> Iterator[DraftThread]:
    thread = DraftThread()
    yield thread
    assert thread.close(5.0)


def test_jobs_run_in_another_thread_with_few_cores(thread: DraftThread) -> None:
    seen: list[tuple[int, int]] = []
    for _ in range(3):
        thread.start(lambda: seen.append((threading.get_native_id(), share_of(8))))
        assert thread.join(5.0)
    assert seen == [(thread.thread_id, DRAFT_THREADS)] * 3
    assert thread.thread_id != threading.get_native_id()
    assert share_of(8) == 8


def test_an_error_reaches_who_joins_and_the_next_job_runs(thread: DraftThread) -> None:
    thread.start(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        thread.join(5.0)
    thread.start(lambda: None)
    assert thread.join(5.0)


def test_a_job_that_takes_too_long_is_waited_for_no_longer_than_asked(thread: DraftThread) -> None:
    release = threading.Event()
    thread.start(lambda: release.wait(5.0))
    assert not thread.join(0.01)
    assert not thread.is_idle
    assert not thread.close(0.01)
    release.set()
    assert thread.join(5.0)


class FakeCuda:
    """Stands for `torch.cuda`: writes down what is asked of it, and by which thread."""

    def __init__(self) -> None:
        self.log: list[tuple[str, bool]] = []
        self._main = threading.get_ident()
        self._stream_of: dict[int, FakeStream] = {}
        self._num_events = 0

    def note(self, text: str) -> None:
        self.log.append((text, threading.get_ident() == self._main))

    def Stream(self, priority: int) -> "FakeStream":  # noqa: N802 -- torch's name
        return FakeStream(self, f"stream {priority}")

    def Event(self) -> "FakeEvent":  # noqa: N802 -- torch's name
        self._num_events += 1
        return FakeEvent(self, f"event {self._num_events}")

    def current_stream(self) -> "FakeStream":
        return self._stream_of.get(threading.get_ident(), FakeStream(self, "current"))

    @contextmanager
    def stream(self, stream: "FakeStream") -> Iterator[None]:
        self._stream_of[threading.get_ident()] = stream
        yield
        del self._stream_of[threading.get_ident()]


class FakeStream:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_event(self, event: "FakeEvent") -> None:
        self.cuda.note(f"{self.name} waits for {event.name}")


class FakeEvent:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def record(self, stream: FakeStream) -> None:
        self.cuda.note(f"{self.name} on {stream.name}")


def test_on_a_gpu_drafting_comes_behind_what_was_started_before_it_and_in_front_of_what_comes_after() -> None:
    cuda = FakeCuda()
    thread = DraftThread(CudaLane(cuda))
    thread.start(lambda: cuda.note(f"drafts on {cuda.current_stream().name}"))
    assert thread.join(5.0)
    assert cuda.log == [
        ("event 1 on current", True),
        ("stream -1 waits for event 1", False),
        ("drafts on stream -1", False),
        ("event 2 on stream -1", False),
        ("current waits for event 2", True),
    ]
    cuda.log.clear()

    def fail() -> Any:
        raise ValueError

    thread.start(fail)
    with pytest.raises(ValueError, match=r"^$"):
        thread.join(5.0)
    assert cuda.log[-1] == ("current waits for event 2", True), "also behind what a failed job has started"
    assert thread.close(5.0)
