"""Timing a model's passes, alone and beside another one."""

import threading
import time
from collections import Counter

import pytest
import torch

from cluster.engine.model_input import ModelInput
from cluster.engine.probe import pass_seconds, pass_seconds_beside


class SlowRunner:
    """Takes a fixed time a pass and a share of it for each further row; twice as long while `rival` runs."""

    vocab_size, num_kv_blocks, block_size, max_model_len = 8, 4, 32, 128
    dtype, numerics = "float32", "invariant"

    def __init__(self, pass_s: float, rival: "SlowRunner | None" = None) -> None:
        self.pass_s, self.rival = pass_s, rival
        self.rows: Counter[int] = Counter()
        self.is_running = False
        self.threads: set[int] = set()

    def forward(self, batch: ModelInput) -> torch.Tensor:
        num_rows = len(batch.token_ids)
        assert batch.slot_mapping.max() < self.num_kv_blocks * self.block_size
        assert batch.block_tables.max() < self.num_kv_blocks
        self.rows[num_rows] += 1
        self.threads.add(threading.get_ident())
        self.is_running = True
        factor = 2 if self.rival is not None and self.rival.is_running else 1
        time.sleep(factor * self.pass_s * (1 + 0.1 * (num_rows - 1)))
        self.is_running = False
        return torch.zeros(num_rows, self.vocab_size)

    def close(self) -> None: ...


def test_every_number_of_rows_is_timed_as_often() -> None:
    runner = SlowRunner(0.002)
    seconds = pass_seconds(runner, (1, 11, 65))
    assert runner.rows == {1: 5, 11: 5, 65: 5}
    assert seconds[11] / seconds[1] == pytest.approx(2, rel=0.3)
    assert seconds[65] > seconds[11]


def test_beside_another_model_both_run_at_once_and_the_slowdown_is_seen() -> None:
    other = SlowRunner(0.002)
    runner = SlowRunner(0.004, rival=other)
    alone = SlowRunner(0.004)
    seconds, other_s = pass_seconds_beside(runner, (1, 5), other, 20)
    assert seconds[1] > 1.5 * pass_seconds(alone, (1,))[1]
    assert other_s > 2 * 0.002
    assert set(other.rows) == {20}
    assert not other.threads & runner.threads
    assert all(thread.name != "probe" for thread in threading.enumerate())


def test_a_failing_pass_leaves_no_thread_behind() -> None:
    runner, other = SlowRunner(0.001), SlowRunner(0.001)
    runner.num_kv_blocks = 0
    before = threading.active_count()
    with pytest.raises(AssertionError):
        pass_seconds_beside(runner, (1,), other, 4)
    assert threading.active_count() == before
