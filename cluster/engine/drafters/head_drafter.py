"""The engine's drafter around any head that lives on the target's hidden states. See `head.Head` for what a head is."""

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

from cluster.clock import Clock, MonotonicClock
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Features, Wanted
from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError
from cluster.engine.drafters.draft_pace import DraftPace, PaceState
from cluster.engine.drafters.draft_sampling import DraftSampler, DrawRow, DrawSettings
from cluster.engine.drafters.head import Head, HeadRows
from cluster.engine.drafters.head_features import FeatureStore
from cluster.engine.drafters.step_cost import PassCost
from cluster.engine.noise import FloatArray
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import Adaptation, SequenceBudget
from cluster.types import SpeculationMode

MAX_FEATURE_BYTES = 256 << 20
"""Hidden states that are kept at most for rows that a head has not read yet."""


class HeadDrafter:
    """Keeps the hidden states of each sequence's rows, and drafts from them between two rounds, all sequences together.

    What was committed while a sequence wanted no draft is read when it next wants one. Where the hidden state of the
    last row is missing (the first round after a change of role, say) there is no draft.

    Args:
        head: taken over; shut down by `close`.
        max_draft_tokens: most tokens of one draft, at least 1.
        eos_token_ids: of the target. A draft ends behind them unless a choice ignores EOS.
        cost: what drafts cost in the verifier.
        pass_cost: of the head's own passes, refitted here; None counts them as nothing.
        adaptation: how quickly draft lengths follow the acceptance.
        max_feature_bytes: bound on hidden states that wait to be read; the oldest go first.
        clock: times the head's passes.

    Attributes:
        name: the head's.
        feature_layers: the head's.
    """

    def __init__(
        self,
        head: Head,
        *,
        max_draft_tokens: int,
        eos_token_ids: frozenset[int] = frozenset(),
        cost: DraftCost | None = None,
        pass_cost: PassCost | None = None,
        adaptation: Adaptation | None = None,
        max_feature_bytes: int = MAX_FEATURE_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self.name, self.feature_layers = head.name, head.feature_layers
        self._head, self._clock = head, clock or MonotonicClock()
        self._sampler = DraftSampler(head.num_columns, head.target_ids, eos_token_ids)
        self._pace = DraftPace(
            head.name,
            max_draft_tokens=min(max_draft_tokens, head.max_draft_tokens),
            cost=cost,
            pass_cost=pass_cost,
            adaptation=adaptation,
        )
        self._features = FeatureStore(max_feature_bytes)
        # In order of their last proposal; those of the others make room first.
        self._states: OrderedDict[str, _State] = OrderedDict()

    @property
    def num_sequences(self) -> int:
        """Sequences that state is kept for."""
        return len(self._states)

    @property
    def num_feature_bytes(self) -> int:
        """Memory of the hidden states that wait to be read."""
        return self._features.num_bytes

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Drafts of the sequences where one pays, that fit into the head's memory, and whose last row is known."""
        cost = self._pace.round_cost(len(wanted))
        active = {want.sequence.request_id for want in wanted}
        jobs = []
        for want in wanted:
            sequence, state = want.sequence, self._state(want.sequence)
            num_ready = self._num_ready(sequence)
            num_tokens = self._pace.length(state, want, cost, num_ready - 1) if num_ready else 0
            if num_tokens > 0 and self._make_ready(state, num_ready, num_tokens, active):
                jobs.append(_Job(state=state, num_tokens=num_tokens))
                state.cut.is_offered = True
        self._draft(jobs)
        return {
            job.state.sequence.request_id: self._pace.draft(job.state, job.token_ids) for job in jobs if job.token_ids
        }

    def promise(self, want: Wanted) -> float:
        """Tokens of a draft that are likely to be accepted, if the sequence got one in the next round."""
        if not self._num_ready(want.sequence):
            return 0.0
        return self._pace.promise(self._states.get(want.sequence.request_id), want)

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Note how many sequences decode, and whose drafts were not worth verifying."""
        self._pace.begin_round(items, self._states)

    def take_features(self, items: Seq[ScheduledSequence], features: Features) -> None:
        """Keep the rows that the head has not read, of the sequences that it may draft for."""
        features_TF = features.of(self.feature_layers)
        row = 0
        for item in items:
            state = self._states.get(item.sequence.request_id)
            num_known = 0 if state is None else state.num_read - item.start
            num_skipped = item.num_rows if self._ignores(item.sequence, state) else max(0, num_known)
            if num_skipped < item.num_rows:
                part_nF = features_TF[row + num_skipped : row + item.num_rows]
                self._features.put(item.sequence.request_id, item.start + num_skipped, part_nF)
            row += item.num_rows

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Fit the sequence's draft lengths to the verdict; drafts of others say nothing about this head."""
        self._pace.observe(self._states.get(sequence.request_id), draft, num_accepted)

    def forget(self, request_id: str) -> None:
        """Free all that is kept of a finished sequence."""
        self._features.drop(request_id)
        state = self._states.pop(request_id, None)
        if state is not None:
            self._close(state)

    def close(self) -> None:
        """Release the head."""
        for request_id in list(self._states):
            self.forget(request_id)
        self._head.shutdown()

    def _ignores(self, sequence: Sequence, state: "_State | None") -> bool:
        wanted = sequence.request.speculation
        is_too_long = state is not None and state.is_too_long
        return is_too_long or wanted.mode is SpeculationMode.OFF or wanted.drafter not in (None, self.name)

    def _num_ready(self, sequence: Sequence) -> int:
        """Rows that the head can read; the last one is that of the token before the last, and comes with the last."""
        return self._features.num_ready(sequence.request_id, sequence.num_tokens - 1)

    def _state(self, sequence: Sequence) -> "_State":
        """The sequence's state, as the one that was used last."""
        state = self._states.get(sequence.request_id)
        if state is None:
            settings = self._sampler.settings(sequence.request.sampling, sequence.request.prompt_token_ids)
            state = self._states[sequence.request_id] = _State(sequence, self._pace.new_budget(), settings)
        self._states.move_to_end(sequence.request_id)
        return state

    def _make_ready(self, state: "_State", num_ready: int, num_tokens: int, active: set[str]) -> bool:
        """Open a sequence in the head, with room for its new rows and a draft; False where the head cannot follow."""
        num_rows, end_position = num_ready + num_tokens - 1, state.sequence.num_tokens + num_tokens - 2
        while True:
            try:
                if not state.is_open:
                    state.handle, state.is_open = self._head.open(), True
                self._head.reserve(state.handle, num_rows, end_position)
            except DraftLengthError:
                state.is_too_long = True
                self._features.drop(state.sequence.request_id)
                self._close(state)
                return False
            except DraftCapacityError:
                if not self._make_room(active):
                    return False
            else:
                return True

    def _make_room(self, active: set[str]) -> bool:
        """Give up the sequence without a draft for longest that wants none now; False when there is none."""
        for request_id, state in self._states.items():
            if state.is_open and request_id not in active:
                self._close(state)
                return True
        return False

    def _close(self, state: "_State") -> None:
        if state.is_open:
            self._head.close(state.handle)
            state.handle, state.is_open = None, False

    def _draft(self, jobs: "list[_Job]") -> None:
        """Read the new rows of all, then step until all drafts are there."""
        if jobs:
            logits_BC = self._head.begin([self._rows(job.state) for job in jobs])
            self._draw(logits_BC, jobs)
        while jobs := [job for job in jobs if not job.is_done]:
            started_s = self._clock.now_s()
            logits_BC = self._head.step([job.state.handle for job in jobs], [job.token_ids[-1] for job in jobs])
            self._draw(logits_BC, jobs)
            self._pace.time_pass(len(jobs), self._clock.now_s() - started_s)

    def _rows(self, state: "_State") -> HeadRows:
        sequence = state.sequence
        first_position, features_nF = self._features.take(sequence.request_id, sequence.num_tokens - 1)
        state.num_read = sequence.num_tokens - 1
        return HeadRows(
            state=state.handle,
            first_position=first_position,
            token_ids=sequence.token_ids[first_position + 1 :],
            features_nF=features_nF,
        )

    def _draw(self, logits_BC: FloatArray, jobs: "Seq[_Job]") -> None:
        """The next token of each draft, with the noise that the target will draw with."""
        drawn = self._sampler.draw(logits_BC, [job.next_row() for job in jobs])
        for job, token_ids in zip(jobs, drawn, strict=True):
            job.take(token_ids)


class _State(PaceState):
    """What is kept for one sequence."""

    __slots__ = ("handle", "is_open", "num_read", "sequence", "settings")

    def __init__(self, sequence: Sequence, budget: SequenceBudget, settings: DrawSettings) -> None:
        super().__init__(budget)
        self.sequence, self.settings = sequence, settings
        self.handle: Any = None
        self.is_open, self.num_read = False, 0


@dataclass(slots=True, kw_only=True)
class _Job:
    """A draft in the making."""

    state: _State
    num_tokens: int
    token_ids: list[int] = field(default_factory=list)
    is_done: bool = False

    def next_row(self) -> DrawRow:
        """How its next token is drawn."""
        sequence, settings = self.state.sequence, self.state.settings
        output = sequence.token_ids[sequence.num_prompt_tokens :] if settings.needs_history else []
        return DrawRow(
            settings=settings,
            output_index=sequence.num_output_tokens + len(self.token_ids),
            output_token_ids=[*output, *self.token_ids] if settings.needs_history else (),
        )

    def take(self, token_ids: Seq[int]) -> None:
        """Add the token that was drawn; there is none where the logits define no distribution."""
        self.token_ids += token_ids
        ended = not token_ids or token_ids[0] in self.state.settings.stop_ids
        self.is_done = ended or len(self.token_ids) >= self.num_tokens
