"""What a verifier keeps for each sequence that a drafter follows."""

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from cluster.engine.budget import DraftCost
from cluster.engine.drafters.table import LookupResult
from cluster.engine.drafters.wanted import max_draft_tokens
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import DRAFT_MODEL_ADAPTATION, CutMemory, LearnedPriors, Prior, SequenceBudget
from cluster.messages import Open, Row

PRIORS = (Prior(first=0.65, next=0.75),)
"""What is assumed of a drafter's drafts before any was verified."""

MAX_WAITS_IN_VAIN = 4
"""A sequence whose tables were late so often in a row is not waited for any more."""

FIRST_RETRY_S, LONGEST_RETRY_S = 0.1, 30.0
"""How long a sequence that the drafter lost, or had no room for, is left alone; doubled each time."""


class Missing(StrEnum):
    """Why a sequence did without the drafter in a round.

    - disconnected: there is no drafter, or none that has answered yet.
    - quarantined: it is left alone.
    - opening: it has not been told of the sequence yet.
    - lost: it has given the sequence up and is to be told again.
    - capacity: it has no room.
    - length: the sequence is too long for it.
    - unprofitable: a draft would cost more than it brings.
    """

    DISCONNECTED = "disconnected"
    QUARANTINED = "quarantined"
    OPENING = "opening"
    LOST = "lost"
    CAPACITY = "capacity"
    LENGTH = "length"
    UNPROFITABLE = "unprofitable"


@dataclass(slots=True, eq=False)
class Followed:
    """One sequence.

    Attributes:
        number: its id on the wire.
        sequence: the engine's.
        budget: how long its drafts should be.
        epoch: restarts of it, as the drafter knows them.
        num_told: leading tokens that the drafter knows.
        is_open: the drafter follows it, as far as we know.
        is_asked: a table was asked for at the last round.
        num_tokens: draft tokens that were asked for.
        missing: why no table was asked for.
        opened_s: clock time at which it was opened.
        has_table: a table came since then.
        num_waits_in_vain: lookups without a table in time, in a row.
        num_losses: how often it was lost, in a row.
        cut: whether its drafts were worth verifying.
        retry_s: clock time from which on it may be opened again.
    """

    number: int
    sequence: Sequence
    budget: SequenceBudget
    epoch: int = 0
    num_told: int = 0
    is_open: bool = False
    is_asked: bool = False
    num_tokens: int = 0
    missing: Missing = Missing.OPENING
    opened_s: float = -math.inf
    has_table: bool = False
    num_waits_in_vain: int = 0
    num_losses: int = 0
    cut: CutMemory = field(default_factory=CutMemory)
    retry_s: float = -math.inf

    @classmethod
    def of(cls, number: int, sequence: Sequence, priors: LearnedPriors) -> "Followed":
        """A sequence that no drafter knows yet."""
        return cls(number=number, sequence=sequence, budget=SequenceBudget(priors, DRAFT_MODEL_ADAPTATION))

    def open_message(self) -> Open:
        """What tells the drafter of it."""
        sequence = self.sequence
        return Open(
            sequence=self.number,
            epoch=sequence.epoch,
            num_prompt_tokens=sequence.num_prompt_tokens,
            token_ids=tuple(sequence.token_ids),
            sampling=sequence.request.sampling,
            trace=sequence.request.trace,
        )

    def ask(self, longest: int, cost: DraftCost) -> int:
        """Decide how many tokens the next round's draft may have, 0 for none.

        Args:
            longest: most that verifier and drafter allow.
            cost: what drafts cost now.
        """
        sequence = self.sequence
        # The round that begins commits at least one token, and so does the next one besides its draft.
        left = sequence.request.sampling.max_tokens - sequence.num_output_tokens - 2
        longest = min(max_draft_tokens(sequence, longest), left)
        self.is_asked, self.missing = False, Missing.UNPROFITABLE
        self.num_tokens = self.budget.num_draft_tokens(0, longest, cost) if longest > 0 else 0
        if self.num_tokens and self.cut.skips():
            self.num_tokens = 0
        return self.num_tokens

    def row(self, item: ScheduledSequence) -> Row:
        """What tells the drafter of a round."""
        token_ids = self.sequence.token_ids
        return Row(
            sequence=self.number,
            epoch=self.epoch,
            base_length=len(token_ids),
            new_token_ids=tuple(token_ids[self.num_told :]),
            draft_token_ids=item.draft_line,
            num_tokens=self.num_tokens,
        )

    def opened(self, now_s: float) -> None:
        """The drafter was told of it, with all tokens."""
        self.epoch, self.num_told = self.sequence.epoch, self.sequence.num_tokens
        self.is_open, self.is_asked, self.has_table = True, False, False
        self.opened_s, self.num_waits_in_vain = now_s, 0

    def closed(self, missing: Missing) -> None:
        """The drafter does not follow it any more."""
        self.is_open = self.is_asked = False
        self.missing = missing

    def lost(self, missing: Missing, now_s: float) -> None:
        """The drafter gave it up: at once again the first time, then after longer and longer pauses."""
        self.closed(missing)
        is_forgivable = missing is Missing.LOST and self.num_losses == 0
        pause_s = min(FIRST_RETRY_S * 2**self.num_losses, LONGEST_RETRY_S)
        self.num_losses = min(self.num_losses + 1, 16)
        self.retry_s = math.inf if missing is Missing.LENGTH else now_s if is_forgivable else now_s + pause_s

    def forgive(self) -> None:
        """Another drafter, or the same one started anew: what was lost may be tried again."""
        self.num_losses, self.retry_s = 0, -math.inf

    def looked_up(self, result: LookupResult) -> None:
        """A lookup had this result."""
        self.is_asked = False
        if result in (LookupResult.HIT, LookupResult.MISS):
            self.num_waits_in_vain = self.num_losses = 0
        else:
            self.num_waits_in_vain += 1
        self.has_table = self.has_table or result is not LookupResult.NONE


@dataclass(slots=True)
class Counts:
    """Counters that another thread may read: every key is there from the start."""

    lookups: Counter[str] = field(default_factory=lambda: Counter({result.value: 0 for result in LookupResult}))
    fallbacks: Counter[str] = field(default_factory=lambda: Counter({reason.value: 0 for reason in Missing}))
