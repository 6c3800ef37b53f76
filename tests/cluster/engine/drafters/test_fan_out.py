import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engine.drafters.fan_out import (
    MAX_ACCEPTANCE,
    MIN_ACCEPTANCE,
    MISS_EXPONENT,
    FanOut,
    RowLimits,
    Want,
    expected_gain,
    fair_share,
    hit_chance,
    outcome_chances,
    plan,
)
from cluster.engine.drafters.step_cost import StepCost


def cost_of(fixed_s: float, row_s: float) -> StepCost:
    cost = StepCost()
    for num_rows in (1, 16, 64) * 30:
        cost.observe(num_rows, fixed_s + row_s * num_rows)
    return cost


def want(num_tokens: int = 4, num_in_flight: int = 4, acceptance: float = 0.7, num_trunk_rows: int = 5) -> Want:
    return Want(
        num_tokens=num_tokens, num_in_flight=num_in_flight, acceptance=acceptance, num_trunk_rows=num_trunk_rows
    )


def limits(
    max_rows: int = 256, max_fan_out: int = 8, *, max_guesses: int = 256, other_rows: tuple[int, ...] = ()
) -> RowLimits:
    return RowLimits(max_rows=max_rows, max_fan_out=max_fan_out, max_guesses=max_guesses, other_rows=other_rows)


COST = cost_of(0.001, 0.0001)
wants = st.builds(
    Want,
    num_tokens=st.integers(1, 6),
    num_in_flight=st.integers(0, 6),
    acceptance=st.floats(0.0, 1.0),
    num_trunk_rows=st.integers(0, 12),
)
rounds = st.lists(wants, min_size=1, max_size=6)
costs = st.builds(cost_of, st.floats(1e-4, 0.02), st.floats(0.0, 1e-3))
times = st.floats(-0.1, 0.5)


@pytest.mark.parametrize(("acceptance", "num_in_flight"), [(0.0, 3), (0.7, 0), (0.7, 4), (1.0, 2)])
def test_chances_of_the_outcomes_sum_to_one(acceptance: float, num_in_flight: int) -> None:
    chances = outcome_chances(acceptance, num_in_flight)
    assert len(chances) == num_in_flight + 1
    assert sum(chances) == pytest.approx(1.0)


def test_four_guesses_hit_as_often_as_was_measured() -> None:
    assert hit_chance(0) == 0.0
    assert hit_chance(4) == pytest.approx(0.70, abs=0.02)


def test_the_fan_out_is_geometric_with_a_wider_last_place() -> None:
    """F5: 1 + F_k is F_0 a^(k / (1 + r)), and (1 - a)^(-1 / (1 + r)) times that behind the last token."""
    acceptance, (fan_out,) = (
        0.6,
        plan([want(acceptance=0.6)], time_s=10.0, cost=COST, limits=limits(max_rows=200, max_fan_out=200)),
    )
    ratio = acceptance ** (1 / (1 + MISS_EXPONENT))
    last = (1 - acceptance) ** (-1 / (1 + MISS_EXPONENT))
    first = 1 + fan_out.guesses[0]
    for k in range(4):
        assert 1 + fan_out.guesses[k] == pytest.approx(first * ratio**k, abs=1.0)
    assert 1 + fan_out.guesses[4] == pytest.approx(first * ratio**4 * last, abs=1.0)


@pytest.mark.parametrize(
    ("verify_s", "num_tokens", "num_branches"),
    [
        (1.0, 4, 5 * 4),  # all the time of the world: everything that is allowed
        (0.0103, 3, 15),  # 1.5 ms for the trunk, 3 passes of 2.5 ms, 10 % less: worth more than 4 x 9
        (0.002, 1, 1),  # hardly time for the trunk: the least there is
        (0.0, 1, 1),
    ],
)
def test_drafts_shrink_with_the_verify_time(verify_s: float, num_tokens: int, num_branches: int) -> None:
    (fan_out,) = plan([want()], time_s=verify_s * 0.9, cost=COST, limits=limits(max_fan_out=4))
    assert (fan_out.num_tokens, fan_out.num_branches) == (num_tokens, num_branches)


def test_a_slower_drafter_drafts_less() -> None:
    branches = [
        plan([want()], time_s=0.02, cost=cost_of(fixed_s, fixed_s / 10), limits=limits())[0]
        for fixed_s in (0.0005, 0.001, 0.002, 0.004, 0.008)
    ]
    drafted = [fan_out.num_tokens * fan_out.num_branches for fan_out in branches]
    assert drafted == sorted(drafted, reverse=True)
    assert drafted[0] > 4 * drafted[-1]


def test_sequences_share_by_what_a_guess_gains() -> None:
    good, bad = plan([want(acceptance=0.9), want(acceptance=0.2)], time_s=0.02, cost=COST, limits=limits(max_rows=24))
    assert good.num_branches > 2 * bad.num_branches > 0


def test_a_sequence_without_a_draft_in_flight_gets_guesses_of_its_next_token_only() -> None:
    (fan_out,) = plan([want(num_in_flight=0)], time_s=1.0, cost=COST, limits=limits(max_fan_out=4))
    assert fan_out == FanOut(num_tokens=4, guesses=(4,))


def test_wishes_for_shorter_drafts_are_kept() -> None:
    long, short = plan([want(num_tokens=6), want(num_tokens=2)], time_s=1.0, cost=COST, limits=limits())
    assert (long.num_tokens, short.num_tokens) == (6, 2)


def test_no_sequences_no_plan() -> None:
    assert plan([], time_s=1.0, cost=COST, limits=limits()) == ()


@pytest.mark.parametrize(
    ("capacity", "others", "share"),
    [
        (30, (), 30),
        (30, (100,), 15),
        (30, (100, 100), 10),
        (30, (4, 100), 13),  # what one leaves goes to both others
        (30, (4, 5), 21),
        (30, (0, 0), 30),
        (2, (5, 5), 0),
    ],
)
def test_shares_are_equal_and_what_is_not_used_goes_to_others(
    capacity: int, others: tuple[int, ...], share: int
) -> None:
    assert fair_share(capacity, others) == share


@given(st.integers(0, 300), st.lists(st.integers(0, 300), max_size=6))
def test_nobody_is_pushed_below_an_equal_share(capacity: int, others: list[int]) -> None:
    share = fair_share(capacity, others)
    num_sharing = 1 + sum(rows > 0 for rows in others)
    assert capacity // num_sharing <= share <= capacity


def takes_s(round_wants: list[Want], fan_outs: tuple[FanOut, ...], cost: StepCost) -> float:
    trunk_s = cost.seconds(sum(item.num_trunk_rows for item in round_wants))
    num_rows = sum(item.num_branches for item in fan_outs)
    return trunk_s + max(item.num_tokens for item in fan_outs) * cost.seconds(num_rows)


@given(rounds, costs, times)
def test_a_plan_keeps_time_unless_it_is_the_least_there_is(
    round_wants: list[Want], cost: StepCost, time_s: float
) -> None:
    fan_outs = plan(round_wants, time_s=time_s, cost=cost, limits=limits())
    is_least = max(item.num_tokens for item in fan_outs) == 1 and sum(item.num_branches for item in fan_outs) <= len(
        round_wants
    )
    assert is_least or takes_s(round_wants, fan_outs, cost) <= time_s * (1 + 1e-9)


@given(rounds, times, st.integers(1, 256), st.integers(1, 8), st.integers(0, 64))
def test_a_plan_keeps_every_limit(
    round_wants: list[Want], time_s: float, max_rows: int, max_fan_out: int, max_guesses: int
) -> None:
    bounds = limits(max_rows, max_fan_out, max_guesses=max_guesses)
    fan_outs = plan(round_wants, time_s=time_s, cost=COST, limits=bounds)
    assert sum(item.num_branches for item in fan_outs) <= min(max_rows, max_guesses)
    for item, fan_out in zip(round_wants, fan_outs, strict=True):
        assert len(fan_out.guesses) == item.num_in_flight + 1
        assert all(0 <= num <= max_fan_out for num in fan_out.guesses)
        assert fan_out.num_tokens <= item.num_tokens
        assert bool(fan_out.num_tokens) == bool(fan_out.num_branches)


def value_of(wants: Sequence[Want], fan_outs: Sequence[FanOut]) -> float:
    """Draft tokens that a plan gets accepted in the next round on average, all sequences together."""
    total = 0.0
    for want, fan_out in zip(wants, fan_outs, strict=True):
        acceptance = min(max(want.acceptance, MIN_ACCEPTANCE), MAX_ACCEPTANCE)
        chances = outcome_chances(acceptance, want.num_in_flight)
        hits = sum(chance * hit_chance(num) for chance, num in zip(chances, fan_out.guesses, strict=True))
        total += hits * expected_gain(acceptance, fan_out.num_tokens)
    return total


@given(rounds, costs, times, times)
def test_more_time_is_never_worth_less(round_wants: list[Want], cost: StepCost, one_s: float, other_s: float) -> None:
    values = [
        value_of(round_wants, plan(round_wants, time_s=time_s, cost=cost, limits=limits()))
        for time_s in sorted((one_s, other_s))
    ]
    assert values[0] <= values[1] + 1e-9


@given(wants, st.lists(st.integers(1, 80), min_size=2, max_size=4))
def test_at_one_length_more_rows_widen_every_outcome(item: Want, rows: list[int]) -> None:
    plans = [plan([item], time_s=100.0, cost=COST, limits=limits(num_rows, 64))[0].guesses for num_rows in sorted(rows)]
    for narrow, wide in pairwise(plans):
        assert all(few <= many for few, many in zip(narrow, wide, strict=True))


@given(wants, st.integers(1, 40))
def test_guesses_are_spent_as_well_as_they_can_be(item: Want, num_rows: int) -> None:
    """No guess would add more to another outcome: the greedy order is the optimum of a sum of concave gains."""
    (fan_out,) = plan([item], time_s=100.0, cost=COST, limits=limits(num_rows, 64))
    chances = outcome_chances(min(max(item.acceptance, 0.05), 0.98), item.num_in_flight)
    lost = [
        chance * (hit_chance(num) - hit_chance(num - 1)) if num else math.inf
        for chance, num in zip(chances, fan_out.guesses, strict=True)
    ]
    won = [
        chance * (hit_chance(num + 1) - hit_chance(num)) if num < 64 else 0.0
        for chance, num in zip(chances, fan_out.guesses, strict=True)
    ]
    assert max(won) <= min(lost) + 1e-12


def test_the_gain_of_a_draft_is_the_mean_number_of_its_accepted_tokens() -> None:
    assert expected_gain(0.5, 3) == pytest.approx(0.5 + 0.25 + 0.125)
