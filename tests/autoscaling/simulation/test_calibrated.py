import pytest

from autoscaling.simulation.calibrated import check_sweep, classes_of, cost_of
from cluster.engine.calibration import Acceptance, Calibration, Machine, Point, RoundTimes
from cluster.engine.step_time import StepTimes
from cluster.routing.types import Domain

TIMES = StepTimes(knots=((1, 0.010), (16, 0.012), (64, 0.030)), context_s=1e-7, sequence_s=1e-4, draft_row_s=2e-5)
DRAFT_S = 0.0005
RATIO, CHANCES = 0.8, (0.7, 0.6, 0.5, 0.4)


def expected(num_sequences: int, num_tokens: int) -> tuple[float, float]:
    """(tokens, seconds) of a round of a machine that follows the table exactly."""
    survival, kept = 1.0, 0.0
    for chance in CHANCES[:num_tokens]:
        survival *= chance
        kept += survival
    rows = num_sequences * (1 + RATIO * num_tokens)
    seconds = TIMES.seconds(rows, 100 * num_sequences, num_sequences=num_sequences) + num_tokens * DRAFT_S
    return num_sequences * (1 + RATIO * kept), seconds


def point(num_sequences: int, num_tokens: int, slower: float = 1.0) -> Point:
    tokens, seconds = expected(num_sequences, num_tokens)
    rate = tokens / seconds / slower
    return Point(
        workload="code chat",
        concurrency=num_sequences,
        num_speculative_tokens=num_tokens,
        tokens_per_s=rate,
        tpot_s=num_sequences / rate,
        num_repeats=3,
        num_rounds=100,
        round=RoundTimes(
            total_s=seconds,
            forward_s=seconds,
            draft_s=num_tokens * DRAFT_S,
            sampling_s=0.0,
            num_rows=num_sequences * (1 + RATIO * num_tokens),
            num_context_tokens=100 * num_sequences,
        ),
    )


def calibration(*points: Point) -> Calibration:
    tried = (800, 560, 336, 168)
    return Calibration(
        version=1,
        model_id="tiny",
        dtype="bf16",
        drafter="local",
        machine=Machine(num_cores=2, num_threads=2, cpu="a processor"),
        made_at="2026-01-01T00:00:00+00:00",
        is_complete=True,
        step_times=TIMES,
        acceptance=(
            Acceptance(
                workload="code chat",
                source="draft_model",
                num_rounds=1000,
                num_drafts=800,
                num_tried=tried,
                num_accepted=tuple(round(n * chance) for n, chance in zip(tried, CHANCES, strict=True)),
                num_draft_tokens=3200,
            ),
        ),
        points=points,
    )


def test_a_machine_that_follows_its_table_is_predicted_at_every_cell() -> None:
    points = [point(count, length) for count in (1, 4, 16, 64) for length in (0, 2, 4)]
    for check in check_sweep(calibration(*points)):
        assert check.tokens_per_s == pytest.approx(check.point.tokens_per_s, rel=0.02)


def test_a_cell_that_was_slower_than_predicted_shows_as_an_error() -> None:
    (check,) = check_sweep(calibration(point(4, 0, slower=1.25)))
    assert check.error_ratio == pytest.approx(0.25, rel=0.01)


def test_classes_take_their_acceptance_from_the_measurement_and_their_domain_from_their_name() -> None:
    (kind,) = classes_of(calibration(point(1, 4)))
    assert kind.domain is Domain.CODE_SYNTHESIS
    assert kind.draft_ratio == pytest.approx(RATIO)
    assert kind.survivals(2) == pytest.approx((0.7, 0.42), rel=0.01)


def test_drafting_time_is_taken_from_the_sweep_and_left_out_where_there_was_none() -> None:
    cost = cost_of(calibration(point(4, 0), point(4, 2), point(16, 4)))
    assert cost.draft_s(1, 3) == pytest.approx(3 * DRAFT_S)
    assert cost_of(calibration(point(4, 0))).draft_times is None
