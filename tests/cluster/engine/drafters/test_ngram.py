"""The n-gram drafter against a plain search, and how its drafts follow each sequence."""

import random
from itertools import accumulate, takewhile
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.budget import DraftCost, RoundLoad, padded
from cluster.engine.draft_budget import DraftBudget
from cluster.engine.drafters import ngram
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.factory import build_drafter
from cluster.engine.drafters.ngram import MAX_BACKLOG_TOKENS, MAX_INDEXED_TOKENS, NgramDrafter, NgramIndex
from cluster.engine.sequence import Sequence
from cluster.errors import ConfigError
from cluster.types import Request, SamplingParams

K = 7


def sequence(token_ids: list[int], request_id: str = "r") -> Sequence:
    sampling = SamplingParams(max_tokens=10**6, seed=0)
    return Sequence.from_request(Request(request_id=request_id, prompt_token_ids=tuple(token_ids), sampling=sampling))


def drafter() -> NgramDrafter:
    return NgramDrafter(max_draft_tokens=K)


def propose(source: NgramDrafter, seq: Sequence, max_tokens: int) -> tuple[int, ...]:
    """The draft of one sequence."""
    draft = source.propose([Wanted(sequence=seq, max_tokens=max_tokens)]).get(seq.request_id)
    assert draft is None or (draft.source == "ngram" and draft.token_ids)
    return draft.token_ids if draft else ()


def observe(source: NgramDrafter, seq: Sequence, draft: tuple[int, ...], num_accepted: int) -> None:
    source.observe(seq, Draft(token_ids=draft, source="ngram"), num_accepted)


def decode(source: NgramDrafter, seq: Sequence, output: list[int]) -> list[tuple[int, int]]:
    """Let the drafter guess `output` round by round, each draft cut to what pays; return (drafted, accepted)."""
    rounds, done = [], 0
    budget = DraftBudget(DraftCost().model)
    while done < len(output):
        offered = source.propose([Wanted(sequence=seq, max_tokens=K)]).get(seq.request_id)
        draft: tuple[int, ...] = ()
        if offered is not None:
            survival = list(accumulate(offered.confidences, mul))
            draft = offered.token_ids[: budget.lengths(padded([survival]), RoundLoad(num_sequences=1))[0]]
        pairs = zip(draft, output[done:], strict=False)
        accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        seq.token_ids.extend(output[done : done + accepted + 1])
        done += accepted + 1
        observe(source, seq, draft, accepted)
        rounds.append((len(draft), accepted))
    return rounds


def naive_find(token_ids: list[int]) -> tuple[int, int] | None:
    """Longest, then latest, earlier occurrence of the last 5..2 tokens; the whole match up to 8 tokens."""
    last = len(token_ids) - 1
    for n in range(5, 1, -1):
        for position in range(last - 1, n - 2, -1):
            if token_ids[position - n + 1 : position + 1] == token_ids[last - n + 1 : last + 1]:
                length = n
                while (
                    n == 5
                    and length < 8
                    and position >= length
                    and token_ids[position - length] == token_ids[last - length]
                ):
                    length += 1
                return position, length
    return None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(token_ids=st.lists(st.integers(0, 3), min_size=1, max_size=60), steps=st.lists(st.integers(1, 6), max_size=30))
def test_the_index_finds_the_longest_latest_match_however_it_grew(token_ids: list[int], steps: list[int]) -> None:
    index, size = NgramIndex(), 0
    for step in [*steps, len(token_ids)]:
        size = min(len(token_ids), size + step)
        index.extend(token_ids[:size])
        assert index.find(token_ids[:size]) == naive_find(token_ids[:size])


def test_the_continuation_of_the_longest_match_is_drafted() -> None:
    # [3, 4] was last followed by 9, but [1, 2, 3, 4] by 5.
    seq = sequence([1, 2, 3, 4, 5, 6, 7, 8, 3, 4, 9, 9, 8, 1, 2, 3, 4])
    assert propose(drafter(), seq, 3) == (5, 6, 7)


def test_the_latest_of_equal_matches_is_drafted() -> None:
    assert propose(drafter(), sequence([1, 2, 3, 5, 1, 2, 3, 6, 1, 2, 3]), 1) == (6,)


def test_a_match_into_the_end_is_continued_periodically() -> None:
    assert propose(drafter(), sequence([1, 2, 3] * 4), K) == (1, 2, 3, 1, 2, 3, 1)
    assert propose(drafter(), sequence([5] * 48), K) == (5,) * K  # the prompt of case B1


def test_without_a_match_nothing_is_drafted() -> None:
    # A2: text without repetition costs no verify row.
    source, seq = drafter(), sequence(list(range(100)))
    assert decode(source, seq, list(range(100, 200))) == [(0, 0)] * 100


@pytest.mark.parametrize("token_ids", [[1], [1, 1], [1, 2]])
def test_texts_too_short_for_a_match_draft_nothing(token_ids: list[int]) -> None:
    assert propose(drafter(), sequence(token_ids), K) == ()


@settings(derandomize=True)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 20))
def test_drafts_keep_to_both_limits_and_leave_the_sequence_alone(token_ids: list[int], max_tokens: int) -> None:
    seq = sequence(token_ids)
    draft = propose(drafter(), seq, max_tokens)
    assert len(draft) <= min(max_tokens, K)
    assert seq.token_ids == token_ids
    assert set(draft) <= set(token_ids)


def test_copied_text_quickly_gets_the_longest_drafts() -> None:
    text = random.Random(0).sample(range(10_000), 300)
    rounds = decode(drafter(), sequence([*text, 50_000]), text)
    assert all(drafted == K for drafted, _ in rounds[5:-1])
    assert len(rounds) < 300 / K


def test_matches_that_mislead_soon_cost_next_to_nothing() -> None:
    # Every pair of tokens recurs, and is followed by something else each time.
    rng = random.Random(1)
    text = [rng.randrange(40) for _ in range(1200)]
    rounds = decode(drafter(), sequence(text[:600]), text[600:])
    late = rounds[len(rounds) // 2 :]
    assert sum(drafted for drafted, _ in late) / len(late) < 0.5


def test_two_sequences_adapt_on_their_own() -> None:
    # A9: a repetitive and a random tenant in the same batch.
    rng = random.Random(2)
    noise = [rng.randrange(30) for _ in range(600)]
    copied = rng.sample(range(10_000), 200)
    alone = decode(drafter(), sequence([*copied, 1, 2]), copied)
    source = drafter()
    decode(source, sequence(noise[:300], "random"), noise[300:])
    assert len(decode(source, sequence([*copied, 1, 2], "repetitive"), copied)) <= len(alone) + 4
    drafted = [d for d, _ in decode(source, sequence(noise, "random"), [rng.randrange(30) for _ in range(100)])]
    assert sum(drafted) < 0.6 * len(drafted)


def test_a_misleading_start_does_not_stop_drafting_for_ever() -> None:
    # A11: long noise, then a copy of a long passage.
    rng = random.Random(3)
    passage = rng.sample(range(1_000, 9_000), 200)
    noise = [rng.randrange(30) for _ in range(800)]
    source, seq = drafter(), sequence([*passage, *noise])
    decode(source, seq, [rng.randrange(30) for _ in range(400)])
    rounds = decode(source, seq, passage)
    assert rounds[-2] == (K, K)
    assert len(rounds) < 80


def test_a_long_prompt_is_indexed_in_bounded_steps() -> None:
    text = random.Random(4).sample(range(100_000), 5 * MAX_BACKLOG_TOKENS)
    index = NgramIndex()
    for step in range(1, 5):
        index.extend(text)
        assert index.end == step * MAX_BACKLOG_TOKENS


def test_the_index_stays_bounded_and_still_finds_recent_text() -> None:
    text = [token % 50_021 for token in range(2 * MAX_INDEXED_TOKENS)]
    index = NgramIndex()
    while index.end < len(text) - 1:
        index.extend(text)
        assert all(len(table) <= MAX_INDEXED_TOKENS + MAX_BACKLOG_TOKENS for table in index._latest)
    text += text[-1000:-990]
    for _ in range(1 + MAX_INDEXED_TOKENS // MAX_BACKLOG_TOKENS):
        index.extend(text)
    assert index.find(text) == (2 * MAX_INDEXED_TOKENS - 991, ngram.MAX_MATCH)


def test_forgotten_sequences_leave_no_state() -> None:
    source = drafter()
    for number in range(20):
        propose(source, sequence([1, 2] * 10, f"r{number}"), K)
    assert source.num_sequences == 20
    for number in range(20):
        source.forget(f"r{number}")
        source.forget("unknown")
    assert source.num_sequences == 0


def test_an_id_given_to_a_shorter_sequence_starts_afresh() -> None:
    source = drafter()
    propose(source, sequence([8, 9, 8, 1, 2, 3, 4, 5, 6]), K)
    assert propose(source, sequence([1, 2, 7, 1, 2]), 1) == (7,)


def test_a_verdict_without_a_proposal_is_ignored() -> None:
    source, seq = drafter(), sequence([1, 2] * 10)
    observe(source, seq, (1, 2, 3), 0)
    draft = propose(source, seq, K)
    observe(source, seq, (), 0)  # cut to nothing by the scheduler
    assert propose(source, seq, K) == draft


def test_proposing_again_without_new_tokens_gives_the_same_draft() -> None:
    # A preempted sequence comes back with its tokens unchanged.
    source, seq = drafter(), sequence([1, 2, 3, 4] * 3)
    assert propose(source, seq, K) == propose(source, seq, K) != ()


def test_the_factory_knows_its_names_and_refuses_others() -> None:
    assert isinstance(build_drafter("ngram", max_draft_tokens=4), NgramDrafter)
    assert build_drafter("off", max_draft_tokens=4) is None
    assert build_drafter("ngram", max_draft_tokens=0) is None
    with pytest.raises(ConfigError, match=r"drafter = 'eagle' is not allowed: expected one of ngram, off"):
        build_drafter("eagle", max_draft_tokens=4)
