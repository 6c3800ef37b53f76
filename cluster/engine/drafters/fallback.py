"""Two drafters: for each sequence and round the draft with more expected tokens wins."""

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq

from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.drafters.guard import GuardedDrafter
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence


class FallbackDrafter:
    """Asks `first` for everything and `second` where it may do better; an error of one does not touch the other.

    A request that names one of the two is served by that one alone. Of two drafts with equal hopes, the first stays.

    Args:
        first: asked for all sequences: its drafts are cheap, or made already.
        second: asked where `promise` exceeds what the first one's draft is likely to bring.
        promise: what the second one's draft of a sequence is likely to bring, where asking for it costs time; None
            where it costs nothing, and all are asked for.

    Attributes:
        name: both names, for logs.
        names: what requests may ask for.
    """

    def __init__(self, first: Drafter, second: Drafter, promise: Callable[[Wanted], float] | None = None) -> None:
        self._drafters = (GuardedDrafter(first), GuardedDrafter(second))
        self._promise = promise
        self.names = (first.name, second.name)
        self.name = "+".join(self.names)

    @property
    def num_failures(self) -> Counter[str]:
        """Errors so far of both, by method."""
        first, second = self._drafters
        return first.num_failures + second.num_failures

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """The better draft of each sequence that has one."""
        first, second = self._drafters
        drafts = dict(first.propose(_open_to(wanted, first.name)))
        asked = [want for want in _open_to(wanted, second.name) if self._may_be_better(want, drafts)]
        if asked:
            for request_id, draft in second.propose(asked).items():
                known = drafts.get(request_id)
                if known is None or draft.expected_tokens > known.expected_tokens:
                    drafts[request_id] = draft
        return drafts

    def _may_be_better(self, want: Wanted, drafts: Mapping[str, Draft]) -> bool:
        known = drafts.get(want.sequence.request_id)
        if known is None or self._promise is None:
            return True
        return self._promise(want) > known.expected_tokens

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Tell both."""
        for drafter in self._drafters:
            drafter.begin_round(items)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Tell both: each knows by the source whether the draft was its own."""
        for drafter in self._drafters:
            drafter.observe(sequence, draft, num_accepted)

    def forget(self, request_id: str) -> None:
        """Tell both."""
        for drafter in self._drafters:
            drafter.forget(request_id)

    def close(self) -> None:
        """Close both."""
        for drafter in self._drafters:
            drafter.close()


def _open_to(wanted: Seq[Wanted], name: str) -> list[Wanted]:
    """The sequences whose requests do not name another drafter."""
    return [want for want in wanted if want.sequence.request.speculation.drafter in (None, name)]
