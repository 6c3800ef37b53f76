"""A draft model in the verifier's own process: drafts between two rounds, for all sequences that want one together."""

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

from cluster.clock import Clock, MonotonicClock
from cluster.engine.acceptance_model import AcceptanceModel
from cluster.engine.budget import DraftCost, draft_length
from cluster.engine.draft_budget import PROBE_COST_RATIO, PROBE_TOKENS
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.draft_ahead import (
    DraftCapacityError,
    DraftJob,
    DraftLengthError,
    DraftModel,
    DraftSequence,
)
from cluster.engine.drafters.step_cost import PassCost
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.engine.sequence_budget import (
    DRAFT_MODEL_ADAPTATION,
    Adaptation,
    CutMemory,
    LearnedPriors,
    Prior,
    SequenceBudget,
)

_PRIORS = (Prior(first=0.6, next=0.6),)
_ONLY_CLASS = 0
_TOKENS_PER_ROUND = 2.0
_WIDE_ROWS = (32, 64)
"""Between these passes are bound by arithmetic, as those over prompts are."""

_MOST_SAVED_S = 0.25
"""Time that is set aside at most for drafts that do not pay, prompts that must be read for them included."""


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
    ) -> None:
        self._pass_cost, self._clock = pass_cost, clock or MonotonicClock()
        self._model, self._max_draft_tokens = model, max_draft_tokens
        self._cost, self._adaptation = cost or DraftCost(), adaptation or DRAFT_MODEL_ADAPTATION
        self._priors = LearnedPriors(_PRIORS, self._adaptation)
        self._acceptance = AcceptanceModel()
        # In order of their last proposal; those of the others make room first.
        self._states: OrderedDict[str, _State] = OrderedDict()
        self._num_decoding = 0
        self._saved_s = 0.0

    @property
    def num_sequences(self) -> int:
        """Sequences that state is kept for."""
        return len(self._states)

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        """Drafts of the sequences where one pays and that fit into the draft model's memory and length limit."""
        cost = self._round_cost(max(1, len(wanted), self._num_decoding), len(wanted))
        active = {want.sequence.request_id for want in wanted}
        jobs: dict[str, DraftJob] = {}
        for want in wanted:
            state = self._state(want.sequence)
            num_tokens = self._length(state, want, cost)
            if num_tokens > 0 and (followed := self._follow(state, want.sequence, active)) is not None:
                jobs[want.sequence.request_id] = self._model.start(followed, (), num_tokens - 1, (1,))
                state.cut.is_offered = True
        self._draft(list(jobs.values()), active)
        return {
            request_id: Draft(
                token_ids=entry.token_ids,
                source=self.name,
                confidences=self._states[request_id].budget.confidences(_ONLY_CLASS, len(entry.token_ids)),
            )
            for request_id, job in jobs.items()
            for entry in job.entries[:1]
        }

    def promise(self, want: Wanted) -> float:
        """Tokens of a draft that are likely to be accepted, if the sequence got one in the next round."""
        state = self._states.get(want.sequence.request_id)
        if state is not None and state.is_too_long:
            return 0.0
        num_tokens = min(want.max_tokens, self._max_draft_tokens)
        budget = state.budget if state is not None else SequenceBudget(self._priors, self._adaptation)
        return sum(self._survival(budget, num_tokens))

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Note how many sequences decode, and whose drafts were not worth verifying."""
        self._num_decoding = sum(item.samples for item in items)
        for item in items:
            state = self._states.get(item.sequence.request_id)
            if state is not None and state.cut.is_offered:
                state.cut.note_round(is_verified=bool(item.draft_token_ids))

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Fit the sequence's draft lengths to the verdict; drafts of others say nothing about this model."""
        state = self._states.get(sequence.request_id)
        if state is not None and draft.source == self.name and draft.token_ids:
            state.budget.observe(_ONLY_CLASS, len(draft.token_ids), num_accepted)
            if draft.confidences:
                self._acceptance.observe(self.name, draft.confidences, len(draft.token_ids), num_accepted)

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

    def _round_cost(self, num_sequences: int, num_asked: int) -> DraftCost:
        """What drafts cost in a round, the draft model's passes for the sequences that ask included."""
        if self._pass_cost is None:
            return self._cost.at(num_sequences)
        cost = replace(self._cost, token_s=self._pass_cost.seconds(num_asked)).at(num_sequences)
        self._saved_s = min(self._saved_s + PROBE_COST_RATIO * cost.round_s(0), _MOST_SAVED_S)
        return cost

    def _length(self, state: "_State", want: Wanted, cost: DraftCost) -> int:
        """Tokens to draft for a sequence, 0 for none."""
        if state.is_too_long or state.cut.skips():
            return 0
        max_tokens = min(want.max_tokens, self._max_draft_tokens)
        survival = self._survival(state.budget, max_tokens)
        if self._pass_cost is None:
            return state.budget.num_draft_tokens(_ONLY_CLASS, max_tokens, cost, survival=survival)
        unread_s = self._unread_s(state, want.sequence, self._pass_cost)
        rounds_left = (want.sequence.request.sampling.max_tokens - want.sequence.num_output_tokens) / _TOKENS_PER_ROUND
        extra_s = cost.num_sequences * unread_s / max(1.0, rounds_left)
        return draft_length(survival, cost, extra_s=extra_s) or self._probe(unread_s, max_tokens, cost)

    def _probe(self, unread_s: float, max_tokens: int, cost: DraftCost) -> int:
        """Tokens of a draft that does not pay, once enough time was saved up for it; else 0."""
        probe_s = unread_s + PROBE_TOKENS * cost.token_s
        if self._saved_s < probe_s:
            return 0
        self._saved_s -= probe_s
        return min(PROBE_TOKENS, max_tokens)

    def _survival(self, budget: SequenceBudget, num_tokens: int) -> list[float]:
        """Chances of a draft's tokens as the budget of the round will see them: corrected by earlier verdicts."""
        return self._acceptance.survival(self.name, budget.confidences(_ONLY_CLASS, num_tokens))

    def _unread_s(self, state: "_State", sequence: Sequence, pass_cost: PassCost) -> float:
        """Seconds to read what the draft model has not read of a sequence."""
        num_read = 0 if state.followed is None else len(state.followed.token_ids)
        few, many = _WIDE_ROWS
        row_s = (pass_cost.seconds(many) - pass_cost.seconds(few)) / (many - few)
        return max(0, sequence.num_tokens - 1 - num_read) * row_s

    def _state(self, sequence: Sequence) -> "_State":
        """The sequence's state, as the one that was used last."""
        request_id = sequence.request_id
        state = self._states.get(request_id)
        if state is None or state.sequence is not sequence:  # The id may have been given to another request.
            self.forget(request_id)
            state = self._states[request_id] = _State(sequence, SequenceBudget(self._priors, self._adaptation))
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
        if self._pass_cost is not None and 0 < num_rows <= 2 * len(jobs):  # Passes over prompts say nothing of others.
            self._pass_cost.observe(num_rows, self._clock.now_s() - started_s)

    def _unfollow(self, state: "_State") -> None:
        if state.followed is not None:
            self._model.close(state.followed)
            state.followed = None


class _State:
    """What is kept for one sequence."""

    __slots__ = ("budget", "cut", "followed", "is_too_long", "sequence")

    def __init__(self, sequence: Sequence, budget: SequenceBudget) -> None:
        self.sequence, self.budget = sequence, budget
        self.followed: DraftSequence | None = None
        self.is_too_long = False
        self.cut = CutMemory()
