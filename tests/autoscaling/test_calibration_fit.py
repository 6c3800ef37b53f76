import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaling.calibration_fit import PassSample, fit_step_times
from tests.calibrations import TIMES, make_point


def samples(noise: float = 0.0) -> list[PassSample]:
    """Passes of a machine that follows the table, each with two lengths of context."""
    chance = random.Random(0)
    return [
        PassSample(
            num_rows=rows,
            num_context_tokens=context * rows,
            seconds=TIMES.forward_s(rows, context * rows) * (1 + noise * chance.uniform(-1, 1)),
        )
        for rows, _ in TIMES.knots
        for context in (32, 256)
    ]


def test_a_machine_that_follows_a_table_gets_that_table_back() -> None:
    points = [
        make_point(workload, concurrency, k)
        for workload in ("a", "b")
        for concurrency in (1, 8, 64)
        for k in (0, 2, 4, 8)
    ]
    fitted = fit_step_times(samples(), points)
    assert fitted.context_s == pytest.approx(TIMES.context_s)
    assert fitted.sequence_s == pytest.approx(TIMES.sequence_s)
    assert fitted.draft_row_s == pytest.approx(TIMES.draft_row_s)
    assert [rows for rows, _ in fitted.knots] == [rows for rows, _ in TIMES.knots]
    assert [seconds for _, seconds in fitted.knots] == pytest.approx([seconds for _, seconds in TIMES.knots])


def test_noise_of_a_few_percent_moves_predictions_by_a_few_percent() -> None:
    fitted = fit_step_times(samples(noise=0.05))
    for rows in (1, 16, 64, 300, 640):
        assert fitted.forward_s(rows, 100 * rows) == pytest.approx(TIMES.forward_s(rows, 100 * rows), rel=0.1)


def test_without_points_nothing_is_added_outside_the_pass() -> None:
    fitted = fit_step_times(samples())
    assert (fitted.sequence_s, fitted.draft_row_s) == (0.0, 0.0)


def test_plain_decoding_alone_says_nothing_of_draft_rows() -> None:
    fitted = fit_step_times(samples(), [make_point(concurrency=n) for n in (1, 8, 64)])
    assert fitted.sequence_s == pytest.approx(TIMES.sequence_s)
    assert fitted.draft_row_s == 0.0


def test_one_length_of_context_leaves_its_cost_unknown_instead_of_dividing_by_nothing() -> None:
    fitted = fit_step_times([PassSample(num_rows=1, num_context_tokens=32, seconds=0.01)])
    assert (fitted.knots, fitted.context_s) == (((1, 0.01),), 0.0)


@given(
    st.dictionaries(st.integers(2, 2000), st.tuples(st.floats(1e-6, 10), st.floats(1e-6, 10)), max_size=8),
    st.floats(1e-6, 10),
)
def test_whatever_was_timed_the_table_is_positive_and_never_falls(
    timed: dict[int, tuple[float, float]], one_s: float
) -> None:
    passes = [
        PassSample(num_rows=rows, num_context_tokens=context * rows, seconds=seconds)
        for rows, pair in ({1: (one_s, one_s)} | timed).items()
        for context, seconds in zip((32, 256), pair, strict=True)
    ]
    fitted = fit_step_times(passes)
    seconds = [value for _, value in fitted.knots]
    assert fitted.knots[0][0] == 1
    assert seconds[0] > 0
    assert seconds == sorted(seconds)
    assert fitted.context_s >= 0
