"""What a replica delivers in a role, and where speculation stops paying."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaling.inversion import Rate, crossover_concurrency, mean_step_times, role_rate
from cluster.engine.budget import uniform_length
from cluster.engine.step_time import StepTimes
from cluster.types import Role

FLAT = StepTimes(knots=((1, 0.020), (64, 0.020)))
LINEAR = StepTimes(knots=((1, 0.001), (64, 0.064)))


def rate(times: StepTimes, role: Role, concurrency: float, *, acceptance_rate: float = 0.7, seats: int = 16) -> Rate:
    return role_rate(
        times,
        role,
        acceptance_rate=acceptance_rate,
        concurrency=concurrency,
        max_num_seqs=seats,
        max_tokens=5,
        mean_context_tokens=100.0,
    )


def test_a_batch_replica_gives_a_token_for_each_sequence_and_round() -> None:
    times = StepTimes(knots=((1, 0.02), (100, 0.04)), context_s=1e-6, sequence_s=1e-4)
    found = rate(times, Role.BATCH, 10, seats=128)
    assert found.tokens_per_s == pytest.approx(10 / times.seconds(10, 1000.0))
    assert found.tpot_s == pytest.approx(times.seconds(10, 1000.0))
    assert (found.num_speculative_tokens, found.num_running, found.num_waiting) == (0, 10, 0)


def test_a_speculative_replica_uses_the_best_equal_draft_length() -> None:
    length, tokens_per_s = uniform_length(0.7, FLAT, num_sequences=4, max_tokens=5, num_context_tokens=400.0)
    found = rate(FLAT, Role.SPECULATIVE, 4)
    assert (found.num_speculative_tokens, found.tokens_per_s) == (length, tokens_per_s)
    assert found.tpot_s == pytest.approx(4 / tokens_per_s)
    assert length == 5


def test_sequences_beyond_the_seats_wait_and_bring_nothing() -> None:
    full, over = rate(FLAT, Role.SPECULATIVE, 16), rate(FLAT, Role.SPECULATIVE, 40)
    assert over.num_waiting == 24
    assert (over.tokens_per_s, over.tpot_s) == (full.tokens_per_s, full.tpot_s)


def test_a_replica_that_is_idle_half_of_the_time_gives_half_the_tokens_at_the_same_time_per_token() -> None:
    one, half = rate(FLAT, Role.SPECULATIVE, 1), rate(FLAT, Role.SPECULATIVE, 0.5)
    assert half.tokens_per_s == pytest.approx(one.tokens_per_s / 2)
    assert half.tpot_s == pytest.approx(one.tpot_s)


def test_an_empty_replica_gives_nothing_and_says_what_the_first_sequence_would_get() -> None:
    found = rate(FLAT, Role.BATCH, 0)
    assert found.tokens_per_s == 0
    assert found.tpot_s == pytest.approx(0.02)


@given(
    concurrency=st.floats(0, 64),
    acceptance_rate=st.floats(0, 1),
    rises=st.lists(st.floats(0, 0.05), min_size=2, max_size=4),
)
def test_the_speculative_role_never_delivers_less_at_equal_seats(
    concurrency: float, acceptance_rate: float, rises: list[float]
) -> None:
    seconds, knots = 0.01, []
    for power, rise in enumerate(rises):
        seconds += rise
        knots.append((4**power, seconds))
    times = StepTimes(knots=tuple(knots))
    speculative = rate(times, Role.SPECULATIVE, concurrency, acceptance_rate=acceptance_rate, seats=64)
    batch = rate(times, Role.BATCH, concurrency, seats=64)
    assert speculative.tokens_per_s >= batch.tokens_per_s * (1 - 1e-9)


def crossover(times: StepTimes, acceptance_rate: float) -> int | None:
    return crossover_concurrency(times, acceptance_rate=acceptance_rate, max_tokens=5)


def test_speculation_stops_paying_where_rows_begin_to_cost() -> None:
    times = StepTimes(knots=((1, 0.020), (32, 0.020), (64, 0.040)))
    found = crossover(times, 0.7)
    assert found is not None
    assert 17 <= found <= 33
    assert uniform_length(0.7, times, num_sequences=found, max_tokens=5)[0] == 0
    assert uniform_length(0.7, times, num_sequences=found - 1, max_tokens=5)[0] > 0


def test_healthy_acceptance_does_not_save_speculation_where_each_row_costs_its_full_share() -> None:
    assert crossover(LINEAR, 0.6) == 1
    assert rate(LINEAR, Role.SPECULATIVE, 8, acceptance_rate=0.6).num_speculative_tokens == 0


def test_speculation_that_is_free_pays_at_any_concurrency() -> None:
    assert crossover(FLAT, 0.7) is None


def test_a_faster_target_with_dearer_rows_inverts_earlier() -> None:
    one_shard = StepTimes(knots=((1, 0.040), (64, 0.044), (128, 0.080)))
    four_shards = StepTimes(knots=((1, 0.012), (16, 0.014), (128, 0.080)))
    slow, fast = crossover(one_shard, 0.6), crossover(four_shards, 0.6)
    assert slow is not None
    assert fast is not None
    assert fast < slow


def test_nothing_accepted_never_pays() -> None:
    assert crossover(StepTimes(knots=((1, 0.02), (64, 0.03))), 0.0) == 1


def test_several_fits_are_averaged_at_all_their_knots() -> None:
    other = StepTimes(knots=((1, 0.04), (32, 0.06)), context_s=2e-6, sequence_s=2e-4, draft_row_s=4e-4)
    mean = mean_step_times([FLAT, other, FLAT, other])
    assert mean is not None
    assert [rows for rows, _ in mean.knots] == [1, 32, 64]
    assert [seconds for _, seconds in mean.knots] == pytest.approx([0.03, 0.04, 0.5 * (0.02 + other.forward_s(64))])
    assert (mean.context_s, mean.sequence_s, mean.draft_row_s) == pytest.approx((1e-6, 1e-4, 2e-4))


def test_one_fit_is_its_own_average_and_none_is_none() -> None:
    assert mean_step_times([FLAT, FLAT]) is FLAT
    assert mean_step_times([]) is None
