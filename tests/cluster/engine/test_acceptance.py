"""What one round commits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.acceptance import Verdict, accept

tokens = st.integers(0, 3)


@pytest.mark.parametrize(
    ("draft", "sampled", "verdict"),
    [
        ([], [9], Verdict(0, (9,))),
        ([5, 6], [5, 6, 7], Verdict(2, (5, 6, 7))),
        ([5, 6], [5, 8, 7], Verdict(1, (5, 8))),
        ([5, 6], [4, 6, 7], Verdict(0, (4,))),
    ],
)
def test_drafts_are_kept_up_to_the_first_difference_and_one_token_of_the_target_follows(
    draft: list[int], sampled: list[int], verdict: Verdict
) -> None:
    assert accept(draft, sampled) == verdict


@settings(derandomize=True, deadline=None)
@given(st.lists(tokens, max_size=8).flatmap(lambda d: st.tuples(st.just(d), st.lists(tokens, min_size=len(d) + 1))))
def test_committed_tokens_are_always_the_targets_own(case: tuple[list[int], list[int]]) -> None:
    draft, sampled = case[0], case[1][: len(case[0]) + 1]
    verdict = accept(draft, sampled)
    assert list(verdict.token_ids) == sampled[: verdict.num_accepted + 1]
    assert draft[: verdict.num_accepted] == sampled[: verdict.num_accepted]
    assert verdict.num_accepted == len(draft) or draft[verdict.num_accepted] != sampled[verdict.num_accepted]


def test_draws_after_the_first_difference_are_not_looked_at() -> None:
    assert accept([5, -1, -1], [6, -1, -1, -1]) == Verdict(0, (6,))


@pytest.mark.parametrize("sampled", [[], [1], [1, 2, 3]])
def test_a_wrong_number_of_draws_is_refused(sampled: list[int]) -> None:
    with pytest.raises(ValueError, match="1 draft tokens need 2 draws"):
        accept([1], sampled)
