"""Two drafters in order of preference: the second drafts for the sequences that the first left without."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Seq

from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.drafters.guard import GuardedDrafter
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence


class FallbackDrafter:
    """Asks `first` for everything, then `second` for what is left; an error of one does not touch the other.

    A request that names one of the two is served by that one alone.

    Args:
        first: preferred.
        second: asked for the rest.

    Attributes:
        name: both names, for logs.
        names: what requests may ask for.
    """

    def __init__(self, first: Drafter, second: Drafter) -> None:
        self._drafters = (GuardedDrafter(first), GuardedDrafter(second))
        self.names = (first.name, second.name)
        self.name = "+".join(self.names)

    @property
    def num_failures(self) -> Counter[str]:
        """Errors so far of both, by method."""
        first, second = self._drafters
        return first.num_failures + second.num_failures

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Drafts of the first, and of the second where the first has none."""
        drafts: dict[str, Draft] = {}
        for drafter in self._drafters:
            left = [
                want
                for want in wanted
                if want.sequence.request_id not in drafts
                and want.sequence.request.speculation.drafter in (None, drafter.name)
            ]
            if left:
                drafts.update(drafter.propose(left))
        return drafts

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
