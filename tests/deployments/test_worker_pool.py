import asyncio
import threading

import pytest

from cluster.errors import UnavailableError
from deployments.worker_pool import WorkerPool

pytestmark = pytest.mark.anyio


def _pool(num_workers: int) -> WorkerPool:
    return WorkerPool(num_workers, refusal="busy", thread_name="test")


async def test_results_and_errors_come_back() -> None:
    pool = _pool(1)
    assert await pool.run(lambda: 5, 5.0) == 5
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0, 5.0)
    pool.close()


async def test_at_most_so_many_pieces_of_work_run_at_once_and_the_next_one_waits() -> None:
    pool, gate = _pool(2), threading.Event()
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(10)
        with lock:
            running -= 1

    tasks = [asyncio.ensure_future(pool.run(work, 10.0)) for _ in range(6)]
    await asyncio.sleep(0.02)
    gate.set()
    await asyncio.gather(*tasks)
    assert most == 2
    pool.close()


async def test_who_finds_no_thread_in_time_is_told_so_and_has_run_nothing() -> None:
    pool, gate, ran = _pool(1), threading.Event(), threading.Event()
    first = asyncio.ensure_future(pool.run(lambda: gate.wait(10), 10.0))
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="busy"):
        await pool.run(ran.set, 0.02)
    gate.set()
    assert await first
    assert not ran.is_set()
    pool.close()


async def test_work_that_takes_too_long_takes_its_thread_along_until_it_ends() -> None:
    pool, gate = _pool(1), threading.Event()
    with pytest.raises(TimeoutError):
        await pool.run(lambda: gate.wait(10), 0.02)
    with pytest.raises(UnavailableError):
        await pool.run(lambda: 1, 60.0)
    gate.set()
    async with asyncio.timeout(5):
        while True:
            try:
                assert await pool.run(lambda: 1, 60.0) == 1
                break
            except UnavailableError:
                await asyncio.sleep(0.005)
    pool.close()
