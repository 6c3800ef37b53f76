"""Which sequences may draft where an operator asks for a least acceptance rate. Pure."""

from dataclasses import dataclass

ACCEPTANCE_DECAY = 0.95
"""Weight that a sequence's older drafts keep at each new one."""

PROBE_INTERVAL = 16
"""A sequence under the rate is tried again each time it could have drafted this often."""


@dataclass(slots=True)
class _Acceptance:
    """Discounted counts of one sequence's drafts; starts as if all had been accepted."""

    num_accepted: float = 4.0
    num_drafted: float = 4.0
    num_skipped: int = 0


class AcceptanceFloor:
    """Follows the acceptance of each sequence.

    Args:
        min_rate: least share of its draft tokens that must have been accepted lately, 0..1; 0 asks for nothing.
    """

    def __init__(self, min_rate: float) -> None:
        self._min_rate = min_rate
        self._of_sequence: dict[str, _Acceptance] = {}

    def lets_draft(self, request_id: str) -> bool:
        """True where a sequence's drafts reach the rate, or it is its turn to show that they do."""
        state = self._of_sequence.get(request_id)
        if state is None or state.num_accepted >= self._min_rate * state.num_drafted:
            return True
        state.num_skipped += 1
        return state.num_skipped % PROBE_INTERVAL == 0

    def observe(self, request_id: str, num_drafted: int, num_accepted: int) -> None:
        """Learn from a verdict; of a tree, `num_drafted` is the most that could have been accepted."""
        if self._min_rate:
            state = self._of_sequence.setdefault(request_id, _Acceptance())
            state.num_accepted = state.num_accepted * ACCEPTANCE_DECAY + num_accepted
            state.num_drafted = state.num_drafted * ACCEPTANCE_DECAY + num_drafted

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a sequence."""
        self._of_sequence.pop(request_id, None)
