"""Draft lengths against brute force, and how they follow acceptance."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.budget import DraftCost, draft_length
from cluster.engine.sequence_budget import Adaptation, LearnedPriors, Prior, SequenceBudget

FREE = DraftCost.free()
PRIORS = (Prior(first=0.15, next=0.5), Prior(first=0.8, next=0.9))


def rising(row_cost: float) -> DraftCost:
    """Passes that take so much longer for each further row, in passes of one row."""
    return DraftCost.of((1, 1.0), (2, 1.0 + row_cost))


def budget(**adaptation: float) -> SequenceBudget:
    return SequenceBudget(LearnedPriors(PRIORS), Adaptation(**adaptation))  # type: ignore[arg-type]


def feed(state: SequenceBudget, rounds: int, *, accepted_ratio: float, draft_class: int = 0) -> list[int]:
    """Run rounds in which that share of each draft is accepted; return the draft lengths."""
    lengths = []
    for _ in range(rounds):
        lengths.append(state.num_draft_tokens(draft_class, 8, DraftCost()))
        if lengths[-1]:
            state.observe(draft_class, lengths[-1], round(lengths[-1] * accepted_ratio))
    return lengths


def times_of(knots: list[tuple[int, float]], num_rows: float) -> float:
    """Straight lines between and after the knots, by definition."""
    for (rows, time), (next_rows, next_time) in pairwise(knots):
        if num_rows <= next_rows or (next_rows, next_time) == knots[-1]:
            return time + (next_time - time) / (next_rows - rows) * (num_rows - rows)
    raise AssertionError


@settings(derandomize=True)
@given(
    first=st.floats(0, 1),
    step=st.floats(0, 1),
    slopes=st.tuples(*[st.floats(0.001, 1.0)] * 3),
    round_cost=st.floats(0, 0.2),
    token_cost=st.floats(0, 0.5),
    num_sequences=st.integers(1, 100),
    num_tokens=st.integers(0, 12),
)
def test_draft_length_has_the_best_rate_of_all_lengths(
    *,
    first: float,
    step: float,
    slopes: tuple[float, ...],
    round_cost: float,
    token_cost: float,
    num_sequences: int,
    num_tokens: int,
) -> None:
    survival = [first * step**i for i in range(num_tokens)]
    knots = [(1, 1.0)]
    for rows, slope in zip((8, 32, 64), slopes, strict=True):
        knots.append((rows, knots[-1][1] + slope * (rows - knots[-1][0])))
    n = num_sequences

    def rate(length: int) -> float:
        """Tokens of all sequences per unit of time."""
        overhead = times_of(knots, n) * round_cost + length * token_cost if length else 0.0
        return n * (1 + sum(survival[:length])) / (times_of(knots, n * (1 + length)) + overhead)

    cost = replace(DraftCost.of(*knots), round_cost_ratio=round_cost, token_s=token_cost).at(n)
    chosen = draft_length(survival, cost)
    assert rate(chosen) == pytest.approx(max(rate(length) for length in range(num_tokens + 1)))


# Measured on two cores: nearly flat at first, then bound by arithmetic.
MEASURED = DraftCost.of((1, 1.0), (8, 1.15), (32, 1.9), (64, 3.3))


def test_the_same_hope_drafts_alone_and_does_not_in_a_full_batch() -> None:
    survival = [0.45 * 0.5**i for i in range(7)]
    lengths = [draft_length(survival, MEASURED.at(n)) for n in (1, 4, 16, 32, 64)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] >= 3
    assert lengths[-2:] == [0, 0]


def test_a_draft_row_costs_its_full_share_once_the_pass_is_bound_by_arithmetic() -> None:
    assert MEASURED.at(1).round_s(1) < 1.05 * MEASURED.at(1).round_s(0)
    assert MEASURED.at(64).round_s(1) > 1.8 * MEASURED.at(64).round_s(0)
    # Hope that is sure to come true pays at any load.
    assert draft_length([1.0] * 3, MEASURED.at(64)) == 3


@pytest.mark.parametrize("num_sequences", [32, 64, 128])
def test_speculation_in_a_full_batch_never_loses_by_its_own_estimate(num_sequences: int) -> None:
    cost = MEASURED.at(num_sequences)
    for first in (0.1, 0.3, 0.5, 0.7, 0.9):
        survival = [first * 0.8**i for i in range(7)]
        length = draft_length(survival, cost)
        assert 1 + sum(survival[:length]) >= cost.round_s(length) / cost.round_s(0)


def test_a_slow_draft_model_shortens_drafts() -> None:
    survival = [0.8**i for i in range(1, 9)]
    lengths = [draft_length(survival, replace(MEASURED, token_s=ratio)) for ratio in (0.0, 0.2, 0.5, 1.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[2] > lengths[-1] == 0


def test_a_cost_that_is_given_with_the_call_counts() -> None:
    state = budget()
    assert state.num_draft_tokens(1, 8, DraftCost()) == 8
    assert state.num_draft_tokens(1, 8, rising(1.0)) == 0


def test_drafts_that_cost_nothing_are_as_long_as_allowed() -> None:
    assert draft_length([0.5] * 5, FREE) == 5


def test_hopeless_drafts_are_not_made() -> None:
    assert draft_length([0.0, 0.0], DraftCost()) == 0


def test_dearer_rows_shorten_drafts() -> None:
    survival = [0.8**i for i in range(1, 9)]
    lengths = [draft_length(survival, rising(cost)) for cost in (0.01, 0.1, 0.5, 1.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1] == 0


def test_rejections_end_drafting_within_ten_rounds() -> None:
    lengths = feed(budget(), 60, accepted_ratio=0.0)
    assert sum(lengths) <= 30
    assert sum(length > 0 for length in lengths[12:]) <= 4


@pytest.mark.parametrize("draft_class", [0, 1])
def test_no_prior_keeps_drafting_alive_against_all_evidence(draft_class: int) -> None:
    lengths = feed(budget(), 400, accepted_ratio=0.0, draft_class=draft_class)
    assert sum(lengths[100:]) <= 2 * 300 / 16 + 2


def test_acceptance_brings_the_longest_drafts_within_three_rounds() -> None:
    assert feed(budget(), 4, accepted_ratio=1.0)[3] == 8


def test_a_class_that_stopped_paying_is_probed_and_comes_back() -> None:
    # A11: 200 bad rounds, then good ones. Never off for ever.
    state = budget()
    assert sum(feed(state, 200, accepted_ratio=0.0)[100:]) <= 2 * 100 / 16 + 2
    lengths = feed(state, 120, accepted_ratio=1.0)
    assert lengths.index(8) <= 80
    assert lengths[-1] == 8


def test_a_probe_is_never_longer_than_allowed() -> None:
    state = budget(probe_interval=1, probe_tokens=2)
    for _ in range(50):
        state.observe(0, 1, 0)
    assert state.num_draft_tokens(0, 1, DraftCost()) == 1
    assert state.num_draft_tokens(0, 0, DraftCost()) == 0


def test_classes_of_drafts_do_not_share_estimates() -> None:
    state = budget()
    before = state.survival(1, 4)
    feed(state, 30, accepted_ratio=0.0, draft_class=0)
    assert state.survival(1, 4) == before
    assert state.num_draft_tokens(1, 8, DraftCost()) == 8


def test_estimates_approach_the_true_chances() -> None:
    state = budget(decay=1.0)
    for _ in range(400):
        state.observe(0, 4, 2)  # the first two of four, always: next is 1 of 2
    first, second, *_ = state.survival(0, 4)
    assert first == pytest.approx(1.0, abs=0.01)
    assert second / first == pytest.approx(0.5, abs=0.01)


def test_a_fully_accepted_draft_counts_no_failed_trial() -> None:
    state = budget(decay=1.0)
    for _ in range(400):
        state.observe(0, 3, 3)
    assert state.survival(0, 3)[-1] == pytest.approx(1.0, abs=0.02)
