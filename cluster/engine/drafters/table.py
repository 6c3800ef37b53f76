"""What a drafter that runs ahead has sent: continuations of the outcomes of rounds, looked up by what was committed.

A table answers one round of one sequence: it was made on `base_length` committed tokens with a draft in flight. Each of
its entries is a path from there: the accepted part of that draft, the token that the target then draws, and tokens that
may follow. Once more tokens are committed, a path that begins with them ends with a draft. Tables that come too late
for their round may still serve: their paths are longer than what one round commits. Pure.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from enum import StrEnum

from cluster.messages import SequenceTable, draft_hash

MAX_ENTRIES, MAX_PATH_TOKENS = 1024, 256
"""Longest table and path that are kept; more than that is no sensible answer."""

MAX_OPEN_ROUNDS = 4
"""Rounds of a sequence whose tables are still accepted."""


class LookupResult(StrEnum):
    """What a sequence found.

    - hit: the table of the round just verified holds its outcome.
    - miss: it is there and does not hold it.
    - late: only tables of earlier rounds came; what is left of their paths may still serve.
    - stale: only tables of another epoch, or of a draft or length that never was, came.
    - none: nothing came since the last lookup.
    """

    HIT = "hit"
    LATE = "late"
    STALE = "stale"
    MISS = "miss"
    NONE = "none"


class Arrival(StrEnum):
    """What became of a table that came in."""

    IN_TIME = "in time"
    LATE = "late"
    STALE = "stale"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A sequence's draft.

    Attributes:
        result: what was found.
        token_ids: the draft; empty without one.
    """

    result: LookupResult
    token_ids: tuple[int, ...] = ()


@dataclass(slots=True)
class _Followed:
    """One sequence: drafts in flight by base length, oldest first, and the paths of the latest table."""

    epoch: int
    rounds: dict[int, tuple[int, ...]] = field(default_factory=dict)
    paths_base: int = -1
    paths: tuple[tuple[int, ...], ...] = ()
    # Best arrival since the last lookup.
    arrival: Arrival | None = None


_WORTH = {Arrival.STALE: 0, Arrival.LATE: 1, Arrival.IN_TIME: 2}


class DraftTables:
    """The latest table of each sequence.

    Args:
        vocab_size: ids of the target are below this.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._sequences: dict[int, _Followed] = {}

    @property
    def num_sequences(self) -> int:
        """Sequences that something is kept for."""
        return len(self._sequences)

    def open(self, sequence: int, epoch: int) -> None:
        """Follow a sequence, or start again with it."""
        self._sequences[sequence] = _Followed(epoch)

    def close(self, sequence: int) -> None:
        """Forget a sequence; unknown ones are ignored."""
        self._sequences.pop(sequence, None)

    def clear(self) -> None:
        """Forget all sequences."""
        self._sequences.clear()

    def begin_round(self, sequence: int, base_length: int, draft: tuple[int, ...]) -> None:
        """A round begins whose table is wanted.

        Args:
            sequence: one that is open.
            base_length: committed tokens, more than at the sequence's last round.
            draft: in flight.
        """
        followed = self._sequences[sequence]
        followed.rounds[base_length] = draft
        if followed.arrival is Arrival.IN_TIME:  # Nobody looked.
            followed.arrival = Arrival.LATE
        if len(followed.rounds) > MAX_OPEN_ROUNDS:
            del followed.rounds[next(iter(followed.rounds))]

    def put(self, table: SequenceTable) -> Arrival:
        """Take in a table; one that is invalid, stale, or older than the one that is kept changes no draft."""
        followed = self._sequences.get(table.sequence)
        if followed is None:
            return Arrival.STALE
        arrival = self._judge(followed, table)
        if arrival is Arrival.INVALID:
            return arrival
        if arrival is not Arrival.STALE and table.base_length >= followed.paths_base:
            draft = followed.rounds[table.base_length]
            followed.paths_base = table.base_length
            followed.paths = tuple(draft[: entry.num_accepted] + entry.token_ids for entry in table.entries)
        if followed.arrival is None or _WORTH[arrival] > _WORTH[followed.arrival]:
            followed.arrival = arrival
        return arrival

    def is_answered(self, sequence: int) -> bool:
        """True when the table of the sequence's last round is here."""
        followed = self._sequences.get(sequence)
        return followed is not None and followed.arrival is Arrival.IN_TIME

    def lookup(self, sequence: int, token_ids: Seq[int]) -> Lookup:
        """The draft that follows the committed tokens, on the likeliest path that holds them.

        Args:
            sequence: its id.
            token_ids: all committed tokens.
        """
        followed = self._sequences.get(sequence)
        if followed is None:
            return Lookup(LookupResult.NONE)
        arrival, followed.arrival = followed.arrival, None
        path = _find(followed.paths, token_ids[followed.paths_base :]) if followed.paths else None
        draft = path or ()
        match arrival:
            case Arrival.IN_TIME:
                return Lookup(LookupResult.MISS if path is None else LookupResult.HIT, draft)
            case Arrival.LATE:
                return Lookup(LookupResult.LATE, draft)
            case Arrival.STALE:
                return Lookup(LookupResult.STALE, draft)
            case _:
                return Lookup(LookupResult.NONE, draft)

    def _judge(self, followed: _Followed, table: SequenceTable) -> Arrival:
        draft = followed.rounds.get(table.base_length)
        if table.epoch != followed.epoch or draft is None or table.draft_hash != draft_hash(draft):
            return Arrival.STALE
        if len(table.entries) > MAX_ENTRIES:
            return Arrival.INVALID
        for entry in table.entries:
            token_ids = entry.token_ids
            if not (0 <= entry.num_accepted <= len(draft) and 0 < len(token_ids) <= MAX_PATH_TOKENS):
                return Arrival.INVALID
            if min(token_ids) < 0 or max(token_ids) >= self._vocab_size:
                return Arrival.INVALID
        return Arrival.IN_TIME if table.base_length == next(reversed(followed.rounds)) else Arrival.LATE


def _find(paths: Seq[tuple[int, ...]], committed: Seq[int]) -> tuple[int, ...] | None:
    """What is left of the first path that begins with `committed`, preferring one with something left."""
    start, length = tuple(committed), len(committed)
    found = None
    for path in paths:
        if path[:length] == start:
            if len(path) > length:
                return path[length:]
            found = ()
    return found
