import pytest

from cluster.engine.block_pool import BlockPool
from cluster.engine.sequence import SequenceStatus
from cluster.engine.sequence_blocks import SequenceBlocks
from tests.cluster.engine.scheduler_harness import (
    WRONG_TOKEN,
    FakeEngine,
    continuation,
    decoding_engine,
    drafts_of,
    make_scheduler,
    make_sequence,
    rows_of,
)

# Drafts


def test_a_draft_is_verified_behind_the_last_committed_token() -> None:
    sequence = make_sequence("a", range(8))
    engine = decoding_engine(make_scheduler(), sequence)
    draft = continuation(sequence.token_ids, 3)
    item = engine.step({"a": draft}).scheduled[0]
    assert (item.start, item.num_tokens, item.draft_token_ids, item.num_rows) == (8, 1, draft, 4)
    assert sequence.num_output_tokens == 1 + 4  # three accepted and the bonus
    assert sequence.num_computed_tokens == sequence.num_tokens - 1


def test_lookahead_blocks_are_reserved_only_for_what_is_drafted_and_given_back() -> None:
    sequence = make_sequence("a", range(7), max_tokens=20)
    engine = decoding_engine(make_scheduler(), sequence)
    pool = engine.scheduler.pool
    assert pool.num_used_blocks == 2
    plan = engine.scheduler.schedule(0.0, {"a": (WRONG_TOKEN,) * 9})
    assert pool.num_used_blocks == 5  # positions 7..16
    sequence.token_ids.append(1)
    engine.scheduler.advance(plan.scheduled[0], 8)
    assert pool.num_used_blocks == 3  # nine tokens
    engine.scheduler.check_integrity()


def test_d2_a_full_cache_costs_drafts_and_never_an_error() -> None:
    engine = FakeEngine(make_scheduler(num_blocks=8))
    for name, start in (("a", 0), ("b", 20), ("c", 40)):
        engine.add(make_sequence(name, range(start, start + 6), max_tokens=20))
    engine.drain(lambda s: continuation(s.token_ids, 30))
    for sequence in engine.sequences:
        assert tuple(sequence.token_ids[6:]) == continuation(list(sequence.request.prompt_token_ids), 20)


def test_drafts_are_dropped_before_anyone_is_preempted() -> None:
    sequences = make_sequence("a", range(8)), make_sequence("b", range(10, 18))
    engine = decoding_engine(make_scheduler(num_blocks=6), *sequences)
    plan = engine.step(dict.fromkeys("ab", (WRONG_TOKEN,) * 8))
    assert plan.preempted == ()
    assert drafts_of(plan) == {"a": 3, "b": 3}  # what the block of the next row has room for
    assert plan.num_cut_draft_tokens == 10


def test_a_draft_takes_no_block_that_an_admission_needs() -> None:
    engine = decoding_engine(make_scheduler(num_blocks=6), make_sequence("a", range(7)))
    engine.add(make_sequence("b", range(10, 24)))
    plan = engine.step({"a": (WRONG_TOKEN,) * 12})
    assert rows_of(plan) == {"a": 1, "b": 14}


def test_drafts_are_cut_to_the_rows_left_after_every_decode_has_its_own() -> None:
    sequences = [make_sequence(name, range(3)) for name in "abc"]
    engine = decoding_engine(make_scheduler(max_num_seqs=3, max_num_batched_tokens=9), *sequences)
    plan = engine.step(dict.fromkeys("abc", (WRONG_TOKEN,) * 4))
    assert rows_of(plan) == {"a": 5, "b": 3, "c": 1}
    assert plan.num_cut_draft_tokens == 6


def test_drafts_leave_half_of_the_rows_to_waiting_prompts() -> None:
    engine = decoding_engine(make_scheduler(max_num_batched_tokens=9), make_sequence("a", range(3)))
    engine.add(make_sequence("b", range(10, 40)))
    for _ in range(2):  # while it waits and while it is half-way
        assert rows_of(engine.step({"a": (WRONG_TOKEN,) * 20})) == {"a": 5, "b": 4}


def test_a_draft_never_reaches_beyond_the_models_length() -> None:
    sequence = make_sequence("a", range(8), max_tokens=100)
    engine = decoding_engine(make_scheduler(max_model_len=13), sequence)
    plan = engine.step({"a": continuation(sequence.token_ids, 10)})
    assert drafts_of(plan) == {"a": 3}  # nine tokens, three drafts and the bonus
    assert sequence.num_tokens == 13
    assert sequence.status is SequenceStatus.FINISHED


def test_only_sequences_with_one_token_left_are_offered_for_drafting() -> None:
    engine = decoding_engine(make_scheduler(prefill_chunk_tokens=4), make_sequence("a", range(3)))
    engine.add(make_sequence("b", range(10, 19)))
    engine.add(make_sequence("c", range(20, 22)))
    assert [s.request_id for s in engine.scheduler.decoding()] == ["a"]
    engine.step()
    assert [s.request_id for s in engine.scheduler.decoding()] == ["a", "c"]
    engine.step()
    assert [s.request_id for s in engine.scheduler.decoding()] == ["a", "b", "c"]


def test_b11_drafts_for_sequences_that_do_not_decode_are_never_scheduled() -> None:
    engine = FakeEngine(make_scheduler(prefill_chunk_tokens=4))
    engine.add(make_sequence("prefilling", range(12)))
    drafts = {"prefilling": (WRONG_TOKEN,), "unknown": (WRONG_TOKEN,)}
    for _ in range(3):
        assert drafts_of(engine.step(drafts)) == {}


def test_b11_the_draft_of_a_sequence_that_was_preempted_meanwhile_is_forgotten() -> None:
    first, victim = make_sequence("first", range(8), max_tokens=2), make_sequence("victim", range(10, 18))
    engine = decoding_engine(make_scheduler(num_blocks=5), first, victim)
    plan = engine.step({"victim": (WRONG_TOKEN,) * 2})
    assert plan.preempted == (victim,)
    later = [engine.step() for _ in range(3)]
    assert [drafts_of(plan) for plan in later] == [{}, {}, {}]
    assert WRONG_TOKEN not in victim.token_ids


# Stale results


def test_d5_a_result_that_arrives_after_a_preemption_is_dropped() -> None:
    first, victim = make_sequence("first", range(8)), make_sequence("victim", range(10, 17))
    scheduler = make_scheduler(num_blocks=5)
    decoding_engine(scheduler, first, victim)
    draft = continuation(first.token_ids, 3)
    item, late_item = scheduler.schedule(0.0, {"first": draft}).scheduled
    first.token_ids += continuation(first.token_ids, 4)
    scheduler.advance(item, 12)
    assert scheduler.schedule(0.0, {}).preempted == (victim,)

    def state() -> tuple[object, ...]:
        published = [scheduler.pool.is_published(block_id) for block_id in range(5)]
        return list(first.block_table), list(victim.block_table), victim.num_computed_tokens, published

    before = state()
    assert late_item.is_stale
    scheduler.advance(late_item, 8)  # would fill a block
    assert state() == before
    scheduler.check_integrity()


def test_a_result_of_an_older_epoch_is_dropped_even_when_the_sequence_runs_again() -> None:
    scheduler = make_scheduler()
    decoding_engine(scheduler, make_sequence("a", range(8)))
    item = scheduler.schedule(0.0, {}).scheduled[0]
    item.sequence.epoch += 1
    scheduler.advance(item, 9)
    assert item.sequence.num_computed_tokens == 8


def test_a_result_of_a_sequence_that_finished_in_flight_is_dropped() -> None:
    engine = decoding_engine(make_scheduler(), make_sequence("a", range(8)))
    sequence = engine.sequences[0]
    engine.step({"a": (1, 2, 3)}, in_flight=lambda: engine.scheduler.finish(sequence))
    assert sequence.num_output_tokens == 1
    assert engine.scheduler.pool.num_used_blocks == 0


def test_a_result_cannot_be_taken_twice() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence("a", range(8))
    scheduler.add(sequence)
    item = scheduler.schedule(0.0, {}).scheduled[0]
    sequence.token_ids.append(1)
    scheduler.advance(item, 8)
    scheduler.advance(item, 4)
    assert sequence.num_computed_tokens == 8


def test_more_than_was_computed_is_refused() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence("a", range(8))
    scheduler.add(sequence)
    item = scheduler.schedule(0.0, {}).scheduled[0]
    with pytest.raises(AssertionError):
        scheduler.advance(item, 9)


@pytest.mark.parametrize("num_withheld", [0, 1])
@pytest.mark.parametrize("num_free", [0, 1, 2, 5])
def test_a_longer_draft_never_keeps_fewer_tokens(num_free: int, num_withheld: int) -> None:
    """It ends where the free blocks end, however much longer it is."""
    room = 1 + 4 * (num_free + num_withheld)
    for length in range(40):
        pool = BlockPool(2 + num_free + num_withheld, 4)
        blocks = SequenceBlocks(make_sequence("a", range(7)), pool, enable_prefix_cache=False)
        pool.withhold(num_withheld)
        assert blocks.take([], num_spare_blocks=0)
        assert len(blocks.fit_lookahead((WRONG_TOKEN,) * length)) == min(length, room)
        blocks.release()
        pool.check_integrity()
