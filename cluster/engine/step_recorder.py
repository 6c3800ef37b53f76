"""Counts what one round does, to become its `StepStats`."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from cluster.engine.plan import Plan, ScheduledSequence
from cluster.engine.step_time import StepTimeModel
from cluster.engine.token_tree import num_tried
from cluster.types import DomainWork, SourceStats, StepStats


@dataclass(slots=True)
class _Work:
    """What the round does for the sequences of one domain, counted so far."""

    num_sequences: int = 0
    num_rows: int = 0
    num_output_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    def freeze(self, domain: str) -> DomainWork:
        return DomainWork(
            domain=domain,
            num_sequences=self.num_sequences,
            num_rows=self.num_rows,
            num_output_tokens=self.num_output_tokens,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_tokens=self.num_accepted_tokens,
        )


class StepRecorder:
    """Filled during one round.

    Args:
        started_s: clock time at the start of the round.

    Attributes:
        forward_s: time in the target's forward pass.
        sampling_s: time in which the target's tokens were drawn.
        draft_wait_s: time in which the round waited for drafts.
        is_overlapped: drafts for the other half of the batch were made beside the pass.
        hidden_draft_s: time in which both went on.
        num_drafter_failures: errors of drafters.
        draft_limits: sequences that could have drafted and did not, by reason.
        calibration_errors: of the sources of drafts, where they were computed in this round.
    """

    def __init__(self, started_s: float) -> None:
        self.forward_s = self.sampling_s = self.draft_wait_s = 0.0
        self.is_overlapped, self.hidden_draft_s = False, 0.0
        self.num_drafter_failures = 0
        self.draft_limits: Mapping[str, int] = {}
        self.calibration_errors: Mapping[str, float] = {}
        self._started_s = started_s
        self._plan = Plan()
        self._num_cached_tokens = self._num_prompt_tokens = 0
        self._sources: dict[str, SourceStats] = {}
        self._domains: dict[str, _Work] = {}
        self._accepted_per_position: list[int] = []
        self._num_tried_tokens = 0
        self._entropy_bits: list[float] = []

    def count_plan(self, plan: Plan) -> None:
        """Count the planned rows, before they run."""
        self._plan = plan
        for item in plan.scheduled:
            sequence = item.sequence
            work = self._domains.setdefault(sequence.request.domain, _Work())
            work.num_sequences += 1
            work.num_rows += item.num_rows
            self._num_prompt_tokens += max(0, min(item.num_tokens, sequence.num_prompt_tokens - item.start))
            is_first_chunk = sequence.num_preemptions == 0 and item.start == sequence.num_cached_tokens
            if is_first_chunk and sequence.num_output_tokens == 0:
                self._num_cached_tokens += sequence.num_cached_tokens

    def count_tokens(self, item: ScheduledSequence, entropy_bits: Seq[float], nodes: Seq[int], source: str) -> None:
        """Count the committed tokens of one planned sequence, and its draft by who made it.

        Args:
            item: what was planned.
            entropy_bits: of the committed tokens.
            nodes: indices of the accepted tokens in the draft.
            source: who made it.
        """
        num_drafted, num_accepted = len(item.draft_token_ids), len(nodes)
        work = self._domains[item.sequence.request.domain]
        work.num_output_tokens += len(entropy_bits)
        self._entropy_bits += entropy_bits
        if num_drafted:
            work.num_draft_tokens += num_drafted
            work.num_accepted_tokens += num_accepted
            self._num_tried_tokens += num_tried(num_drafted, item.draft_parents, nodes)
            known = self._sources.get(source, SourceStats(source=source))
            self._sources[source] = SourceStats(
                source=source,
                num_drafts=known.num_drafts + 1,
                num_draft_tokens=known.num_draft_tokens + num_drafted,
                num_accepted_tokens=known.num_accepted_tokens + num_accepted,
            )
            self._accepted_per_position += [0] * (item.draft_depth - len(self._accepted_per_position))
            for position in range(num_accepted):
                self._accepted_per_position[position] += 1

    def finish(self, *, now_s: float, num_running: int, num_waiting: int, kv_cache_usage_ratio: float) -> StepStats:
        """The round's statistics."""
        return StepStats(
            duration_s=now_s - self._started_s,
            forward_s=self.forward_s,
            sampling_s=self.sampling_s,
            num_rows=self._plan.num_rows,
            num_sequences=len(self._plan.scheduled),
            num_context_tokens=sum(item.start for item in self._plan.scheduled),
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_output_tokens=len(self._entropy_bits),
            num_drafts=sum(stats.num_drafts for stats in self._sources.values()),
            num_draft_tokens=sum(stats.num_draft_tokens for stats in self._sources.values()),
            num_tried_tokens=self._num_tried_tokens,
            accepted_per_position=tuple(self._accepted_per_position),
            draft_sources=tuple(self._sources.values()),
            domains=tuple(work.freeze(domain) for domain, work in self._domains.items()),
            draft_wait_s=self.draft_wait_s,
            is_overlapped=self.is_overlapped,
            hidden_draft_s=self.hidden_draft_s,
            num_drafter_failures=self.num_drafter_failures,
            draft_limits=self.draft_limits,
            calibration_errors=self.calibration_errors,
            entropy_bits=tuple(self._entropy_bits),
            num_preempted=len(self._plan.preempted),
            num_running=num_running,
            num_waiting=num_waiting,
            kv_cache_usage_ratio=kv_cache_usage_ratio,
        )

    def teach(self, model: StepTimeModel, stats: StepStats) -> None:
        """Let a model of step times learn from the round, if all of its sequences decoded."""
        scheduled = self._plan.scheduled
        if not scheduled or stats.forward_s <= 0 or not all(i.samples and i.num_tokens == 1 for i in scheduled):
            return
        model.observe(
            num_rows=stats.num_rows,
            num_sequences=stats.num_sequences,
            num_context_tokens=stats.num_context_tokens,
            forward_s=stats.forward_s,
            outside_s=max(0.0, stats.duration_s - stats.forward_s - stats.draft_wait_s),
        )
