"""Masked rows: the distribution is the masked one, and the sampler agrees with its reference."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine import sampler_kernels as kernels
from cluster.engine.logits_processors import SamplingRow, ids_of
from cluster.engine.sampler import NO_TOKEN, Sampler, processed_logits
from cluster.grammar.matcher import GrammarStateError, Mask
from tests.cluster.engine.sampling_toys import EOS, VOCAB_SIZE, exact_distribution, markov_logits, one, p_value, row_of

NUM_DRAWS = 4000
few = settings(max_examples=150, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(VOCAB_SIZE, EOS)


def mask_of(ids: set[int], vocab_size: int = VOCAB_SIZE) -> Mask:
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[sorted(ids)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


def masked_row(ids: set[int], output: tuple[int, ...] = (), **values: Any) -> SamplingRow:
    row = row_of(output, **values)
    return SamplingRow(
        params=row.params,
        output_index=row.output_index,
        prompt_token_ids=row.prompt_token_ids,
        output_token_ids=row.output_token_ids,
        allowed=lambda: mask_of(ids),
    )


@few
@given(ids=st.sets(st.integers(0, 99), min_size=1), vocab_size=st.integers(100, 170))
def test_a_mask_keeps_exactly_its_tokens(ids: set[int], vocab_size: int) -> None:
    mask_W = mask_of(ids, vocab_size)
    row_V = np.ones(vocab_size, np.float32)
    kernels.keep_allowed(row_V, mask_W)
    assert set(np.flatnonzero(np.isfinite(row_V)).tolist()) == ids == set(ids_of(mask_W, vocab_size).tolist())


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("values", [{}, {"top_k": 3}, {"presence_penalty": 1.0, "top_p": 0.9}], ids=str)
def test_draws_follow_the_distribution_over_what_the_grammar_allows(
    sampler: Sampler, values: dict[str, Any], temperature: float
) -> None:
    ids, output, logits_V = {1, 4, 5, 9, 11, 14}, (4, 4, 9), markov_logits(7)
    rows = [masked_row(ids, output, seed=seed, temperature=temperature, **values) for seed in range(NUM_DRAWS)]
    drawn = sampler.sample(logits_V.expand(NUM_DRAWS, -1), rows).token_ids
    masked_V = torch.where(torch.tensor([v in ids for v in range(VOCAB_SIZE)]), logits_V, -1e9)
    expected = exact_distribution(masked_V, output, temperature=temperature, **values)
    assert p_value(np.bincount(drawn, minlength=VOCAB_SIZE), expected) > 1e-4


all_values = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 0.7, 1.0])},
    optional={
        "top_k": st.sampled_from([1, 4]),
        "top_p": st.sampled_from([0.4, 0.9]),
        "min_p": st.sampled_from([0.1]),
        "repetition_penalty": st.sampled_from([1.3]),
        "frequency_penalty": st.sampled_from([0.7]),
        "logit_bias": st.just(((3, 4.0), (5, -3.0))),
        "allowed_token_ids": st.lists(st.integers(0, 15), min_size=1, max_size=4).map(tuple),
        "bad_words": st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=1).map(tuple), max_size=4).map(tuple),
        "min_tokens": st.sampled_from([0, 9]),
        "ignore_eos": st.booleans(),
        "stop_token_ids": st.just((4,)),
    },
)


@few
@given(ids=st.sets(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=6), values=all_values, last=st.integers(0, 15))
def test_the_sampler_draws_what_the_reference_leaves_and_only_what_the_grammar_allows(
    sampler: Sampler, ids: set[int], values: dict[str, Any], last: int
) -> None:
    from cluster.engine.noise import gumbel

    row, logits_V = masked_row(ids, (4, 9, 4), seed=last, **values), markov_logits(last)
    processed_V = processed_logits(logits_V, row, EOS)
    assert set(torch.isfinite(processed_V).nonzero().ravel().tolist()) <= ids
    noise_V = 0.0 if values["temperature"] == 0.0 else gumbel(row.params.seed, row.output_index, VOCAB_SIZE)
    token_id = one(sampler, logits_V, row)
    assert token_id == int(torch.argmax(processed_V + noise_V)) and token_id in ids


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"allowed_token_ids": (3, 7)}, 7),  # the grammar's and the list's
        ({"allowed_token_ids": (3, 12)}, 5),  # nothing in common: the grammar's largest logit
        ({"bad_words": ((5,), (7,), (9,))}, 5),
        ({"allowed_token_ids": (3, 7), "bad_words": ((7,),)}, 7),
    ],
)
def test_where_settings_leave_nothing_the_grammar_wins(sampler: Sampler, values: dict[str, Any], expected: int) -> None:
    logits_V = torch.zeros(VOCAB_SIZE)
    logits_V[[3, 5, 7, 9, 12]] = torch.tensor([9.0, 5.0, 3.0, 1.0, 8.0])
    row = masked_row({5, 7, 9}, **values)
    assert one(sampler, logits_V, row) == expected
    assert processed_logits(logits_V, row, EOS).isfinite().nonzero().item() == expected


def test_a_row_that_is_skipped_costs_no_mask_and_one_that_fails_harms_no_other(sampler: Sampler) -> None:
    asked: list[int] = []

    def allowed(number: int) -> Mask:
        asked.append(number)
        if number == 3:
            raise GrammarStateError("too much work")
        return mask_of({number})

    def row(number: int, assumed: int | None) -> SamplingRow:
        plain = row_of()
        return SamplingRow(
            params=plain.params,
            output_index=0,
            prompt_token_ids=plain.prompt_token_ids,
            output_token_ids=(),
            assumed_token_id=assumed,
            allowed=partial(allowed, number),
        )

    rows = [row(1, None), row(2, 9), row(4, 2), row(3, None), row_of(temperature=0.0)]
    drawn = sampler.sample(markov_logits(7).expand(5, -1), rows)
    assert drawn.token_ids == [1, NO_TOKEN, NO_TOKEN, NO_TOKEN, int(markov_logits(7).argmax())]
    assert drawn.invalid == (3,) and asked == [1, 3]
