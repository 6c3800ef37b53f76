"""The sampler against its plain reference; batches, ties, seeds, and rows that cannot be drawn from."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cluster.engine import noise, sampling_reference
from cluster.engine import sampler_kernels as kernels
from cluster.engine.logits_processors import LogitsProcessors, Truncation
from cluster.engine.sampler import (
    NO_TOKEN,
    Sampler,
    SamplerOutput,
    SamplingRow,
    processed_logits,
)
from cluster.types import SamplingParams
from tests.cluster.engine.sampling_toys import EOS, LARGE_VOCAB_SIZE, VOCAB_SIZE, generate, markov_logits, one, row_of


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(VOCAB_SIZE, EOS)


@pytest.fixture(scope="module")
def large_sampler() -> Sampler:
    return Sampler(LARGE_VOCAB_SIZE, EOS)


def by_reference(logits_V: torch.Tensor, row: SamplingRow) -> int:
    processed_V = processed_logits(logits_V, row, EOS)
    if row.params.temperature >= 1e-5:
        processed_V = processed_V + noise.gumbel(row.params.seed, row.output_index, processed_V.numel())
    return int(np.argmax(processed_V.numpy()))  # numpy takes the first of equals


token_ids = st.integers(0, VOCAB_SIZE - 1)
# Quarters make ties common; masked logits and both zeros occur in real models.
logits = st.one_of(
    st.integers(-60, 60).map(lambda n: n / 4.0), st.floats(-30, 30, width=32), st.sampled_from([-math.inf, 0.0, -0.0])
)
sampling_params = st.builds(
    SamplingParams,
    max_tokens=st.just(64),
    seed=st.integers(0, (1 << 64) - 1),
    temperature=st.sampled_from([0.0, 1e-6, 1e-4, 0.1, 0.7, 1.0, 1.3, 2.0, 50.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 5, VOCAB_SIZE, 1000]),
    top_p=st.one_of(st.just(1.0), st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999999]), st.floats(0, 1)),
    min_p=st.one_of(st.just(0.0), st.sampled_from([0.01, 0.3, 1.0]), st.floats(0, 1)),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.2, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.5, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.3, -0.7]),
    logit_bias=st.lists(st.tuples(st.integers(-1, VOCAB_SIZE), st.floats(-5, 5, width=32)), max_size=3).map(tuple),
    allowed_token_ids=st.one_of(st.just(()), st.lists(st.integers(-1, VOCAB_SIZE), max_size=6).map(tuple)),
    bad_words=st.lists(st.lists(token_ids, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    min_tokens=st.integers(0, 6),
    ignore_eos=st.booleans(),
    stop_token_ids=st.lists(token_ids, max_size=2).map(tuple),
)
sampling_rows = st.builds(
    SamplingRow,
    params=sampling_params,
    output_index=st.integers(0, 8),
    prompt_token_ids=st.lists(st.integers(-1, VOCAB_SIZE), max_size=4).map(tuple),
    output_token_ids=st.lists(st.integers(-1, VOCAB_SIZE), max_size=6),
)


@settings(derandomize=True, deadline=None, max_examples=600)
@given(st.lists(logits, min_size=VOCAB_SIZE, max_size=VOCAB_SIZE), sampling_rows, st.booleans())
def test_every_combination_of_settings_equals_the_reference(
    sampler: Sampler, values: list[float], row: SamplingRow, narrow: bool
) -> None:
    logits_V = torch.tensor(values, dtype=torch.bfloat16 if narrow else torch.float32)
    output = sampler.sample(logits_V[None], [row])
    if math.isinf(max(values)):
        assert output.invalid == (0,)
    else:
        assert output.token_ids == [by_reference(logits_V, row)]


def by_fast_path(logits_V: torch.Tensor, row: SamplingRow) -> npt.NDArray[np.float32]:
    """The processed logits that the sampler never writes down as such."""
    values_V = logits_V.float().numpy() + np.float32(0.0)
    LogitsProcessors(values_V.size, EOS).apply(values_V, row)
    top, _, _ = kernels.scan(values_V)
    if row.params.temperature < 1e-5 or math.isinf(top):
        return values_V
    scaled_V = np.empty_like(values_V)
    kernels.shift_and_scale(values_V, np.float32(top), np.float32(row.params.temperature), scaled_V)
    cut = Truncation(values_V.size).find_cut(scaled_V, row.params)
    kept_V = (scaled_V > cut.logit) | ((scaled_V == cut.logit) & (np.arange(scaled_V.size) <= cut.token_id))
    return np.where(kept_V, scaled_V, np.float32(-np.inf))


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.lists(logits, min_size=VOCAB_SIZE, max_size=VOCAB_SIZE), sampling_rows)
def test_every_logit_after_every_combination_of_settings_equals_the_reference(
    values: list[float], row: SamplingRow
) -> None:
    fast_V = by_fast_path(torch.tensor(values), row)
    assume(not math.isinf(fast_V.max()))
    assert fast_V.tolist() == processed_logits(torch.tensor(values), row, EOS).tolist()


def test_masses_of_both_paths_are_the_same_integers_and_close_to_the_exponential() -> None:
    scaled_V = -np.random.default_rng(2).exponential(12.0, 20_000).astype(np.float32)
    scaled_V[:3] = [0.0, -np.inf, -1e-38]
    mass_V, bucket_V = np.empty(scaled_V.size, np.int64), np.empty(scaled_V.size, np.int32)
    totals_2B = np.empty((2, kernels.NUM_BUCKETS + 1), np.int64)
    kernels.histogram(scaled_V, np.float32(-1e30), mass_V, bucket_V, totals_2B)
    assert np.array_equal(mass_V, sampling_reference.masses(scaled_V))
    exact_V = np.exp(scaled_V.astype(np.float64)) * kernels.MASS_ONE
    assert np.all(np.abs(mass_V - exact_V) <= 1.0 + 2.5e-7 * exact_V)
    assert totals_2B.sum(axis=1).tolist() == [scaled_V.size, mass_V.sum()]
    assert np.all(np.diff(bucket_V[np.argsort(-scaled_V, kind="stable")]) >= 0)


LARGE_SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.3},
    {"temperature": 5.0},
    {"temperature": 0.8, "min_p": 0.02},
    {"top_k": 1},
    {"top_k": 50},
    {"top_k": 30_000},
    {"top_p": 0.9},
    {"top_p": 0.9999999, "temperature": 1.5},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.01},
    {"temperature": 0.9, "repetition_penalty": 1.2, "frequency_penalty": 0.4, "top_p": 0.8},
]
LARGE_LOGITS = {
    "bf16, as a model's": lambda: (torch.randn(6, LARGE_VOCAB_SIZE) * 3.0).bfloat16(),
    "f32, as a model's": lambda: torch.randn(6, LARGE_VOCAB_SIZE) * 3.0,
    "all equal": lambda: torch.full((6, LARGE_VOCAB_SIZE), 1.5),
    "few distinct values": lambda: torch.randint(0, 4, (6, LARGE_VOCAB_SIZE)).float() / 2.0,
    "one certain": lambda: torch.eye(6, LARGE_VOCAB_SIZE) * 60.0,
    "mostly masked": lambda: torch.where(torch.rand(6, LARGE_VOCAB_SIZE) < 0.9, -torch.inf, torch.randn(6, 1)),
}


@pytest.mark.parametrize("kind", LARGE_LOGITS)
def test_a_real_vocabulary_equals_the_reference(large_sampler: Sampler, kind: str) -> None:
    torch.manual_seed(7)
    logits_NV = LARGE_LOGITS[kind]()
    for setting in LARGE_SETTINGS:
        rows = [row_of([5, 6, 5, i], seed=i, prompt=range(1000, 1100), **setting) for i in range(6)]
        expected = [by_reference(logits_V, row) for logits_V, row in zip(logits_NV, rows, strict=True)]
        assert large_sampler.sample(logits_NV, rows).token_ids == expected, setting
        assert np.array_equal(by_fast_path(logits_NV[0], rows[0]), processed_logits(logits_NV[0], rows[0], EOS)), (
            setting
        )


def test_noise_bound_never_drops_the_winner(large_sampler: Sampler) -> None:
    logits_NV = torch.randn(2, LARGE_VOCAB_SIZE, generator=torch.Generator().manual_seed(3)) * torch.tensor(
        [[0.1], [2.0]]
    )
    for seed in range(60):
        rows = [row_of(seed=seed), row_of(seed=seed)]
        expected = [by_reference(logits_V, rows[0]) for logits_V in logits_NV]
        assert large_sampler.sample(logits_NV, rows).token_ids == expected


def mixed_batch() -> tuple[torch.Tensor, list[SamplingRow]]:
    torch.manual_seed(1)
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.7},
        {"temperature": 0.2, "top_p": 0.8},
        {"temperature": 1.3, "top_k": 5},
        {"min_p": 0.1, "logprobs": 3},
        {"frequency_penalty": 1.0, "temperature": 0.0},
        {"logit_bias": ((3, 4.0),), "logprobs": 0},
        {"allowed_token_ids": (1, 4, 9), "bad_words": ((4,),)},
    ]
    rows = [row_of([1, 2, 3], seed=i // 3, **kinds[i % len(kinds)]) for i in range(24)]
    return torch.randn(24, VOCAB_SIZE) * 2.0, rows


def pick(output: SamplerOutput, i: int) -> tuple[object, ...]:
    return output.token_ids[i], output.entropy_bits[i], output.logprobs[i]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.permutations(range(24)), st.integers(1, 24))
def test_a_rows_result_does_not_depend_on_the_other_rows(sampler: Sampler, order: list[int], size: int) -> None:
    logits_NV, rows = mixed_batch()
    whole = sampler.sample(logits_NV, rows)
    part = sampler.sample(logits_NV[order[:size]], [rows[i] for i in order[:size]])
    assert [pick(part, place) for place in range(size)] == [pick(whole, i) for i in order[:size]]


def test_b3_three_temperatures_in_one_batch_are_drawn_as_three_batches_of_one(sampler: Sampler) -> None:
    logits_V = markov_logits(1)
    rows = [row_of(seed=s, temperature=t, top_p=p) for s in range(50) for t, p in ((0.7, 0.9), (0.2, 1.0), (1.3, 0.5))]
    together = sampler.sample(logits_V.repeat(len(rows), 1), rows).token_ids
    assert together == [one(sampler, logits_V, row) for row in rows]
    assert together == [by_reference(logits_V, row) for row in rows]


@pytest.mark.parametrize("num_drafts", [0, 4])
def test_a_seed_gives_the_same_text_again_and_another_seed_another_text(sampler: Sampler, num_drafts: int) -> None:
    def text(seed: int) -> list[int]:
        return generate(sampler, 24, num_drafts, lambda k, _: [1] * k, seed=seed, temperature=2.0)

    assert text(42) == text(42)
    assert text(42) != text(43)


def test_b10_equal_logits_go_to_the_lowest_id(sampler: Sampler) -> None:
    logits_V = torch.zeros(VOCAB_SIZE)
    logits_V[[4, 5, 11]] = 3.0
    assert one(sampler, logits_V, row_of(temperature=0.0)) == 4
    assert one(sampler, -0.0 * torch.ones(VOCAB_SIZE) + torch.eye(VOCAB_SIZE)[0] * 0.0, row_of(temperature=0.0)) == 0
    assert one(sampler, [-0.0] * 3 + [0.0] * 13, row_of(temperature=0.0)) == 0
    assert one(sampler, logits_V - 3.0, row_of(temperature=0.0, logit_bias=((2, 3.0),))) == 2


@pytest.mark.parametrize("pair", [(3, 9), (9, 3), (0, 15), (15, 0), (6, 7), (7, 6)])
def test_equal_scores_with_noise_go_to_the_lowest_id(sampler: Sampler, pair: tuple[int, int]) -> None:
    top, other = pair
    num_ties = 0
    for seed in range(300):
        g_V = noise.gumbel(seed, 0, VOCAB_SIZE)
        logits_V = torch.full((VOCAB_SIZE,), -40.0)
        logits_V[top] = 0.0
        logits_V[other] = g_V[top] - g_V[other]
        if logits_V[other] < 0.0 and logits_V[other] + g_V[other] == g_V[top]:
            num_ties += 1
            assert one(sampler, logits_V, row_of(seed=seed)) == min(pair)
    assert num_ties > 20


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_row_without_a_distribution_is_reported_and_harms_no_other(
    sampler: Sampler, bad: float, dtype: torch.dtype
) -> None:
    logits_NV, rows = mixed_batch()
    logits_NV = logits_NV.to(dtype)
    clean = sampler.sample(logits_NV, rows)
    logits_NV[4, 11] = bad
    logits_NV[7] = -math.inf
    output = sampler.sample(logits_NV, rows)
    assert output.invalid == (4, 7)
    assert [output.token_ids[i] for i in output.invalid] == [NO_TOKEN, NO_TOKEN]
    others = [i for i in range(len(rows)) if i not in output.invalid]
    assert [pick(output, i) for i in others] == [pick(clean, i) for i in others]


def test_bias_that_is_not_a_number_is_reported(sampler: Sampler) -> None:
    row = row_of(logit_bias=((1, math.nan),))
    assert sampler.sample(torch.zeros(1, VOCAB_SIZE), [row]).invalid == (0,)


def test_rows_that_assume_a_token_that_was_not_drawn_are_skipped(sampler: Sampler) -> None:
    logits_NV = torch.eye(VOCAB_SIZE)[[3, 4, 5, 6, 7]]
    draft = [3, 9, 5]
    rows = [row_of(temperature=0.0)]
    rows += [replace(row_of(draft[: i + 1], temperature=0.0), assumed_token_id=draft[i]) for i in range(3)]
    rows += [row_of(temperature=0.0)]
    assert sampler.sample(logits_NV, rows).token_ids == [3, 4, NO_TOKEN, NO_TOKEN, 7]


def test_padding_columns_are_ignored_and_logits_are_not_changed(sampler: Sampler) -> None:
    logits_NV, rows = mixed_batch()
    padded_NV = torch.cat([logits_NV, torch.full((24, 5), 99.0)], dim=1)
    before_NV = padded_NV.clone()
    assert sampler.sample(padded_NV, rows) == sampler.sample(logits_NV, rows)
    assert torch.equal(padded_NV, before_NV)


@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e30])
@pytest.mark.parametrize("temperature", [1e-5, 1.0, 1e4])
def test_extreme_scales_stay_finite_and_equal_the_reference(sampler: Sampler, scale: float, temperature: float) -> None:
    logits_V = markov_logits(2) * scale
    row = row_of(temperature=temperature, top_p=0.9)
    assert not processed_logits(logits_V, row).isnan().any()
    assert one(sampler, logits_V, row) == by_reference(logits_V, row)


def test_as_many_rows_as_settings_are_required(sampler: Sampler) -> None:
    with pytest.raises(ValueError, match="shorter"):
        sampler.sample(torch.zeros(2, VOCAB_SIZE), [row_of()])
