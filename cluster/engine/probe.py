"""How long a forward pass takes on this machine, asked before serving."""

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner

NUM_PROBES = 5


def pass_seconds(runner: ModelRunner, row_counts: Sequence[int], num_probes: int = NUM_PROBES) -> Mapping[int, float]:
    """Seconds of the quickest of a few passes, for each number of rows.

    Overwrites the first KV blocks, so it must come before serving.

    Args:
        runner: the model.
        row_counts: how many rows; each count once.
        num_probes: passes for each count. They take turns, so that a busy moment hits all counts.
    """
    probes = {count: _rows(count, runner.block_size) for count in row_counts}
    best = dict.fromkeys(row_counts, float("inf"))
    for _ in range(num_probes):
        for count, probe in probes.items():
            started_s = time.perf_counter()
            runner.forward(probe)
            best[count] = min(best[count], time.perf_counter() - started_s)
    return best


def context_pass_seconds(runner: ModelRunner, num_context_tokens: int, num_probes: int = NUM_PROBES) -> float:
    """Seconds of the quickest of a few passes of one row that reads so many KV entries, whatever they hold.

    Args:
        runner: the model.
        num_context_tokens: entries in front of the row, at most what the KV cache holds less one.
        num_probes: passes.
    """
    position = np.array([num_context_tokens], np.int32)
    probe = replace(
        _rows(1, runner.block_size),
        positions=position,
        slot_mapping=position,
        block_tables=np.arange(num_context_tokens // runner.block_size + 1, dtype=np.int32)[None, :],
    )
    best_s = float("inf")
    for _ in range(num_probes):
        started_s = time.perf_counter()
        runner.forward(probe)
        best_s = min(best_s, time.perf_counter() - started_s)
    return best_s


def pass_seconds_beside(
    runner: ModelRunner, row_counts: Sequence[int], other: ModelRunner, num_other_rows: int
) -> tuple[Mapping[int, float], float]:
    """As `pass_seconds`, while another model runs one pass after the other in a second thread: both are slower then.

    Medians, since the quickest pass may have hit a pause of the other model.

    Args:
        runner: the model.
        row_counts: how many rows; each count once.
        other: the other model.
        num_other_rows: rows of each of its passes.

    Returns:
        Seconds for each number of rows, and seconds of a pass of the other model.
    """
    probe, stopping = _rows(num_other_rows, other.block_size), threading.Event()
    other_s: list[float] = []

    def run_other() -> None:
        while not stopping.is_set():
            started_s = time.perf_counter()
            other.forward(probe)
            other_s.append(time.perf_counter() - started_s)

    seconds: dict[int, list[float]] = {count: [] for count in row_counts}
    thread = threading.Thread(target=run_other, name="probe", daemon=True)
    thread.start()
    try:
        for _ in range(NUM_PROBES):
            for count in row_counts:
                seconds[count].append(pass_seconds(runner, (count,), num_probes=1)[count])
    finally:
        stopping.set()
        thread.join()
    return {count: statistics.median(taken_s) for count, taken_s in seconds.items()}, statistics.median(other_s)


def _rows(num_rows: int, block_size: int) -> ModelInput:
    """The first rows of one sequence, with a logit row each."""
    rows = np.arange(num_rows, dtype=np.int32)
    zeros = np.zeros(num_rows, np.int32)
    return ModelInput(
        token_ids=zeros,
        positions=rows,
        slot_mapping=rows,
        row_sequences=zeros,
        block_tables=np.arange(-(-num_rows // block_size), dtype=np.int32)[None, :],
        logit_rows=rows,
    )
