"""The engine's drafter around any head that lives on the target's hidden states. See `head.Head` for what a head is."""

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import islice

from cluster.clock import Clock, MonotonicClock
from cluster.engine import token_tree
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Features, Wanted
from cluster.engine.drafters.draft_growth import CHAIN, DraftGrowth, TreeShape
from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError
from cluster.engine.drafters.draft_pace import DraftPace
from cluster.engine.drafters.draft_sampling import DraftSampler
from cluster.engine.drafters.head import Head, HeadRows
from cluster.engine.drafters.head_features import FeatureStore
from cluster.engine.drafters.head_job import HeadJob, HeadState
from cluster.engine.drafters.own_draws import drawn_from, own_draws
from cluster.engine.drafters.step_cost import PassCost
from cluster.engine.noise import FloatArray
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import Adaptation
from cluster.types import SpeculationMode

MAX_FEATURE_BYTES = 256 << 20
"""Hidden states that are kept at most for rows that a head has not read yet."""


class HeadDrafter:
    """Keeps the hidden states of each sequence's rows, and drafts from them between two rounds, all sequences together.

    What was committed while a sequence wanted no draft is read when it next wants one. Where the hidden state of the
    last row is missing (the first round after a change of role, say) there is no draft.

    Args:
        head: taken over; shut down by `close`.
        max_draft_tokens: most tokens of one draft, in a tree on its longest path, at least 1.
        shape: chains, or how wide trees are.
        eos_token_ids: of the target. A draft ends behind them unless a choice ignores EOS.
        cost: what drafts cost in the verifier.
        pass_cost: of the head's own passes, refitted here; None counts them as nothing.
        adaptation: how quickly draft lengths follow the acceptance.
        max_feature_bytes: bound on hidden states that wait to be read; the oldest go first.
        clock: times the head's passes.
        has_own_noise: sampled drafts are drawn with noise of their own and say what from, for the rules `rejection` and
            `block`; chains only.

    Attributes:
        name: the head's.
        feature_layers: the head's.
    """

    def __init__(
        self,
        head: Head,
        *,
        max_draft_tokens: int,
        shape: TreeShape = CHAIN,
        eos_token_ids: frozenset[int] = frozenset(),
        cost: DraftCost | None = None,
        pass_cost: PassCost | None = None,
        adaptation: Adaptation | None = None,
        max_feature_bytes: int = MAX_FEATURE_BYTES,
        clock: Clock | None = None,
        has_own_noise: bool = False,
    ) -> None:
        assert not (has_own_noise and shape.max_nodes), "drafts of known distributions are chains"
        self.name, self.feature_layers = head.name, head.feature_layers
        self._head, self._clock = head, clock or MonotonicClock()
        self._sampler = DraftSampler(head.num_columns, head.target_ids, eos_token_ids)
        self._pace = DraftPace(
            head.name,
            max_draft_tokens=min(max_draft_tokens, head.max_draft_tokens),
            cost=cost,
            pass_cost=pass_cost,
            adaptation=adaptation,
            rows_per_sequence=shape.max_branches if head.reads_tokens else 1,
        )
        self._shape, self._has_own_noise = shape, has_own_noise
        self._features = FeatureStore(max_feature_bytes)
        # In order of their last proposal; those of the others make room first.
        self._states: OrderedDict[str, HeadState] = OrderedDict()

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
                own = own_draws(sequence) if self._has_own_noise else None
                jobs.append(HeadJob(state=state, growth=self._growth(state, num_tokens), own=own))
                state.cut.is_offered = True
        self._draft(jobs)
        drafts = {job.state.sequence.request_id: self._finished(job) for job in jobs}
        return {request_id: draft for request_id, draft in drafts.items() if draft.token_ids}

    def promise(self, want: Wanted) -> float:
        """Tokens of a draft that are likely to be accepted, if the sequence got one in the next round."""
        if not self._num_ready(want.sequence):
            return 0.0
        return self._pace.promise(self._states.get(want.sequence.request_id), want)

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Note how many sequences decode, and whose drafts were not worth verifying."""
        self._pace.begin_round(items, self._states)

    def take_features(self, items: Seq[ScheduledSequence], features: Features, accepted: Seq[tuple[int, ...]]) -> None:
        """Keep the rows that the head has not read, of the sequences that it may draft for."""
        features_TF = features.of(self.feature_layers)
        row = 0
        for item, nodes in zip(items, accepted, strict=True):
            state = self._states.get(item.sequence.request_id)
            num_known = 0 if state is None else max(0, state.num_read - item.start)
            num_kept = item.num_tokens + len(nodes)
            if num_known < num_kept and not self._ignores(item.sequence, state):
                part_nF = features_TF[row : row + num_kept]
                if not token_tree.is_prefix(nodes):  # Behind the committed tokens' rows lie those of all drafts.
                    places = [*range(item.num_tokens), *(item.num_tokens + node for node in nodes)]
                    part_nF = features_TF[[row + place for place in places]]
                self._features.put(item.sequence.request_id, item.start + num_known, part_nF[num_known:])
            row += item.num_rows

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Fit the sequence's draft lengths to the verdict; drafts of others say nothing about this head."""
        state = self._states.get(sequence.request_id)
        if state is not None and draft.source == self.name:
            # What was drafted follows the rows that the head has read, and the token after them.
            text = sequence.token_ids[state.num_read + 1 :][:num_accepted]
            path = token_tree.follow(draft.token_ids, draft.parents, text)
            self._pace.observe(state, draft, path)
            if state.growth is not None and draft.probabilities is None:
                confidences = state.growth.confidences(draft.token_ids, draft.parents)
                self._pace.observe_chances(confidences, draft.parents, path)

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

    def _ignores(self, sequence: Sequence, state: HeadState | None) -> bool:
        wanted = sequence.request.speculation
        is_too_long = state is not None and state.is_too_long
        return is_too_long or wanted.mode is SpeculationMode.OFF or wanted.drafter not in (None, self.name)

    def _num_ready(self, sequence: Sequence) -> int:
        """Rows that the head can read; the last one is that of the token before the last, and comes with the last."""
        return self._features.num_ready(sequence.request_id, sequence.num_tokens - 1)

    def _state(self, sequence: Sequence) -> HeadState:
        """The sequence's state, as the one that was used last."""
        state = self._states.get(sequence.request_id)
        if state is None:
            settings = self._sampler.settings(sequence.request.sampling, sequence.request.prompt_token_ids)
            state = self._states[sequence.request_id] = HeadState(sequence, self._pace.new_budget(), settings)
        self._states.move_to_end(sequence.request_id)
        return state

    def _make_ready(self, state: HeadState, num_ready: int, num_tokens: int, active: set[str]) -> bool:
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

    def _close(self, state: HeadState) -> None:
        if state.is_open:
            self._head.close(state.handle)
            state.handle, state.is_open = None, False

    def _growth(self, state: HeadState, num_levels: int) -> DraftGrowth:
        """A new draft of a sequence; it is kept until the next one, for the verdict."""
        state.growth = DraftGrowth(
            self._shape,
            max_levels=num_levels,
            stop_ids=state.settings.stop_ids,
            chance_of=self._pace.chance,
            reads_tokens=self._head.reads_tokens,
        )
        return state.growth

    def _finished(self, job: HeadJob) -> Draft:
        token_ids, parents, confidences = job.growth.result()
        if job.own is not None:
            draft = self._pace.draft(job.state, token_ids)
            return replace(draft, probabilities=drawn_from(job.own, len(token_ids)))
        return Draft(
            token_ids=token_ids,
            parents=parents,
            source=self.name,
            confidences=confidences,
        )

    def _draft(self, jobs: list[HeadJob]) -> None:
        """Read the new rows of all, then step until all drafts are there."""
        if jobs:
            logits_BC = self._head.begin([self._rows(job.state) for job in jobs])
            self._draw(logits_BC, jobs)
        while jobs := [job for job in jobs if job.growth.leaves]:
            started_s = self._clock.now_s()
            rows = [(job, place) for job in jobs for place in range(len(self._leaves(job)))]
            logits_BC = self._head.step(
                [job.state.handle for job, _ in rows],
                [job.growth.token_id(job.growth.leaves[place]) for job, place in rows],
                [job.growth.followed[place] for job, place in rows],
            )
            self._draw(logits_BC, jobs)
            self._pace.time_pass(len(rows), self._clock.now_s() - started_s)

    def _rows(self, state: HeadState) -> HeadRows:
        sequence = state.sequence
        first_position, features_nF = self._features.take(sequence.request_id, sequence.num_tokens - 1)
        state.num_read = sequence.num_tokens - 1
        return HeadRows(
            state=state.handle,
            first_position=first_position,
            token_ids=sequence.token_ids[first_position + 1 :],
            features_nF=features_nF,
        )

    def _draw(self, logits_BC: FloatArray, jobs: Seq[HeadJob]) -> None:
        """The next tokens of each draft, ranked with the noise of its rows: the target's, or noise of their own."""
        leaves = [self._leaves(job) for job in jobs]
        rows = [job.row(leaf, self._shape) for job, some in zip(jobs, leaves, strict=True) for leaf in some]
        drawn = iter(self._sampler.draw_with_chances(logits_BC, rows))
        for job, some in zip(jobs, leaves, strict=True):
            candidates = list(islice(drawn, len(some)))
            job.growth.take(candidates if self._head.reads_tokens else candidates * len(job.growth.leaves))

    def _leaves(self, job: HeadJob) -> list[int]:
        """Those of a draft's leaves that the head needs rows for."""
        return job.growth.leaves if self._head.reads_tokens else job.growth.leaves[:1]
