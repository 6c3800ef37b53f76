"""Tokens that a grammar forces: drafts that cost nothing to make, and that the target must accept."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Final

from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence

MAX_FORCED_TOKENS: Final = 16
"""Longest draft of forced tokens, where the budget finds that its rows pay."""

CONFIDENCE: Final = 0.999
"""The rest is for text that the grammar forces but tokens spell differently than foreseen."""


class GrammarDrafter:
    """Drafts what the grammars of sequences force; sequences without one have no draft."""

    name = "grammar"

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The forced tokens of each sequence that has any."""
        drafts = {}
        for want in wanted:
            grammar = want.sequence.grammar
            if grammar is not None and (forced := grammar.forced_tokens(want.max_forced_tokens or want.max_tokens)):
                drafts[want.sequence.request_id] = Draft(
                    token_ids=forced, source=self.name, confidences=(CONFIDENCE,) * len(forced), is_forced=True
                )
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Nothing to note."""

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to release."""
