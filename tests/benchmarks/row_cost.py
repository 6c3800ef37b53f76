"""How does the forward pass grow with its rows, next to the packed linear layers alone?

The CPU kernels have one form only, and a row's bits are the same in any batch: invariant numerics have nothing to be
compared with but other people's linears.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from cluster.engine.engine import Engine
from cluster.engine.model_input import Int32, ModelInput
from cluster.engine.model_runner import ModelRunner
from tests.benchmarks.linears import PackedLinears
from tests.benchmarks.measure import THREADS, interleave
from tests.benchmarks.report import Answer, Row
from tests.benchmarks.workloads import engine_config

CONTEXT_TOKENS = 300
ROWS = (1, 2, 4, 8, 16, 32, 64)


def measure(*, quick: bool) -> Answer:
    """Interleave forward passes of so many rows of one sequence with the products alone."""
    num_rounds, num_times = (1, 1) if quick else (15, 4)
    sizes = ROWS[::3] if quick else ROWS
    engine, linears = Engine.from_config(engine_config()), PackedLinears()
    runner = engine._runner
    runner.forward(_rows(runner, 0, CONTEXT_TOKENS))
    num_different = _num_different_rows(runner, max(sizes))

    def forward() -> Mapping[str, Sequence[float]]:
        return {_forward(rows): _forward_times_s(runner, rows, num_times) for rows in sizes}

    def multiply() -> Mapping[str, Sequence[float]]:
        return {_linears(rows): linears.times_s(rows, num_times) for rows in sizes}

    rounds = interleave((forward, multiply), num_rounds=num_rounds)
    names = [name for rows in sizes for name in (_forward(rows), _linears(rows))]
    return Answer(
        question=f"How does the forward pass grow with its rows ({CONTEXT_TOKENS} tokens of context)?",
        model=engine.model_id,
        rows=tuple(Row.of(name, rounds) for name in names),
        counts={"rounds": num_rounds, "times_per_round": num_times, "threads": THREADS},
        notes=(
            f"numerics are {engine.numerics}: {num_different} of {max(sizes)} rows computed together differ in any "
            "bit from the same rows computed alone. There is no other mode, so invariance costs nothing against it",
        ),
    )


def _forward(rows: int) -> str:
    return f"forward pass, {rows} rows"


def _linears(rows: int) -> str:
    return f"packed linears alone, {rows} rows"


def _rows(runner: ModelRunner, first: int, num_rows: int) -> ModelInput:
    """Rows of one sequence whose KV lies in the leading blocks."""
    num_blocks = -(-(first + num_rows) // runner.block_size)
    positions: Int32 = np.arange(first, first + num_rows, dtype=np.int32)
    return ModelInput(
        token_ids=(positions * 7 + 5) % runner.vocab_size,
        positions=positions,
        slot_mapping=positions,
        row_sequences=np.zeros(num_rows, np.int32),
        block_tables=np.arange(num_blocks, dtype=np.int32)[None],
        logit_rows=np.arange(num_rows, dtype=np.int32),
    )


def _forward_times_s(runner: ModelRunner, num_rows: int, num_times: int) -> list[float]:
    batch = _rows(runner, CONTEXT_TOKENS, num_rows)
    times = []
    for _ in range(num_times + 2):
        started_s = time.perf_counter()
        runner.forward(batch)
        times.append(time.perf_counter() - started_s)
    return times[2:]


def _num_different_rows(runner: ModelRunner, num_rows: int) -> int:
    together_NV = runner.forward(_rows(runner, CONTEXT_TOKENS, num_rows)).clone()
    alone = (runner.forward(_rows(runner, CONTEXT_TOKENS + i, 1))[0] for i in range(num_rows))
    return sum(not torch.equal(a_V, b_V) for a_V, b_V in zip(together_NV, alone, strict=True))
