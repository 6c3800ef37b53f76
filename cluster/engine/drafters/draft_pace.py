"""How long the drafts of a model in the verifier's own process should be: it costs the round each of its passes.

For drafters that run a draft model or a head between two rounds. What is drafted brings expected tokens, and costs
passes, rows of the target, and the reading of what the model has not read of a sequence yet.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

from cluster.engine import token_tree
from cluster.engine.acceptance_model import AcceptanceModel
from cluster.engine.budget import DraftCost, draft_length
from cluster.engine.draft_budget import PROBE_COST_RATIO, PROBE_TOKENS
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.drafters.step_cost import PassCost
from cluster.engine.plan import ScheduledSequence
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


class PaceState:
    """What is known of one sequence's drafts.

    Args:
        budget: its estimates.

    Attributes:
        cut: whether its drafts were worth verifying.
        is_too_long: beyond the model's limit; it gets no drafts any more.
    """

    __slots__ = ("budget", "cut", "is_too_long")

    def __init__(self, budget: SequenceBudget) -> None:
        self.budget, self.cut, self.is_too_long = budget, CutMemory(), False


class DraftPace:
    """Decides the draft lengths of one drafter's sequences, and learns from what became of them.

    Args:
        source: the drafter's name.
        max_draft_tokens: most tokens of one draft, at least 1.
        cost: what drafts cost in the verifier.
        pass_cost: of the model's own passes; None counts them as nothing.
        adaptation: how quickly draft lengths follow the acceptance.
        rows_per_sequence: rows of a pass for each sequence that drafts, where drafts are trees.
    """

    def __init__(
        self,
        source: str,
        *,
        max_draft_tokens: int,
        cost: DraftCost | None = None,
        pass_cost: PassCost | None = None,
        adaptation: Adaptation | None = None,
        rows_per_sequence: int = 1,
    ) -> None:
        self._source, self._max_draft_tokens, self._pass_cost = source, max_draft_tokens, pass_cost
        self._rows_per_sequence = rows_per_sequence
        self._cost, self._adaptation = cost or DraftCost(), adaptation or DRAFT_MODEL_ADAPTATION
        self._priors = LearnedPriors(_PRIORS, self._adaptation)
        # Of the estimates that lengths follow from, and of the model's own chances of single tokens.
        self._acceptance, self._tokens = AcceptanceModel(), AcceptanceModel()
        self._num_decoding = 0
        self._saved_s = 0.0

    def new_budget(self) -> SequenceBudget:
        """The estimates of a sequence of which nothing was seen."""
        return SequenceBudget(self._priors, self._adaptation)

    def round_cost(self, num_asked: int) -> DraftCost:
        """What drafts cost in the next round, passes for the sequences that ask included; once a round."""
        num_sequences = max(1, num_asked, self._num_decoding)
        if self._pass_cost is None:
            return self._cost.at(num_sequences)
        token_s = self._pass_cost.seconds(num_asked * self._rows_per_sequence)
        cost = replace(self._cost, token_s=token_s).at(num_sequences)
        self._saved_s = min(self._saved_s + PROBE_COST_RATIO * cost.round_s(0), _MOST_SAVED_S)
        return cost

    def length(self, state: PaceState, want: Wanted, cost: DraftCost, num_unread: int) -> int:
        """Tokens to draft for a sequence, in a tree on its longest path; 0 for none.

        Args:
            state: of the sequence.
            want: the sequence.
            cost: from `round_cost`.
            num_unread: rows that the model must read before it can draft, but for the last one.
        """
        if state.is_too_long or state.cut.skips():
            return 0
        max_tokens = min(want.max_tokens, self._max_draft_tokens)
        survival = self._survival(state.budget, max_tokens)
        if self._pass_cost is None:
            return state.budget.num_draft_tokens(_ONLY_CLASS, max_tokens, cost, survival=survival)
        unread_s = max(0, num_unread) * self._row_s(self._pass_cost)
        rounds_left = (want.sequence.request.sampling.max_tokens - want.sequence.num_output_tokens) / _TOKENS_PER_ROUND
        extra_s = cost.num_sequences * unread_s / max(1.0, rounds_left)
        return draft_length(survival, cost, extra_s=extra_s) or self._probe(unread_s, max_tokens, cost)

    def draft(self, state: PaceState, token_ids: Seq[int]) -> Draft:
        """What was drafted, with confidences."""
        confidences = state.budget.confidences(_ONLY_CLASS, len(token_ids))
        return Draft(token_ids=tuple(token_ids), source=self._source, confidences=confidences)

    def promise(self, state: PaceState | None, want: Wanted) -> float:
        """Tokens of a draft that are likely to be accepted, if the sequence got one in the next round.

        Args:
            state: of the sequence; None when it is new.
            want: the sequence.
        """
        if state is not None and state.is_too_long:
            return 0.0
        budget = state.budget if state is not None else self.new_budget()
        return sum(self._survival(budget, min(want.max_tokens, self._max_draft_tokens)))

    def begin_round(self, items: Seq[ScheduledSequence], states: Mapping[str, PaceState]) -> None:
        """Note how many sequences decode, and whose drafts were not worth verifying."""
        self._num_decoding = sum(item.samples for item in items)
        for item in items:
            state = states.get(item.sequence.request_id)
            if state is not None and state.cut.is_offered:
                state.cut.note_round(is_verified=bool(item.draft_token_ids))

    def observe(self, state: PaceState | None, draft: Draft, path: Seq[int]) -> None:
        """Fit a sequence's draft lengths to the verdict; drafts of others say nothing about this model.

        Args:
            state: of the sequence.
            draft: what was verified.
            path: indices of its tokens that were accepted.
        """
        if state is None or draft.source != self._source or not draft.token_ids:
            return
        num_tried, num_accepted = token_tree.num_tried(len(draft.token_ids), draft.parents, path), len(path)
        guesses = state.budget.confidences(_ONLY_CLASS, num_tried)
        self._acceptance.observe(self._source, guesses, num_tried, num_accepted)
        state.budget.observe(_ONLY_CLASS, num_tried, num_accepted)

    def chance(self, level: int, confidence: float) -> float:
        """Chance that a token is accepted once those before it were: the model's own, corrected by earlier verdicts."""
        return self._tokens.chance(self._source, level, confidence)

    def observe_chances(self, confidences: Seq[float], parents: tuple[int, ...], path: Seq[int]) -> None:
        """Learn what the model's own chances of single tokens are worth, from one of its drafts.

        Args:
            confidences: as `chance` was given them.
            parents: of what was verified.
            path: indices of the tokens that were accepted.
        """
        self._tokens.observe_nodes(self._source, confidences, parents, path)

    def time_pass(self, num_rows: int, seconds: float) -> None:
        """Learn from one of the model's passes, one that drafted."""
        if self._pass_cost is not None:
            self._pass_cost.observe(num_rows, seconds)

    def _probe(self, unread_s: float, max_tokens: int, cost: DraftCost) -> int:
        """Tokens of a draft that does not pay, once enough time was saved up for it; else 0."""
        probe_s = unread_s + PROBE_TOKENS * cost.token_s
        if self._saved_s < probe_s:
            return 0
        self._saved_s -= probe_s
        return min(PROBE_TOKENS, max_tokens)

    def _survival(self, budget: SequenceBudget, num_tokens: int) -> list[float]:
        """Chances of a draft's tokens as the budget of the round will see them: corrected by earlier verdicts."""
        return self._acceptance.survival(self._source, budget.confidences(_ONLY_CLASS, num_tokens))

    @staticmethod
    def _row_s(pass_cost: PassCost) -> float:
        """Seconds to read a row."""
        few, many = _WIDE_ROWS
        return (pass_cost.seconds(many) - pass_cost.seconds(few)) / (many - few)
