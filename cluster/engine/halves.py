"""The two half-batches that take turns: who belongs to which, and what was drafted before its turn came. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from cluster.engine.sequence import Sequence

TokenIds = tuple[int, ...]


class Halves:
    """Keeps two halves of the decoding sequences about equally large.

    A sequence joins the smaller half when it is first seen. Where sequences end, others move: only into the half whose
    turn it is, so that nobody waits longer than a round for a turn.
    """

    def __init__(self) -> None:
        self._half_of: dict[str, int] = {}
        self._turn = 0

    def take(self, sequences: Seq[Sequence]) -> frozenset[str]:
        """The half whose turn it is; the other one is next.

        Args:
            sequences: all that decode, in a fixed order; not empty.

        Returns:
            Request ids. Empty only where the other half holds one sequence and this one none.
        """
        counts = [0, 0]
        for sequence in sequences:
            half = self._half_of.get(sequence.request_id)
            if half is not None:
                counts[half] += 1
        turn, other = self._turn, 1 - self._turn
        for sequence in sequences:
            if sequence.request_id not in self._half_of:
                # On a tie the half that waits: its draft can be made during this round's pass.
                half = turn if counts[turn] < counts[other] else other
                self._half_of[sequence.request_id] = half
                counts[half] += 1
        for sequence in reversed(sequences):
            if counts[other] - counts[turn] <= 1:
                break
            if self._half_of[sequence.request_id] == other:
                self._half_of[sequence.request_id] = turn
                counts[other], counts[turn] = counts[other] - 1, counts[turn] + 1
        self._turn = other
        return frozenset(s.request_id for s in sequences if self._half_of[s.request_id] == turn)

    def forget(self, request_id: str) -> None:
        """Drop a finished sequence; unknown ids are ignored."""
        self._half_of.pop(request_id, None)

    def clear(self) -> None:
        """Drop all."""
        self._half_of.clear()


@dataclass(frozen=True, slots=True)
class _Held:
    """A draft, and the sequence as it was when the draft was made."""

    sequence: Sequence
    epoch: int
    base_length: int
    token_ids: TokenIds

    def fits(self, sequence: Sequence) -> bool:
        """True while the draft still follows the sequence's last token."""
        now = (sequence.epoch, sequence.num_tokens)
        return self.sequence is sequence and (self.epoch, self.base_length) == now and sequence.is_decoding


class HeldDrafts:
    """Drafts that wait for their half's turn. One that its sequence has outgrown is never given out."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._held)

    def put(self, sequences: Seq[Sequence], drafts: Mapping[str, TokenIds]) -> None:
        """Keep what was drafted for sequences, as they are now; nothing is an answer as well."""
        for sequence in sequences:
            token_ids = drafts.get(sequence.request_id, ())
            self._held[sequence.request_id] = _Held(sequence, sequence.epoch, sequence.num_tokens, token_ids)

    def has(self, sequence: Sequence) -> bool:
        """True where a sequence has its answer already."""
        held = self._held.get(sequence.request_id)
        return held is not None and held.fits(sequence)

    def take(self, sequences: Seq[Sequence]) -> dict[str, TokenIds]:
        """Drafts of those sequences that have an answer; they are not kept any longer."""
        taken = {}
        for sequence in sequences:
            held = self._held.pop(sequence.request_id, None)
            if held is not None and held.fits(sequence):
                taken[sequence.request_id] = held.token_ids
        return taken

    def forget(self, request_id: str) -> None:
        """Drop a finished sequence's; unknown ids are ignored."""
        self._held.pop(request_id, None)

    def clear(self) -> None:
        """Drop all."""
        self._held.clear()
