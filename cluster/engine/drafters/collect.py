"""The engine's side of a drafter: asks for a round's drafts, and lets nothing through that the target could trip over.

Free of torch.
"""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from cluster.clock import Clock
from cluster.engine.acceptance_model import AcceptanceModel
from cluster.engine.budget import Floats, RoundLoad, padded
from cluster.engine.draft_budget import DraftBudget, DraftLimit, StaticLimits
from cluster.engine.drafters.base import Draft, Drafter, Features, Wanted
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.grammar import MAX_FORCED_TOKENS
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.types import SpeculationMode

DRAFTER_OFF = "off"
"""Name by which a request asks for no drafter."""


ACCEPTANCE_DECAY = 0.95
"""Weight that a sequence's older drafts keep at each new one, for `min_acceptance_rate`."""

_MANY_DRAFTS = 12
"""From here on numpy is quicker than Python's own arithmetic."""

REST_AFTER_ROUNDS, REST_INTERVAL, REST_FROM_SEQUENCES = 8, 4, 16
"""After so many rounds without a draft that pays, so many sequences or more are looked at in one round of so many."""

_CALIBRATION_INTERVAL = 512
"""Verdicts between two looks at the calibration error, which takes most of a millisecond."""

PROBE_INTERVAL = 16
"""A sequence under `min_acceptance_rate` is tried again each time it could have drafted this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLimits:
    """What bounds every draft.

    Attributes:
        num_speculative_tokens: most draft tokens of one sequence in a round.
        vocab_size: ids of the target are below this.
        static: limits that an operator may have set.
    """

    num_speculative_tokens: int
    vocab_size: int
    static: StaticLimits = field(default_factory=StaticLimits)


@dataclass(slots=True)
class _Acceptance:
    """Discounted counts of one sequence's drafts; starts as if all had been accepted."""

    num_accepted: float = 4.0
    num_drafted: float = 4.0
    num_skipped: int = 0

    def add(self, num_drafted: int, num_accepted: int) -> None:
        self.num_accepted = self.num_accepted * ACCEPTANCE_DECAY + num_accepted
        self.num_drafted = self.num_drafted * ACCEPTANCE_DECAY + num_drafted


class Drafting:
    """Passes a round's calls to a drafter and cuts its drafts to what pays, or does nothing without one.

    Args:
        drafter: None decodes plainly.
        limits: bounds of every draft.
        clock: measures how long rounds wait for drafts.
        budget: decides how much of the drafts is verified; None verifies all.

    Attributes:
        wait_s: how long the last `propose` took.
        acceptance: what became of drafts, by source.
        num_limited: sequences that could have drafted and did not, by reason, since the last `take_limited`.
    """

    def __init__(
        self, drafter: Drafter | None, limits: DraftLimits, clock: Clock, budget: DraftBudget | None = None
    ) -> None:
        self._drafter: BestDraft | None = None
        if drafter is not None:
            self._drafter = drafter if isinstance(drafter, BestDraft) else BestDraft((drafter, None))
        self._limits, self._clock, self._budget = limits, clock, budget
        self.acceptance = AcceptanceModel()
        self._drafts: dict[str, Draft] = {}
        self._of_sequence: dict[str, _Acceptance] = {}
        self.num_limited: Counter[str] = Counter()
        self.wait_s, self._num_failures, self._num_verdicts = 0.0, 0, 0
        self._num_idle_rounds, self._has_paid = 0, True

    @property
    def names(self) -> tuple[str, ...]:
        """What a request may name as its drafter."""
        return (DRAFTER_OFF,) if self._drafter is None else (DRAFTER_OFF, *self._drafter.names)

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Whose hidden states the drafters read, strictly rising; mostly none."""
        return () if self._drafter is None else tuple(sorted(set(self._drafter.feature_layers)))

    def take_failures(self) -> int:
        """Errors of the drafter since the last call."""
        if self._drafter is None:
            return 0
        before, self._num_failures = self._num_failures, self._drafter.num_failures.total()
        return self._num_failures - before

    def take_limited(self) -> Mapping[str, int]:
        """Sequences that could have drafted and did not, by reason, since the last call."""
        if self._budget is not None and self._budget.num_cut:
            self.num_limited.update({reason.value: count for reason, count in self._budget.num_cut.items()})
            self._budget.num_cut.clear()
        limited, self.num_limited = self.num_limited, Counter()
        return limited

    def calibration_errors(self) -> Mapping[str, float]:
        """How far the chances that drafts are ranked by were off, by source; empty but for every so many verdicts."""
        if self._num_verdicts < _CALIBRATION_INTERVAL:
            return {}
        self._num_verdicts = 0
        errors = {source: self.acceptance.calibration_error(source) for source in self.acceptance.sources}
        return {source: error for source, error in errors.items() if error is not None}

    def propose(self, sequences: Seq[Sequence], num_prompt_rows: int = 0) -> Mapping[str, tuple[int, ...]]:
        """Draft token ids by request id, for the decoding sequences that have any; the others decode plainly.

        Args:
            sequences: that decode in the next round.
            num_prompt_rows: prompt tokens that the round will compute beside them.
        """
        self.wait_s = 0.0
        rests = self._rests(len(sequences))
        self._drafts = {}
        if self._drafter is None or rests:
            return {}
        wanted = self._wanted(sequences)
        if not wanted:
            return {}
        started_s = self._clock.now_s()
        load = RoundLoad(
            num_sequences=len(sequences),
            num_prompt_rows=num_prompt_rows,
            num_context_tokens=sum(sequence.num_tokens for sequence in sequences),
        )
        offered = self._drafter.propose(wanted)
        drafts = [(want, draft) for want in wanted if (draft := self._usable(want, offered)) is not None]
        self._drafts = self._cut(drafts, load)
        self.wait_s = self._clock.now_s() - started_s
        return {request_id: draft.token_ids for request_id, draft in self._drafts.items()}

    def _rests(self, num_sequences: int) -> bool:
        """True in most rounds of a large batch in which no draft has paid for a while: looking for them costs time."""
        self._num_idle_rounds = 0 if self._has_paid else self._num_idle_rounds + 1
        is_idle = self._num_idle_rounds > REST_AFTER_ROUNDS and num_sequences >= REST_FROM_SEQUENCES
        return self._budget is not None and is_idle and self._num_idle_rounds % REST_INTERVAL != 0

    def _wanted(self, sequences: Seq[Sequence]) -> list[Wanted]:
        static, longest = self._limits.static, self._limits.num_speculative_tokens
        lengths = ((s, max_draft_tokens(s, longest)) for s in sequences)
        wanted = [_want(sequence, length) for sequence, length in lengths if length > 0]
        if static.max_sequences and len(sequences) > static.max_sequences:
            self.num_limited[DraftLimit.BATCH] += len(wanted)
            return []
        if static.max_context:
            short = [want for want in wanted if want.sequence.num_tokens <= static.max_context]
            self.num_limited[DraftLimit.CONTEXT] += len(wanted) - len(short)
            wanted = short
        if static.min_acceptance_rate:
            good = [want for want in wanted if self._is_accepted(want.sequence.request_id)]
            self.num_limited[DraftLimit.ACCEPTANCE] += len(wanted) - len(good)
            wanted = good
        return wanted

    def _is_accepted(self, request_id: str) -> bool:
        """True where a sequence's drafts reach the rate that is asked for, or it is its turn to show that they do."""
        state = self._of_sequence.get(request_id)
        if state is None or state.num_accepted >= self._limits.static.min_acceptance_rate * state.num_drafted:
            return True
        state.num_skipped += 1
        return state.num_skipped % PROBE_INTERVAL == 0

    def _usable(self, want: Wanted, offered: Mapping[str, Draft]) -> Draft | None:
        """What of a sequence's draft the target may see; None for nothing."""
        draft = offered.get(want.sequence.request_id)
        if draft is None:
            return None
        token_ids = _valid_part(draft.token_ids[: want.limit(draft)], self._limits.vocab_size)
        return draft.first(len(token_ids)) if token_ids else None

    def _cut(self, drafts: list[tuple[Wanted, Draft]], load: RoundLoad) -> dict[str, Draft]:
        """The drafts by request id, as long as they pay; those without confidences are not judged."""
        kept = {want.sequence.request_id: draft for want, draft in drafts}
        if self._budget is None:
            return kept
        self._budget.save_up(load)
        judged = [(request_id, draft) for request_id, draft in kept.items() if draft.confidences]
        self._has_paid = len(kept) > len(judged)
        if not judged:
            return kept
        num_whole = sum(len(draft.token_ids) for draft in kept.values() if not draft.confidences)
        load = replace(load, num_prompt_rows=load.num_prompt_rows + num_whole)
        lengths = self._budget.lengths(self._survival([draft for _, draft in judged]), load)
        self._has_paid |= self._budget.is_worth_it
        for (request_id, draft), length in zip(judged, lengths, strict=True):
            if length == 0:
                del kept[request_id]
            elif length < len(draft.token_ids):
                kept[request_id] = draft.first(length)
        return kept

    def _survival(self, drafts: Seq[Draft]) -> Floats:
        """Chances of the drafts' tokens, [R, K]; 0 behind a draft's end."""
        if len(drafts) < _MANY_DRAFTS:
            return padded([self.acceptance.survival(draft.source, draft.confidences) for draft in drafts])
        confidences_RK = padded([draft.confidences for draft in drafts])
        return self.acceptance.survivals([draft.source for draft in drafts], confidences_RK) * (confidences_RK > 0)

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """The forward pass of `items` begins now."""
        if self._drafter is not None:
            self._drafter.begin_round(items)

    def take_features(self, items: Seq[ScheduledSequence], features: Features) -> None:
        """The forward pass of `items` is over and left these hidden states."""
        if self._drafter is not None:
            self._drafter.take_features(items, features)

    def observe(self, item: ScheduledSequence, num_accepted: int) -> str:
        """Report the verdict on an item's draft, its tokens committed; returns the draft's source."""
        request_id, num_drafted = item.sequence.request_id, len(item.draft_token_ids)
        proposed = self._drafts.get(request_id)
        if proposed is None:  # It was made by hand, past `propose`.
            return ""
        if self._drafter is not None:
            verified = replace(proposed.first(num_drafted), token_ids=item.draft_token_ids)
            self._drafter.observe(item.sequence, verified, num_accepted)
        if proposed.confidences:
            self._num_verdicts += 1
            self.acceptance.observe(proposed.source, proposed.confidences, num_drafted, num_accepted)
        if self._limits.static.min_acceptance_rate:
            self._of_sequence.setdefault(request_id, _Acceptance()).add(num_drafted, num_accepted)
        return proposed.source

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a sequence."""
        self._of_sequence.pop(request_id, None)
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


def _want(sequence: Sequence, max_tokens: int) -> Wanted:
    """A sequence that can use so long a draft; what its grammar forces may go on longer, unless the client says no."""
    if sequence.grammar is None or sequence.request.speculation.num_speculative_tokens is not None:
        return Wanted(sequence=sequence, max_tokens=max_tokens)
    return Wanted(
        sequence=sequence, max_tokens=max_tokens, max_forced_tokens=max_draft_tokens(sequence, MAX_FORCED_TOKENS)
    )


def _valid_part(draft: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    """Cut a draft before the first id that is no token: a wrong drafter must never reach the embedding."""
    if draft and (min(draft) < 0 or max(draft) >= vocab_size):
        bad = next(index for index, token_id in enumerate(draft) if not 0 <= token_id < vocab_size)
        return draft[:bad]
    return draft
