"""Emitted tokens follow the exact processed distribution, whatever the drafts: chi-square with fixed seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from cluster.engine import noise
from cluster.engine.sampler import Sampler
from tests.cluster.engine.sampling_toys import (
    PROMPT,
    VOCAB_SIZE,
    exact_distribution,
    generate,
    markov_logits,
    p_value,
    row_of,
)

SIGNIFICANCE = 1e-4
NUM_DRAWS = 4000
NUM_TEXTS = 800

TRUNCATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "top-k": {"top_k": 5},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.1},
    "all": {"top_k": 8, "top_p": 0.9, "min_p": 0.05},
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.5},
}


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(VOCAB_SIZE, frozenset())


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.7])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_draws_over_seeds_follow_the_processed_distribution(
    sampler: Sampler, truncation: str, temperature: float
) -> None:
    setting = {**TRUNCATIONS[truncation], "temperature": temperature}
    logits_V, output = markov_logits(7), [3, 3, 9]
    rows = [row_of(output, seed=seed, **setting) for seed in range(NUM_DRAWS)]
    drawn = sampler.sample(logits_V.expand(NUM_DRAWS, -1), rows).token_ids
    counts = np.bincount(drawn, minlength=VOCAB_SIZE)
    assert p_value(counts, exact_distribution(logits_V, output, **setting)) > SIGNIFICANCE


def test_draws_over_output_indices_of_one_seed_follow_the_distribution(sampler: Sampler) -> None:
    logits_V = markov_logits(7)
    rows = [row_of(index=index, seed=42) for index in range(NUM_DRAWS)]
    drawn = sampler.sample(logits_V.expand(NUM_DRAWS, -1), rows).token_ids
    assert p_value(np.bincount(drawn, minlength=VOCAB_SIZE), exact_distribution(logits_V, [])) > SIGNIFICANCE


def good(seed: int, setting: dict[str, Any]) -> Callable[[int, Sequence[int]], list[int]]:
    """Drafts with the target's own noise and nearly its logits, as a coupled draft model does."""

    def draft(num_drafts: int, output: Sequence[int]) -> list[int]:
        drafted: list[int] = []
        for _ in range(num_drafts):
            last = [*PROMPT, *output, *drafted][-1]
            scores = markov_logits(last) / setting.get("temperature", 1.0) + 0.3 * torch.arange(16.0).sin()
            scores += noise.gumbel(seed, len(output) + len(drafted), VOCAB_SIZE)
            drafted.append(int(scores.argmax()))
        return drafted

    return draft


def likely(seed: int, setting: dict[str, Any]) -> Callable[[int, Sequence[int]], list[int]]:
    """The most likely tokens, without noise, as an argmax drafter."""

    def draft(num_drafts: int, output: Sequence[int]) -> list[int]:
        drafted: list[int] = []
        for _ in range(num_drafts):
            drafted.append(int(markov_logits([*PROMPT, *output, *drafted][-1]).argmax()))
        return drafted

    return draft


def constant(seed: int, setting: dict[str, Any]) -> Callable[[int, Sequence[int]], list[int]]:
    return lambda num_drafts, output: [0] * num_drafts


def random(seed: int, setting: dict[str, Any]) -> Callable[[int, Sequence[int]], list[int]]:
    generator = np.random.default_rng(seed)
    return lambda num_drafts, output: generator.integers(VOCAB_SIZE, size=generator.integers(num_drafts + 1)).tolist()


DRAFTERS = {"good": good, "likely": likely, "constant": constant, "random": random}


def exact_joint(num_tokens: int, **setting: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Probability of every text of some length, by the chain rule."""
    joint = np.zeros((VOCAB_SIZE,) * num_tokens)
    texts: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(num_tokens):
        longer: dict[tuple[int, ...], float] = {}
        for text, probability in texts.items():
            p_V = exact_distribution(markov_logits([*PROMPT, *text][-1]), text, **setting)
            longer.update({(*text, v): probability * p_V[v] for v in np.flatnonzero(p_V).tolist()})
        texts = longer
    for text, probability in texts.items():
        joint[text] = probability
    return joint


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": 0.7},
        {"temperature": 1.0, "top_k": 4, "top_p": 0.9},
        {"temperature": 1.2, "min_p": 0.1, "presence_penalty": 1.5, "frequency_penalty": 0.5},
    ],
    ids=["plain", "truncated", "penalised"],
)
def test_texts_drafted_by_anything_follow_the_targets_joint_distribution_and_equal_undrafted_ones(
    sampler: Sampler, drafter: str, setting: dict[str, Any]
) -> None:
    counts = np.zeros((VOCAB_SIZE,) * 3, np.int64)
    for seed in range(NUM_TEXTS):
        text = generate(sampler, 3, 3, DRAFTERS[drafter](seed, setting), seed=seed, **setting)
        counts[tuple(text)] += 1
        if seed % 10 == 0:
            assert text == generate(sampler, 3, 0, constant(seed, setting), seed=seed, **setting)
    assert p_value(counts, exact_joint(3, **setting)) > SIGNIFICANCE


@pytest.mark.parametrize("setting", [{}, {"temperature": 0.0, "frequency_penalty": 0.4}, {"top_p": 0.7, "seed": 3}])
def test_long_texts_do_not_depend_on_drafter_or_lookahead(sampler: Sampler, setting: dict[str, Any]) -> None:
    plain = generate(sampler, 60, 0, constant(0, setting), **setting)
    for drafter in DRAFTERS.values():
        for num_drafts in (1, 2, 5, 8):
            assert generate(sampler, 60, num_drafts, drafter(1, setting), **setting) == plain


def test_the_statistic_itself_sees_one_likely_token_drawn_too_often() -> None:
    p_V = exact_distribution(markov_logits(7), [])
    skewed_V = p_V * np.where(np.arange(VOCAB_SIZE) == p_V.argmax(), 1.25, 1.0)
    drawn = np.random.default_rng(0).choice(VOCAB_SIZE, size=NUM_DRAWS, p=skewed_V / skewed_V.sum())
    assert p_value(np.bincount(drawn, minlength=VOCAB_SIZE), p_V) < SIGNIFICANCE
