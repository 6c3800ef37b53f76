"""How fast the sequences of a replica grow: the production budget's draft lengths, priced by a cost model.

Draft lengths are kept by composition of the batch (counts rounded to two significant bits where the batch is large),
context and prompt rows (to powers of two); the time of a round is then computed from the exact numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from autoscaling.simulation.cost import CostModel
from autoscaling.simulation.workload import TrafficClass
from cluster.engine.budget import RoundLoad, draft_lengths
from cluster.types import Role

_EXACT_COUNT = 8
"""Compositions of batches up to this size are told apart exactly."""

_MAX_ENTRIES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """How a replica of role speculative decides how much to draft. Role batch never drafts.

    Attributes:
        mode: by the production budget, a fixed number, or never.
        num_speculative_tokens: K, the longest draft or the fixed one.
        guard: with a fixed K, no drafts from so many sequences on; 0 for no guard.
    """

    mode: Literal["measured", "fixed", "off"] = "measured"
    num_speculative_tokens: int = 5
    guard: int = 0


class Flow(NamedTuple):
    """What happens in each round while nothing changes. A tuple, since there are millions of them.

    Attributes:
        round_s: its time.
        num_rows: of its pass.
        tokens: output of one sequence, by class.
        drafted: draft tokens of one sequence, by class.
    """

    round_s: float
    num_rows: float
    tokens: tuple[float, ...]
    drafted: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lengths:
    """Means over the sequences of each class, and the longest draft of all."""

    tokens: tuple[float, ...]
    drafted: tuple[float, ...]
    longest: int


class RateBook:
    """Flows of all replicas of one kind.

    The last class of every composition are sequences that must not draft, whatever their text.

    Args:
        cost: times and prices.
        classes: of the traffic.
        drafting: of role speculative.
    """

    def __init__(self, cost: CostModel, classes: Sequence[TrafficClass], drafting: Drafting) -> None:
        self._cost, self._drafting = cost, drafting
        self._survival_CK = np.array([each.survivals(drafting.num_speculative_tokens) for each in classes])
        self._draft_ratios = [each.draft_ratio for each in classes]
        num_classes = len(classes) + 1
        self._plain = _Lengths(tokens=(1.0,) * num_classes, drafted=(0.0,) * num_classes, longest=0)
        self._lengths: dict[tuple[int, ...], _Lengths] = {}

    @property
    def num_classes(self) -> int:
        """Traffic classes and the one of sequences that must not draft."""
        return len(self._draft_ratios) + 1

    def flow(self, role: Role, counts: Sequence[int], num_context_tokens: float, num_prompt_rows: int) -> Flow:
        """What happens in a round.

        Args:
            role: of the replica.
            counts: decoding sequences by class.
            num_context_tokens: KV entries that they hold, summed.
            num_prompt_rows: prompt tokens that the pass computes as well.
        """
        num_sequences = sum(counts)
        num_drafting = num_sequences - counts[-1]
        lengths = self._plain
        if role is Role.SPECULATIVE and num_drafting:
            lengths = self._speculative(counts, num_sequences, num_context_tokens, num_prompt_rows)
        times, num_drafts, outside_s = self._cost.times, 0.0, 0.0
        if lengths.longest:
            for count, each in zip(counts, lengths.drafted, strict=True):
                num_drafts += count * each
            outside_s = times.draft_row_s * num_drafts + self._cost.draft_s(num_drafting, lengths.longest)
        num_rows = num_sequences + num_drafts + num_prompt_rows
        round_s = times.forward_s(num_rows, num_context_tokens) + times.sequence_s * num_sequences + outside_s
        return Flow(round_s, num_rows, lengths.tokens, lengths.drafted)

    def _speculative(
        self, counts: Sequence[int], num_sequences: int, num_context_tokens: float, num_prompt_rows: int
    ) -> _Lengths:
        drafting = self._drafting
        if drafting.mode == "off" or (drafting.guard and num_sequences >= drafting.guard):
            return self._plain
        if num_sequences > _EXACT_COUNT:
            counts = [_rounded(count) for count in counts]
        key = (*counts, _power_of_two(int(num_context_tokens)), _power_of_two(num_prompt_rows))
        lengths = self._lengths.get(key)
        if lengths is None:
            if len(self._lengths) >= _MAX_ENTRIES:
                self._lengths.clear()
            lengths = self._lengths[key] = self._decide(counts, key[-2], key[-1])
        return lengths

    def _decide(self, counts: Sequence[int], num_context_tokens: int, num_prompt_rows: int) -> _Lengths:
        drafting = [
            math.ceil(count * ratio) for count, ratio in zip(counts[:-1], self._draft_ratios, strict=True)
        ]  # sequences with a draft, on average
        if self._drafting.mode == "fixed":
            chosen = [self._drafting.num_speculative_tokens] * sum(drafting)
        else:
            load = RoundLoad(
                num_sequences=sum(counts), num_prompt_rows=num_prompt_rows, num_context_tokens=num_context_tokens
            )
            chosen = self._best(drafting, load)
        tokens, drafted, begin = [], [], 0
        for survivals, ratio, count in zip(self._survival_CK.tolist(), self._draft_ratios, drafting, strict=True):
            part = chosen[begin : begin + count]
            begin += count
            kept = sum(sum(survivals[:length]) for length in part)
            tokens.append(1.0 + ratio * kept / count if count else 1.0)
            drafted.append(ratio * sum(part) / count if count else 0.0)
        return _Lengths(tokens=(*tokens, 1.0), drafted=(*drafted, 0.0), longest=max(chosen, default=0))

    def _best(self, drafting: Sequence[int], load: RoundLoad) -> list[int]:
        """The budget's lengths, for the longest draft that pays for its making.

        A draft model runs before the budget knows what to verify, one pass for each token of the longest draft.
        """
        survival_RK = np.repeat(self._survival_CK, drafting, axis=0)
        num_drafting = len(survival_RK)
        longest = self._drafting.num_speculative_tokens
        if self._cost.draft_times is None:
            return [int(each) for each in draft_lengths(survival_RK, self._cost.times, load)]
        best = [0] * num_drafting
        best_rate = self._rate(0, 0.0, load, 0.0)
        for length in range(1, longest + 1):
            lengths = draft_lengths(survival_RK[:, :length], self._cost.times, load)
            kept = float(survival_RK[np.arange(longest) < lengths[:, None]].sum())
            rate = self._rate(int(lengths.sum()), kept, load, self._cost.draft_s(num_drafting, length))
            if rate > best_rate:
                best, best_rate = [int(each) for each in lengths], rate
        return best

    def _rate(self, num_drafts: int, kept: float, load: RoundLoad, draft_s: float) -> float:
        """Tokens per second when so many draft tokens are verified and `kept` of them are expected to stay."""
        times = self._cost.times
        num_rows = load.num_sequences + load.num_prompt_rows + num_drafts
        outside_s = times.sequence_s * load.num_sequences + times.draft_row_s * num_drafts + draft_s
        return (load.num_sequences + kept) / (times.forward_s(num_rows, load.num_context_tokens) + outside_s)


def _rounded(count: int) -> int:
    """The nearest number with two significant bits; small numbers as they are."""
    if count < 4:
        return count
    unit = 1 << (count.bit_length() - 2)
    return (count + unit // 2) // unit * unit


def _power_of_two(count: int) -> int:
    """The nearest one, on a logarithmic scale; 0 stays."""
    return 1 << (count * count // 2).bit_length() // 2 if count else 0
