"""The verifier's tables against a brute-force definition, and everything that must not be used."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.drafters.table import (
    MAX_ENTRIES,
    MAX_OPEN_ROUNDS,
    MAX_PATH_TOKENS,
    Arrival,
    DraftTables,
    LookupResult,
)
from cluster.messages import Entry, SequenceTable, draft_hash

VOCAB = 4
PROMPT = (3, 3)


def table_of(
    base_length: int, draft: tuple[int, ...], *entries: tuple[int, tuple[int, ...]], sequence: int = 7, epoch: int = 0
) -> SequenceTable:
    return SequenceTable(
        sequence=sequence,
        epoch=epoch,
        base_length=base_length,
        draft_hash=draft_hash(draft),
        entries=tuple(Entry(num_accepted=k, token_ids=ids) for k, ids in entries),
    )


def opened(*rounds: tuple[int, tuple[int, ...]], vocab_size: int = 100) -> DraftTables:
    tables = DraftTables(vocab_size)
    tables.open(7, 0)
    for base_length, draft in rounds:
        tables.begin_round(7, base_length, draft)
    return tables


@pytest.mark.parametrize(
    ("committed", "result", "draft"),
    [
        ((10, 11, 12), LookupResult.HIT, (13, 14)),
        ((10, 20), LookupResult.HIT, (21, 22)),
        ((30,), LookupResult.HIT, (31,)),
        ((40,), LookupResult.HIT, ()),
        ((10, 21), LookupResult.MISS, ()),
        ((11,), LookupResult.MISS, ()),
    ],
)
def test_a_table_in_time_is_a_hit_or_a_miss(
    committed: tuple[int, ...], result: LookupResult, draft: tuple[int, ...]
) -> None:
    tables = opened((2, (10, 11)))
    assert not tables.is_answered(7)
    tables.put(table_of(2, (10, 11), (2, (12, 13, 14)), (1, (20, 21, 22)), (0, (30, 31)), (0, (40,))))
    assert tables.is_answered(7)
    found = tables.lookup(7, [1, 1, *committed])
    assert (found.result, found.token_ids) == (result, draft)


def test_a_late_table_still_serves_with_what_is_left_of_its_path() -> None:
    tables = opened((2, ()))
    assert tables.lookup(7, [1, 1, 10]).result is LookupResult.NONE
    tables.begin_round(7, 3, ())
    assert tables.put(table_of(2, (), (0, (10, 11, 12, 13)))) is Arrival.LATE
    assert not tables.is_answered(7)
    found = tables.lookup(7, [1, 1, 10, 11])
    assert (found.result, found.token_ids) == (LookupResult.LATE, (12, 13))


def test_what_a_cut_draft_left_over_serves_when_nothing_newer_came() -> None:
    tables = opened((2, ()))
    tables.put(table_of(2, (), (0, (10, 11, 12, 13, 14))))
    assert tables.lookup(7, [1, 1, 10]).token_ids == (11, 12, 13, 14)
    tables.begin_round(7, 3, (11,))
    found = tables.lookup(7, [1, 1, 10, 11, 12])
    assert (found.result, found.token_ids) == (LookupResult.NONE, (13, 14))


def test_an_older_table_never_replaces_a_newer_one() -> None:
    tables = opened((2, ()), (3, ()))
    tables.put(table_of(3, (), (0, (11, 50))))
    assert tables.put(table_of(2, (), (0, (10, 11, 60)))) is Arrival.LATE
    found = tables.lookup(7, [1, 1, 10, 11])
    assert (found.result, found.token_ids) == (LookupResult.HIT, (50,))


@pytest.mark.parametrize(
    "table",
    [
        table_of(2, (10,), (0, (12, 13)), epoch=1),
        table_of(3, (10,), (0, (12, 13))),
        table_of(1, (10,), (0, (12, 13))),
        table_of(2, (11,), (0, (12, 13))),
        table_of(2, (), (0, (12, 13))),
        table_of(2, (10, 0), (0, (12, 13))),
    ],
)
def test_tables_of_another_epoch_length_or_draft_are_stale_and_give_nothing(table: SequenceTable) -> None:
    tables = opened((2, (10,)))
    assert tables.put(table) is Arrival.STALE
    found = tables.lookup(7, [1, 1, 12])
    assert (found.result, found.token_ids) == (LookupResult.STALE, ())


@pytest.mark.parametrize(
    "entry",
    [(0, (12, 100)), (0, (-1,)), (0, (1 << 40,)), (2, (12,)), (-1, (12,)), (0, ()), (0, (1,) * (MAX_PATH_TOKENS + 1))],
)
def test_a_table_with_an_impossible_entry_is_dropped_whole(entry: tuple[int, tuple[int, ...]]) -> None:
    tables = opened((2, (10,)))
    assert tables.put(table_of(2, (10,), (0, (12, 13)), entry)) is Arrival.INVALID
    found = tables.lookup(7, [1, 1, 12])
    assert (found.result, found.token_ids) == (LookupResult.NONE, ())


def test_memory_is_bounded_by_rounds_and_entries() -> None:
    tables = opened(*((length, ()) for length in range(2, 50)))
    assert len(tables._sequences[7].rounds) == MAX_OPEN_ROUNDS
    assert tables.put(table_of(49 - MAX_OPEN_ROUNDS, (), (0, (1,)))) is Arrival.STALE
    assert tables.put(table_of(50 - MAX_OPEN_ROUNDS, (), (0, (1,)))) is Arrival.LATE
    assert tables.put(table_of(49, (), *[(0, (1,))] * (MAX_ENTRIES + 1))) is Arrival.INVALID
    for sequence in range(100):
        tables.open(sequence, 0)
    for sequence in range(100):
        tables.close(sequence)
        tables.close(sequence)
    assert tables.num_sequences == 0
    assert tables.put(table_of(49, ())) is Arrival.STALE


def test_an_opened_sequence_knows_nothing_of_its_earlier_life() -> None:
    tables = opened((2, ()))
    tables.put(table_of(2, (), (0, (10, 11))))
    tables.open(7, 1)
    assert tables.lookup(7, [1, 1, 10]).token_ids == ()
    assert tables.put(table_of(2, (), (0, (10, 11)))) is Arrival.STALE


@dataclass
class BruteForce:
    """By definition: of all tables that answer a known round, the newest counts; its first path that fits is taken."""

    rounds: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    kept: list[SequenceTable] = field(default_factory=list)
    new: list[tuple[SequenceTable, bool]] = field(default_factory=list)

    def put(self, table: SequenceTable) -> None:
        draft = dict(self.rounds[-MAX_OPEN_ROUNDS:]).get(table.base_length)
        is_right = draft is not None and draft_hash(draft) == table.draft_hash
        if is_right and any(token >= VOCAB for entry in table.entries for token in entry.token_ids):
            return
        self.new.append((table, is_right))
        if is_right:
            self.kept.append(table)

    def lookup(self, tokens: list[int]) -> tuple[str, tuple[int, ...]]:
        newest_base = self.rounds[-1][0]
        new, self.new = self.new, []
        paths: list[list[int]] = []
        if self.kept:
            best_base = max(table.base_length for table in self.kept)
            table = [table for table in self.kept if table.base_length == best_base][-1]
            draft = next(draft for base, draft in self.rounds if base == best_base)
            paths = [[*tokens[:best_base], *draft[: entry.num_accepted], *entry.token_ids] for entry in table.entries]
        fitting = [path for path in paths if path[: len(tokens)] == tokens]
        draft = next((tuple(path[len(tokens) :]) for path in fitting if len(path) > len(tokens)), ())
        if any(is_right and table.base_length == newest_base for table, is_right in new):
            return ("hit" if fitting else "miss"), draft
        if any(is_right for _, is_right in new):
            return "late", draft
        return ("stale" if new else "none"), draft


def random_table(rng: random.Random, rounds: list[tuple[int, tuple[int, ...]]]) -> SequenceTable:
    """For one of the last rounds, sometimes with a wrong draft or an id that is no token."""
    base, draft = rng.choice(rounds[-MAX_OPEN_ROUNDS - 1 :])
    entries = []
    for _ in range(rng.randrange(5)):
        ids = tuple(rng.randrange(VOCAB + (rng.random() < 0.03)) for _ in range(rng.randint(1, 5)))
        entries.append((rng.randint(0, len(draft)), ids))
    return table_of(base, draft if rng.random() < 0.9 else (*draft, 0), *entries)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30), num_rounds=st.integers(1, 12))
def test_lookups_agree_with_brute_force_over_random_rounds(seed: int, num_rounds: int) -> None:
    rng = random.Random(seed)
    tables, brute = DraftTables(VOCAB), BruteForce()
    tables.open(7, 0)
    tokens = list(PROMPT)
    for _ in range(num_rounds):
        draft = tuple(rng.randrange(VOCAB) for _ in range(rng.randrange(4)))
        tables.begin_round(7, len(tokens), draft)
        brute.rounds.append((len(tokens), draft))
        for _ in range(rng.randrange(4)):
            table = random_table(rng, brute.rounds)
            tables.put(table)
            brute.put(table)
        tokens += [*draft[: rng.randint(0, len(draft))], rng.randrange(VOCAB)]
        if rng.random() < 0.8:
            found = tables.lookup(7, tokens)
            assert (found.result.value, found.token_ids) == brute.lookup(tokens)
