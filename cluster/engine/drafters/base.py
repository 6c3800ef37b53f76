"""What every source of drafts offers to the engine."""

from typing import Protocol

from cluster.engine.sequence import Sequence


class Drafter(Protocol):
    """Guesses the next tokens of a sequence. A wrong guess costs time, never a token.

    Attributes:
        name: the drafter's name in settings and metrics.
    """

    name: str

    def propose(self, sequence: Sequence, max_tokens: int) -> tuple[int, ...]:
        """Guess up to `max_tokens` tokens that follow `sequence.token_ids`; empty when a guess would not pay.

        Never changes the sequence.
        """
        ...

    def observe(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """Learn what became of the sequence's last proposal.

        Args:
            sequence: the sequence, its tokens before or after the verdict.
            num_drafted: proposed tokens that were verified; fewer than proposed if the scheduler cut them.
            num_accepted: how many of those were accepted.
        """
        ...

    def forget(self, request_id: str) -> None:
        """Drop all state of a finished sequence; unknown ids are ignored."""
        ...
