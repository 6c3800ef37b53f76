"""Draft lengths against brute force, and how they follow acceptance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.budget import Adaptation, DraftCost, Prior, SequenceBudget, draft_length

FREE = DraftCost(row_cost_ratio=0.0, round_cost_ratio=0.0)
PRIORS = (Prior(first=0.15, next=0.5), Prior(first=0.8, next=0.9))


def budget(**adaptation: float) -> SequenceBudget:
    return SequenceBudget(PRIORS, cost=DraftCost(), adaptation=Adaptation(**adaptation))  # type: ignore[arg-type]


def feed(state: SequenceBudget, rounds: int, *, accepted_ratio: float, draft_class: int = 0) -> list[int]:
    """Run rounds in which that share of each draft is accepted; return the draft lengths."""
    lengths = []
    for _ in range(rounds):
        lengths.append(state.num_draft_tokens(draft_class, 8))
        if lengths[-1]:
            state.observe(draft_class, lengths[-1], round(lengths[-1] * accepted_ratio))
    return lengths


@settings(derandomize=True)
@given(
    first=st.floats(0, 1),
    step=st.floats(0, 1),
    row_cost=st.floats(0.001, 0.5),
    round_cost=st.floats(0, 0.2),
    num_tokens=st.integers(0, 12),
)
def test_draft_length_has_the_best_rate_of_all_lengths(
    first: float, step: float, row_cost: float, round_cost: float, num_tokens: int
) -> None:
    survival = [first * step**i for i in range(num_tokens)]

    def rate(length: int) -> float:
        return 1.0 if length == 0 else (1 + sum(survival[:length])) / (1 + round_cost + row_cost * length)

    chosen = draft_length(survival, DraftCost(row_cost_ratio=row_cost, round_cost_ratio=round_cost))
    assert rate(chosen) == pytest.approx(max(rate(length) for length in range(num_tokens + 1)))


def test_drafts_that_cost_nothing_are_as_long_as_allowed() -> None:
    assert draft_length([0.5] * 5, FREE) == 5


def test_hopeless_drafts_are_not_made() -> None:
    assert draft_length([0.0, 0.0], DraftCost()) == 0


def test_dearer_rows_shorten_drafts() -> None:
    survival = [0.8**i for i in range(1, 9)]
    lengths = [draft_length(survival, DraftCost(row_cost_ratio=cost)) for cost in (0.01, 0.1, 0.5, 1.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1] == 0


def test_rejections_end_drafting_within_ten_rounds() -> None:
    lengths = feed(budget(), 60, accepted_ratio=0.0)
    assert sum(lengths) <= 30
    assert sum(length > 0 for length in lengths[12:]) <= 4


def test_acceptance_brings_the_longest_drafts_within_three_rounds() -> None:
    assert feed(budget(), 4, accepted_ratio=1.0)[3] == 8


def test_a_class_that_stopped_paying_is_probed_and_comes_back() -> None:
    # A11: 200 bad rounds, then good ones. Never off for ever.
    state = budget()
    assert sum(feed(state, 200, accepted_ratio=0.0)[100:]) <= 2 * 100 / 16 + 2
    lengths = feed(state, 40, accepted_ratio=1.0)
    assert lengths.index(8) <= 20
    assert lengths[-1] == 8


def test_a_probe_is_never_longer_than_allowed() -> None:
    state = budget(probe_interval=1, probe_tokens=2)
    for _ in range(50):
        state.observe(0, 1, 0)
    assert state.num_draft_tokens(0, 1) == 1
    assert state.num_draft_tokens(0, 0) == 0


def test_classes_of_drafts_do_not_share_estimates() -> None:
    state = budget()
    before = state.survival(1, 4)
    feed(state, 30, accepted_ratio=0.0, draft_class=0)
    assert state.survival(1, 4) == before
    assert state.num_draft_tokens(1, 8) == 8


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
