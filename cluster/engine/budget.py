"""How many draft tokens a sequence should ask for, from what became of its earlier ones.

Draft token i (from 0) survives with chance S(i) = first * next**i: the first one must hit, and each later one hits
given that all before it did. Both chances are estimated for each sequence and for each class of draft (for the n-gram
drafter: how long the match was), so that sequences and classes do not spoil each other's estimates.
"""

from bisect import bisect_left
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCost:
    """What drafts add to the time of a round. The unit of time is a pass of one row.

    A draft row is nearly free while the pass is bound by reading weights, and costs its full share once it is bound by
    arithmetic. `num_sequences` sequences that each draft k tokens make a pass of num_sequences * (1 + k) rows.

    Attributes:
        row_cost_ratio: what each further row adds where nothing was measured (8 rows take 1.15 times the time of one).
        step_ratios: measured (rows, time of a pass), rows rising from 1; straight lines between and after them.
        round_cost_ratio: for drafts of any length (looking up, accepting, rolling back), as a share of the round.
        token_cost_ratio: for each token of the longest draft, once for all sequences: a step of a local draft model.
        num_sequences: sequences that decode now.
    """

    row_cost_ratio: float = 0.02
    step_ratios: tuple[tuple[int, float], ...] = ()
    round_cost_ratio: float = 0.02
    token_cost_ratio: float = 0.0
    num_sequences: int = 1

    def at(self, num_sequences: int) -> "DraftCost":
        """The cost while so many sequences decode, at least 1."""
        return replace(self, num_sequences=num_sequences)

    def step_ratio(self, num_rows: int) -> float:
        """Time of a pass of `num_rows` rows, at least 1."""
        knots = self.step_ratios
        if len(knots) < 2:
            return 1.0 + self.row_cost_ratio * (num_rows - 1)
        index = min(max(bisect_left(knots, (num_rows, 0.0)), 1), len(knots) - 1)
        (rows, time), (next_rows, next_time) = knots[index - 1], knots[index]
        return time + (next_time - time) * (num_rows - rows) / (next_rows - rows)

    def round_ratio(self, num_tokens: int) -> float:
        """Time of a round in which each sequence drafts so many tokens, in shares of one without drafts."""
        num_sequences = self.num_sequences
        time = self.step_ratio(num_sequences * (1 + num_tokens)) + num_tokens * self.token_cost_ratio
        return time / self.step_ratio(num_sequences) + (self.round_cost_ratio if num_tokens else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is assumed of a class of drafts before anything was observed.

    Attributes:
        first: chance that the first draft token is accepted, 0..1.
        next: chance that a further one is accepted after those before it, 0..1.
    """

    first: float
    next: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """How quickly estimates follow what happens.

    Attributes:
        decay: weight that older observations keep at each new one, 0..1.
        prior_weight: observations that the prior counts for.
        probe_interval: a class that does not pay is tried again each time it could have drafted this often.
        probe_tokens: draft tokens of such a try.
    """

    decay: float = 0.9
    prior_weight: float = 2.0
    probe_interval: int = 16
    probe_tokens: int = 2


def draft_length(survival: Seq[float], cost: DraftCost) -> int:
    """The number of draft tokens with the most expected tokens for each unit of time; 0 when plain decoding has more.

    Args:
        survival: chance that draft token i is accepted; never rises with i.
        cost: what drafts cost now.
    """
    best_length, best_rate = 0, 1.0
    expected = 1.0
    for length, chance in enumerate(survival, start=1):
        expected += chance
        time = cost.round_ratio(length)
        if expected > best_rate * time:
            best_length, best_rate = length, expected / time
    return best_length


class _DiscountedRate:
    """Share of hits, newer trials weighing more. The prior counts as the oldest trials, so it fades as well."""

    __slots__ = ("_faded", "_hits", "_trials")

    def __init__(self) -> None:
        self._hits = self._trials = 0.0
        self._faded = 1.0

    def add(self, hits: int, trials: int, decay: float) -> None:
        self._hits = self._hits * decay + hits
        self._trials = self._trials * decay + trials
        self._faded *= decay

    def value(self, prior: float, weight: float) -> float:
        weight *= self._faded
        return (self._hits + prior * weight) / (self._trials + weight)


class _DraftClass:
    """Estimates for one class of drafts of one sequence."""

    __slots__ = ("first", "next", "num_skipped")

    def __init__(self) -> None:
        self.first, self.next = _DiscountedRate(), _DiscountedRate()
        self.num_skipped = 0


class SequenceBudget:
    """Draft lengths of one sequence.

    Args:
        priors: one for each class of drafts; the class is the index.
        cost: what drafts cost, where a call does not say it.
        adaptation: how quickly estimates move.
    """

    __slots__ = ("_adaptation", "_classes", "_cost", "_priors")

    def __init__(self, priors: Seq[Prior], *, cost: DraftCost, adaptation: Adaptation) -> None:
        self._priors, self._cost, self._adaptation = priors, cost, adaptation
        self._classes = [_DraftClass() for _ in priors]

    def survival(self, draft_class: int, num_tokens: int) -> list[float]:
        """Estimated chance that draft token i of this class is accepted, for i in 0..num_tokens-1."""
        state, prior, weight = self._classes[draft_class], self._priors[draft_class], self._adaptation.prior_weight
        chance = state.first.value(prior.first, weight)
        step = state.next.value(prior.next, weight)
        chances = []
        for _ in range(num_tokens):
            chances.append(chance)
            chance *= step
        return chances

    def num_draft_tokens(self, draft_class: int, max_tokens: int, cost: DraftCost | None = None) -> int:
        """How many tokens to draft now, 0..max_tokens. Counts towards the next probe when it does not pay.

        Args:
            draft_class: the class of the draft.
            max_tokens: longest useful draft.
            cost: what drafts cost now (`DraftCost.at`); None takes the one given at construction.
        """
        length = draft_length(self.survival(draft_class, max_tokens), cost or self._cost)
        if length > 0:
            return length
        state = self._classes[draft_class]
        state.num_skipped += 1
        if state.num_skipped < self._adaptation.probe_interval:
            return 0
        state.num_skipped = 0
        return min(self._adaptation.probe_tokens, max_tokens)

    def observe(self, draft_class: int, num_drafted: int, num_accepted: int) -> None:
        """Learn from a verdict on a draft of this class.

        Args:
            draft_class: the class of the draft.
            num_drafted: tokens that were verified, at least 1.
            num_accepted: how many of them, from the first on, were accepted.
        """
        state, decay = self._classes[draft_class], self._adaptation.decay
        state.first.add(min(num_accepted, 1), 1, decay)
        if num_accepted > 0 and num_drafted > 1:
            # The token behind the last accepted one was tried too, unless the draft ended there.
            state.next.add(num_accepted - 1, min(num_accepted, num_drafted - 1), decay)
