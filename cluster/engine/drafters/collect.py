"""The engine's side of a drafter: asks for a round's drafts, and lets nothing through that the target could trip over.

Free of torch.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from cluster.clock import Clock
from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.drafters.fallback import FallbackDrafter
from cluster.engine.drafters.guard import GuardedDrafter
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.types import SpeculationMode

DRAFTER_OFF = "off"
"""Name by which a request asks for no drafter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLimits:
    """What bounds every draft.

    Attributes:
        num_speculative_tokens: most draft tokens of one sequence in a round.
        vocab_size: ids of the target are below this.
    """

    num_speculative_tokens: int
    vocab_size: int


class Drafting:
    """Passes a round's calls to a drafter, or does nothing without one.

    Args:
        drafter: None decodes plainly.
        limits: bounds of every draft.
        clock: measures how long rounds wait for drafts.

    Attributes:
        wait_s: how long the last `propose` took.
    """

    def __init__(self, drafter: Drafter | None, limits: DraftLimits, clock: Clock) -> None:
        self._drafter: GuardedDrafter | FallbackDrafter | None = None
        if drafter is not None:
            self._drafter = drafter if isinstance(drafter, FallbackDrafter) else GuardedDrafter(drafter)
        self._limits, self._clock = limits, clock
        self._sources: dict[str, str] = {}
        self.wait_s, self._num_failures = 0.0, 0

    @property
    def names(self) -> tuple[str, ...]:
        """What a request may name as its drafter."""
        return (DRAFTER_OFF,) if self._drafter is None else (DRAFTER_OFF, *self._drafter.names)

    def take_failures(self) -> int:
        """Errors of the drafter since the last call."""
        if self._drafter is None:
            return 0
        before, self._num_failures = self._num_failures, self._drafter.num_failures.total()
        return self._num_failures - before

    def propose(self, sequences: Iterable[Sequence]) -> Mapping[str, tuple[int, ...]]:
        """Draft token ids by request id, for the decoding sequences that have any; the others decode plainly."""
        self.wait_s = 0.0
        self._sources = {}
        if self._drafter is None:
            return {}
        lengths = ((s, max_draft_tokens(s, self._limits.num_speculative_tokens)) for s in sequences)
        wanted = [Wanted(sequence=sequence, max_tokens=length) for sequence, length in lengths if length > 0]
        if not wanted:
            return {}
        started_s = self._clock.now_s()
        offered = self._drafter.propose(wanted)
        self.wait_s = self._clock.now_s() - started_s
        drafts = {}
        for want in wanted:
            request_id = want.sequence.request_id
            draft = offered.get(request_id)
            if draft is not None and (ids := _valid_part(draft.token_ids[: want.max_tokens], self._limits.vocab_size)):
                drafts[request_id] = ids
                self._sources[request_id] = draft.source
        return drafts

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """The forward pass of `items` begins now."""
        if self._drafter is not None:
            self._drafter.begin_round(items)

    def observe(self, item: ScheduledSequence, num_accepted: int) -> str:
        """Report the verdict on an item's draft, its tokens committed; returns the draft's source."""
        source = self._sources.get(item.sequence.request_id, "")
        if self._drafter is not None:
            draft = Draft(token_ids=item.draft_token_ids, source=source)
            self._drafter.observe(item.sequence, draft, num_accepted)
        return source

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a sequence."""
        if self._drafter is not None:
            self._drafter.forget(request_id)

    def close(self) -> None:
        """Release the drafter."""
        if self._drafter is not None:
            self._drafter.close()


def max_draft_tokens(sequence: Sequence, limit: int) -> int:
    """Longest useful draft of a sequence in its next round; 0 or less for none.

    Args:
        sequence: as it is now.
        limit: the engine's own.
    """
    request = sequence.request
    if request.speculation.mode is SpeculationMode.OFF or request.speculation.drafter == DRAFTER_OFF:
        return 0
    if request.speculation.num_speculative_tokens is not None:
        limit = min(limit, request.speculation.num_speculative_tokens)
    # The round emits one token more than it accepts.
    return min(limit, request.sampling.max_tokens - sequence.num_output_tokens - 1)


def _valid_part(draft: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    """Cut a draft before the first id that is no token: a wrong drafter must never reach the embedding."""
    if draft and (min(draft) < 0 or max(draft) >= vocab_size):
        bad = next(index for index, token_id in enumerate(draft) if not 0 <= token_id < vocab_size)
        return draft[:bad]
    return draft
