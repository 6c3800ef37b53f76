"""Candidates of a draft model's rows: the target's rule, in the columns of a head."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from cluster.engine.drafters import draft_sampling
from cluster.engine.drafters.draft_sampling import DraftSampler, DrawRow
from cluster.engine.logits_processors import SamplingRow
from cluster.engine.noise import gumbel
from cluster.engine.sampler import Sampler
from cluster.engine.sampling_reference import process
from cluster.types import SamplingParams

SIZE = 700
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.3},
    {"temperature": 1.7},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 5},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.0, "repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    {"temperature": 0.0, "logit_bias": ((5, 4.0), (6, -4.0)), "allowed_token_ids": tuple(range(0, SIZE, 3))},
    {"temperature": 1.0, "min_tokens": 50, "stop_token_ids": (3, 9)},
    {"temperature": 1.0, "allowed_token_ids": (8,), "logit_bias": ((8, float("-inf")),)},
    {"temperature": 0.0, "bad_words": ((2, 4), (7,))},
]


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 100, "seed": 5, **fields})


def logits(seed: int, num_rows: int, size: int = SIZE) -> npt.NDArray[np.float32]:
    # Rounded to bf16, so that many are equal.
    values = torch.randn(num_rows, size, generator=torch.Generator().manual_seed(seed)) * 4
    return values.to(torch.bfloat16).float().numpy()


def draw_one(sampler: DraftSampler, row_C: npt.NDArray[np.float32], count: int = 1, **fields: Any) -> list[int]:
    settings = sampler.settings(params(**fields), ())
    return sampler.draw(row_C[None], [DrawRow(settings=settings, output_index=0, num_candidates=count)])[0]


@pytest.mark.parametrize("fields", SETTINGS)
def test_equal_logits_draw_the_token_that_the_target_draws(fields: dict[str, Any]) -> None:
    sampling, prompt, output = params(**fields), (1, 2, 3, 650), (4, 4, 2)
    target, drafter = Sampler(SIZE, frozenset({0})), DraftSampler(SIZE, None, frozenset({0}))
    rows_NV = logits(1, 12)
    rows = [
        SamplingRow(params=sampling, output_index=3 + i, prompt_token_ids=prompt, output_token_ids=output)
        for i in range(12)
    ]
    settings = drafter.settings(sampling, prompt)
    draws = [DrawRow(settings=settings, output_index=3 + i, output_token_ids=output) for i in range(12)]
    expected = target.sample(torch.from_numpy(rows_NV), rows).token_ids
    assert [ids[0] for ids in drafter.draw(rows_NV, draws)] == expected


def test_rows_of_all_kinds_are_drawn_together_as_alone_and_logits_stay() -> None:
    sampler, rows_NC = DraftSampler(SIZE, None, frozenset({0})), logits(2, len(SETTINGS))
    before = rows_NC.copy()
    rows = [
        DrawRow(settings=sampler.settings(params(**fields), (1, 2)), output_index=i, num_candidates=1 + i % 3)
        for i, fields in enumerate(SETTINGS)
    ]
    together = sampler.draw(rows_NC, rows)
    assert together == [sampler.draw(rows_NC[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert np.array_equal(rows_NC, before)


def test_equal_scores_go_to_the_lowest_token_ids() -> None:
    ids = np.arange(3, 3 + 2 * SIZE, 2, dtype=np.int32)
    row_C = np.zeros(SIZE, np.float32)
    assert draw_one(DraftSampler(SIZE, ids, frozenset()), row_C, 4, temperature=0.0) == [3, 5, 7, 9]
    row_C[300:] = 1.0
    assert draw_one(DraftSampler(SIZE, ids, frozenset()), row_C, 2, temperature=0.0) == [603, 605]


def test_columns_that_do_not_rise_are_refused() -> None:
    with pytest.raises(AssertionError, match="must rise"):
        DraftSampler(3, np.array([1, 5, 4], np.int32), frozenset())


def test_the_noise_belongs_to_the_token_and_not_to_the_column() -> None:
    ids = np.arange(0, 2 * SIZE, 2, dtype=np.int32)
    whole = np.full((1, 2 * SIZE), -np.inf, np.float32)
    whole[0, ids] = logits(3, 1)
    settings = {"temperature": 1.0}
    expected = draw_one(DraftSampler(2 * SIZE, None, frozenset()), whole[0], 6, **settings)
    assert draw_one(DraftSampler(SIZE, ids, frozenset()), whole[0, ids], 6, **settings) == expected


def test_ids_outside_the_head_change_nothing() -> None:
    ids = np.arange(0, 2 * SIZE, 2, dtype=np.int32)
    sampler, row_C = DraftSampler(SIZE, ids, frozenset()), logits(4, 1)[0]
    plain = draw_one(sampler, row_C, 3, temperature=0.0)
    outside = {"logit_bias": ((1, 99.0), (10**9, 99.0), (-4, 99.0)), "bad_words": ((plain[0] + 1,),)}
    assert draw_one(sampler, row_C, 3, temperature=0.0, **outside) == plain


def test_two_unknown_tokens_are_not_taken_for_the_same_in_bad_words() -> None:
    ids = np.arange(0, 2 * SIZE, 2, dtype=np.int32)
    sampler, row_C = DraftSampler(SIZE, ids, frozenset()), logits(4, 1)[0]
    best = draw_one(sampler, row_C, temperature=0.0)[0]
    settings = sampler.settings(params(temperature=0.0, bad_words=((1, best),)), ())

    def drawn_behind(token_id: int) -> int:
        return sampler.draw(row_C[None], [DrawRow(settings=settings, output_index=1, output_token_ids=(token_id,))])[0][
            0
        ]

    assert drawn_behind(3) == best
    assert drawn_behind(1) != best


def test_an_excluded_token_gives_its_place_to_the_next() -> None:
    sampler, row_C = DraftSampler(SIZE, None, frozenset()), logits(5, 1)[0]
    settings = sampler.settings(params(temperature=0.8), ())
    first, second, third = draw_one(sampler, row_C, 3, temperature=0.8)
    row = DrawRow(settings=settings, output_index=0, num_candidates=2, excluded_token_id=first)
    assert sampler.draw(row_C[None], [row]) == [[second, third]]


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3}])
def test_rows_without_a_distribution_have_no_candidates(fields: dict[str, Any]) -> None:
    sampler = DraftSampler(SIZE, None, frozenset())
    rows_NC = logits(6, 3)
    rows_NC[0, 7] = np.nan
    rows_NC[1] = -np.inf
    settings = sampler.settings(params(**fields), ())
    drawn = sampler.draw(rows_NC, [DrawRow(settings=settings, output_index=i, num_candidates=2) for i in range(3)])
    assert all(7 not in ids for ids in drawn)
    assert len(drawn[1]) <= 1
    assert len(drawn[2]) == 2


def test_no_more_candidates_than_can_be_drawn() -> None:
    sampler, row_C = DraftSampler(SIZE, None, frozenset()), logits(7, 1)[0]
    assert len(draw_one(sampler, row_C, 9, temperature=1.0, top_k=4)) == 4
    assert draw_one(sampler, row_C, 9, temperature=1.0, allowed_token_ids=(6,)) == [6]


def test_more_rows_than_the_noise_cache_holds_are_drawn_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_sampling, "_MAX_NOISE_VECTORS", 5)
    small = DraftSampler(SIZE, None, frozenset())
    rows_NC = logits(8, 23)

    def rows(sampler: DraftSampler) -> list[DrawRow]:
        settings = [sampler.settings(params(temperature=1.0, seed=seed), ()) for seed in (1, 2)]
        return [DrawRow(settings=settings[i % 2], output_index=i // 3) for i in range(23)]

    monkeypatch.setattr(draft_sampling, "_MAX_NOISE_VECTORS", 512)
    large = DraftSampler(SIZE, None, frozenset())
    for _ in range(3):
        assert small.draw(rows_NC, rows(small)) == large.draw(rows_NC, rows(large))
    assert small._noise.vectors_MC.shape[0] == len(small._noise._slots) == 5


def test_noise_that_a_batch_uses_is_not_replaced_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, rows_NC = DraftSampler(SIZE, None, frozenset()), np.zeros((5, SIZE), np.float32)
    monkeypatch.setattr(draft_sampling, "_MAX_NOISE_VECTORS", 5)
    small = DraftSampler(SIZE, None, frozenset())
    settings = sampler.settings(params(temperature=1.0), ())

    def rows(*indices: int) -> list[DrawRow]:
        return [DrawRow(settings=settings, output_index=index) for index in indices]

    small.draw(rows_NC, rows(0, 1, 2, 3, 4))
    assert small.draw(rows_NC, rows(0, 5, 6, 7, 8)) == sampler.draw(rows_NC, rows(0, 5, 6, 7, 8))


def test_ranking_is_by_score_over_the_whole_row() -> None:
    """The compiled selection against a sort."""
    sampler = DraftSampler(SIZE, None, frozenset())
    for seed in range(20):
        row_C = logits(seed, 1)[0]
        row = SamplingRow(params=params(temperature=0.0), output_index=0, prompt_token_ids=(), output_token_ids=())
        order = np.lexsort((np.arange(SIZE), -process(row_C, row, frozenset())))
        assert draw_one(sampler, row_C, 16, temperature=0.0) == order[:16].tolist()


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, {"temperature": 0.0, "logit_bias": ((5, 3.0), (6, -9.0))}])
def test_at_temperature_0_chances_are_the_draft_models_own_distribution(fields: dict[str, Any]) -> None:
    sampler, rows_NC = DraftSampler(SIZE, None, frozenset()), logits(3, 6)
    row = DrawRow(settings=sampler.settings(params(**fields), ()), output_index=0, num_candidates=4)
    biased_NC = torch.from_numpy(rows_NC.copy())
    for token_id, bias in fields.get("logit_bias", ()):
        biased_NC[:, token_id] += bias
    expected_NC = biased_NC.softmax(1).numpy()
    for n, found in enumerate(sampler.draw_with_chances(rows_NC, [row] * 6)):
        assert found.chances == pytest.approx(expected_NC[n, list(found.token_ids)], rel=1e-3)
        assert list(found.token_ids) == sampler.draw(rows_NC[n : n + 1], [row])[0]


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.3])
def test_chances_hold_where_the_target_differs_by_gumbel_noise(temperature: float) -> None:
    """For each candidate: how often the target draws it, over many targets around one draft model."""
    size, num_targets, index = 40, 20_000, 3
    sampler, row_NC = DraftSampler(size, None, frozenset()), logits(5, 1, size)
    settings = sampler.settings(params(temperature=temperature), ())
    (found,) = sampler.draw_with_chances(row_NC, [DrawRow(settings=settings, output_index=index, num_candidates=3)])
    shared_C = np.asarray(gumbel(5, index, size)) if temperature else np.zeros(size)
    error_NC = np.random.default_rng(0).gumbel(size=(num_targets, size))
    drawn_N = ((row_NC + error_NC) / (temperature or 1.0) + shared_C).argmax(1)
    hits = [float((drawn_N == token_id).mean()) for token_id in found.token_ids]
    assert found.chances == pytest.approx(hits, abs=0.02)


def test_columns_that_truncation_dropped_have_no_share_and_one_that_is_left_has_all() -> None:
    sampler, rows_NC = DraftSampler(SIZE, None, frozenset()), logits(2, 3)
    for count, fields in ((1, {"top_k": 1}), (5, {"top_k": 5}), (1, {"allowed_token_ids": (9,)})):
        settings = sampler.settings(params(temperature=0.8, **fields), ())
        row = DrawRow(settings=settings, output_index=0, num_candidates=8)
        for found in sampler.draw_with_chances(rows_NC, [row] * 3):
            assert len(found.token_ids) == len(found.chances) == count
            assert sum(found.chances) == pytest.approx(1.0, abs=1e-3)
