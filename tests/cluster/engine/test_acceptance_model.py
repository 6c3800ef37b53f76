"""Learned survival against known truths, and its bounds against any input."""

import math
import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.acceptance_model import MAX_POSITION, NUM_RECENT_TRIALS, AcceptanceModel, LearningRate

NUM_DRAFTED = 5

FIXED = LearningRate(source_prior=1e12, position_prior=1e12, weight_prior=1e12)
"""Believes in its priors so firmly that it learns nothing."""

ANY_CONFIDENCE = st.floats(0, 1) | st.sampled_from([0.0, 1.0, math.nan])

Truth = Callable[[float, int], float]
"""Real chance of a token by the drafter's confidence and the position."""


def logit(chance: float) -> float:
    return math.log(chance / (1 - chance))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def honest(confidence: float, position: int) -> float:
    return confidence


def boastful(confidence: float, position: int) -> float:
    return sigmoid(0.6 * logit(confidence) - 1.5)


def shy(confidence: float, position: int) -> float:
    return sigmoid(logit(confidence) + 1.5)


def fading(confidence: float, position: int) -> float:
    return sigmoid(logit(confidence) - 0.6 * position)


def play(model: AcceptanceModel, truth: Truth, num_drafts: int, *, seed: int = 0, source: str = "ngram") -> None:
    """Let the model watch drafts whose tokens are accepted by that truth."""
    rng = random.Random(seed)
    for _ in range(num_drafts):
        confidences = [rng.betavariate(3, 1.2) for _ in range(NUM_DRAFTED)]
        num_accepted = 0
        while num_accepted < NUM_DRAFTED and rng.random() < truth(confidences[num_accepted], num_accepted):
            num_accepted += 1
        model.observe(source, confidences, NUM_DRAFTED, num_accepted)


def chance_at(model: AcceptanceModel, confidence: float, position: int = 0, source: str = "ngram") -> float:
    """What the model says of one token after sure ones."""
    survival = model.survival(source, [0.5] * position + [confidence])
    return survival[position] / (survival[position - 1] if position else 1.0)


def distance(model: AcceptanceModel, truth: Truth, positions: int = NUM_DRAFTED) -> float:
    """Mean distance from the truth over usual confidences and positions."""
    cases = [(confidence, position) for confidence in (0.4, 0.6, 0.75, 0.9) for position in range(positions)]
    return sum(abs(chance_at(model, *case) - truth(*case)) for case in cases) / len(cases)


@pytest.mark.parametrize("confidences", [[0.2], [0.9, 0.5, 0.7], [0.8] * 12])
def test_an_unknown_source_is_taken_at_its_word(confidences: list[float]) -> None:
    expected = np.cumprod(confidences).tolist()
    assert AcceptanceModel().survival("ngram", confidences) == pytest.approx(expected)


def test_no_confidences_no_survival() -> None:
    assert AcceptanceModel().survival("ngram", []) == []


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    drafts=st.lists(
        st.tuples(st.lists(ANY_CONFIDENCE, max_size=12), st.integers(0, 12), st.integers(0, 12)),
        max_size=60,
    ),
    confidences=st.lists(ANY_CONFIDENCE, max_size=64),
    num_trials=st.floats(2, 1000),
    prior=st.floats(0.1, 10),
)
def test_survival_never_rises_and_stays_between_0_and_1_whatever_was_seen(
    drafts: list[tuple[list[float], int, int]], confidences: list[float], num_trials: float, prior: float
) -> None:
    model = AcceptanceModel(
        LearningRate(num_trials=num_trials, source_prior=prior, position_prior=prior, weight_prior=prior)
    )
    for seen, one, other in drafts:
        num_accepted, num_drafted = sorted((min(one, len(seen)), min(other, len(seen))))
        model.observe("ngram", seen, num_drafted, num_accepted)
    survival = model.survival("ngram", confidences)
    assert len(survival) == len(confidences)
    assert all(0 < chance < 1 for chance in survival)
    assert all(before >= after for before, after in pairwise(survival))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    low=st.floats(0, 1), high=st.floats(0, 1), seed=st.integers(0, 5), truth=st.sampled_from([boastful, shy, fading])
)
def test_more_confidence_never_means_less_survival(low: float, high: float, seed: int, truth: Truth) -> None:
    model = AcceptanceModel()
    play(model, truth, 30, seed=seed)
    low, high = sorted((low, high))
    assert chance_at(model, low) <= chance_at(model, high)


def test_a_drafter_whose_confidence_is_turned_around_is_not_believed_but_not_turned_either() -> None:
    model = AcceptanceModel()
    play(model, lambda confidence, position: 1 - confidence, 2000)
    assert chance_at(model, 0.9) >= chance_at(model, 0.5)
    assert chance_at(model, 0.9) < 0.6


@settings(derandomize=True, deadline=None, max_examples=50)
@given(rows=st.lists(st.tuples(st.sampled_from("abc"), st.lists(ANY_CONFIDENCE, min_size=9, max_size=9)), max_size=20))
def test_many_drafts_at_once_survive_as_one_by_one(rows: list[tuple[str, list[float]]]) -> None:
    model = AcceptanceModel()
    play(model, boastful, 50, source="a")
    play(model, shy, 50, source="b")
    sources = [source for source, _ in rows]
    confidences = np.array([row for _, row in rows]).reshape(len(rows), 9)
    expected = [model.survival(source, row) for source, row in rows]
    survivals = model.survivals(sources, confidences)
    assert survivals.shape == (len(rows), 9)
    np.testing.assert_allclose(survivals, np.array(expected).reshape(len(rows), 9), rtol=1e-12)


def test_a_row_that_is_filled_up_does_not_disturb_the_others() -> None:
    model = AcceptanceModel()
    confidences = np.array([[0.9, 0.8, 0.7], [0.6, math.nan, math.nan]])
    survivals = model.survivals(["ngram", "ngram"], confidences)
    assert survivals[0].tolist() == pytest.approx([0.9, 0.72, 0.504])
    assert survivals[1, 0] == pytest.approx(0.6)


@pytest.mark.parametrize("truth", [boastful, shy, fading])
@pytest.mark.parametrize("seed", range(3))
def test_a_drafter_that_is_wrong_about_itself_is_calibrated_within_some_hundred_trials(truth: Truth, seed: int) -> None:
    model = AcceptanceModel()
    assert distance(model, truth) > 0.14
    play(model, truth, 400, seed=seed)
    assert distance(model, truth) < 0.07


@pytest.mark.parametrize("seed", range(3))
def test_the_calibration_error_of_a_boastful_drafter_falls_below_5_percent(seed: int) -> None:
    model = AcceptanceModel()
    play(model, boastful, 60, seed=seed)
    early = model.calibration_error("ngram")
    play(model, boastful, 2500, seed=seed + 100)
    late = model.calibration_error("ngram")
    assert early is not None and late is not None
    assert late < 0.05 < early


@pytest.mark.parametrize("seed", range(3))
def test_an_honest_drafter_stays_calibrated(seed: int) -> None:
    model = AcceptanceModel()
    for part in range(5):
        play(model, honest, 300, seed=10 * seed + part)
        assert distance(model, honest, positions=3) < 0.05
    error = model.calibration_error("ngram")
    assert error is not None and error < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_drift_is_followed_also_after_a_long_time_of_peace(seed: int) -> None:
    model = AcceptanceModel()
    play(model, honest, 5000, seed=seed)
    assert distance(model, boastful, positions=2) > 0.2
    play(model, boastful, 400, seed=seed + 100)
    assert distance(model, boastful, positions=2) < 0.08


def test_sources_do_not_disturb_each_other() -> None:
    alone, together = AcceptanceModel(), AcceptanceModel()
    play(alone, shy, 200, source="draft_model")
    for part in range(4):
        play(together, boastful, 300, seed=part, source="ngram")
    play(together, shy, 200, source="draft_model")
    assert together.sources == ("ngram", "draft_model")
    probe = [0.3, 0.9, 0.6]
    assert together.survival("draft_model", probe) == alone.survival("draft_model", probe)
    assert together.survival("ngram", probe) != alone.survival("ngram", probe)


def test_positions_have_biases_of_their_own_up_to_the_last_that_is_told_apart() -> None:
    model = AcceptanceModel()
    confidences = [0.7] * (MAX_POSITION + 4)
    for _ in range(100):
        model.observe("ngram", confidences, len(confidences), MAX_POSITION + 1)
    assert min(chance_at(model, 0.7, position) for position in range(MAX_POSITION)) > 0.9
    shared = [chance_at(model, 0.7, position) for position in range(MAX_POSITION, MAX_POSITION + 4)]
    assert max(shared) - min(shared) < 1e-9
    assert shared[0] < chance_at(model, 0.7, MAX_POSITION - 1)


def test_a_token_behind_a_refused_one_teaches_nothing() -> None:
    short, long = AcceptanceModel(), AcceptanceModel()
    for num_accepted in (0, 1, 0, 2, 0):
        short.observe("ngram", [0.9] * (num_accepted + 1), num_accepted + 1, num_accepted)
        long.observe("ngram", [0.9] * (num_accepted + 1) + [0.1] * 5, num_accepted + 6, num_accepted)
    probe = [0.8] * 8
    assert short.survival("ngram", probe) == long.survival("ngram", probe)
    assert sum(part.num_trials for part in long.reliability("ngram")) == 8


def test_a_draft_that_was_cut_is_judged_by_its_verified_part() -> None:
    cut, whole = AcceptanceModel(), AcceptanceModel()
    cut.observe("ngram", [0.9, 0.8, 0.7], 2, 2)
    whole.observe("ngram", [0.9, 0.8], 2, 2)
    assert cut.survival("ngram", [0.5] * 3) == whole.survival("ngram", [0.5] * 3)


def test_a_draft_of_which_nothing_was_verified_teaches_nothing() -> None:
    model = AcceptanceModel()
    model.observe("ngram", [0.9, 0.8], 0, 0)
    assert model.survival("ngram", [0.9]) == pytest.approx([0.9])
    assert model.calibration_error("ngram") is None


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
@pytest.mark.parametrize("is_hit", [False, True])
def test_confidences_of_0_and_1_and_no_number_leave_everything_finite(confidence: float, is_hit: bool) -> None:
    model = AcceptanceModel()
    for _ in range(2000):
        model.observe("ngram", [confidence], 1, int(is_hit))
    survival = model.survival("ngram", [confidence] * 64)
    assert all(math.isfinite(chance) and 0 < chance < 1 for chance in survival)
    assert abs(survival[0] - is_hit) < 0.05
    error = model.calibration_error("ngram")
    assert error is not None and math.isfinite(error)


@pytest.mark.parametrize("is_hit", [False, True])
def test_even_a_model_without_scruples_is_never_certain(is_hit: bool) -> None:
    model = AcceptanceModel(LearningRate(source_prior=1e-9, position_prior=1e-9, weight_prior=1e-9))
    for _ in range(50):
        model.observe("ngram", [0.999], 1, int(is_hit))
    assert 0 < model.survival("ngram", [0.999])[0] < 1


def test_one_miss_of_a_sure_drafter_does_not_turn_it_into_a_hopeless_one() -> None:
    model = AcceptanceModel()
    model.observe("ngram", [1.0], 1, 0)
    assert chance_at(model, 0.95) > 0.8


@pytest.mark.parametrize("numbers", [(3, 1), (1, 2), (1, -1)])
def test_counts_that_cannot_be_are_refused(numbers: tuple[int, int]) -> None:
    num_drafted, num_accepted = numbers
    with pytest.raises(ValueError, match="accepted of"):
        AcceptanceModel().observe("ngram", [0.5, 0.5], num_drafted, num_accepted)


def test_the_calibration_error_weighs_the_distance_in_each_bin_by_its_trials() -> None:
    model = AcceptanceModel(FIXED)
    assert model.calibration_error("ngram") is None
    for number in range(8):
        model.observe("ngram", [0.75], 1, int(number < 2))  # 25 % of what was foretold at 75 %.
    for number in range(2):
        model.observe("ngram", [0.25], 1, int(number < 1))  # 50 % of what was foretold at 25 %.
    assert model.calibration_error("ngram") == pytest.approx(0.8 * 0.5 + 0.2 * 0.25)
    assert [(part.num_trials, part.hit_rate) for part in model.reliability("ngram")] == [(2, 0.5), (8, 0.25)]
    assert [part.mean_chance for part in model.reliability("ngram")] == pytest.approx([0.25, 0.75])


def test_only_recent_trials_count_for_the_calibration_error() -> None:
    model = AcceptanceModel(FIXED)
    for _ in range(500):
        model.observe("ngram", [0.9], 1, 0)
    for number in range(NUM_RECENT_TRIALS):
        model.observe("ngram", [0.5], 1, number % 2)
    assert model.calibration_error("ngram") == pytest.approx(0.0, abs=1e-6)
    assert sum(part.num_trials for part in model.reliability("ngram")) == NUM_RECENT_TRIALS


def test_the_chance_of_one_token_is_the_step_that_survival_takes_there() -> None:
    model = AcceptanceModel()
    for _ in range(40):
        model.observe("head", (0.5, 0.4, 0.3), 3, 1)
    chances = model.survival("head", (0.5, 0.4, 0.3))
    steps = [chances[0], chances[1] / chances[0], chances[2] / chances[1]]
    assert [model.chance("head", place, said) for place, said in enumerate((0.5, 0.4, 0.3))] == pytest.approx(steps)
    assert model.chance("never seen", 0, 0.25) == pytest.approx(0.25)
