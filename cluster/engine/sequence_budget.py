"""What a sequence's drafts are worth, estimated from what became of its earlier ones.

Draft token i (from 0) survives with chance S(i) = first * next**i: the first one must hit, and each later one hits
given that all before it did. Both chances are estimated for each sequence and for each class of draft (for the n-gram
drafter: how long the match was), so that sequences and classes do not spoil each other's estimates. What a sequence is
assumed to be like before anything was seen of it is learned from the sequences before it.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from cluster.engine.budget import DraftCost, draft_length


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
        probe_interval: a class that does not pay is tried again each time it could have drafted this often; in a
            batch more rarely, since each of its sequences tries, and more rarely after each try in vain.
        probe_tokens: draft tokens of such a try.
        shared_decay: as `decay`, for what new sequences are assumed to be like.
        shared_weight: observations that the drafter's own priors count for.
    """

    decay: float = 0.9
    prior_weight: float = 2.0
    probe_interval: int = 16
    probe_tokens: int = 2
    shared_decay: float = 0.995
    shared_weight: float = 20.0


_SEQUENCES_PER_PROBE = 4
_MAX_DOUBLINGS = 2


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


DRAFT_MODEL_ADAPTATION = Adaptation(decay=0.96, prior_weight=8.0)
"""For drafts of a draft model: sequences differ less than the estimate from a few drafts of one of them would say."""


class LearnedPriors:
    """What is assumed of a new sequence: a drafter's own priors at first, then what its sequences were like.

    Args:
        priors: one for each class of drafts; the class is the index.
        adaptation: how quickly they move.
    """

    __slots__ = ("_adaptation", "_priors", "_rates")

    def __init__(self, priors: Seq[Prior], adaptation: Adaptation | None = None) -> None:
        self._priors, self._adaptation = priors, adaptation or Adaptation()
        self._rates = [(_DiscountedRate(), _DiscountedRate()) for _ in priors]

    def __len__(self) -> int:
        return len(self._priors)

    def __getitem__(self, draft_class: int) -> Prior:
        """What is assumed of a class now."""
        prior, weight = self._priors[draft_class], self._adaptation.shared_weight
        first, following = self._rates[draft_class]
        return Prior(first=first.value(prior.first, weight), next=following.value(prior.next, weight))

    def observe(self, draft_class: int, num_drafted: int, num_accepted: int) -> None:
        """Learn from a verdict on a draft of any sequence."""
        _observe(self._rates[draft_class], num_drafted, num_accepted, self._adaptation.shared_decay)


CUT_INTERVAL = 16
"""A sequence whose draft the budget cut to nothing is to draft again each time it could have done so often."""


class CutMemory:
    """Whether a sequence's drafts were worth verifying to the budget of all drafts, which knows better than it.

    Attributes:
        is_offered: a draft was handed to the engine for this round.
    """

    __slots__ = ("_num_cut", "is_offered")

    def __init__(self) -> None:
        self.is_offered = False
        self._num_cut = 0

    def note_round(self, *, is_verified: bool) -> None:
        """A round begins: is any draft of the sequence verified in it?"""
        if is_verified:
            self._num_cut = 0
        elif self.is_offered:
            self._num_cut += 1
        self.is_offered = False

    def skips(self) -> bool:
        """True where a draft that could be made now shall not be; counts towards the next one that shall."""
        if not self._num_cut:
            return False
        self._num_cut += 1
        return self._num_cut % CUT_INTERVAL != 0


class _DraftClass:
    """Estimates for one class of drafts of one sequence."""

    __slots__ = ("num_probes", "num_skipped", "prior", "rates")

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        self.rates = (_DiscountedRate(), _DiscountedRate())
        self.num_skipped = self.num_probes = 0


class SequenceBudget:
    """Estimates and draft lengths of one sequence.

    Args:
        priors: shared with the other sequences of the drafter.
        adaptation: how quickly estimates move.
    """

    __slots__ = ("_adaptation", "_classes", "_priors")

    def __init__(self, priors: LearnedPriors, adaptation: Adaptation | None = None) -> None:
        self._priors, self._adaptation = priors, adaptation or Adaptation()
        self._classes: dict[int, _DraftClass] = {}

    def confidences(self, draft_class: int, num_tokens: int) -> tuple[float, ...]:
        """Estimated chance of draft token i to be accepted once those before it were, for i in 0..num_tokens-1."""
        if num_tokens <= 0:
            return ()
        state, weight = self._class(draft_class), self._adaptation.prior_weight
        first, following = state.rates
        chance = following.value(state.prior.next, weight)
        return (first.value(state.prior.first, weight), *[chance] * (num_tokens - 1))

    def survival(self, draft_class: int, num_tokens: int) -> list[float]:
        """Estimated chance that draft token i of this class is accepted, for i in 0..num_tokens-1."""
        return list(accumulate(self.confidences(draft_class, num_tokens), mul))

    def num_draft_tokens(
        self,
        draft_class: int,
        max_tokens: int,
        cost: DraftCost,
        *,
        survival: Seq[float] | None = None,
    ) -> int:
        """How many tokens to draft now, 0..max_tokens. Counts towards the next probe when it does not pay.

        Args:
            draft_class: the class of the draft.
            max_tokens: longest useful draft.
            cost: what drafts cost now (`DraftCost.at`).
            survival: chance that each token is accepted, where it is known better than `survival`.
        """
        survival = self.survival(draft_class, max_tokens) if survival is None else survival
        length = draft_length(survival, cost)
        state = self._class(draft_class)
        if length > 0:
            state.num_probes = 0
            return length
        state.num_skipped += 1
        interval = self._adaptation.probe_interval * max(1, cost.num_sequences // _SEQUENCES_PER_PROBE)
        if state.num_skipped < interval << state.num_probes:
            return 0
        state.num_skipped = 0
        state.num_probes = min(state.num_probes + 1, _MAX_DOUBLINGS)
        return min(self._adaptation.probe_tokens, max_tokens)

    def observe(self, draft_class: int, num_drafted: int, num_accepted: int) -> None:
        """Learn from a verdict on a draft of this class.

        Args:
            draft_class: the class of the draft.
            num_drafted: tokens that were verified, at least 1.
            num_accepted: how many of them, from the first on, were accepted.
        """
        state = self._class(draft_class)
        if num_accepted > 0:
            state.num_probes = 0
        _observe(state.rates, num_drafted, num_accepted, self._adaptation.decay)
        self._priors.observe(draft_class, num_drafted, num_accepted)

    def _class(self, draft_class: int) -> _DraftClass:
        state = self._classes.get(draft_class)
        if state is None:
            state = self._classes[draft_class] = _DraftClass(self._priors[draft_class])
        return state


def _observe(rates: tuple[_DiscountedRate, _DiscountedRate], num_drafted: int, num_accepted: int, decay: float) -> None:
    first, following = rates
    first.add(min(num_accepted, 1), 1, decay)
    if num_accepted > 0 and num_drafted > 1:
        # The token behind the last accepted one was tried too, unless the draft ended there.
        following.add(num_accepted - 1, min(num_accepted, num_drafted - 1), decay)
