"""A draft model in the verifier's own process: drafts between two rounds, for all sequences that want one together."""

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

from cluster.clock import Clock, MonotonicClock
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.draft_ahead import (
    DraftCapacityError,
    DraftJob,
    DraftLengthError,
    DraftModel,
    DraftSequence,
)
from cluster.engine.drafters.draft_pace import DraftPace, PaceState
from cluster.engine.drafters.own_draws import drawn_from, own_draws
from cluster.engine.drafters.step_cost import PassCost
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import Adaptation, SequenceBudget


class DraftModelDrafter:
    """The local form of a draft model. It costs the round its steps: an actor drafts while the verifier works.

    A sequence is opened when it first wants a draft. What was committed while it wanted none is caught up in chunks,
    within the steps that a round's drafts take anyway, so a long prompt delays its own first draft only.

    Args:
        model: taken over; closed by `close`.
        max_draft_tokens: most tokens of one draft, at least 1.
        cost: what drafts cost in the verifier.
        pass_cost: of the draft model's own passes, refitted here; None counts them as nothing.
        adaptation: how quickly draft lengths follow the acceptance.
        clock: times those passes.
        has_own_noise: sampled drafts are drawn with noise of their own and say what from, for the rules `rejection` and
            `block`.
    """

    name = "draft_model"

    def __init__(
        self,
        model: DraftModel,
        *,
        max_draft_tokens: int,
        cost: DraftCost | None = None,
        pass_cost: PassCost | None = None,
        adaptation: Adaptation | None = None,
        clock: Clock | None = None,
        has_own_noise: bool = False,
    ) -> None:
        self._model, self._clock, self._has_own_noise = model, clock or MonotonicClock(), has_own_noise
        self._pace = DraftPace(
            self.name, max_draft_tokens=max_draft_tokens, cost=cost, pass_cost=pass_cost, adaptation=adaptation
        )
        # In order of their last proposal; those of the others make room first.
        self._states: OrderedDict[str, _State] = OrderedDict()

    @property
    def num_sequences(self) -> int:
        """Sequences that state is kept for."""
        return len(self._states)

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Drafts of the sequences where one pays and that fit into the draft model's memory and length limit."""
        cost = self._pace.round_cost(len(wanted))
        active = {want.sequence.request_id for want in wanted}
        jobs: dict[str, DraftJob] = {}
        for want in wanted:
            state = self._state(want.sequence)
            num_tokens = self._pace.length(state, want, cost, self._num_unread(state))
            if num_tokens > 0 and (followed := self._follow(state, want.sequence, active)) is not None:
                jobs[want.sequence.request_id] = job = self._model.start(followed, (), num_tokens - 1, (1,))
                job.own = own_draws(want.sequence) if self._has_own_noise else None
                state.cut.is_offered = True
        self._draft(list(jobs.values()), active)
        drafts = {
            request_id: self._pace.draft(self._states[request_id], entry.token_ids)
            for request_id, job in jobs.items()
            for entry in job.entries[:1]
        }
        return {
            request_id: replace(draft, probabilities=drawn_from(jobs[request_id].own, len(draft.token_ids)))
            for request_id, draft in drafts.items()
        }

    def promise(self, want: Wanted) -> float:
        """Tokens of a draft that are likely to be accepted, if the sequence got one in the next round."""
        return self._pace.promise(self._states.get(want.sequence.request_id), want)

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Note how many sequences decode, and whose drafts were not worth verifying."""
        self._pace.begin_round(items, self._states)

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Fit the sequence's draft lengths to the verdict; drafts of others say nothing about this model."""
        self._pace.observe(self._states.get(sequence.request_id), draft, range(num_accepted))

    def forget(self, request_id: str) -> None:
        """Free the blocks and the estimates of a finished sequence."""
        state = self._states.pop(request_id, None)
        if state is not None:
            self._unfollow(state)

    def close(self) -> None:
        """Release the draft model."""
        for request_id in list(self._states):
            self.forget(request_id)
        self._model.close_model()

    def check_integrity(self) -> None:
        """Check that followed sequences and the draft model's blocks agree.

        Raises:
            AssertionError: they do not.
        """
        self._model.check_integrity()
        followed = sum(state.followed is not None for state in self._states.values())
        assert followed == self._model.num_sequences, "the model follows a sequence that nobody asks for"

    @staticmethod
    def _num_unread(state: "_State") -> int:
        """Rows that the draft model must read of a sequence before the one that it drafts behind."""
        num_read = 0 if state.followed is None else len(state.followed.token_ids)
        return state.sequence.num_tokens - 1 - num_read

    def _state(self, sequence: Sequence) -> "_State":
        """The sequence's state, as the one that was used last."""
        request_id = sequence.request_id
        state = self._states.get(request_id)
        if state is None or state.sequence is not sequence:  # The id may have been given to another request.
            self.forget(request_id)
            state = self._states[request_id] = _State(sequence, self._pace.new_budget())
        self._states.move_to_end(request_id)
        return state

    def _follow(self, state: "_State", sequence: Sequence, active: set[str]) -> DraftSequence | None:
        """The draft model's side of a sequence, with all committed tokens; None where it cannot follow."""
        if state.followed is not None:
            new = sequence.token_ids[len(state.followed.token_ids) :]
            if new:
                self._model.extend(state.followed, new)
            state.is_too_long = state.followed.is_too_long
        else:
            self._open(state, sequence, active)
        if state.is_too_long:
            self._unfollow(state)
        return state.followed

    def _open(self, state: "_State", sequence: Sequence, active: set[str]) -> None:
        while state.followed is None:
            try:
                state.followed = self._model.open(
                    sequence.token_ids, sequence.num_prompt_tokens, sequence.request.sampling
                )
            except DraftLengthError:
                state.is_too_long = True
                return
            except DraftCapacityError:
                if not self._make_room(active):
                    return

    def _make_room(self, active: set[str]) -> bool:
        """Give up the sequence without a draft for longest that wants none now; False when there is none."""
        for request_id, state in self._states.items():
            if state.followed is not None and request_id not in active:
                self._unfollow(state)
                return True
        return False

    def _draft(self, jobs: list[DraftJob], active: set[str]) -> None:
        """Step until all drafts are there, but not for what is still caught up by then: that goes on next round."""
        num_steps = max((job.num_steps_left for job in jobs), default=0)
        for _ in range(num_steps):
            if all(job.is_done for job in jobs):
                break
            self._step(jobs)
        for job in jobs:
            if job.lacks_blocks:
                self._make_room(active)
            self._model.cancel(job)

    def _step(self, jobs: list[DraftJob]) -> None:
        num_rows, started_s = sum(job.num_rows for job in jobs if not job.is_done), self._clock.now_s()
        self._model.step(jobs)
        if 0 < num_rows <= 2 * len(jobs):  # Passes over prompts say nothing of others.
            self._pace.time_pass(num_rows, self._clock.now_s() - started_s)

    def _unfollow(self, state: "_State") -> None:
        if state.followed is not None:
            self._model.close(state.followed)
            state.followed = None


class _State(PaceState):
    """What is kept for one sequence."""

    __slots__ = ("followed", "sequence")

    def __init__(self, sequence: Sequence, budget: SequenceBudget) -> None:
        super().__init__(budget)
        self.sequence = sequence
        self.followed: DraftSequence | None = None
