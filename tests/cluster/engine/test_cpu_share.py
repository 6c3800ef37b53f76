"""Cores by thread: a limit is the thread's own, and threads run again where they could before."""

import os
import threading

import pytest

from cluster.engine.cpu_share import Pinning, limit_threads, share_of


def test_a_limit_holds_for_the_thread_that_set_it_only() -> None:
    seen: list[int] = []

    def work() -> None:
        limit_threads(2)
        seen.extend((share_of(1), share_of(8)))
        limit_threads(None)
        seen.append(share_of(8))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1, 2, 8]
    assert share_of(8) == 8


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no threads")
def test_pinned_threads_get_back_what_they_had_and_ended_ones_are_left_out() -> None:
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    before, me = os.sched_getaffinity(0), threading.get_native_id()
    first, last = min(before), max(before)
    pinning = Pinning()
    pinning.pin((me, ended.native_id or 0), {first})
    assert os.sched_getaffinity(0) == {first}
    pinning.pin((me,), {last})
    pinning.release()
    assert os.sched_getaffinity(0) == before
    pinning.release()
