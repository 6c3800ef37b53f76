"""Stands in front of the drafter that is calibrated: holds drafts to one length, and counts what becomes of them."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from cluster.engine.acceptance_model import AcceptanceModel
from cluster.engine.calibration import Acceptance, EstimateBin
from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence

NUM_BINS = 10
"""Estimates are kept apart by so many ranges of equal width."""


@dataclass(slots=True)
class _Counts:
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_tried: list[int] = field(default_factory=list)
    num_accepted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Ledger:
    """What became of drafts, by class of text and source, and how well it was foretold."""

    num_rounds: dict[str, int] = field(default_factory=dict)
    counts: dict[tuple[str, str], _Counts] = field(default_factory=dict)
    bins: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0, 0.0] for _ in range(NUM_BINS)])

    def count_draft(self, workload: str, source: str, num_drafted: int, num_accepted: int) -> None:
        """A draft was verified."""
        counts = self.counts.setdefault((workload, source), _Counts())
        counts.num_drafts += 1
        counts.num_draft_tokens += num_drafted
        for position in range(min(num_drafted, num_accepted + 1)):
            self._count_position(counts, position, 1, int(position < num_accepted))

    def count_estimate(self, chance: float, is_hit: bool) -> None:
        """A token was verified that was foretold to be accepted with this chance."""
        of_bin = self.bins[min(int(chance * NUM_BINS), NUM_BINS - 1)]
        for index, value in enumerate((chance, float(is_hit), 1.0)):
            of_bin[index] += value

    def add(self, acceptance: Seq[Acceptance], estimates: Seq[EstimateBin]) -> None:
        """Take in what was counted earlier."""
        for entry in acceptance:
            self.num_rounds[entry.workload] = max(self.num_rounds.get(entry.workload, 0), entry.num_rounds)
            counts = self.counts.setdefault((entry.workload, entry.source), _Counts())
            counts.num_drafts += entry.num_drafts
            counts.num_draft_tokens += entry.num_draft_tokens
            for position, (tries, hits) in enumerate(zip(entry.num_tried, entry.num_accepted, strict=True)):
                self._count_position(counts, position, tries, hits)
        for estimate in estimates:
            of_bin = self.bins[min(int(estimate.predicted * NUM_BINS), NUM_BINS - 1)]
            for index, value in enumerate((estimate.predicted, estimate.observed, 1.0)):
                of_bin[index] += value * estimate.num_tokens

    def acceptance(self) -> tuple[Acceptance, ...]:
        """By class of text and source."""
        return tuple(
            Acceptance(
                workload=workload,
                source=source,
                num_rounds=max(self.num_rounds.get(workload, 0), counts.num_drafts),
                num_drafts=counts.num_drafts,
                num_tried=tuple(counts.num_tried),
                num_accepted=tuple(counts.num_accepted),
                num_draft_tokens=counts.num_draft_tokens,
            )
            for (workload, source), counts in self.counts.items()
        )

    def estimates(self) -> tuple[EstimateBin, ...]:
        """By rising estimate; ranges without any are left out."""
        return tuple(
            EstimateBin(predicted=min(chances / num, 1.0), observed=hits / num, num_tokens=int(num))
            for chances, hits, num in self.bins
            if num
        )

    def _count_position(self, counts: _Counts, position: int, tries: int, hits: int) -> None:
        missing = position + 1 - len(counts.num_tried)
        counts.num_tried += [0] * missing
        counts.num_accepted += [0] * missing
        counts.num_tried[position] += tries
        counts.num_accepted[position] += hits


class GaugedDrafter:
    """A drafter whose drafts are held to one length and counted.

    Args:
        drafter: makes them; closed by `close`.
        ledger: where they are counted.

    Attributes:
        name: the drafter's.
        num_speculative_tokens: longest draft; 0 does not ask the drafter at all.
        workload: class of text that is served now.
    """

    def __init__(self, drafter: Drafter, ledger: Ledger) -> None:
        self.name = drafter.name
        self.num_speculative_tokens, self.workload = 0, ""
        self._drafter, self._ledger = drafter, ledger
        self._estimates = AcceptanceModel()

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Drafts of at most that length."""
        longest = self.num_speculative_tokens
        if longest == 0:
            return {}
        rounds = self._ledger.num_rounds
        rounds[self.workload] = rounds.get(self.workload, 0) + len(wanted)
        return self._drafter.propose([replace(want, max_tokens=min(want.max_tokens, longest)) for want in wanted])

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Pass it on."""
        self._drafter.begin_round(items)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Count it, and pass it on."""
        num_drafted = len(draft.token_ids)
        self._ledger.count_draft(self.workload, draft.source, num_drafted, num_accepted)
        if draft.confidences:
            before = 1.0
            survivals = self._estimates.survival(draft.source, draft.confidences)
            for position, chance in enumerate(survivals[: num_accepted + 1]):
                self._ledger.count_estimate(chance / before, position < num_accepted)
                before = chance
            self._estimates.observe(draft.source, draft.confidences, num_drafted, num_accepted)
        self._drafter.observe(sequence, draft, num_accepted)

    def forget(self, request_id: str) -> None:
        """Pass it on."""
        self._drafter.forget(request_id)

    def close(self) -> None:
        """Pass it on."""
        self._drafter.close()
