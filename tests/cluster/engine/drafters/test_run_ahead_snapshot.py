"""A drafter is looked at from other threads while it works."""

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.cluster.engine.drafters.run_ahead_harness import make_drafter


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_a_snapshot_can_be_taken_while_verifiers_come_and_go() -> None:
    drafter = make_drafter()
    stopping = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not stopping.is_set():
            drafter.run_ahead._book.peer(b"%d" % (number % 50))
            drafter.run_ahead.drop_peer(b"%d" % (number * 7 % 50))
            number += 1

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        end_s = time.monotonic() + 0.5
        while time.monotonic() < end_s:
            assert drafter.run_ahead.snapshot().num_sequences == 0
    finally:
        stopping.set()
        thread.join()
