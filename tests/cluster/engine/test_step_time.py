"""The table of step times: monotone, robust, and quick to follow the machine."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.step_time import StepTimeModel, StepTimes, never_falling

ASSUMED = StepTimes(
    knots=((1, 0.010), (8, 0.012), (32, 0.020), (64, 0.036)), context_s=1e-7, sequence_s=5e-5, draft_row_s=5e-5
)


def feed(
    model: StepTimeModel, truth: StepTimes, sizes: list[tuple[int, int]], *, rounds: int = 200, noise: float = 0.0
) -> None:
    """Rounds of (sequences, draft rows) in turn, of 100 KV entries for each sequence."""
    rng = random.Random(0)
    for index in range(rounds):
        sequences, drafts = sizes[index % len(sizes)]
        model.observe(
            num_rows=sequences + drafts,
            num_sequences=sequences,
            num_context_tokens=100 * sequences,
            forward_s=truth.forward_s(sequences + drafts, 100 * sequences) * rng.uniform(1 - noise, 1 + noise),
            outside_s=truth.sequence_s * sequences + truth.draft_row_s * drafts,
        )


def scaled(times: StepTimes, ratio: float) -> StepTimes:
    return StepTimes(
        knots=tuple((rows, seconds * ratio) for rows, seconds in times.knots),
        context_s=times.context_s * ratio,
        sequence_s=times.sequence_s * ratio,
        draft_row_s=times.draft_row_s * ratio,
    )


def test_nothing_seen_leaves_the_table_as_it_was_assumed() -> None:
    times = StepTimeModel(assumed=ASSUMED).times
    for rows in (1, 5, 8, 20, 64, 100):
        assert times.seconds(rows, 500) == pytest.approx(ASSUMED.seconds(rows, 500))


def test_a_machine_that_is_slower_is_slower_at_sizes_that_were_not_seen_too() -> None:
    model, truth = StepTimeModel(assumed=ASSUMED), scaled(ASSUMED, 1.5)
    feed(model, truth, [(4, 0), (4, 4)])
    for rows in (1, 4, 8, 32, 64, 128):
        assert model.times.forward_s(rows) == pytest.approx(truth.forward_s(rows), rel=0.05)


def test_sizes_that_are_slow_for_themselves_keep_to_themselves() -> None:
    truth = StepTimes(knots=((1, 0.010), (8, 0.012), (12, 0.030), (64, 0.060)))
    model = StepTimeModel(assumed=ASSUMED)
    feed(model, truth, [(1, 0), (4, 0), (8, 0), (16, 0), (32, 0), (64, 0)], rounds=600)
    for rows in (1, 4, 8, 16, 32, 64):
        assert model.times.forward_s(rows) == pytest.approx(truth.forward_s(rows), rel=0.06)


def test_what_a_round_takes_outside_its_pass_is_told_apart_by_sequences_and_drafts() -> None:
    truth = StepTimes(knots=ASSUMED.knots, sequence_s=2e-4, draft_row_s=3e-5)
    model = StepTimeModel(assumed=ASSUMED)
    feed(model, truth, [(8, 0), (8, 16), (4, 8), (2, 0)], rounds=400)
    assert model.times.sequence_s == pytest.approx(2e-4, rel=0.1)
    assert model.times.draft_row_s == pytest.approx(3e-5, rel=0.2)


def test_odd_rounds_move_the_table_little() -> None:
    calm, disturbed = StepTimeModel(assumed=ASSUMED), StepTimeModel(assumed=ASSUMED)
    feed(calm, ASSUMED, [(8, 0)], rounds=100)
    feed(disturbed, ASSUMED, [(8, 0)], rounds=100)
    for _ in range(2):
        disturbed.observe(num_rows=8, num_sequences=8, num_context_tokens=800, forward_s=5.0, outside_s=3.0)
    feed(disturbed, ASSUMED, [(8, 0)], rounds=16)
    assert disturbed.times.seconds(8) == pytest.approx(calm.times.seconds(8), rel=0.02)


def test_a_change_of_speed_is_followed_within_two_hundred_rounds() -> None:
    model = StepTimeModel(assumed=ASSUMED)
    feed(model, ASSUMED, [(8, 0)], rounds=300)
    feed(model, scaled(ASSUMED, 2.0), [(8, 0)], rounds=200)
    assert model.times.seconds(8) == pytest.approx(2 * ASSUMED.seconds(8), rel=0.15)


def test_noise_leaves_the_mean() -> None:
    model = StepTimeModel(assumed=ASSUMED)
    feed(model, ASSUMED, [(1, 0), (8, 0), (32, 0)], rounds=900, noise=0.2)
    for rows in (1, 8, 32):
        assert model.times.forward_s(rows) == pytest.approx(ASSUMED.forward_s(rows), rel=0.06)


@settings(derandomize=True, deadline=None)
@given(
    rounds=st.lists(
        st.tuples(st.integers(1, 300), st.integers(0, 600), st.floats(1e-4, 10.0), st.floats(0, 1.0)), max_size=80
    )
)
def test_whatever_was_measured_more_rows_never_take_less_time(rounds: list[tuple[int, int, float, float]]) -> None:
    model = StepTimeModel(assumed=ASSUMED, refit_interval=4)
    for sequences, drafts, forward_s, outside_s in rounds:
        model.observe(
            num_rows=sequences + drafts,
            num_sequences=sequences,
            num_context_tokens=10 * sequences,
            forward_s=forward_s,
            outside_s=outside_s,
        )
    seconds = [model.times.seconds(rows, 1000, num_sequences=1) for rows in range(1, 1200, 7)]
    assert all(time > 0 for time in seconds)
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(seconds))


@settings(derandomize=True)
@given(values=st.lists(st.floats(0.1, 100), min_size=1, max_size=12))
def test_pooling_keeps_the_mean_and_never_falls(values: list[float]) -> None:
    rising = never_falling(values, [1.0] * len(values))
    assert sum(rising) == pytest.approx(sum(values))
    assert all(b >= a - 1e-9 for a, b in pairwise(rising))
    if values == sorted(values):
        assert rising == pytest.approx(values)
