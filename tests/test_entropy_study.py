"""The study's own arithmetic: its fit is the engine's, and it would see what entropy foretells if it did."""

import random

import pytest

from tests.benchmarks.draft_trials import DraftTrial
from tests.benchmarks.entropy_models import AsSaid, Calibrated, WithEntropy, hindsight_loss, num_tried, score
from tests.benchmarks.entropy_study import MIN_GAIN, compare, round_s


def drafts_of(num_drafts: int, *, entropy_effect: float) -> list[DraftTrial]:
    """Drafts whose tokens are accepted at their confidence, less so where the entropy is high."""
    rng = random.Random(0)
    drafts = []
    for number in range(num_drafts):
        confidences = tuple(rng.betavariate(3, 1.5) for _ in range(rng.randint(1, 10)))
        entropy_bits = rng.uniform(0, 8)
        num_accepted = 0
        factor = 1 - entropy_effect * entropy_bits / 8
        while num_accepted < len(confidences) and rng.random() < factor * confidences[num_accepted]:
            num_accepted += 1
        drafts.append(
            DraftTrial(
                source="ngram",
                text=number % 7,
                temperature=0.0,
                confidences=confidences,
                entropy_bits=entropy_bits,
                num_accepted=num_accepted,
            )
        )
    return drafts


def test_without_the_entropy_the_studied_fit_is_the_engines() -> None:
    blind, engine = WithEntropy(lambda bits: 0.0), Calibrated()
    for draft in drafts_of(400, entropy_effect=0.5):
        assert blind.chances(draft) == pytest.approx(engine.chances(draft), rel=1e-9)
        blind.learn(draft)
        engine.learn(draft)


@pytest.mark.parametrize("max_position", [7, None])
@pytest.mark.parametrize(("effect", "is_found"), [(0.0, False), (0.9, True)])
def test_entropy_saves_log_loss_where_it_foretells_and_only_there(
    max_position: int | None, effect: float, is_found: bool
) -> None:
    drafts = drafts_of(2500, entropy_effect=effect)
    with_entropy = score(drafts, WithEntropy(float, max_position=max_position), round_s, (1,))
    found = compare(with_entropy, score(drafts, Calibrated(), round_s, (1,)), (1,))
    assert (found.gain > MIN_GAIN) is is_found
    assert found.interval[0] <= found.gain <= found.interval[1]


def test_no_online_fit_beats_the_one_in_hindsight() -> None:
    drafts = drafts_of(600, entropy_effect=0.9)
    scores = score(drafts, WithEntropy(float), round_s, (1,)).values()
    online = sum(part.log_loss for part in scores) / sum(part.num_trials for part in scores)
    assert hindsight_loss(drafts, float) < online
    assert hindsight_loss(drafts, float) < 0.98 * hindsight_loss(drafts, None)


def test_a_score_counts_what_was_tried_and_what_a_cut_draft_would_have_brought() -> None:
    draft = DraftTrial(
        source="ngram", text=3, temperature=0.0, confidences=(0.9, 0.8, 0.1), entropy_bits=1.0, num_accepted=1
    )
    # Two draft tokens are free, the third costs a whole round.
    scores = score([draft], AsSaid(), lambda source, batch, length: 1.0 if length < 3 else 2.0, (1,))
    assert num_tried(draft) == scores[3].num_trials == 2
    assert scores[3].brier == pytest.approx(0.1**2 + 0.8**2)
    assert (scores[3].num_tokens, scores[3].seconds) == ({1: 2}, {1: 1.0})


def test_rounds_beyond_the_table_grow_as_at_its_end() -> None:
    assert round_s("ngram", 1, 0) < round_s("ngram", 8, 0) < round_s("ngram", 8, 7)
    assert round_s("ngram", 16, 7) == pytest.approx(2 * round_s("ngram", 8, 7))
    assert round_s("draft_model", 1, 2) > round_s("ngram", 1, 2)
