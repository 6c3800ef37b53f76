import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engine.drafters.step_cost import StepCost, TableCost
from cluster.engine.step_time import StepTimes

passes = st.lists(st.tuples(st.integers(1, 256), st.floats(1e-5, 1.0)), max_size=60)


def taught(observations: list[tuple[int, float]]) -> StepCost:
    cost = StepCost()
    for num_rows, seconds in observations:
        cost.observe(num_rows, seconds)
    return cost


def line(num_rows: int, fixed_s: float = 0.004, row_s: float = 0.0001) -> float:
    return fixed_s + row_s * num_rows


def test_a_line_is_found_from_passes_of_several_sizes() -> None:
    cost = taught([(num_rows, line(num_rows)) for num_rows in (4, 8, 16, 32, 64) * 8])
    for num_rows in (1, 8, 64, 128):
        assert cost.seconds(num_rows) == pytest.approx(line(num_rows), rel=0.02)


def test_passes_of_one_size_are_predicted_exactly_and_wider_ones_are_thought_dear() -> None:
    cost = taught([(6, 0.003)] * 20)
    assert cost.seconds(6) == pytest.approx(0.003)
    assert cost.seconds(60) > 2 * 0.003
    assert cost.seconds(60) < 10 * 0.003


def test_flat_costs_are_learnt_to_be_flat() -> None:
    cost = taught([(num_rows, 0.002) for num_rows in (4, 40) * 40])
    assert cost.seconds(40) == pytest.approx(cost.seconds(4), rel=0.02)


def test_one_pause_of_the_machine_hardly_moves_the_fit() -> None:
    steady = [(num_rows, line(num_rows)) for num_rows in (4, 16, 64) * 20]
    assert taught([*steady, (16, 5.0)]).seconds(16) < 1.2 * line(16)


def test_a_slow_first_pass_is_forgotten_soon() -> None:
    assert taught([(4, 20.0), *[(4, 0.004)] * 10]).seconds(4) < 0.006


def test_a_lasting_change_is_followed_both_ways() -> None:
    sizes = (4, 16, 64) * 60
    quick = [(num_rows, line(num_rows)) for num_rows in sizes]
    slow = [(num_rows, 10 * line(num_rows)) for num_rows in sizes]
    assert taught(quick + slow).seconds(16) == pytest.approx(10 * line(16), rel=0.1)
    assert taught(quick + slow + quick).seconds(16) == pytest.approx(line(16), rel=0.1)


@given(passes, st.integers(1, 300), st.integers(1, 300))
def test_seconds_never_fall_with_rows(observations: list[tuple[int, float]], few: int, many: int) -> None:
    cost = taught(observations)
    few, many = sorted((few, many))
    assert 0 < cost.seconds(few) <= cost.seconds(many)


@given(passes, st.floats(-1.0, 2.0), st.integers(1, 300))
def test_rows_within_is_the_largest_number_that_fits(
    observations: list[tuple[int, float]], seconds: float, max_rows: int
) -> None:
    cost = taught(observations)
    num_rows = cost.rows_within(seconds, max_rows)
    assert 0 <= num_rows <= max_rows
    assert num_rows == 0 or cost.seconds(num_rows) <= seconds
    assert num_rows == max_rows or cost.seconds(num_rows + 1) > seconds


STEPS = StepTimes(knots=((1, 0.0043), (12, 0.0044), (13, 0.0060), (24, 0.0061), (25, 0.0078)))


def test_a_measured_table_keeps_its_steps_when_the_machine_gets_slower() -> None:
    cost = TableCost(STEPS)
    for _ in range(200):
        cost.observe(10, 2 * STEPS.forward_s(10))
    for rows in (1, 12, 13, 24, 25):
        assert cost.seconds(rows) == pytest.approx(2 * STEPS.forward_s(rows), rel=0.05)


@given(seconds=st.floats(0.0, 0.05), max_rows=st.integers(1, 64))
def test_the_widest_pass_within_a_time_is_the_last_one_that_fits(seconds: float, max_rows: int) -> None:
    cost = TableCost(STEPS)
    rows = cost.rows_within(seconds, max_rows)
    assert rows == 0 or cost.seconds(rows) <= seconds
    assert rows == max_rows or cost.seconds(rows + 1) > seconds


def test_a_step_is_not_crossed_for_one_row_more() -> None:
    assert TableCost(STEPS).rows_within(0.0050, 64) == 12
