"""Made-up calibrations: a machine whose rounds follow a table exactly."""

from dataclasses import replace
from typing import Any

from autoscaling.calibration_analysis import crossovers
from cluster.engine.calibration import VERSION, Acceptance, Calibration, EstimateBin, Machine, Point, RoundTimes
from cluster.engine.step_time import StepTimes

TIMES = StepTimes(
    knots=((1, 0.010), (32, 0.012), (64, 0.024), (640, 0.240)), context_s=1e-7, sequence_s=1e-4, draft_row_s=5e-5
)


def make_point(
    workload: str = "copy",
    concurrency: int = 1,
    num_tokens: int | None = 0,
    *,
    acceptance_length: float = 1.0,
    times: StepTimes = TIMES,
    **changes: Any,
) -> Point:
    """A cell in which each sequence drafts `num_tokens` tokens a round, and `acceptance_length` come out of it."""
    num_rows, context = concurrency * (1 + (num_tokens or 0)), 100 * concurrency
    total_s = times.seconds(num_rows, context, num_sequences=concurrency)
    point = Point(
        workload=workload,
        concurrency=concurrency,
        num_speculative_tokens=num_tokens,
        tokens_per_s=concurrency * acceptance_length / total_s,
        tpot_s=total_s / acceptance_length,
        num_repeats=4,
        num_rounds=40,
        round=RoundTimes(
            total_s=total_s,
            forward_s=times.forward_s(num_rows, context),
            draft_s=0.0,
            sampling_s=0.0,
            num_rows=num_rows,
            num_context_tokens=context,
        ),
        mean_acceptance_length=acceptance_length,
        acceptance_rate=(acceptance_length - 1) / num_tokens if num_tokens else None,
    )
    return replace(point, **changes)


def make_acceptance(workload: str = "copy", source: str = "ngram", rate: float = 0.8) -> Acceptance:
    """A thousand drafts of four tokens, each accepted at `rate` after those before it."""
    tried, accepted, reached = [], [], 1000
    for _ in range(4):
        tried.append(reached)
        reached = round(reached * rate)
        accepted.append(reached)
    return Acceptance(
        workload=workload,
        source=source,
        num_rounds=1000,
        num_drafts=1000,
        num_tried=tuple(tried),
        num_accepted=tuple(accepted),
        num_draft_tokens=4000,
    )


def make_calibration(**changes: Any) -> Calibration:
    """Two classes of text: copy pays up to some concurrency, chat never does."""
    points = [
        make_point(workload, concurrency, num_tokens, acceptance_length=length)
        for workload, lengths in (("copy", {0: 1.0, 4: 3.36, None: 3.36}), ("chat", {0: 1.0, 4: 1.11, None: 1.0}))
        for concurrency in (1, 8, 64)
        for num_tokens, length in lengths.items()
    ]
    value = Calibration(
        version=VERSION,
        model_id="tiny",
        dtype="float32",
        drafter="ngram",
        machine=Machine(num_cores=2, num_threads=2, cpu="a CPU"),
        made_at="2026-01-01T00:00:00+00:00",
        is_complete=True,
        step_times=TIMES,
        acceptance=(make_acceptance("copy", rate=0.8), make_acceptance("chat", rate=0.1)),
        crossover=crossovers(points),
        points=tuple(points),
        estimates=(
            EstimateBin(predicted=0.3, observed=0.25, num_tokens=40),
            EstimateBin(predicted=0.8, observed=0.85, num_tokens=60),
        ),
    )
    return replace(value, **changes)
