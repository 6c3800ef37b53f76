"""When a drafter that runs ahead does what: verify times, shares of several verifiers, prompts, lateness."""

import pytest

from cluster.messages import Table
from tests.cluster.engine.drafters.run_ahead_harness import Drafter, Verifier, make_drafter, row, simulate, tables_in

A, B = b"a", b"b"


def warmed_up(drafter: Drafter) -> Drafter:
    """Let it learn what its passes cost, by rounds of several widths."""
    for sequence in range(6):
        drafter.open(b"warm", sequence)
    for number in range(1, 13):
        rows = [row(sequence, 3, (), (5,) * (number % 4)) for sequence in range(1 + number % 6)]
        drafter.round(b"warm", *rows, number=number)
        drafter.run()
    drafter.run_ahead.drop_peer(b"warm")
    drafter.clock.advance(100.0)
    return drafter


def test_the_cost_of_passes_is_learnt_while_serving() -> None:
    drafter = warmed_up(make_drafter(fixed_s=0.003, row_s=0.0002))
    snapshot = drafter.run_ahead.snapshot()
    assert snapshot.pass_s == pytest.approx(0.0032, rel=0.1)
    assert snapshot.forward_s == pytest.approx(
        sum(0.003 + 0.0002 * num_rows for num_rows in drafter.runner.rows_of_passes)
    )
    assert snapshot.num_steps == len(drafter.runner.rows_of_passes)


@pytest.mark.parametrize("verify_s", [0.0035, 0.005, 0.008, 0.012, 0.03])
def test_tables_are_in_time_and_use_the_time(verify_s: float) -> None:
    drafter = warmed_up(make_drafter(fixed_s=0.001, row_s=0.0001))
    drafter.open(A, 0)
    started_s = drafter.clock.now_s()
    drafter.round(A, row(0, 3, (), (4, 5, 6, 7)), verify_s=verify_s)
    ((_, message),) = drafter.run()
    assert isinstance(message, Table)
    took_s = drafter.clock.now_s() - started_s
    assert took_s <= verify_s
    assert took_s >= 0.6 * verify_s or drafter.run_ahead.snapshot().counters.num_branches >= 20
    assert drafter.run_ahead.snapshot().counters.num_late_tables == 0


def test_a_faster_verifier_gets_fewer_and_shorter_drafts() -> None:
    drafted = []
    for verify_s in (0.003, 0.006, 0.012, 0.05):
        drafter = warmed_up(make_drafter(fixed_s=0.001, row_s=0.0002))
        before = drafter.run_ahead.snapshot().counters.num_draft_tokens
        drafter.open(A, 0)
        drafter.round(A, row(0, 3, (), (4, 5, 6, 7)), verify_s=verify_s)
        drafter.run()
        drafted.append(drafter.run_ahead.snapshot().counters.num_draft_tokens - before)
    assert drafted == sorted(drafted)
    assert drafted[0] <= 3
    assert drafted[-1] == 5 * 4 * 4


def test_when_time_is_up_a_shorter_draft_goes_out() -> None:
    drafter = warmed_up(make_drafter(fixed_s=0.001, row_s=0.0001))
    drafter.open(A, 0)
    drafter.round(A, row(0, 3), verify_s=0.02)
    drafter.step()
    drafter.step()
    drafter.clock.advance(0.0155)  # The machine was elsewhere.
    tables = tables_in(drafter.step())
    counters = drafter.run_ahead.snapshot().counters
    assert {len(entry.token_ids) for table in tables.values() for entry in table.entries} == {1 + 2}
    assert (counters.num_short_tables, counters.num_late_tables) == (1, 0)
    assert not drafter.run_ahead.has_work


def test_a_table_after_the_verdict_counts_as_late() -> None:
    drafter = warmed_up(make_drafter())
    drafter.open(A, 0)
    drafter.round(A, row(0, 3), verify_s=0.02)
    drafter.clock.advance(1.0)
    assert len(drafter.tables()) == 1
    assert drafter.run_ahead.snapshot().counters.num_late_tables == 1


def test_acceptance_moves_guesses_to_the_outcomes_that_happen() -> None:
    def guesses(draft: tuple[int, ...], verdict: tuple[int, ...]) -> dict[int, int]:
        drafter = warmed_up(make_drafter(fixed_s=0.001, row_s=0.0005))
        drafter.open(A, 0)
        length = 3
        drafter.round(A, row(0, length, (), draft), verify_s=0.01)
        for number in range(30):
            length += len(verdict)
            drafter.round(A, row(0, length, verdict, draft), number=number, verify_s=0.01)
        counts = dict.fromkeys(range(len(draft) + 1), 0)
        for entry in next(iter(drafter.tables().values())).entries:
            counts[entry.num_accepted] += 1
        return counts

    accepted, refused = guesses((4, 5, 6), (4, 5, 6, 9)), guesses((4, 5, 6), (8,))
    assert accepted[3] > accepted[0]
    assert refused[0] > refused[3]
    assert refused[0] > refused[1]


def test_a_prompt_is_computed_while_the_verifier_computes_it() -> None:
    drafter = make_drafter(chunk_tokens=64)
    drafter.open(A, 0, range(60))
    drafter.open(A, 1, [5] * 200)
    assert drafter.run() == []
    assert sum(drafter.runner.rows_of_passes) >= 260
    num_passes = len(drafter.runner.rows_of_passes)
    drafter.round(A, row(0, 60), row(1, 200))
    assert len(drafter.tables()) == 2
    assert drafter.runner.rows_of_passes[num_passes] == 2, "only the last token of each was left"


def test_tokens_of_a_spell_without_drafts_are_caught_up_and_the_tables_are_the_same() -> None:
    """Case A10: after K = 0 the draft model must have read everything."""
    spell, steady = make_drafter(), make_drafter()
    news = [(7 * i) % 64 for i in range(100)]
    for drafter in (spell, steady):
        drafter.open(A, 0, temperature=1.0)
    for index, token_id in enumerate(news):
        spell.round(A, row(0, 4 + index, (token_id,), num_tokens=0), number=index)
        steady.round(A, row(0, 4 + index, (token_id,)), number=index)
        steady.run()
    assert spell.run_ahead.has_work, "a long backlog does not wait for a round"
    spell.run()
    tables = []
    for drafter in (spell, steady):
        assert drafter.round(A, row(0, 104, (9,), (3, 4))) == []
        tables.append(drafter.tables())
    assert tables[0] == tables[1]


def test_a_long_prompt_does_not_make_the_tables_of_others_late() -> None:
    drafter = warmed_up(make_drafter(fixed_s=0.001, row_s=0.00002, chunk_tokens=128, max_model_len=2048))
    busy = Verifier(A, 2, verify_s=0.012)
    busy.start(drafter)
    prompt_done = 0
    for number in range(20):
        if number == 5:
            drafter.open(B, 0, [3] * 1500)
        while busy.next_s <= drafter.clock.now_s() or not drafter.run_ahead.has_work:
            drafter.clock.advance(max(0.0, busy.next_s - drafter.clock.now_s()) + 1e-9)
            busy.advance(drafter)
        while busy.next_s > drafter.clock.now_s() and drafter.run_ahead.has_work:
            for peer, message in drafter.step():
                assert peer == A
                busy.take(message)
    prompt_done = max(drafter.runner.rows_of_passes)
    counters = next(peer for peer in drafter.run_ahead.snapshot().peers if peer.name == "a").counters
    assert prompt_done >= 128, "the prompt got its chunks"
    assert counters.num_tables >= 12
    assert counters.num_late_tables <= 2


def test_three_equal_verifiers_are_served_equally() -> None:
    drafter = make_drafter(fixed_s=0.0008, row_s=0.00004)
    verifiers = [
        Verifier(name, 4, verify_s=0.015, pause_s=0.002 + 0.0001 * i) for i, name in enumerate((b"a", b"b", b"c"))
    ]
    simulate(drafter, verifiers, 5.0)
    rates = [verifier.num_hits / verifier.num_verdicts for verifier in verifiers]
    branches = [peer.counters.num_branches for peer in drafter.run_ahead.snapshot().peers]
    assert min(rates) > 0.8
    assert max(rates) - min(rates) < 0.05
    assert min(branches) > 0.8 * max(branches)


def test_many_sequences_of_one_verifier_do_not_crowd_out_the_few_of_others() -> None:
    drafter = make_drafter(fixed_s=0.0008, row_s=0.00004, num_blocks=1024)
    small, other, large = Verifier(b"s", 1, verify_s=0.015), Verifier(b"o", 2, 0.015), Verifier(b"l", 24, 0.015)
    simulate(drafter, [small, other, large], 5.0)
    rates = [verifier.num_hits / verifier.num_verdicts for verifier in (small, other, large)]
    assert min(rates[:2]) > 0.8
    assert rates[2] > 0.5
    branches = {
        peer.name: peer.counters.num_branches / peer.counters.num_tables for peer in drafter.run_ahead.snapshot().peers
    }
    assert branches["s"] > 2 * branches["l"], "the guesses are divided by verifier, not by sequence"


def test_a_fast_and_a_slow_verifier_are_both_in_time() -> None:
    drafter = make_drafter(fixed_s=0.0005, row_s=0.00005)
    fast, slow = Verifier(b"f", 2, verify_s=0.006), Verifier(b"s", 6, verify_s=0.04)
    simulate(drafter, [fast, slow], 5.0)
    rates = [verifier.num_hits / verifier.num_verdicts for verifier in (fast, slow)]
    assert min(rates) > 0.7
    assert abs(rates[0] - rates[1]) < 0.15


def test_the_guess_of_an_arrival_is_the_start_of_the_pass_that_just_ended() -> None:
    """A round that came in during a pass has less time left than one that woke an idle drafter."""
    drafter = warmed_up(make_drafter(fixed_s=0.004, row_s=0.0001))
    drafter.open(A, 0)
    drafter.open(B, 0)
    late = []
    for pause_s in (0.0, 1.0):
        drafter.round(B, row(0, 3))
        drafter.step()
        drafter.clock.advance(pause_s)
        before = drafter.run_ahead.snapshot().counters.num_late_tables
        drafter.round(A, row(0, 3, num_tokens=1), verify_s=0.011)
        tables: dict[tuple[bytes, int], object] = {}
        while (A, 0) not in tables:
            tables |= tables_in(drafter.step())
        late.append(drafter.run_ahead.snapshot().counters.num_late_tables - before)
        drafter.run()
    assert late == [1, 0]


def test_a_verifier_alone_gets_everything_that_others_leave() -> None:
    alone, shared = make_drafter(fixed_s=0.0008, row_s=0.0002), make_drafter(fixed_s=0.0008, row_s=0.0002)
    simulate(alone, [Verifier(A, 4, verify_s=0.015)], 2.0)
    simulate(shared, [Verifier(A, 4, verify_s=0.015), Verifier(B, 4, verify_s=0.015)], 2.0)
    drafted = [
        drafter.run_ahead.snapshot().peers[0].counters.num_branches
        / drafter.run_ahead.snapshot().peers[0].counters.num_tables
        for drafter in (alone, shared)
    ]
    assert drafted[0] > 1.3 * drafted[1]
