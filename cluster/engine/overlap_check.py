"""Whether drafting beside the forward pass pays here: measured while serving, with and without it in turn. Pure.

What it costs is known only to the machine: the two half-batches stream the weights twice, and the drafter takes cores
and memory bandwidth from the target. So now and then blocks of rounds run in the other way, interleaved with blocks in
the usual one, and the way with more committed tokens per second stays.
"""

from collections import Counter
from dataclasses import dataclass, field

BLOCK_ROUNDS, SKIPPED_ROUNDS = 10, 2
"""Rounds in one way at a stretch, and those of them, at the beginning, that are not counted."""

NUM_BLOCKS = 4
"""Blocks of a look: the usual way, the other one, and both once more."""

LOOK_ROUNDS = NUM_BLOCKS // 2 * BLOCK_ROUNDS
"""Rounds of a look that run in the other way."""

LOOK_RATIO = 0.009
"""Share of all rounds that may run in the other way for a look, the very first look aside."""

SWITCH_GAIN = 1.02
"""The other way must bring this much more to be taken up: two rounds in a row seldom bring the same."""

_MIN_COUNTED = 8
_KEPT_EVIDENCE = 0.5


@dataclass(slots=True)
class _Class:
    """What is known of batches of about one size.

    Attributes:
        is_on: the way that is kept.
        tokens: committed in counted rounds, by way; older looks count less.
        seconds: of these rounds.
        is_known: a look has come to an end.
    """

    is_on: bool = False
    tokens: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})
    seconds: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})
    is_known: bool = False

    def fade(self) -> None:
        """Let what was seen before count half."""
        for sums in (self.tokens, self.seconds):
            for way in sums:
                sums[way] *= _KEPT_EVIDENCE

    def add(self, way: bool, num_tokens: int, seconds: float) -> None:
        """Count a round."""
        self.tokens[way] += num_tokens
        self.seconds[way] += seconds

    def decide(self) -> None:
        """Keep the better way."""
        self.is_known = True
        kept, other = self.is_on, not self.is_on
        # Cross-multiplied: no time at all is no reason to divide by it.
        if self.tokens[other] * self.seconds[kept] > SWITCH_GAIN * self.tokens[kept] * self.seconds[other]:
            self.is_on = other


@dataclass(slots=True)
class _Look:
    """A look that goes on: which class, and how far it is."""

    size: int
    num_rounds: int = 0
    num_counted: Counter[bool] = field(default_factory=Counter)

    @property
    def is_other(self) -> bool:
        """The next round runs in the way that is not kept."""
        return self.num_rounds // BLOCK_ROUNDS % 2 == 1

    @property
    def counts(self) -> bool:
        """The next round is far enough from the last change."""
        return self.num_rounds % BLOCK_ROUNDS >= SKIPPED_ROUNDS


class OverlapCheck:
    """Chooses the way of each round. Calls in turn: `choose`, then `observe` with what came of it.

    Batches of 2 to 3, 4 to 7, 8 to 15 .. sequences are judged apart: what pays for few need not pay for many. A size
    that was never looked at takes the way of the nearest that was.
    """

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._look: _Look | None = None
        self._credit = float(LOOK_ROUNDS)
        self._size, self._is_on = 0, False

    @property
    def is_looking(self) -> bool:
        """A look goes on: the rounds' times say little of the way that is kept."""
        return self._look is not None

    def choose(self, num_sequences: int) -> bool:
        """True where the next round should draft beside the pass.

        Args:
            num_sequences: that decode, in both halves together, at least 1.
        """
        self._size = num_sequences.bit_length()
        known = self._classes.get(self._size)
        if known is None:
            known = self._classes[self._size] = _Class(is_on=self._nearest())
        if self._look is not None and self._look.size != self._size:
            self._look = None
        if self._look is None and self._credit >= LOOK_ROUNDS:
            self._look = _Look(self._size)
            known.fade()
        self._is_on = known.is_on != (self._look is not None and self._look.is_other)
        return self._is_on

    def observe(self, *, num_tokens: int, seconds: float, is_clean: bool) -> None:
        """Take in the round that was chosen for.

        Args:
            num_tokens: committed.
            seconds: from the end of the last round to the end of this one.
            is_clean: it did nothing but decode.
        """
        self._credit = min(self._credit + LOOK_RATIO, LOOK_ROUNDS)
        look = self._look
        if look is None:
            return
        known = self._classes[look.size]
        self._credit -= look.is_other
        if is_clean and look.counts:
            known.add(self._is_on, num_tokens, seconds)
            look.num_counted[self._is_on] += 1
        look.num_rounds += 1
        if look.num_rounds == NUM_BLOCKS * BLOCK_ROUNDS:
            self._look = None
            if min(look.num_counted[False], look.num_counted[True]) >= _MIN_COUNTED:
                known.decide()

    def _nearest(self) -> bool:
        known = [size for size, entry in self._classes.items() if entry.is_known]
        if not known:
            return False
        return self._classes[min(known, key=lambda size: abs(size - self._size))].is_on
