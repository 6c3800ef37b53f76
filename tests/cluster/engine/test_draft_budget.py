"""The budget of a round: the best cut of all drafts together, probes, hysteresis and the operator's limits."""

import random
from itertools import accumulate, pairwise, product
from operator import mul

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.clock import ManualClock
from cluster.engine.budget import RoundLoad, draft_lengths, expected_tokens, padded, uniform_length
from cluster.engine.draft_budget import PROBE_COST_RATIO, DraftBudget, StaticLimits
from cluster.engine.drafters.base import Draft
from cluster.engine.drafters.collect import Drafting, DraftLimits
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence, SequenceStatus
from cluster.engine.step_time import StepTimeModel, StepTimes
from tests.cluster.engine.drafters.test_guard import FixedDrafter, decoding
from tests.cluster.engine.engine_harness import request

FLAT = StepTimes(knots=((1, 0.010), (64, 0.011)))
STEEP = StepTimes(knots=((1, 0.010), (2, 0.020)))
MEASURED = StepTimes(knots=((1, 0.013), (8, 0.015), (16, 0.018), (32, 0.027), (64, 0.047)))


def rate(lengths: tuple[int, ...], survivals: list[list[float]], times: StepTimes, load: RoundLoad) -> float:
    """Expected tokens per second, by definition."""
    tokens = load.num_sequences + sum(sum(row[:length]) for row, length in zip(survivals, lengths, strict=True))
    others = load.num_sequences + load.num_prompt_rows
    added_s = times.forward_s(others + sum(lengths)) - times.forward_s(others) + times.draft_row_s * sum(lengths)
    return tokens / (times.seconds(load.num_sequences, load.num_context_tokens) + added_s)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    confidences=st.lists(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4), min_size=1, max_size=3),
    slopes=st.tuples(*[st.floats(1e-5, 5e-3)] * 3),
    idle=st.integers(0, 20),
    prompt_rows=st.integers(0, 30),
)
def test_no_other_cut_promises_more_tokens_per_second(
    confidences: list[list[float]], slopes: tuple[float, ...], idle: int, prompt_rows: int
) -> None:
    survivals = [list(accumulate(row, mul)) for row in confidences]
    knots = [(1, 0.01)]
    for rows, slope in zip((4, 12, 40), slopes, strict=True):
        knots.append((rows, knots[-1][1] + slope * (rows - knots[-1][0])))
    times = StepTimes(knots=tuple(knots), sequence_s=1e-4, draft_row_s=2e-5, context_s=1e-7)
    load = RoundLoad(num_sequences=len(survivals) + idle, num_prompt_rows=prompt_rows, num_context_tokens=700)
    chosen = tuple(draft_lengths(padded(survivals), times, load).tolist())
    best = max(
        rate(lengths, survivals, times, load) for lengths in product(*[range(len(row) + 1) for row in survivals])
    )
    assert rate(chosen, survivals, times, load) == pytest.approx(best)


def test_lengths_differ_by_sequence() -> None:
    # A9: a repetitive and a random tenant in one batch.
    lengths = draft_lengths(padded([[0.95, 0.9, 0.85, 0.8], [0.1, 0.02]]), MEASURED, RoundLoad(num_sequences=8))
    assert lengths.tolist() == [4, 0]


def test_drafts_fade_out_as_more_sequences_decode() -> None:
    survival = list(accumulate([0.6] * 6, mul))
    totals = []
    for num_sequences in (1, 2, 4, 8, 16, 32, 64):
        load = RoundLoad(num_sequences=num_sequences)
        totals.append(draft_lengths(padded([survival] * num_sequences), MEASURED, load).sum() / num_sequences)
    assert totals[0] >= 3
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] == 0
    assert len(set(totals)) >= 4, "smoothly"


def test_good_acceptance_alone_does_not_keep_drafts_in_a_saturated_batch() -> None:
    # A3: 60 % accepted, and each row costs its full share.
    survival = list(accumulate([0.6] * 5, mul))
    assert draft_lengths(padded([survival] * 200), STEEP, RoundLoad(num_sequences=200)).sum() == 0


def test_the_cost_belongs_to_the_target_and_not_to_the_draft() -> None:
    # A5: the same drafts before a slow and a fast target.
    survival = padded([[0.5, 0.25]] * 4)
    assert draft_lengths(survival, FLAT, RoundLoad(num_sequences=4)).sum() == 8
    assert draft_lengths(survival, STEEP, RoundLoad(num_sequences=4)).sum() == 0


def test_prompts_in_the_same_pass_make_drafts_dearer() -> None:
    survival = padded([list(accumulate([0.4] * 4, mul))] * 4)
    alone = draft_lengths(survival, MEASURED, RoundLoad(num_sequences=4)).sum()
    assert draft_lengths(survival, MEASURED, RoundLoad(num_sequences=4, num_prompt_rows=256)).sum() < alone


def test_the_uniform_length_is_what_the_ranking_chooses_for_equal_sequences() -> None:
    for alpha, num_sequences in product((0.2, 0.5, 0.8), (1, 4, 16, 48)):
        survival = list(accumulate([alpha] * 6, mul))
        load = RoundLoad(num_sequences=num_sequences)
        ranked = draft_lengths(padded([survival] * num_sequences), MEASURED, load)
        length, tokens_per_s = uniform_length(alpha, MEASURED, num_sequences=num_sequences, max_tokens=6)
        assert abs(ranked.mean() - length) < 1
        plain = num_sequences / MEASURED.seconds(num_sequences)
        assert tokens_per_s >= plain
    assert expected_tokens(0.5, 2) == 1.75


def spent(budget: DraftBudget, survivals: list[list[float]], load: RoundLoad, rounds: int) -> list[int]:
    tokens = []
    for _ in range(rounds):
        budget.save_up(load)
        tokens.append(sum(budget.lengths(padded(survivals), load)))
    return tokens


def test_probes_of_drafts_that_do_not_pay_take_their_small_share_of_the_time_and_no_more() -> None:
    budget = DraftBudget(StepTimeModel(assumed=MEASURED))
    load, survivals = RoundLoad(num_sequences=64), [[0.1, 0.05, 0.01]] * 64
    tokens = spent(budget, survivals, load, 2000)
    assert sum(tokens) > 0, "off for ever"
    plain_s = MEASURED.seconds(64)
    extra_s = sum(MEASURED.seconds(64 + n) - plain_s + (0.02 * plain_s if n else 0) for n in tokens)
    assert extra_s <= 1.1 * PROBE_COST_RATIO * 2000 * plain_s
    assert budget.num_cut["budget"] > 2000 * 63  # type: ignore[index]


def test_every_sequence_gets_its_turn_to_probe() -> None:
    budget = DraftBudget(StepTimeModel(assumed=STEEP))
    load = RoundLoad(num_sequences=5)
    probed = set()
    for _ in range(3000):
        budget.save_up(load)
        lengths = budget.lengths(padded([[0.1, 0.05]] * 5), load)
        probed |= {index for index, length in enumerate(lengths) if length}
    assert probed == set(range(5))


def test_a_batch_at_the_threshold_does_not_flicker() -> None:
    # A1: chances that wobble around the point where drafts begin to pay.
    rng = random.Random(0)
    load, alpha = RoundLoad(num_sequences=32), 0.30
    while uniform_length(alpha, MEASURED, num_sequences=32, max_tokens=1)[0] == 0:
        alpha += 0.001
    budget = DraftBudget(StepTimeModel(assumed=MEASURED), round_cost_ratio=0.0)
    states = [sum(budget.lengths(padded([[alpha + rng.uniform(-0.004, 0.004)]] * 32), load)) > 2 for _ in range(500)]
    assert sum(a != b for a, b in pairwise(states)) <= 4


def drafting(static: StaticLimits, confidences: tuple[float, ...] = ()) -> Drafting:
    limits = DraftLimits(num_speculative_tokens=4, vocab_size=100, static=static)
    return Drafting(FixedDrafter("d", (1, 2), confidences=confidences), limits, ManualClock())


def test_nobody_drafts_above_the_batch_guard() -> None:
    source = drafting(StaticLimits(max_sequences=2))
    assert len(source.propose([decoding("a"), decoding("b")])) == 2
    assert not source.propose([decoding("a"), decoding("b"), decoding("c")])
    assert source.take_limited() == {"batch": 3}
    assert source.take_limited() == {}


def test_only_short_sequences_draft_under_a_context_guard() -> None:
    source = drafting(StaticLimits(max_context=10))
    long = Sequence.from_request(request("long", list(range(30))))
    long.num_computed_tokens, long.status = 29, SequenceStatus.RUNNING
    assert list(source.propose([decoding("short"), long])) == ["short"]
    assert source.take_limited() == {"context": 1}


def test_a_sequence_whose_drafts_fail_stops_and_is_tried_again_now_and_then() -> None:
    source = drafting(StaticLimits(min_acceptance_rate=0.5))
    bad, good = decoding("bad"), decoding("good")
    rounds = []
    for _ in range(200):
        drafts = source.propose([bad, good])
        rounds.append("bad" in drafts)
        assert "good" in drafts
        for sequence in (bad, good):
            if ids := drafts.get(sequence.request_id):
                item = ScheduledSequence(sequence=sequence, start=2, num_tokens=1, draft_token_ids=ids, epoch=0)
                source.observe(item, () if sequence is bad else range(len(ids)))
    assert all(rounds[:2])
    assert 0 < sum(rounds[50:]) <= 150 / 16 + 1
    assert source.take_limited()["acceptance"] > 100


def test_drafts_without_confidences_are_verified_whole() -> None:
    budget = DraftBudget(StepTimeModel(assumed=STEEP))
    limits = DraftLimits(num_speculative_tokens=4, vocab_size=100)
    source = Drafting(FixedDrafter("d", (1, 2)), limits, ManualClock(), budget)
    assert source.propose([decoding("a")]) == {"a": (1, 2)}


def test_a_cut_draft_keeps_its_first_tokens_and_their_confidences() -> None:
    class Watcher(FixedDrafter):
        def observe(self, sequence: object, draft: Draft, num_accepted: int) -> None:
            seen.append(draft)

    seen: list[Draft] = []
    drafter = Watcher("d", (1, 2, 3, 4), confidences=(0.99, 0.9, 0.05, 0.9))
    budget = DraftBudget(StepTimeModel(assumed=MEASURED))
    source = Drafting(drafter, DraftLimits(num_speculative_tokens=4, vocab_size=100), ManualClock(), budget)
    sequence = decoding("a")
    ids = source.propose([sequence])["a"]
    assert ids == (1, 2)
    source.observe(ScheduledSequence(sequence=sequence, start=2, num_tokens=1, draft_token_ids=ids, epoch=0), (0, 1))
    assert seen == [Draft(token_ids=(1, 2), source="d", confidences=(0.99, 0.9))]


def test_many_drafts_are_ranked_as_few_are() -> None:
    limits = DraftLimits(num_speculative_tokens=4, vocab_size=100)
    one = Drafting(FixedDrafter("d"), limits, ManualClock())
    drafts = [Draft(token_ids=(1,) * n, source="d", confidences=(0.7, 0.5, 0.9)[:n]) for n in (1, 2, 3)]
    few, many = one._survival(drafts), one._survival(drafts * 20)
    assert np.allclose(many, np.tile(few, (20, 1)))


def test_a_large_batch_without_a_draft_that_pays_is_looked_at_in_one_round_of_four() -> None:
    drafter = FixedDrafter("d", (1, 2), confidences=(0.01, 0.01))
    limits = DraftLimits(num_speculative_tokens=4, vocab_size=100)
    source = Drafting(drafter, limits, ManualClock(), DraftBudget(StepTimeModel(assumed=STEEP)))
    few, many = [decoding(f"{i}") for i in range(4)], [decoding(f"{i}") for i in range(20)]
    for _ in range(20):
        source.propose(few)
    assert len(drafter.seen("propose")) == 20
    for _ in range(40):
        source.propose(many)
    assert len(drafter.seen("propose")) == 20 + 40 // 4


def test_a_batch_in_which_drafts_pay_is_looked_at_in_every_round() -> None:
    drafter = FixedDrafter("d", (1, 2), confidences=(0.99, 0.99))
    limits = DraftLimits(num_speculative_tokens=4, vocab_size=100)
    source = Drafting(drafter, limits, ManualClock(), DraftBudget(StepTimeModel(assumed=FLAT)))
    for _ in range(40):
        assert source.propose([decoding(f"{i}") for i in range(20)])
    assert len(drafter.seen("propose")) == 40
