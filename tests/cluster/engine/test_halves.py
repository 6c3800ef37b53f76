"""Half-batches: balanced, everybody's turn comes, and no draft outlives the state that it was made for."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.halves import Halves, HeldDrafts
from cluster.engine.sequence import Sequence, SequenceStatus
from tests.cluster.engine.engine_harness import request


def decoding(request_id: str) -> Sequence:
    sequence = Sequence.from_request(request(request_id, (5, 6, 7)))
    sequence.status, sequence.num_computed_tokens = SequenceStatus.RUNNING, 2
    return sequence


def test_two_halves_take_turns() -> None:
    halves, sequences = Halves(), [decoding(f"r{i}") for i in range(8)]
    turns = [halves.take(sequences) for _ in range(4)]
    assert [len(turn) for turn in turns] == [4, 4, 4, 4]
    assert turns[0] == turns[2]
    assert turns[1] == turns[3] == {s.request_id for s in sequences} - turns[0]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(changes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=5, max_size=40))
def test_halves_stay_balanced_and_nobody_waits_for_long_whatever_comes_and_goes(changes: list[tuple[int, int]]) -> None:
    halves, running, count = Halves(), [decoding("a"), decoding("b")], 0
    waits: Counter[str] = Counter()
    for num_new, num_ended in changes:
        for sequence in running[: min(num_ended, len(running) - 2)]:
            halves.forget(sequence.request_id)
            waits.pop(sequence.request_id, None)
        running = running[min(num_ended, len(running) - 2) :] + [decoding(f"n{count + i}") for i in range(num_new)]
        count += num_new
        turn = halves.take(running)
        assert turn <= {s.request_id for s in running}
        assert abs(2 * len(turn) - len(running)) <= 2 + num_ended
        for sequence in running:
            waits[sequence.request_id] = 0 if sequence.request_id in turn else waits[sequence.request_id] + 1
        assert max(waits.values()) <= 1, "after a round without a turn comes one with it"


def test_a_newcomer_joins_the_half_that_waits_so_that_its_draft_is_made_meanwhile() -> None:
    halves, sequences = Halves(), [decoding("a"), decoding("b")]
    halves.take(sequences)
    sequences.append(decoding("new"))
    assert "new" not in halves.take(sequences)
    assert "new" in halves.take(sequences)


def test_drafts_are_given_once_and_an_answer_of_nothing_counts() -> None:
    held, (a, b) = HeldDrafts(), (decoding("a"), decoding("b"))
    held.put([a, b], {"a": (1, 2)})
    assert held.has(b)
    assert held.take([a, b]) == {"a": (1, 2), "b": ()}
    assert held.take([a]) == {}
    assert len(held) == 0


def test_a_draft_is_dropped_where_its_sequence_moved_on_was_preempted_or_is_another() -> None:
    held, sequences = HeldDrafts(), [decoding(f"r{i}") for i in range(5)]
    held.put(sequences, {s.request_id: (1,) for s in sequences})
    longer, preempted, ended, replaced, same = sequences
    longer.token_ids.append(9)
    longer.num_computed_tokens += 1
    preempted.epoch += 1
    ended.status = SequenceStatus.FINISHED
    replaced = decoding(replaced.request_id)
    assert not any(held.has(s) for s in (longer, preempted, ended, replaced))
    assert held.take([longer, preempted, ended, replaced, same]) == {same.request_id: (1,)}
