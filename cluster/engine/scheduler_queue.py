"""The scheduler's queues: entries in the order of their rank. Pure."""

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import NamedTuple

from cluster.engine.sequence import Sequence
from cluster.engine.sequence_blocks import SequenceBlocks


class Rank(NamedTuple):
    """Place in every order that the scheduler keeps: lower first, ties by the order of `add`."""

    virtual_arrival_s: float
    order: int


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A sequence with its blocks."""

    sequence: Sequence
    blocks: SequenceBlocks
    rank: Rank


def put(queue: list[Entry], entry: Entry) -> None:
    """Add an entry at its place."""
    insort(queue, entry, key=rank_of)


def remove(queue: list[Entry], entry: Entry) -> None:
    """Take an entry out; it is there."""
    index = bisect_left(queue, entry.rank, key=rank_of)
    assert queue[index] is entry
    del queue[index]


def rank_of(entry: Entry) -> Rank:
    """Key of the order."""
    return entry.rank
