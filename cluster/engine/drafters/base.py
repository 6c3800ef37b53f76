"""What every source of drafts offers to the engine."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Protocol

from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Tokens guessed to follow a sequence.

    Attributes:
        token_ids: the guess, a chain.
        source: name of the drafter that made it, for metrics.
        confidences: the drafter's estimate, for each token, that it is accepted once those before it were, 0..1; empty
            where it has none, and then the draft is verified whole.
    """

    token_ids: tuple[int, ...]
    source: str
    confidences: tuple[float, ...] = ()

    @property
    def expected_tokens(self) -> float:
        """Tokens that are likely to be accepted; all of them where the drafter does not say."""
        return sum(accumulate(self.confidences, mul)) if self.confidences else float(len(self.token_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A sequence that can use a draft in the next round.

    Attributes:
        sequence: its last token has no KV yet, everything before has.
        max_tokens: longest useful draft, >= 1.
    """

    sequence: Sequence
    max_tokens: int


class Drafter(Protocol):
    """Guesses the next tokens of sequences. A wrong guess costs time, never a token. Never changes a sequence.

    Calls of one round, in order: `propose`, `begin_round`, `observe` for each draft that was verified.

    Attributes:
        name: the drafter's name in settings and metrics.
    """

    name: str

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Drafts by request id, for those sequences where one would pay."""
        ...

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """The forward pass of `items` begins now; drafts in them may be cut or come from another drafter."""
        ...

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Learn what became of a draft.

        Args:
            sequence: the sequence, the round's tokens committed.
            draft: what was verified, perhaps shorter than proposed; `draft.source` tells whose it was.
            num_accepted: how many of its tokens were accepted.
        """
        ...

    def forget(self, request_id: str) -> None:
        """Drop all state of a finished sequence; unknown ids are ignored."""
        ...

    def close(self) -> None:
        """Release what the drafter holds."""
        ...
