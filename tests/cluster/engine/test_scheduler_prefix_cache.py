from collections.abc import Iterator
from typing import SupportsIndex, overload

import pytest

from cluster.engine.scheduler import ScheduledSequence
from cluster.engine.sequence import Sequence
from tests.cluster.engine.scheduler_harness import (
    WRONG_TOKEN,
    FakeEngine,
    continuation,
    decoding_engine,
    make_scheduler,
    make_sequence,
    rows_of,
)

# Prefix cache


def served(engine: FakeEngine, sequence: Sequence) -> Sequence:
    engine.add(sequence)
    engine.drain()
    return sequence


def test_a_prompt_seen_before_is_not_computed_again_but_for_its_last_token() -> None:
    engine = FakeEngine(make_scheduler())
    served(engine, make_sequence("a", range(12)))
    again = engine.add(make_sequence("b", range(12)))
    item = engine.step().scheduled[0]
    assert (item.start, item.num_tokens, item.samples) == (8, 4, True)
    assert again.num_cached_tokens == 8


@pytest.mark.parametrize(("num_tokens", "num_cached"), [(4, 0), (5, 4), (8, 4), (9, 8)])
def test_a_cache_hit_leaves_at_least_one_token_to_compute(num_tokens: int, num_cached: int) -> None:
    engine = FakeEngine(make_scheduler())
    served(engine, make_sequence("a", range(20)))
    assert served(engine, make_sequence("b", range(num_tokens))).num_cached_tokens == num_cached


def test_salts_never_share_blocks() -> None:
    engine = FakeEngine(make_scheduler())
    served(engine, make_sequence("a", range(12), salt="tenant-a"))
    assert served(engine, make_sequence("b", range(12), salt="tenant-b")).num_cached_tokens == 0
    assert served(engine, make_sequence("c", range(12), salt="tenant-a")).num_cached_tokens == 8


def test_without_a_prefix_cache_nothing_is_published() -> None:
    engine = FakeEngine(make_scheduler(enable_prefix_cache=False))
    served(engine, make_sequence("a", range(12)))
    assert served(engine, make_sequence("b", range(12))).num_cached_tokens == 0
    assert not any(engine.scheduler.pool.is_published(block_id) for block_id in range(64))


def test_prompt_logprobs_compute_the_whole_prompt() -> None:
    engine = FakeEngine(make_scheduler())
    served(engine, make_sequence("a", range(12)))
    assert served(engine, make_sequence("b", range(12), prompt_logprobs=0)).num_cached_tokens == 0


def test_the_output_of_a_finished_sequence_is_found_by_the_next_turn() -> None:
    engine = FakeEngine(make_scheduler())
    first = served(engine, make_sequence("turn-1", range(8), max_tokens=8))
    second = served(engine, make_sequence("turn-2", (*first.token_ids, 50, 51)))
    assert second.num_cached_tokens == 12  # the KV of the sixteenth token was never written


def test_rejected_drafts_are_never_found() -> None:
    sequence = make_sequence("a", range(8))
    engine = decoding_engine(make_scheduler(), sequence)
    rejected = (WRONG_TOKEN,) * 8
    text = (*sequence.token_ids, *rejected)
    engine.step({"a": rejected})
    engine.scheduler.finish(sequence)
    assert served(engine, make_sequence("b", text)).num_cached_tokens == 8


def cached_by_turn(num_drafts: int) -> list[int]:
    engine = FakeEngine(make_scheduler(num_blocks=200, max_model_len=512))
    text: tuple[int, ...] = ()
    cached = []
    for turn in range(10):
        sequence = engine.add(make_sequence(f"turn-{turn}", (*text, turn, 50, 51, 52, 53), max_tokens=13))
        engine.drain(lambda s: (*continuation(s.token_ids, num_drafts)[:-1], WRONG_TOKEN)[:num_drafts])
        cached.append(sequence.num_cached_tokens)
        text = tuple(sequence.token_ids)
    return cached


@pytest.mark.parametrize("num_drafts", [1, 3, 8])
def test_d6_multi_turn_prefix_reuse_with_drafts_equals_reuse_without_within_one_block(num_drafts: int) -> None:
    plain, drafted = cached_by_turn(0), cached_by_turn(num_drafts)
    assert plain[-1] > 150
    assert all(abs(a - b) <= 4 for a, b in zip(plain, drafted, strict=True))


# Siblings


def test_siblings_wait_for_the_first_ones_prefix_and_then_hit_all_of_it() -> None:
    engine = FakeEngine(make_scheduler(max_num_batched_tokens=100, prefill_chunk_tokens=16))
    siblings = [engine.add(make_sequence(f"choice-{i}", range(34))) for i in range(4)]
    assert [rows_of(engine.step()) for _ in range(3)] == [
        {"choice-0": 16},
        {"choice-0": 16},
        {"choice-0": 2, "choice-1": 2, "choice-2": 2, "choice-3": 2},
    ]
    assert [s.num_cached_tokens for s in siblings] == [0, 32, 32, 32]


def test_siblings_wait_also_while_the_first_one_is_in_the_middle_of_a_block() -> None:
    engine = FakeEngine(make_scheduler(prefill_chunk_tokens=6))
    engine.add(make_sequence("choice-0", range(20)))
    sibling = engine.add(make_sequence("choice-1", range(20)))
    assert [list(rows_of(engine.step())) for _ in range(4)] == [["choice-0"]] * 3 + [["choice-0", "choice-1"]]
    assert sibling.num_cached_tokens == 16


def test_a_prompt_that_parts_ways_waits_only_for_what_it_shares() -> None:
    engine = FakeEngine(make_scheduler(prefill_chunk_tokens=8))
    engine.add(make_sequence("long", range(30)))
    other = engine.add(make_sequence("other", (*range(10), 90, 91, 92)))
    assert [list(rows_of(engine.step())) for _ in range(2)] == [["long"], ["long", "other"]]
    assert other.num_cached_tokens == 8


def test_others_pass_the_siblings_that_wait() -> None:
    engine = FakeEngine(make_scheduler())
    for name in ("choice-0", "choice-1"):
        engine.add(make_sequence(name, range(12)))
    engine.add(make_sequence("other", range(50, 60)))
    assert rows_of(engine.step()) == {"choice-0": 12, "other": 10}
    assert set(rows_of(engine.step())) == {"choice-0", "choice-1", "other"}


@pytest.mark.parametrize("num_tokens", [3, 4])
def test_siblings_without_a_block_to_share_do_not_wait(num_tokens: int) -> None:
    engine = FakeEngine(make_scheduler())
    for i in range(3):
        engine.add(make_sequence(f"choice-{i}", range(num_tokens)))
    assert len(engine.step().scheduled) == 3


def test_siblings_do_not_wait_without_a_prefix_cache() -> None:
    engine = FakeEngine(make_scheduler(enable_prefix_cache=False))
    for i in range(3):
        engine.add(make_sequence(f"choice-{i}", range(12)))
    assert len(engine.step().scheduled) == 3


def test_a_sibling_takes_over_when_the_first_one_is_aborted() -> None:
    engine = FakeEngine(make_scheduler(prefill_chunk_tokens=8))
    first, second = (engine.add(make_sequence(f"choice-{i}", range(30))) for i in range(2))
    engine.step()
    engine.scheduler.finish(first)
    item = engine.step().scheduled[0]
    assert (item.sequence, item.start) == (second, 8)


# Cost


class CountingList(list[int]):
    """Counts how many elements are read by slices and iteration."""

    num_read = 0

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> list[int]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> int | list[int]:
        value = super().__getitem__(key)
        self.num_read += len(value) if isinstance(value, list) else 1
        return value

    def __iter__(self) -> Iterator[int]:
        self.num_read += len(self)
        return super().__iter__()


def test_a_decode_round_reads_no_more_than_the_block_that_became_full() -> None:
    scheduler = make_scheduler(num_blocks=300, max_model_len=1100, max_num_batched_tokens=1100)
    sequence = make_sequence("a", tuple(i % 7 for i in range(1000)), max_tokens=50)
    scheduler.add(sequence)
    counted = CountingList(sequence.token_ids)
    sequence.token_ids = counted

    def one_round() -> ScheduledSequence:
        item = scheduler.schedule(0.0, {}).scheduled[0]
        if item.samples:
            counted.append(1)
        scheduler.advance(item, item.start + item.num_tokens)
        return item

    while not one_round().samples:
        pass
    counted.num_read = 0
    for _ in range(40):
        one_round()
    assert counted.num_read == 40
