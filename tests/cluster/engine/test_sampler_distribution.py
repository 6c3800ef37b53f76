"""What the sampler tells of a row's distribution, and what it draws and describes for rules that decide elsewhere."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cluster.engine import sampling_reference
from cluster.engine.sampler import Sampler, SamplingRow, processed_logits
from tests.cluster.engine.sampling_toys import EOS, VOCAB_SIZE, markov_logits, one, p_value, row_of
from tests.cluster.engine.test_sampler import logits, sampling_rows


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(VOCAB_SIZE, EOS)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(logits, min_size=VOCAB_SIZE, max_size=VOCAB_SIZE), sampling_rows)
def test_a_rows_distribution_is_that_of_the_reference(sampler: Sampler, values: list[float], row: SamplingRow) -> None:
    logits_V = torch.tensor(values)
    assume(logits_V.max() > -math.inf)
    found_V = sampler.distribution(logits_V[None], row)
    is_greedy = row.params.temperature < 1e-5
    processed_V = processed_logits(logits_V, row, EOS).numpy()
    assert found_V is not None
    np.testing.assert_allclose(
        found_V, sampling_reference.probabilities(processed_V, is_greedy=is_greedy), rtol=2e-6, atol=1e-12
    )


def test_a_row_without_a_distribution_has_none(sampler: Sampler) -> None:
    broken = torch.zeros(1, VOCAB_SIZE)
    broken[0, 3] = math.nan
    assert sampler.distribution(broken, row_of()) is None
    assert sampler.distribution(torch.full((1, VOCAB_SIZE), -math.inf), row_of()) is None


def test_draws_by_weights_follow_them_with_the_noise_of_the_row(sampler: Sampler) -> None:
    weights_V = np.arange(VOCAB_SIZE, dtype=np.float64) % 4
    drawn = [sampler.draw_weighted(weights_V, row_of(seed=seed)) for seed in range(800)]
    assert p_value(np.bincount(drawn, minlength=VOCAB_SIZE), weights_V / weights_V.sum()) > 1e-4
    assert sampler.draw_weighted(np.eye(VOCAB_SIZE)[5], row_of()) == 5
    flat = torch.zeros(VOCAB_SIZE)
    assert [sampler.draw_weighted(np.ones(VOCAB_SIZE), row_of(seed=s)) for s in range(50)] == [
        one(sampler, flat, row_of(seed=s)) for s in range(50)
    ]


def test_a_token_drawn_elsewhere_is_described_as_if_it_was_drawn_here(sampler: Sampler) -> None:
    rows = [row_of(seed=seed, logprobs=2) for seed in range(4)]
    logits_NV = torch.stack([markov_logits(v) for v in range(4)])
    drawn = sampler.sample(logits_NV, rows)
    assert sampler.describe(logits_NV, drawn.token_ids, rows) == drawn


def test_a_sampler_with_other_seeds_draws_with_their_noise() -> None:
    shifted, plain = Sampler(VOCAB_SIZE, EOS, lambda seed: seed + 1), Sampler(VOCAB_SIZE, EOS)
    flat = torch.zeros(VOCAB_SIZE)
    assert [one(shifted, flat, row_of(seed=s)) for s in range(9)] == [
        one(plain, flat, row_of(seed=s + 1)) for s in range(9)
    ]


def test_of_equal_logits_at_the_cut_the_higher_ids_have_no_chance(sampler: Sampler) -> None:
    logits_V = torch.full((1, VOCAB_SIZE), -5.0)
    logits_V[0, [4, 7, 9]] = 1.0
    found_V = sampler.distribution(logits_V, row_of(top_k=2))
    assert found_V is not None
    assert found_V[[4, 7, 9]].tolist() == [0.5, 0.5, 0.0]
