"""Listeners of every kind, all closed after the test, and a check that no thread of them is left."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from cluster.transport.memory import MemoryListener
from cluster.transport.zmq import ZmqListener
from tests.cluster.transport.ends import MAX_QUEUED, PEER_TIMEOUT_S, Ends, zmq_ends


@pytest.fixture(params=["memory", "ipc", "tcp"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ends]:
    with ExitStack() as stack:
        if request.param == "memory":
            listener = MemoryListener(peer_timeout_s=PEER_TIMEOUT_S, max_queued=MAX_QUEUED)
            yield Ends(listener, listener.connect, stack)
        else:
            yield zmq_ends(stack, tmp_path, node_id="here" if request.param == "ipc" else "there")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=["here", "there"], ids=["ipc", "tcp"])
def zmq_pair(request: pytest.FixtureRequest, stack: ExitStack, tmp_path: Path) -> Ends:
    return zmq_ends(stack, tmp_path, node_id=request.param)


@pytest.fixture
def listener(stack: ExitStack, tmp_path: Path) -> ZmqListener:
    return stack.enter_context(
        closing(ZmqListener("here", host="127.0.0.1", ipc_dir=tmp_path, peer_timeout_s=PEER_TIMEOUT_S))
    )


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before
