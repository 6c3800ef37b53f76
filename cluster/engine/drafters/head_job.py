"""What a drafter around a head keeps of a sequence, and a draft in the making."""

from dataclasses import dataclass
from typing import Any

from cluster.engine.drafters.draft_growth import DraftGrowth, TreeShape
from cluster.engine.drafters.draft_pace import PaceState
from cluster.engine.drafters.draft_sampling import DrawRow, DrawSettings
from cluster.engine.drafters.own_draws import OwnDraws
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import SequenceBudget


class HeadState(PaceState):
    """What is kept for one sequence."""

    __slots__ = ("growth", "handle", "is_open", "num_read", "sequence", "settings")

    def __init__(self, sequence: Sequence, budget: SequenceBudget, settings: DrawSettings) -> None:
        super().__init__(budget)
        self.sequence, self.settings = sequence, settings
        self.handle: Any = None
        self.is_open, self.num_read = False, 0
        self.growth: DraftGrowth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadJob:
    """A draft in the making."""

    state: HeadState
    growth: DraftGrowth
    own: OwnDraws | None = None

    def row(self, leaf: int, shape: TreeShape) -> DrawRow:
        """How the tokens behind a leaf are drawn."""
        sequence, settings = self.state.sequence, self.state.settings
        history: list[int] = []
        if settings.needs_history:
            history = [*sequence.token_ids[sequence.num_prompt_tokens :], *self.growth.path(leaf)]
        return DrawRow(
            settings=settings,
            output_index=sequence.num_output_tokens + self.growth.num_levels,
            num_candidates=shape.max_branches,
            output_token_ids=history,
            own=self.own,
        )
