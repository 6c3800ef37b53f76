import pytest

from cluster.engine.scheduler import Plan
from cluster.engine.sequence import SequenceStatus
from tests.cluster.engine.scheduler_harness import (
    FakeEngine,
    continuation,
    decoding_engine,
    make_scheduler,
    make_sequence,
    rows_of,
)

# Chunked prefill and continuous batching


def test_a_long_prompt_is_computed_in_chunks_and_samples_once_at_its_end() -> None:
    engine = FakeEngine(make_scheduler(prefill_chunk_tokens=16))
    sequence = engine.add(make_sequence("a", range(40)))
    items = [engine.step().scheduled[0] for _ in range(3)]
    assert [(item.start, item.num_tokens, item.samples) for item in items] == [
        (0, 16, False),
        (16, 16, False),
        (32, 8, True),
    ]
    assert sequence.num_output_tokens == 1


def test_whether_an_item_samples_does_not_change_when_its_tokens_are_committed() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence("a", range(5))
    scheduler.add(sequence)
    item = scheduler.schedule(0.0, {}).scheduled[0]
    sequence.token_ids.append(1)
    assert item.samples
    assert not item.is_stale


def test_decodes_come_before_prefills_and_both_share_the_rows() -> None:
    engine = decoding_engine(make_scheduler(max_num_batched_tokens=8), make_sequence("decode", range(8)))
    engine.add(make_sequence("prefill", range(50, 70)))
    plan = engine.step()
    assert [(i.sequence.request_id, i.num_rows) for i in plan.scheduled] == [("decode", 1), ("prefill", 7)]


def test_no_more_sequences_run_than_allowed_and_the_next_joins_when_one_ends() -> None:
    engine = FakeEngine(make_scheduler(max_num_seqs=2))
    first, second, third = (engine.add(make_sequence(name, range(3), max_tokens=3)) for name in "abc")
    engine.step()
    assert (engine.scheduler.num_running, engine.scheduler.num_waiting) == (2, 1)
    engine.scheduler.finish(first)
    plan = engine.step()
    assert [item.sequence for item in plan.scheduled] == [second, third]


def test_the_first_scheduling_is_timed_once() -> None:
    engine = FakeEngine(make_scheduler())
    sequence = engine.add(make_sequence("a", range(3)))
    engine.now_s = 7.5
    engine.step()
    engine.now_s = 9.0
    engine.step()
    assert sequence.first_scheduled_s == 7.5


def test_an_idle_scheduler_plans_nothing() -> None:
    scheduler = make_scheduler()
    assert scheduler.schedule(0.0, {}) == Plan()
    assert not scheduler.has_work


# Order


def test_inside_a_priority_the_first_come_is_the_first_served() -> None:
    engine = FakeEngine(make_scheduler(max_num_seqs=1))
    sequences = [engine.add(make_sequence(str(i), range(3), max_tokens=1)) for i in range(4)]
    order = [engine.step().scheduled[0].sequence for _ in range(4)]
    assert order == sequences


def test_a_lower_priority_number_is_served_first() -> None:
    engine = FakeEngine(make_scheduler(max_num_seqs=1))
    for name, priority in (("late", 1), ("soon", 0), ("now", -1)):
        engine.add(make_sequence(name, range(3), max_tokens=1, priority=priority))
    assert [engine.step().scheduled[0].sequence.request_id for _ in range(3)] == ["now", "soon", "late"]


def test_ten_seconds_of_waiting_are_worth_one_priority_step() -> None:
    engine = FakeEngine(make_scheduler(max_num_seqs=1))
    engine.add(make_sequence("aged", range(3), max_tokens=1, priority=1, arrival_s=0.0))
    engine.add(make_sequence("just before", range(3), max_tokens=1, priority=0, arrival_s=9.9))
    engine.add(make_sequence("just after", range(3), max_tokens=1, priority=0, arrival_s=10.1))
    order = [engine.step().scheduled[0].sequence.request_id for _ in range(3)]
    assert order == ["just before", "aged", "just after"]


def test_a_low_priority_sequence_runs_under_an_endless_stream_of_better_ones() -> None:
    engine = FakeEngine(make_scheduler(max_num_seqs=1))
    low = engine.add(make_sequence("low", range(3), max_tokens=1, priority=3))
    for second in range(100):
        engine.now_s = float(second)
        engine.add(make_sequence(f"high-{second}", range(3), max_tokens=1, arrival_s=engine.now_s))
        engine.step()
        if low.status is SequenceStatus.FINISHED:
            break
    assert engine.now_s == pytest.approx(31, abs=2)


def test_a_long_prompt_that_does_not_fit_yet_is_not_overtaken_by_short_ones() -> None:
    engine = decoding_engine(make_scheduler(num_blocks=10), make_sequence("running", range(16), max_tokens=8))
    long = engine.add(make_sequence("long", range(50, 82)))
    engine.add(make_sequence("short", range(3)))
    while engine.scheduler.decoding():
        plan = engine.step()
        assert "short" not in rows_of(plan)
    assert engine.step().scheduled[0].sequence is long


def test_a_newcomer_leaves_one_percent_of_the_blocks_to_those_that_run() -> None:
    engine = decoding_engine(make_scheduler(num_blocks=200, max_model_len=800), make_sequence("running", range(9)))
    engine.add(make_sequence("newcomer", range(100, 100 + 196 * 4), max_tokens=1))
    assert "newcomer" not in rows_of(engine.step())
    engine.add(make_sequence("smaller", range(100, 100 + 195 * 4), max_tokens=1, priority=-1))
    assert "smaller" in rows_of(engine.step())


def test_one_sequence_alone_may_take_every_block() -> None:
    engine = FakeEngine(make_scheduler(num_blocks=200, max_model_len=800))
    engine.add(make_sequence("all", range(100, 100 + 199 * 4), max_tokens=4))
    engine.drain(max_rounds=100)


# Preemption


def test_the_latest_of_the_lowest_priority_is_preempted_first() -> None:
    sequences = [
        make_sequence("old", range(8), priority=1, arrival_s=0.0),
        make_sequence("new", range(10, 18), priority=1, arrival_s=1.0),
        make_sequence("urgent", range(20, 28), priority=0, arrival_s=2.0),
    ]
    engine = FakeEngine(make_scheduler(num_blocks=8))
    for sequence in sequences:
        engine.add(sequence)
    engine.step()
    plan = engine.step()  # three of them want a third block each, and two are left
    assert [sequence.request_id for sequence in plan.preempted] == ["new"]
    assert set(rows_of(plan)) == {"urgent", "old"}


def test_a_preempted_sequence_restarts_in_a_new_epoch_without_blocks_at_the_front_of_the_queue() -> None:
    first, victim = make_sequence("first", range(8)), make_sequence("victim", range(10, 18))
    engine = decoding_engine(make_scheduler(num_blocks=5, max_num_seqs=2), first, victim)
    engine.add(make_sequence("later", range(3)))
    plan = engine.step()
    assert plan.preempted == (victim,)
    assert (victim.status, victim.epoch, victim.num_preemptions) == (SequenceStatus.WAITING, 1, 1)
    assert (victim.block_table, victim.num_computed_tokens) == ([], 0)
    while victim.status is SequenceStatus.WAITING:
        names = list(rows_of(engine.step()))
        assert "later" not in names or names.index("victim") < names.index("later")


def test_nobody_is_admitted_in_a_round_that_preempts() -> None:
    first, victim = make_sequence("first", range(8)), make_sequence("victim", range(10, 18))
    engine = decoding_engine(make_scheduler(num_blocks=5), first, victim)
    newcomer = engine.add(make_sequence("newcomer", range(3), priority=-1))
    assert engine.step().preempted == (victim,)
    assert newcomer.status is SequenceStatus.WAITING
    assert "newcomer" in rows_of(engine.step())


def test_a_preempted_sequence_picks_its_blocks_up_again_from_the_prefix_cache() -> None:
    first, victim = make_sequence("first", range(8), max_tokens=2), make_sequence("victim", range(10, 18))
    engine = decoding_engine(make_scheduler(num_blocks=5), first, victim)
    assert engine.step().preempted == (victim,)
    assert first.status is SequenceStatus.FINISHED
    item = engine.step().scheduled[0]
    assert (item.sequence, item.start, item.num_tokens) == (victim, 8, 1)
    assert victim.num_cached_tokens == 0  # counts the first admission only


def test_text_after_preemptions_is_the_text_without_them() -> None:
    prompts = [range(start, start + 6) for start in (0, 10, 20, 30)]
    engine = FakeEngine(make_scheduler(num_blocks=7))
    sequences = [engine.add(make_sequence(str(i), p, max_tokens=14)) for i, p in enumerate(prompts)]
    engine.drain()
    assert sum(sequence.num_preemptions for sequence in sequences) > 0
    for sequence, prompt in zip(sequences, prompts, strict=True):
        assert tuple(sequence.token_ids[6:]) == continuation(list(prompt), 14)


def test_a_sequence_that_could_never_fit_is_told_apart_and_refused() -> None:
    scheduler = make_scheduler(num_blocks=4, block_size=4, max_model_len=64)
    assert scheduler.can_ever_fit(16)
    assert not scheduler.can_ever_fit(17)
    scheduler.add(make_sequence("fits", range(8), max_tokens=8))
    with pytest.raises(AssertionError, match="can never fit"):
        scheduler.add(make_sequence("too long", range(8), max_tokens=9))


# Finishing and deadlines


@pytest.mark.parametrize("num_rounds", [0, 1, 3], ids=["waiting", "prefilling", "decoding"])
def test_finishing_frees_everything_at_once_and_twice_is_harmless(num_rounds: int) -> None:
    engine = FakeEngine(make_scheduler(prefill_chunk_tokens=8))
    sequence = engine.add(make_sequence("a", range(12)))
    for _ in range(num_rounds):
        engine.step()
    engine.scheduler.finish(sequence)
    engine.scheduler.finish(sequence)
    assert sequence.status is SequenceStatus.FINISHED
    assert engine.scheduler.pool.num_used_blocks == 0
    assert not engine.scheduler.has_work
    engine.scheduler.check_integrity()


def test_an_id_can_be_used_again_after_its_sequence_finished() -> None:
    scheduler = make_scheduler()
    first, second = make_sequence("a", range(3)), make_sequence("a", range(3))
    scheduler.add(first)
    with pytest.raises(AssertionError, match="in use"):
        scheduler.add(second)
    scheduler.finish(first)
    scheduler.add(second)
    scheduler.finish(first)
    assert scheduler.num_waiting == 1


def test_sequences_past_their_deadline_are_named_waiting_or_running() -> None:
    engine = FakeEngine(make_scheduler(max_num_seqs=1))
    running = engine.add(make_sequence("running", range(3), deadline_s=5.0))
    waiting = engine.add(make_sequence("waiting", range(3), deadline_s=6.0))
    engine.add(make_sequence("patient", range(3)))
    engine.step()
    assert engine.scheduler.expired(4.9) == []
    assert engine.scheduler.expired(5.0) == [running]
    assert engine.scheduler.expired(9.0) == [running, waiting]
