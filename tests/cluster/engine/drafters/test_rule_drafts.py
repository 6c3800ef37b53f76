"""Drafts for rejection and block verification: drawn with noise of their own, and never cut for what was drawn."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cluster.clock import ManualClock
from cluster.engine.draft_budget import DraftBudget
from cluster.engine.draft_probabilities import DraftProbabilities
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.collect import Drafting, DraftLimits
from cluster.engine.drafters.draft_growth import TreeShape
from cluster.engine.drafters.draft_sampling import DraftSampler, DrawRow
from cluster.engine.drafters.own_draws import OwnDraws, own_draws
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.step_time import StepTimeModel
from cluster.grammar.source import choice_grammar
from cluster.types import SamplingParams
from tests.cluster.engine.drafters.test_guard import FixedDrafter, decoding
from tests.cluster.engine.engine_harness import request
from tests.cluster.engine.markov import PROMPT, WORDS, draft_model, draft_table, head
from tests.cluster.engine.sampling_toys import exact_distribution, p_value
from tests.cluster.engine.test_draft_budget import STEEP
from tests.cluster.grammar.grammar_toys import LIMITS, compiler
from tests.tiny import build_tokenizer

NUM_COLUMNS = 40
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 0.7},
    "truncated": {"temperature": 1.2, "top_k": 20, "top_p": 0.8},
    "min-p": {"temperature": 1.0, "min_p": 0.2},
}


def params(**settings: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 100, "seed": 5, **settings})


def logits(seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(0.0, 1.5, (1, NUM_COLUMNS)).astype(np.float32)


def draws(name: str, seeds: Seq[int], *, sampler: DraftSampler | None = None) -> tuple[list[int], list[OwnDraws]]:
    """A token of the same row with each seed, and what it was drawn from."""
    sampler = sampler or DraftSampler(NUM_COLUMNS, None, frozenset())
    owns = [OwnDraws(seed) for seed in seeds]
    settings = sampler.settings(params(**SETTINGS[name]), ())
    rows = [DrawRow(settings=settings, output_index=3, own=own) for own in owns]
    return [ids[0] for ids in sampler.draw(np.repeat(logits(), len(rows), axis=0), rows)], owns


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_row_says_it_is_drawn_from_is_what_the_settings_make_of_its_logits(name: str) -> None:
    _, (own,) = draws(name, [1])
    exact_V = exact_distribution(torch.from_numpy(logits()[0]), (), **SETTINGS[name])
    (q_C,) = own.rows
    np.testing.assert_allclose(q_C, exact_V, atol=1e-6)
    assert ((q_C > 0) == (exact_V > 0)).all()


@pytest.mark.parametrize("name", SETTINGS)
def test_draws_over_seeds_follow_what_they_say(name: str) -> None:
    drawn, owns = draws(name, range(1500))
    assert p_value(np.bincount(drawn, minlength=NUM_COLUMNS), owns[0].rows[0].astype(np.float64)) > 1e-4


def test_own_noise_differs_from_the_targets_and_from_round_to_round() -> None:
    sequences = [want(5, index, temperature=1.0).sequence for index in range(50)]
    seeds = {own.seed for sequence in sequences if (own := own_draws(sequence)) is not None}
    assert len(seeds - {5}) == 50
    assert own_draws(want(5).sequence) is None


def test_a_row_that_defines_no_distribution_leaves_none() -> None:
    sampler, own = DraftSampler(NUM_COLUMNS, None, frozenset()), OwnDraws(1)
    broken = logits()
    broken[0, 7] = np.nan
    row = DrawRow(settings=sampler.settings(params(temperature=1.0), ()), output_index=0, own=own)
    assert (sampler.draw(broken, [row]), own.rows) == ([[]], [])


def test_columns_become_token_ids_and_the_rest_of_the_vocabulary_has_no_chance() -> None:
    ids = np.arange(NUM_COLUMNS, dtype=np.int32) * 3
    _, (own,) = draws("plain", [1], sampler=DraftSampler(NUM_COLUMNS, ids, frozenset()))
    q_V = DraftProbabilities(rows=own.rows, target_ids=own.target_ids).of(0, 200)
    assert q_V.sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_array_equal(q_V[ids], own.rows[0])
    assert np.count_nonzero(q_V) == NUM_COLUMNS


def test_a_head_with_fewer_or_more_columns_than_the_target_is_cut_or_filled() -> None:
    rows = (np.full(4, 0.25, np.float32),)
    assert DraftProbabilities(rows=rows).of(0, 6).tolist() == [0.25] * 4 + [0.0] * 2
    assert DraftProbabilities(rows=rows).of(0, 3).tolist() == [0.25] * 3


def want(seed: int, num_output: int = 4, **sampling: Any) -> Wanted:
    sequence = Sequence.from_request(request("a", PROMPT, seed=seed, **{"max_tokens": 64, **sampling}))
    sequence.token_ids += [WORDS[0]] * num_output
    return Wanted(sequence=sequence, max_tokens=3)


def of_draft_model(wanted: Wanted, **settings: Any) -> Draft | None:
    drafter = draft_model(**settings)
    found = drafter.propose([wanted]).get("a")
    drafter.forget("a")
    return found


def test_a_draft_models_draft_says_what_each_token_was_drawn_from() -> None:
    draft = of_draft_model(want(1, temperature=0.7))
    assert draft is not None and draft.probabilities is not None
    last = WORDS[0]
    for i, token_id in enumerate(draft.token_ids):
        q_V = draft.probabilities.of(i, 512)
        np.testing.assert_allclose(q_V, exact_distribution(draft_table()[last], (), temperature=0.7), atol=1e-6)
        last = token_id
    assert len(draft.probabilities.rows) == len(draft.token_ids) == 3
    assert len(draft.first(2).probabilities.rows) == 2  # type: ignore[union-attr]


def test_drafts_at_the_same_place_differ_by_round_and_greedy_or_coupled_ones_say_nothing() -> None:
    drafted = {draft.token_ids for n in range(20) if (draft := of_draft_model(want(1, n, temperature=1.0)))}
    assert len(drafted) > 5
    greedy, coupled = of_draft_model(want(1)), of_draft_model(want(1, temperature=1.0), has_own_noise=False)
    assert greedy is not None and greedy.probabilities is None
    assert coupled is not None and coupled.probabilities is None


def test_a_head_with_own_noise_makes_no_trees() -> None:
    with pytest.raises(AssertionError, match="chains"):
        head(shape=TreeShape(max_nodes=8, max_branches=2))


class DrawnDrafter(FixedDrafter):
    """Says what its tokens were drawn from."""

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        return {
            request_id: replace(draft, probabilities=uniform_rows(len(draft.token_ids)))
            for request_id, draft in super().propose(wanted).items()
        }


def uniform_rows(count: int) -> DraftProbabilities:
    return DraftProbabilities(rows=[np.full(512, 1 / 512, np.float32)] * count)


def drawn(token_ids: tuple[int, ...], confidence: float = 0.9) -> DrawnDrafter:
    return DrawnDrafter("drawn", token_ids, confidences=(confidence,) * len(token_ids))


@pytest.mark.parametrize("token_ids", [(3,), (3, 4, 5)])
@pytest.mark.parametrize(("promise", "winner"), [(0.5, "known"), (1.5, "drawn")])
def test_whether_a_drawn_draft_is_taken_depends_on_its_promise_alone(
    token_ids: tuple[int, ...], promise: float, winner: str
) -> None:
    """It may be shorter or longer than was promised, for what was drawn: that must not show."""
    known = (FixedDrafter("known", (7, 7), confidences=(0.6, 0.6)), None)
    later = (FixedDrafter("later", (8, 8), confidences=(0.9, 0.5)), lambda want: 1.4)
    found = BestDraft(known, (drawn(token_ids), lambda want: promise), later).propose(
        [Wanted(sequence=decoding("a"), max_tokens=8)]
    )
    assert found["a"].source == ("later" if winner == "known" else winner)


def test_of_a_drawn_draft_the_first_token_that_the_grammar_refuses_stays() -> None:
    tokenizer = build_tokenizer()
    right, wrong = (tuple(tokenizer.encode(text, add_special_tokens=False)) for text in ("abc", "zz"))
    sequence = decoding("a")
    sequence.grammar = compiler().matcher(choice_grammar(["abc", "abd"], LIMITS))
    (draft,) = BestDraft((drawn((right[0], *wrong)), None)).propose([Wanted(sequence=sequence, max_tokens=8)]).values()
    assert draft.token_ids == (right[0], wrong[0])
    assert draft.probabilities is not None and len(draft.probabilities.rows) == 2


def test_no_budget_cuts_a_drawn_draft() -> None:
    """Rows cost more than such drafts bring: others would be cut."""
    text, unlikely = (3, 4, 5), 0.1
    for drafter, length in (
        (FixedDrafter("d", text, confidences=(unlikely,) * 3), 0),
        (drawn(text, unlikely), 3),
    ):
        budget = DraftBudget(StepTimeModel(assumed=STEEP))
        drafting = Drafting(drafter, DraftLimits(num_speculative_tokens=4, vocab_size=100), ManualClock(), budget)
        sequence = decoding("a")
        assert len(drafting.propose([sequence]).get("a", ())) == length
        item = ScheduledSequence.of(sequence, 1, text[:length])
        assert (drafting.probabilities_of(item) is not None) is (length == 3)


def test_a_drawn_row_has_no_chances_and_its_neighbours_keep_theirs() -> None:
    sampler = DraftSampler(NUM_COLUMNS, None, frozenset())
    row = DrawRow(settings=sampler.settings(params(temperature=0.7), ()), output_index=3)
    alone, *_ = sampler.draw_with_chances(logits(), [row])
    own, shared = sampler.draw_with_chances(np.repeat(logits(), 2, axis=0), [replace(row, own=OwnDraws(1)), row])
    assert len(own.token_ids) == 1 and own.chances == ()
    assert shared == alone and len(shared.chances) == 1
