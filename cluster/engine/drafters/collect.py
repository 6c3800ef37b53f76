"""The engine's side of a drafter: asks for a round's drafts, and lets nothing through that the target could trip over.

Free of torch.
"""

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from itertools import accumulate

from cluster.clock import Clock
from cluster.engine import token_tree
from cluster.engine.acceptance_model import AcceptanceModel
from cluster.engine.budget import Floats, RoundLoad, padded
from cluster.engine.draft_budget import DraftBudget, DraftLimit, StaticLimits
from cluster.engine.draft_probabilities import DraftProbabilities
from cluster.engine.drafters.acceptance_floor import AcceptanceFloor
from cluster.engine.drafters.base import Draft, Drafter, Features, Wanted
from cluster.engine.drafters.best_draft import BestDraft, DraftCall
from cluster.engine.drafters.valid_draft import valid_draft
from cluster.engine.drafters.wanted import DRAFTER_OFF, max_draft_tokens, want_of
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence

_MANY_DRAFTS = 12
"""From here on numpy is quicker than Python's own arithmetic."""

REST_AFTER_ROUNDS, REST_INTERVAL, REST_FROM_SEQUENCES = 8, 4, 16
"""After so many rounds without a draft that pays, so many sequences or more are looked at in one round of so many."""

_CALIBRATION_INTERVAL = 512
"""Verdicts between two looks at the calibration error, which takes most of a millisecond."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLimits:
    """What bounds every draft.

    Attributes:
        num_speculative_tokens: most draft tokens of one sequence in a round.
        vocab_size: ids of the target are below this.
        max_tree_nodes: most nodes of a tree; 0 where the target takes none.
        static: limits that an operator may have set.
    """

    num_speculative_tokens: int
    vocab_size: int
    max_tree_nodes: int = token_tree.MAX_NODES
    static: StaticLimits = field(default_factory=StaticLimits)


@dataclass(slots=True)
class PendingDrafts:
    """Drafts that are being made; given up by being dropped.

    Attributes:
        call: what a model has to compute next, in any thread; the rest is for the engine's. None once that is known.
    """

    wanted: list[Wanted]
    load: RoundLoad
    choice: Generator[DraftCall, None, Mapping[str, Draft]]
    call: DraftCall | None = None
    offered: Mapping[str, Draft] = field(default_factory=dict)

    def go_on(self) -> None:
        """Do what is to be done up to the next call of a model."""
        try:
            self.call = next(self.choice)
        except StopIteration as end:
            self.call, self.offered = None, end.value


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
        self._own: BestDraft | None = None
        if drafter is not None:
            self._own = drafter if isinstance(drafter, BestDraft) else BestDraft((drafter, None))
        self._drafter = self._own  # None while it is suspended.
        self._forgotten: set[str] = set()
        self._limits, self._clock, self._budget = limits, clock, budget
        self.acceptance = AcceptanceModel()
        self._drafts: dict[str, Draft] = {}
        self._floor = AcceptanceFloor(limits.static.min_acceptance_rate)
        self.num_limited: Counter[str] = Counter()
        self.wait_s, self._num_failures, self._num_verdicts = 0.0, 0, 0
        self._num_thread_failures = 0
        self._num_idle_rounds, self._has_paid = 0, True

    @property
    def names(self) -> tuple[str, ...]:
        """What a request may name as its drafter."""
        return (DRAFTER_OFF,) if self._own is None else (DRAFTER_OFF, *self._own.names)

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Whose hidden states the drafters read, strictly rising; mostly none."""
        return () if self._own is None else tuple(sorted(set(self._own.feature_layers)))

    @property
    def computes(self) -> bool:
        """True while drafts may take passes of a model in this process."""
        return self._drafter is not None and self._drafter.computes

    def suspend(self) -> None:
        """Leave the drafter alone from now on: a call of it has not returned, and rounds go on without drafts."""
        self._drafter = None

    def resume(self, request_ids: Iterable[str]) -> None:
        """Use the drafter again, the call being over. It forgets everything: it was told nothing meanwhile.

        Args:
            request_ids: of all unfinished sequences.
        """
        self._drafter = self._own
        for request_id in {*request_ids, *self._forgotten}:
            self.forget(request_id)
        self._forgotten.clear()

    def count_failure(self, error: Exception) -> None:
        """The thread in which the drafter was called has failed around that call."""
        self._num_thread_failures += 1
        _logger.error("drafting beside the pass failed; the round goes on without its drafts", exc_info=error)

    def take_failures(self) -> int:
        """Errors of the drafter since the last call."""
        if self._drafter is None:
            return 0
        now = self._drafter.num_failures.total() + self._num_thread_failures
        before, self._num_failures = self._num_failures, now
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
        started_s = self._clock.now_s()
        pending = self.begin(sequences, num_prompt_rows)
        self.wait_s = 0.0
        if pending is None:
            return {}
        drafts = self.finish(pending)
        self.wait_s = self._clock.now_s() - started_s
        return drafts

    def begin(self, sequences: Seq[Sequence], num_prompt_rows: int) -> PendingDrafts | None:
        """The part of `propose` before the first call of a model; None where there is nothing to draft.

        That call alone may run beside the engine's thread: it is the only part that reads no grammar and changes
        nothing but the drafter.
        """
        rests = self._rests(len(sequences))
        for sequence in sequences:  # Those of the others may still wait for their round.
            self._drafts.pop(sequence.request_id, None)
        if self._drafter is None or rests:
            return None
        wanted = self._wanted(sequences)
        if not wanted:
            return None
        load = RoundLoad(
            num_sequences=len(sequences),
            num_prompt_rows=num_prompt_rows,
            num_context_tokens=sum(sequence.num_tokens for sequence in sequences),
        )
        pending = PendingDrafts(wanted, load, self._drafter.choose(wanted))
        pending.go_on()
        return pending

    def finish(self, pending: PendingDrafts) -> Mapping[str, tuple[int, ...]]:
        """The part of `propose` that follows; calls of models that have not run yet run here."""
        while (call := pending.call) is not None:
            if call.offered is None:
                call.run()
            pending.go_on()
        found = ((want, self._usable(want, pending.offered)) for want in pending.wanted)
        kept = self._cut([(want, draft) for want, draft in found if draft is not None], pending.load)
        self._drafts.update(kept)
        return {request_id: draft.token_ids for request_id, draft in kept.items()}

    @property
    def trees(self) -> Mapping[str, tuple[int, ...]]:
        """The parents of those drafts that are trees, of all that were proposed last for their sequences."""
        return {request_id: draft.parents for request_id, draft in self._drafts.items() if draft.parents}

    def probabilities_of(self, item: ScheduledSequence) -> DraftProbabilities | None:
        """What an item's draft was drawn from, where it says; perhaps of more tokens than are verified."""
        draft = self._drafts.get(item.sequence.request_id)
        if draft is None or not item.draft_token_ids:
            return None
        assert draft.token_ids[: len(item.draft_token_ids)] == item.draft_token_ids, "it is another draft"
        return draft.probabilities

    def _rests(self, num_sequences: int) -> bool:
        """True in most rounds of a large batch in which no draft has paid for a while: looking for them costs time."""
        self._num_idle_rounds = 0 if self._has_paid else self._num_idle_rounds + 1
        is_idle = self._num_idle_rounds > REST_AFTER_ROUNDS and num_sequences >= REST_FROM_SEQUENCES
        return self._budget is not None and is_idle and self._num_idle_rounds % REST_INTERVAL != 0

    def _wanted(self, sequences: Seq[Sequence]) -> list[Wanted]:
        static, longest = self._limits.static, self._limits.num_speculative_tokens
        lengths = ((s, max_draft_tokens(s, longest)) for s in sequences)
        wanted = [want_of(sequence, length) for sequence, length in lengths if length > 0]
        if static.max_sequences and len(sequences) > static.max_sequences:
            self.num_limited[DraftLimit.BATCH] += len(wanted)
            return []
        if static.max_context:
            short = [want for want in wanted if want.sequence.num_tokens <= static.max_context]
            self.num_limited[DraftLimit.CONTEXT] += len(wanted) - len(short)
            wanted = short
        if static.min_acceptance_rate:
            good = [want for want in wanted if self._floor.lets_draft(want.sequence.request_id)]
            self.num_limited[DraftLimit.ACCEPTANCE] += len(wanted) - len(good)
            wanted = good
        return wanted

    def _usable(self, want: Wanted, offered: Mapping[str, Draft]) -> Draft | None:
        """What of a sequence's draft the target may see; None for nothing."""
        draft = offered.get(want.sequence.request_id)
        if draft is None:
            return None
        limits = self._limits
        draft = valid_draft(
            draft,
            vocab_size=limits.vocab_size,
            max_tokens=want.limit(draft),
            max_tree_nodes=limits.max_tree_nodes,
        )
        return draft if draft.token_ids else None

    def _cut(self, drafts: list[tuple[Wanted, Draft]], load: RoundLoad) -> dict[str, Draft]:
        """The drafts by request id, as long as they pay; those that must stay whole are not judged."""
        kept = {want.sequence.request_id: draft for want, draft in drafts}
        if self._budget is None:
            return kept
        self._budget.save_up(load)
        judged = [(request_id, draft) for request_id, draft in kept.items() if not _is_whole(draft)]
        self._has_paid = len(kept) > len(judged)
        if not judged:
            return kept
        num_whole = sum(_num_whole_rows(want, draft) for want, draft in drafts if _is_whole(draft))
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
        if len(drafts) < _MANY_DRAFTS or any(draft.parents for draft in drafts):
            chances = (self.acceptance.survival(d.source, d.confidences, d.parents) for d in drafts)
            # The budget takes first parts; as corrected, a node of a tree may be worth more than one before it.
            return padded([list(accumulate(each, min)) for each in chances])
        confidences_RK = padded([draft.confidences for draft in drafts])
        return self.acceptance.survivals([draft.source for draft in drafts], confidences_RK) * (confidences_RK > 0)

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """The forward pass of `items` begins now."""
        if self._drafter is not None:
            self._drafter.begin_round(items)

    def take_features(self, items: Seq[ScheduledSequence], features: Features, accepted: Seq[tuple[int, ...]]) -> None:
        """The forward pass of `items` is over and left these hidden states; such drafts of theirs are accepted."""
        if self._drafter is not None:
            self._drafter.take_features(items, features, accepted)

    def observe(self, item: ScheduledSequence, nodes: Seq[int]) -> str:
        """Report which of an item's draft tokens were accepted, once committed; returns the draft's source."""
        request_id, num_drafted = item.sequence.request_id, len(item.draft_token_ids)
        proposed = self._drafts.get(request_id)
        if proposed is None:  # It was made by hand, past `propose`.
            return ""
        num_accepted = len(nodes)
        if self._drafter is not None:
            verified = replace(proposed.first(num_drafted), token_ids=item.draft_token_ids)
            self._drafter.observe(item.sequence, verified, num_accepted)
        if proposed.confidences:
            self._num_verdicts += 1
            confidences = proposed.confidences[:num_drafted]
            self.acceptance.observe_nodes(proposed.source, confidences, item.draft_parents, nodes)
        self._floor.observe(request_id, item.draft_depth, num_accepted)
        return proposed.source

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a sequence."""
        self._floor.forget(request_id)
        self._drafts.pop(request_id, None)
        if self._drafter is not None:
            self._drafter.forget(request_id)
        elif self._own is not None:
            self._forgotten.add(request_id)

    def close(self) -> None:
        """Release the drafter."""
        if self._drafter is not None:
            self._drafter.close()


def _is_whole(draft: Draft) -> bool:
    """True where no budget cuts a draft: it does not say what it is worth, or its tokens decide where it ends."""
    return draft.probabilities is not None or not draft.confidences


def _num_whole_rows(want: Wanted, draft: Draft) -> int:
    """Rows that such a draft takes, at most: where drawn tokens have ended it, that must not show in other drafts."""
    return len(draft.token_ids) if draft.probabilities is None else want.max_tokens
