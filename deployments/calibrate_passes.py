"""Times the target's forward passes by rows and context, for the step times of a calibration."""

import statistics
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

import numpy as np

from autoscaling.calibration_fit import PassSample
from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner

_CONTEXTS = (32, 256)
"""Tokens in front of the rows of each sequence."""


def row_counts(largest: int) -> tuple[int, ...]:
    """Powers of two from 1 on, and the largest."""
    powers = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
    return (*powers, largest)


def time_passes(
    runner: ModelRunner, counts: Seq[int], *, max_sequences: int, num_probes: int, on_pass: Callable[[], None]
) -> list[PassSample]:
    """Time passes of every size with a short and a long context. Overwrites KV blocks, so it must come before serving.

    Args:
        runner: the target.
        counts: rows.
        max_sequences: rows are spread over so many sequences at most, as the drafts of a round are.
        num_probes: passes of each kind, of which the median counts. They take turns, so that a busy moment hits all.
        on_pass: called after each pass.
    """
    probes: dict[tuple[int, int], ModelInput] = {}
    for num_rows in counts:
        for context in _CONTEXTS:
            num_sequences = min(num_rows, max_sequences)
            probe = _probe(runner, num_rows, num_sequences, context)
            if probe is not None:
                probes[num_rows, num_sequences * context] = probe
    taken: dict[tuple[int, int], list[float]] = {key: [] for key in probes}
    for _ in range(num_probes):
        for key, probe in probes.items():
            started_s = time.perf_counter()
            runner.forward(probe)
            taken[key].append(time.perf_counter() - started_s)
            on_pass()
    return [
        PassSample(num_rows=rows, num_context_tokens=context, seconds=statistics.median(seconds))
        for (rows, context), seconds in taken.items()
    ]


def num_passes(counts: Seq[int], num_probes: int) -> int:
    """How many passes `time_passes` runs at most."""
    return len(counts) * len(_CONTEXTS) * num_probes


def _probe(runner: ModelRunner, num_rows: int, num_sequences: int, context: int) -> ModelInput | None:
    """Rows spread evenly over sequences, each behind `context` tokens; None where they do not fit into the KV cache."""
    each = -(-num_rows // num_sequences)
    num_blocks = -(-(context + each) // runner.block_size)
    if num_sequences * num_blocks > runner.num_kv_blocks or context + each > runner.max_model_len:
        return None
    rows = np.arange(num_rows, dtype=np.int32)
    sequences = np.sort(rows % num_sequences).astype(np.int32)
    firsts = np.searchsorted(sequences, np.arange(num_sequences)).astype(np.int32)
    positions = context + rows - firsts[sequences]
    blocks = np.arange(num_sequences * num_blocks, dtype=np.int32).reshape(num_sequences, num_blocks)
    slots = blocks[sequences, positions // runner.block_size] * runner.block_size + positions % runner.block_size
    return ModelInput(
        token_ids=np.zeros(num_rows, np.int32),
        positions=positions.astype(np.int32),
        slot_mapping=slots.astype(np.int32),
        row_sequences=sequences,
        block_tables=blocks,
        logit_rows=rows,
    )
