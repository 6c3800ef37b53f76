"""A drafter that runs ahead has bounded room: limits, evictions, and nothing left behind."""

import pytest

from cluster.errors import ConfigError
from cluster.messages import (
    Close,
    Lost,
    Message,
    Round,
)
from tests.cluster.engine.drafters.run_ahead_harness import (
    VOCAB,
    close,
    hello,
    losses_in,
    make_drafter,
    opening,
    row,
    tables_in,
)

A, B = b"a", b"b"


def test_a_sequence_that_outgrows_the_drafter_is_told_so_once() -> None:
    drafter = make_drafter(max_model_len=32)
    drafter.open(A, 0, range(30))
    drafter.open(A, 1, range(10))
    assert losses_in(drafter.round(A, row(0, 33, (1, 2, 3)), row(1, 10))) == {"length": (0,)}
    assert list(drafter.tables()) == [(A, 1)]
    assert drafter.round(A, row(0, 34, (4,)), row(1, 10)) == []
    assert losses_in(drafter.open(A, 2, range(33))) == {"length": (2,)}
    assert drafter.round(A, row(2, 34, (1,))) == []
    drafter.handle(A, close(0, 1, 2))
    assert drafter.run_ahead.snapshot().num_sequences == 0


def test_near_the_limit_drafts_get_shorter_and_nothing_breaks() -> None:
    drafter = make_drafter(max_model_len=32)
    drafter.open(A, 0, range(27))
    lengths = []
    for base_length in range(28, 33):
        drafter.round(A, row(0, base_length, (5,)))
        lengths += [max(len(entry.token_ids) for entry in table.entries) for table in drafter.tables().values()]
    assert lengths == [5, 4, 3, 2]


def test_a_full_pool_refuses_newcomers_while_all_are_active_and_gives_them_idle_places_later() -> None:
    drafter = make_drafter(num_blocks=12, evictable_s=1.0)
    assert drafter.open(A, 0, range(64)) == []
    assert losses_in(drafter.open(A, 1, [5] * 128)) == {"capacity": (1,)}
    drafter.clock.advance(1.5)
    assert drafter.open(B, 1, [5] * 128) == []
    assert losses_in(drafter.round(A, row(0, 64))) == {"unknown": (0,)}
    counters = drafter.run_ahead.snapshot().counters
    assert (counters.num_evicted, counters.num_lost_capacity, counters.num_lost_unknown) == (1, 1, 1)


def test_the_sequence_without_news_for_longest_is_evicted_first() -> None:
    drafter = make_drafter(max_sequences=3, evictable_s=1.0)
    for peer, sequence in ((A, 0), (B, 0), (A, 1)):
        drafter.open(peer, sequence)
        drafter.clock.advance(1.0)
    drafter.round(A, row(0, 3))
    drafter.clock.advance(1.0)
    drafter.open(A, 2)
    assert losses_in(drafter.round(B, row(0, 3))) == {"unknown": (0,)}
    assert drafter.round(A, *(row(sequence, 3) for sequence in range(3))) == []


def test_one_verifier_cannot_take_the_places_of_others() -> None:
    drafter = make_drafter(max_sequences=8, max_sequences_per_peer=2, evictable_s=1.0)
    for sequence in (0, 1):
        drafter.open(A, sequence)
        drafter.open(B, sequence)
    assert losses_in(drafter.open(A, 2)) == {"capacity": (2,)}
    drafter.clock.advance(2.0)
    assert drafter.open(A, 2) == []
    assert drafter.round(B, row(0, 3), row(1, 3)) == []


def test_a_sequence_that_finds_no_block_to_grow_is_lost_and_the_others_go_on() -> None:
    drafter = make_drafter(num_blocks=8)
    for sequence in (0, 1):
        assert drafter.open(A, sequence, range(32)) == []
    lost: list[Message] = []
    length = 32
    while not lost and length < 128:
        rows = [row(sequence, length + 16, range(16)) for sequence in (0, 1)]
        assert drafter.round(A, *rows) == []
        lost = [message for _, message in drafter.run() if isinstance(message, Lost)]
        length += 16
    ((sequence,),) = losses_in(lost).values()
    assert losses_in(lost) == {"capacity": (sequence,)}
    other = 1 - sequence
    assert drafter.round(A, row(other, length + 1, (3,))) == []
    assert list(drafter.tables()) == [(A, other)]


def test_sequences_without_news_are_evicted_in_time() -> None:
    drafter = make_drafter(idle_s=5.0)
    drafter.open(A, 0)
    drafter.clock.advance(3.0)
    drafter.open(A, 1)
    assert drafter.run_ahead.evict_idle() == 0
    drafter.clock.advance(3.0)
    assert drafter.run_ahead.evict_idle() == 1
    assert losses_in(drafter.round(A, row(0, 3), row(1, 3))) == {"unknown": (0,)}


def test_ten_thousand_short_sequences_leave_nothing_behind() -> None:
    drafter = make_drafter(num_blocks=256, max_fan_out=2)
    drafter.handle(A, hello())
    num_sequences = 0
    for start in range(0, 10_000, 50):
        sequences = range(start, start + 50)
        for sequence in sequences:
            drafter.run_ahead.handle(A, opening(sequence, (1, 2, sequence % VOCAB), temperature=1.0))
        rows = tuple(row(sequence, 3, (), (4,), num_tokens=1) for sequence in sequences)
        drafter.run_ahead.handle(A, Round(number=start, verify_s=1.0, rows=rows))
        while drafter.run_ahead.has_work:
            num_sequences += len(tables_in(drafter.run_ahead.step()))
        # Most are closed, every tenth is left to idle eviction, as after a lost message.
        drafter.run_ahead.handle(A, Close(sequences=tuple(item for item in sequences if item % 10)))
        drafter.clock.advance(30.0)
        drafter.run_ahead.evict_idle()
        assert drafter.run_ahead.snapshot().num_sequences <= 20
        assert drafter.model.num_used_blocks <= 20
    assert num_sequences == 10_000
    drafter.clock.advance(100.0)
    drafter.run_ahead.evict_idle()
    snapshot = drafter.run_ahead.snapshot()
    assert (snapshot.num_sequences, snapshot.num_jobs, drafter.model.num_used_blocks) == (0, 0, 0)
    assert drafter.model.num_sequences == 0
    assert snapshot.counters.num_opened == 10_000
    drafter.run_ahead.check_integrity()


def test_limits_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="max_fan_out"):
        make_drafter(max_fan_out=0)
    with pytest.raises(ConfigError, match="time_ratio"):
        make_drafter(time_ratio=1.5)
    with pytest.raises(ConfigError, match="evictable_s"):
        make_drafter(evictable_s=100.0)
