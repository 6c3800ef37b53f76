"""Any number of drafters: for each sequence and round the draft with the most expected tokens wins."""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from cluster.engine import token_tree
from cluster.engine.drafters.base import ComputingDrafter, Draft, Drafter, Features, Wanted
from cluster.engine.drafters.grammar import GrammarDrafter
from cluster.engine.drafters.guard import GuardedDrafter
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.grammar.matcher import GrammarMatcher

Promise = Callable[[Wanted], float]
"""What a drafter's draft of a sequence is likely to bring, in tokens."""


@dataclass(slots=True)
class DraftCall:
    """A call of one drafter: it may run in another thread, and reads no grammar.

    Attributes:
        drafter: whose.
        wanted: for which sequences.
        offered: its drafts, once the call is over.
    """

    drafter: GuardedDrafter
    wanted: Seq[Wanted]
    offered: Mapping[str, Draft] | None = None

    def run(self) -> None:
        """Let the drafter draft."""
        self.offered = self.drafter.propose(self.wanted)


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
    def computes(self) -> bool:
        """True where any of them runs a model of its own in this process."""
        return any(isinstance(drafter, ComputingDrafter) for drafter, _ in self.drafters)

    @property
    def num_failures(self) -> Counter[str]:
        """Errors so far of all, by method."""
        total: Counter[str] = Counter()
        for drafter, _ in self._drafters:
            total.update(drafter.num_failures)
        return total

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The best draft of each sequence that has one."""
        choice = self.choose(wanted)
        try:
            while True:
                next(choice).run()
        except StopIteration as end:
            best: Mapping[str, Draft] = end.value
            return best

    def choose(self, wanted: Seq[Wanted]) -> Generator[DraftCall, None, Mapping[str, Draft]]:
        """As `propose`, but each call that takes passes of a model is yielded, for the caller to run before it goes on.

        All else, and so whatever moves a grammar, happens in the thread that goes on. A call that was not run has no
        drafts.

        A draft that says what it was drawn from is worth what was promised before: which draft a sequence gets must not
        depend on the tokens of one that it does not get.
        """
        best: dict[str, Draft] = {}
        hopes: dict[str, float] = {}
        for (drafter, promise), (bare, _) in zip(self._drafters, self.drafters, strict=True):
            asked = _asked([want for want in wanted if _is_open_to(want, drafter.name)], promise, hopes)
            if not asked:
                continue
            call = DraftCall(drafter, [want for want, _ in asked])
            if isinstance(bare, ComputingDrafter):
                yield call
            else:
                call.run()
            offered = call.offered or {}
            for want, promised in asked:
                request_id = want.sequence.request_id
                draft = _valid_part(offered.get(request_id), want.sequence.grammar)
                if draft is None:
                    continue
                hope = draft.expected_tokens if draft.probabilities is None else promised
                if request_id not in best or hope > hopes[request_id]:
                    best[request_id], hopes[request_id] = draft, hope
        return best

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Tell all."""
        for drafter, _ in self._drafters:
            drafter.begin_round(items)

    def take_features(self, items: Seq[ScheduledSequence], features: Features, accepted: Seq[tuple[int, ...]]) -> None:
        """Tell those that read any."""
        for drafter, _ in self._drafters:
            drafter.take_features(items, features, accepted)

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


def _asked(wanted: Seq[Wanted], promise: Promise | None, hopes: Mapping[str, float]) -> list[tuple[Wanted, float]]:
    """The sequences that a drafter may improve on, and what it promises them; the most without a promise."""
    if promise is None:
        return [(want, float(want.max_tokens)) for want in wanted]
    promised = ((want, promise(want)) for want in wanted)
    return [(want, hope) for want, hope in promised if hope > hopes.get(want.sequence.request_id, -1.0)]


def _valid_part(draft: Draft | None, grammar: GrammarMatcher | None) -> Draft | None:
    """A draft without what the grammar refuses, and what follows that; None for nothing.

    One that says what it was drawn from keeps the first refused token, which the target refuses as well: whether a
    drawn token is there must not depend on what it is.
    """
    if draft is not None and grammar is not None:
        if draft.probabilities is None:
            draft = _allowed_part(draft, grammar)
        else:
            draft = draft.first(grammar.valid_prefix(draft.token_ids) + 1)
    return draft if draft is not None and draft.token_ids else None


def _allowed_part(draft: Draft, grammar: GrammarMatcher) -> Draft:
    if not draft.parents:
        return draft.first(grammar.valid_prefix(draft.token_ids))
    paths = token_tree.paths(draft.token_ids, draft.parents)
    valid: set[tuple[int, ...]] = {()}
    # In this order nodes that share a path come one after the other: the parser goes back and forth the least.
    for path in sorted(paths):
        if path[:-1] in valid and grammar.valid_prefix(path) == len(path):
            valid.add(path)
    return draft.select([node for node, path in enumerate(paths) if path in valid])
