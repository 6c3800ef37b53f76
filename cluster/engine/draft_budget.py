"""The budget of one engine: what it remembers between rounds, and the static limits that stay available beside it."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cluster.engine.budget import Floats, RoundLoad, draft_lengths
from cluster.engine.step_time import StepTimeModel

PROBE_TOKENS = 2
PROBE_COST_RATIO = 0.005
"""Share of the time that goes into verifying drafts that do not pay, to learn when they would."""

_MOST_SAVED_RATIO = 0.5
"""Of a round, set aside for probes: a dear one must be possible too."""

SWITCH_GAIN = 1.01
"""Drafts that were not worth it in the last round must promise this much more than none to be taken up again."""


class DraftLimit(StrEnum):
    """Why a sequence that could have drafted did not, or was cut to nothing.

    - budget: its tokens cost more than they bring.
    - batch: more sequences decode than `max_draft_sequences`.
    - context: it is longer than `max_draft_context`.
    - acceptance: its drafts were accepted less than `min_acceptance_rate`.
    """

    BUDGET = "budget"
    BATCH = "batch"
    CONTEXT = "context"
    ACCEPTANCE = "acceptance"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticLimits:
    """Limits that an operator may set; 0 is none.

    Attributes:
        max_sequences: nobody drafts while more than this decode.
        max_context: sequences of more tokens do not draft.
        min_acceptance_rate: a sequence whose recent drafts were accepted less does not draft, but for probes, 0..1.
    """

    max_sequences: int = 0
    max_context: int = 0
    min_acceptance_rate: float = 0.0


class DraftBudget:
    """Cuts a round's drafts to what pays.

    Args:
        model: times of rounds, refitted elsewhere.
        round_cost_ratio: what any draft at all adds, as a share of the round.

    Attributes:
        is_worth_it: the last round had drafts that pay, not just a probe.
        num_cut: drafts that were cut to nothing, by reason; for the caller to read and clear.
    """

    def __init__(self, model: StepTimeModel, *, round_cost_ratio: float = 0.02) -> None:
        self._model, self._round_cost_ratio = model, round_cost_ratio
        self.is_worth_it = True
        self._saved_s = 0.0
        self._num_probes = 0
        self.num_cut: Counter[DraftLimit] = Counter()

    def save_up(self, load: RoundLoad) -> None:
        """Set aside a round's share of the time for a draft that does not pay; enough for one is kept."""
        plain_s = self._model.times.seconds(load.num_sequences, load.num_context_tokens)
        self._saved_s = min(self._saved_s + PROBE_COST_RATIO * plain_s, _MOST_SAVED_RATIO * plain_s)

    def lengths(self, survival_RK: Floats, load: RoundLoad) -> list[int]:
        """How many tokens of each draft to verify.

        Args:
            survival_RK: for each draft, chance that its token i is accepted; never rises with i, 0 behind its end.
            load: the round.
        """
        gain = 1.0 if self.is_worth_it else SWITCH_GAIN
        lengths: list[int] = draft_lengths(
            survival_RK, self._model.times, load, round_cost_ratio=self._round_cost_ratio, gain=gain
        ).tolist()
        self.is_worth_it = any(lengths)
        cut = [index for index, length in enumerate(lengths) if length == 0]
        if cut:
            self._probe(cut, lengths, survival_RK, load)
            self.num_cut[DraftLimit.BUDGET] += sum(lengths[index] == 0 for index in cut)
        return lengths

    def _probe(self, cut: list[int], lengths: list[int], survival_RK: Floats, load: RoundLoad) -> None:
        """Let one draft through that does not pay, each time that enough time was saved up for it; in turn."""
        times, num_rows = self._model.times, load.num_sequences + load.num_prompt_rows + sum(lengths)
        plain_s = times.seconds(num_rows, load.num_context_tokens, num_sequences=load.num_sequences)
        probed_s = times.seconds(num_rows + PROBE_TOKENS, load.num_context_tokens, num_sequences=load.num_sequences)
        cost_s = probed_s - plain_s + (0.0 if any(lengths) else self._round_cost_ratio * plain_s)
        if self._saved_s >= cost_s:
            self._saved_s -= cost_s
            self._num_probes += 1
            index = cut[self._num_probes % len(cut)]
            lengths[index] = min(PROBE_TOKENS, int(np.count_nonzero(survival_RK[index])))
