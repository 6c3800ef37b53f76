"""Any number of drafters: for each sequence and round the draft with the most expected tokens wins."""

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq

from cluster.engine.drafters.base import Draft, Drafter, Features, Wanted
from cluster.engine.drafters.grammar import GrammarDrafter
from cluster.engine.drafters.guard import GuardedDrafter
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence

Promise = Callable[[Wanted], float]
"""What a drafter's draft of a sequence is likely to bring, in tokens."""


class BestDraft:
    """Asks drafters in turn; an error of one does not touch the others.

    A request that names one of them is served by that one alone. A draft is cut at the first token that the sequence's
    grammar refuses, before drafts are compared. Of drafts with equal hopes, the earliest stays.

    Args:
        drafters: each with its promise. One without a promise costs nothing to ask, or has drafted already, and is
            asked for all sequences; one with a promise only where that exceeds what the best draft so far may bring.

    Attributes:
        name: all names, for logs.
        drafters: as given.
        names: what requests may ask for.
        feature_layers: whose hidden states any of them reads, rising.
    """

    def __init__(self, *drafters: tuple[Drafter, Promise | None]) -> None:
        self.drafters = drafters
        self._drafters = tuple((GuardedDrafter(drafter), promise) for drafter, promise in drafters)
        self.names = tuple(drafter.name for drafter, _ in self._drafters)
        self.name = "+".join(self.names)
        layers = (layer for drafter, _ in self._drafters for layer in drafter.feature_layers)
        self.feature_layers = tuple(sorted(set(layers)))

    @property
    def num_failures(self) -> Counter[str]:
        """Errors so far of all, by method."""
        total: Counter[str] = Counter()
        for drafter, _ in self._drafters:
            total.update(drafter.num_failures)
        return total

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The best draft of each sequence that has one."""
        best: dict[str, Draft] = {}
        for drafter, promise in self._drafters:
            asked = [want for want in wanted if _is_open_to(want, drafter.name) and _may_improve(want, best, promise)]
            if not asked:
                continue
            offered = drafter.propose(asked)
            for want in asked:
                draft = offered.get(want.sequence.request_id)
                if draft is not None:
                    _keep_better(best, want.sequence, draft)
        return best

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Tell all."""
        for drafter, _ in self._drafters:
            drafter.begin_round(items)

    def take_features(self, items: Seq[ScheduledSequence], features: Features) -> None:
        """Tell those that read any."""
        for drafter, _ in self._drafters:
            drafter.take_features(items, features)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Tell all: each knows by the source whether the draft was its own."""
        for drafter, _ in self._drafters:
            drafter.observe(sequence, draft, num_accepted)

    def forget(self, request_id: str) -> None:
        """Tell all."""
        for drafter, _ in self._drafters:
            drafter.forget(request_id)

    def close(self) -> None:
        """Close all."""
        for drafter, _ in self._drafters:
            drafter.close()


def beside_grammar(drafter: Drafter) -> BestDraft:
    """The drafter, and before it what grammars force: that costs nothing, and is nearly always right."""
    others = drafter.drafters if isinstance(drafter, BestDraft) else ((drafter, None),)
    is_there = any(isinstance(other, GrammarDrafter) for other, _ in others)
    return BestDraft(*others) if is_there else BestDraft((GrammarDrafter(), None), *others)


def _is_open_to(want: Wanted, name: str) -> bool:
    """True where the request does not name another drafter."""
    return want.sequence.request.speculation.drafter in (None, name)


def _may_improve(want: Wanted, best: Mapping[str, Draft], promise: Promise | None) -> bool:
    known = best.get(want.sequence.request_id)
    return known is None or promise is None or promise(want) > known.expected_tokens


def _keep_better(best: dict[str, Draft], sequence: Sequence, draft: Draft) -> None:
    if sequence.grammar is not None:
        draft = draft.first(sequence.grammar.valid_prefix(draft.token_ids))
    if not draft.token_ids:
        return
    known = best.get(sequence.request_id)
    if known is None or draft.expected_tokens > known.expected_tokens:
        best[sequence.request_id] = draft
