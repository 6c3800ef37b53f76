"""Tables of a drafter that runs ahead: what they hold, when they are right, and when they are stale."""

from typing import Any

import numpy as np
import pytest

from cluster.clock import ManualClock
from cluster.engine.drafters.run_ahead_state import AcceptanceEstimate
from cluster.engine.logits_processors import SamplingRow
from cluster.engine.model_input import ModelInput
from cluster.engine.native.runner import NativeRunner
from cluster.engine.sampler import Sampler
from cluster.messages import (
    Round,
    SequenceTable,
    Table,
    draft_hash,
)
from cluster.types import SamplingParams
from tests.cluster.engine.drafters import draft_harness
from tests.cluster.engine.drafters.run_ahead_harness import (
    INCARNATION,
    close,
    hello,
    make_drafter,
    make_run_ahead,
    opening,
    row,
    tables_in,
)

A, B = b"a", b"b"


class Target:
    """The engine's way to draw, each path computed from its first token."""

    def __init__(self) -> None:
        self._runner: NativeRunner = draft_harness.make_runner(num_blocks=8)
        self._sampler = Sampler(draft_harness.VOCAB, frozenset())

    def next(self, path: tuple[int, ...], num_prompt_tokens: int, params: SamplingParams) -> int:
        rows = np.arange(len(path), dtype=np.int32)
        logits_NV = self._runner.forward(
            ModelInput(
                token_ids=np.array(path, np.int32),
                positions=rows,
                slot_mapping=rows,
                row_sequences=np.zeros(len(path), np.int32),
                block_tables=np.arange(-(-len(path) // draft_harness.BLOCK_SIZE), dtype=np.int32)[None],
                logit_rows=rows[-1:],
            )
        )
        sampling_row = SamplingRow(
            params=params,
            output_index=len(path) - num_prompt_tokens,
            prompt_token_ids=path[:num_prompt_tokens],
            output_token_ids=path[num_prompt_tokens:],
        )
        return self._sampler.sample(logits_NV, [sampling_row]).token_ids[0]


@pytest.mark.engine
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_with_the_target_as_draft_model_every_entry_is_what_the_target_would_draw(temperature: float) -> None:
    """Coupled draws: rounds with right, half right and no drafts in flight, each verdict in the table (case B6)."""
    clock, target = ManualClock(), Target()
    drafter = make_run_ahead(draft_harness.make_draft_model(), clock, vocab_size=draft_harness.VOCAB)
    prompt = tuple(range(20, 50))
    message = opening(1, prompt, temperature=temperature, seed=11)
    assert drafter.handle(A, message) == []
    text = prompt
    new: tuple[int, ...] = ()
    draft: tuple[int, ...] = ()
    for number in range(7):
        rounds = Round(number=number, verify_s=30.0, rows=(row(1, len(text), new, draft),))
        assert drafter.handle(A, rounds) == []
        table = _only_table(drafter)
        for entry in table.entries:
            path = (*text, *draft[: entry.num_accepted], entry.token_ids[0])
            for token_id in entry.token_ids[1:]:
                assert token_id == target.next(path, len(prompt), message.sampling)
                path = (*path, token_id)
            assert len(entry.token_ids) == 1 + 4
        num_accepted, new = _verdict(target, text, len(prompt), draft, message.sampling)
        text = (*text, *new)
        hits = [entry for entry in table.entries if (entry.num_accepted, entry.token_ids[0]) == (num_accepted, new[-1])]
        assert len(hits) == 1, "the verdict is not in the table"
        draft = hits[0].token_ids[1:]
        if number % 3 == 1:
            draft = (*draft[:2], (draft[2] + 1) % draft_harness.VOCAB, draft[3])
        elif number % 3 == 2:
            draft = ()
    drafter.check_integrity()


def _only_table(drafter: Any) -> SequenceTable:
    out = []
    while drafter.has_work:
        out += drafter.step()
    (table,) = tables_in(out).values()
    return table


def _verdict(
    target: Target, text: tuple[int, ...], num_prompt_tokens: int, draft: tuple[int, ...], params: SamplingParams
) -> tuple[int, tuple[int, ...]]:
    new: tuple[int, ...] = ()
    for num_accepted in range(len(draft) + 1):
        token_id = target.next((*text, *new), num_prompt_tokens, params)
        new = (*new, token_id)
        if num_accepted == len(draft) or token_id != draft[num_accepted]:
            return num_accepted, new
    raise AssertionError


def test_a_table_names_the_round_and_the_state_that_it_answers() -> None:
    drafter = make_drafter()
    drafter.open(A, 5, (1, 2, 3), epoch=9)
    drafter.round(A, row(5, 5, (4, 6), (7, 8), epoch=9), number=42)
    ((peer, message),) = drafter.run()
    assert peer == A
    assert isinstance(message, Table)
    assert (message.incarnation, message.number) == (INCARNATION, 42)
    (table,) = message.sequences
    assert (table.sequence, table.epoch, table.base_length) == (5, 9, 5)
    assert table.draft_hash == draft_hash((7, 8))


def test_entries_cover_every_number_of_accepted_tokens_likeliest_first() -> None:
    drafter = make_drafter(max_fan_out=3)
    drafter.open(A, 0)
    drafter.round(A, row(0, 3, (), (7, 8)))
    (table,) = drafter.tables().values()
    assert sorted(entry.num_accepted for entry in table.entries) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert {entry.num_accepted for entry in table.entries[:3]} == {0, 1, 2}, "first guesses first"
    assert all(entry.token_ids[0] != 7 for entry in table.entries if entry.num_accepted == 0)


@pytest.mark.parametrize(("wanted", "drafted"), [(1, 1), (3, 3), (9, 5)])
def test_drafts_are_as_long_as_wanted_up_to_the_limit(wanted: int, drafted: int) -> None:
    drafter = make_drafter(num_speculative_tokens=5)
    drafter.open(A, 0)
    drafter.round(A, row(0, 3, num_tokens=wanted))
    (table,) = drafter.tables().values()
    assert {len(entry.token_ids) for entry in table.entries} == {1 + drafted}


def test_sequences_that_get_ready_in_one_pass_share_a_message() -> None:
    drafter = make_drafter()
    for sequence in range(3):
        drafter.open(A, sequence)
    drafter.round(A, *(row(sequence, 3) for sequence in range(3)))
    ((_, message),) = drafter.run()
    assert isinstance(message, Table)
    assert [table.sequence for table in message.sequences] == [0, 1, 2]


def test_a_step_without_work_does_nothing() -> None:
    drafter = make_drafter()
    assert not drafter.run_ahead.has_work
    assert drafter.step() == []
    assert drafter.runner.rows_of_passes == []


def test_a_sequence_that_wants_no_drafts_costs_no_pass() -> None:
    drafter = make_drafter()
    drafter.open(A, 0)
    assert drafter.round(A, row(0, 4, (9,), num_tokens=0)) == []
    assert not drafter.run_ahead.has_work


def test_the_end_of_the_text_is_not_drafted_over() -> None:
    drafter = make_drafter()
    drafter.open(A, 0, max_tokens=3)
    drafter.round(A, row(0, 3))
    (table,) = drafter.tables().values()
    assert {len(entry.token_ids) for entry in table.entries} == {2}, "two of the three tokens: the last needs no draft"


def test_outcomes_without_a_draft_behind_them_are_not_sent() -> None:
    drafter = make_drafter()
    drafter.open(A, 0, max_tokens=2)
    drafter.round(A, row(0, 3))
    assert drafter.tables() == {}
    assert drafter.run_ahead.snapshot().counters.num_tables == 0


def test_acceptance_is_counted_up_to_the_first_difference() -> None:
    good, bad = AcceptanceEstimate(), AcceptanceEstimate()
    prior = good.value
    for _ in range(100):
        good.observe((1, 2, 3), (1, 2, 3, 9))
        bad.observe((1, 2, 3), (1, 5))
    assert good.value > 0.9 > prior
    assert bad.value == pytest.approx(0.5, abs=0.07), "one of two tries; the third token was never tried"
    bad.observe((1, 2, 3), ())
    assert bad.value == pytest.approx(0.5, abs=0.07), "no verdict, nothing learnt"
    for _ in range(100):
        bad.observe((4, 2, 3), (7, 2, 3))
    assert bad.value < 0.2


def test_a_new_round_ends_the_unfinished_work_of_the_one_before() -> None:
    drafter = make_drafter()
    drafter.open(A, 0)
    drafter.round(A, row(0, 3, (), (5, 6)), number=1)
    drafter.step()
    drafter.round(A, row(0, 5, (5, 9)), number=2)
    messages = [message for _, message in drafter.run()]
    assert [message.number for message in messages if isinstance(message, Table)] == [2]
    assert drafter.run_ahead.snapshot().counters.num_cancelled_jobs == 1


def test_a_sequence_that_sits_out_a_round_keeps_its_work() -> None:
    drafter = make_drafter()
    for sequence in (0, 1):
        drafter.open(A, sequence)
    drafter.round(A, row(0, 3), row(1, 3), number=1)
    drafter.step()
    drafter.round(A, row(0, 4, (9,)), number=2)
    messages = [message for _, message in drafter.run()]
    numbers = {message.sequences[0].sequence: message.number for message in messages if isinstance(message, Table)}
    assert numbers == {0: 2, 1: 1}


def test_closing_and_opening_again_end_work_and_free_blocks() -> None:
    drafter = make_drafter()
    drafter.open(A, 0)
    drafter.round(A, row(0, 3))
    drafter.step()
    drafter.open(A, 0, (4, 5))
    assert not drafter.run_ahead.has_work
    drafter.round(A, row(0, 2))
    drafter.step()
    drafter.handle(A, close(0, 7))
    assert not drafter.run_ahead.has_work
    assert drafter.model.num_used_blocks == 0
    assert drafter.run_ahead.snapshot().counters.num_cancelled_jobs == 2


def test_a_verifier_that_is_gone_leaves_nothing_behind() -> None:
    drafter = make_drafter()
    for peer in (A, B):
        drafter.handle(peer, hello())
        for sequence in range(4):
            drafter.open(peer, sequence, range(40))
        drafter.round(peer, *(row(sequence, 40) for sequence in range(4)))
    drafter.step()
    drafter.run_ahead.drop_peer(A)
    drafter.run_ahead.drop_peer(A)
    drafter.run_ahead.check_integrity()
    snapshot = drafter.run_ahead.snapshot()
    assert (snapshot.num_sequences, snapshot.num_jobs, len(snapshot.peers)) == (4, 4, 1)
    assert set(drafter.tables()) == {(B, sequence) for sequence in range(4)}
    drafter.run_ahead.drop_peer(B)
    assert drafter.model.num_used_blocks == 0
    assert drafter.run_ahead.snapshot().counters.num_opened == 8
