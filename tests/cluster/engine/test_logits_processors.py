"""What each setting does to the logits, and in which order."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from cluster.engine.sampler import Sampler, SamplingRow, processed_logits
from tests.cluster.engine.sampling_toys import EOS, VOCAB_SIZE, generate, markov_logits, one, row_of


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(VOCAB_SIZE, EOS)


def kept_ids(logits_V: Sequence[float], row: SamplingRow) -> set[int]:
    processed_V = processed_logits(torch.tensor(logits_V), row, EOS)
    return set(torch.isfinite(processed_V).nonzero().flatten().tolist())


def test_min_p_holds_for_every_draft_position_and_the_bonus_token(sampler: Sampler) -> None:
    logits_V = torch.full((VOCAB_SIZE,), -4.0)
    logits_V[[2, 9]] = torch.tensor([3.0, 2.5])  # exp(-7) is far below the floor of 0.3
    for seed in range(200):
        rows = [row_of([5] * i, seed=seed, min_p=0.3, temperature=1.0) for i in range(5)]
        assert set(sampler.sample(logits_V.repeat(5, 1), rows).token_ids) <= {2, 9}


def test_frequency_penalty_counts_the_tokens_accepted_earlier_in_the_same_block(sampler: Sampler) -> None:
    def text(penalty: float, num_drafts: int) -> list[int]:
        best = int(markov_logits(7).argmax())
        return generate(sampler, 20, num_drafts, lambda k, _: [best] * k, temperature=0.0, frequency_penalty=penalty)

    assert text(2.0, 0) != text(-2.0, 0)
    for num_drafts in (1, 3, 8):
        assert text(2.0, num_drafts) == text(2.0, 0)
        assert text(-2.0, num_drafts) == text(-2.0, 0)


def test_penalties_follow_their_formulas() -> None:
    logits_V = torch.tensor([2.0, -2.0, 1.0, 0.5, 4.0])
    row = row_of([1, 0, 0], prompt=[4], temperature=0.0)
    row = replace(
        row, params=replace(row.params, repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.125)
    )
    # Token 0: 2 / 2 - 2 * 0.125 - 0.25; token 1: -2 * 2 - 0.125 - 0.25; tokens 2, 3 unseen; token 4 only in the prompt.
    assert processed_logits(logits_V, row).tolist() == [0.5, -4.375, 1.0, 0.5, 2.0]


def test_bias_comes_before_penalties_and_penalties_before_temperature() -> None:
    logits_V = torch.tensor([1.0, 0.0, -3.0])
    row = row_of([0], prompt=[], temperature=0.5, logit_bias=((0, 3.0),), repetition_penalty=2.0)
    # Token 0: (1 + 3) / 2 = 2, then the distance to the largest logit is divided by 0.5.
    assert processed_logits(logits_V, row).tolist() == [0.0, -4.0, -10.0]


P = [0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("kept", "setting"),
    [
        ({0, 1, 2, 3}, {}),
        ({0, 1}, {"top_k": 2}),
        ({0}, {"top_p": 0.0}),
        ({0}, {"top_p": 0.39}),
        ({0, 1}, {"top_p": 0.41}),
        ({0, 1, 2}, {"min_p": 0.4}),
        ({0}, {"min_p": 1.0}),
        ({0, 1}, {"top_k": 3, "top_p": 0.75}),  # over three tokens 0.7 / 0.9 = 0.78 already reaches it
        ({0, 1, 2}, {"top_k": 4, "top_p": 0.75}),
        ({0, 1}, {"min_p": 0.4, "top_p": 0.75}),  # min-p comes first: the same three tokens
        ({0, 1}, {"temperature": 0.5, "min_p": 0.5}),  # after temperature the ratios are squared: 0.56 and 0.25
    ],
)
def test_truncation_keeps_what_its_definition_says(kept: set[int], setting: dict[str, Any]) -> None:
    assert kept_ids([math.log(p) for p in P], row_of(**setting)) == kept


def test_top_k_keeps_exactly_k_of_equal_logits_by_lowest_id() -> None:
    assert kept_ids([1.0, 2.0, 1.0, 2.0, 1.0, 1.0], row_of(top_k=4)) == {0, 1, 2, 3}


def test_eos_and_stop_ids_cannot_be_drawn_before_min_tokens(sampler: Sampler) -> None:
    logits_V = torch.zeros(VOCAB_SIZE)
    logits_V[[0, 2, 8]] = torch.tensor([9.0, 8.0, 7.0])
    wanted: dict[str, Any] = {"temperature": 0.0, "min_tokens": 3, "stop_token_ids": (8,)}
    assert one(sampler, logits_V, row_of(index=2, **wanted)) == 1
    assert one(sampler, logits_V, row_of(index=3, **wanted)) == 0
    assert one(sampler, logits_V, row_of(index=2, ignore_eos=True, **wanted)) == 0


@pytest.mark.parametrize(
    ("output", "expected"), [([], 5), ([4], 5), ([3, 4], 1), ([3, 4, 6], 5), ([9, 3, 4], 1), ([4, 3], 5)]
)
def test_a_bad_word_is_masked_only_where_it_would_be_completed(
    sampler: Sampler, output: list[int], expected: int
) -> None:
    logits_V = torch.zeros(VOCAB_SIZE)
    logits_V[[5, 1]] = torch.tensor([5.0, 4.0])
    assert one(sampler, logits_V, row_of(output, temperature=0.0, bad_words=((3, 4, 5),))) == expected


def test_a_bad_word_of_one_token_is_always_masked(sampler: Sampler) -> None:
    assert one(sampler, torch.arange(16.0), row_of(temperature=0.0, bad_words=((15,), (14,)))) == 13


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_allowed_ids_win_when_everything_is_masked(sampler: Sampler, temperature: float) -> None:
    contradiction: dict[str, Any] = {
        "allowed_token_ids": (3, 5, 7),
        "bad_words": ((3,), (5,), (7,)),
        "temperature": temperature,
    }
    assert one(sampler, [-float(abs(v - 6)) for v in range(16)], row_of(**contradiction)) == 5
    assert one(sampler, torch.arange(16.0), row_of(bad_words=tuple((v,) for v in range(16)))) == 15
