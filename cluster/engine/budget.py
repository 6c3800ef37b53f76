"""How many draft tokens a round should verify, and whose: measured time against expected tokens. Pure.

A draft row is nearly free while a pass is bound by reading weights, and costs its full share once it is bound by
arithmetic. So the drafts of all sequences are ranked by their chance to survive, and as many are verified as bring the
most expected tokens per second; none where plain decoding brings more. After TurboSpec (arXiv 2406.14066) and DSpark
(arXiv 2607.05147), with the measured time of the round in place of a threshold. The cut may depend on the drafted
tokens: under coupled acceptance no choice of drafts can change the text, and under the other rules only drafts that are
fixed functions of the committed tokens come here.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, zip_longest

import numpy as np
from numpy.typing import NDArray

from cluster.engine.step_time import StepTimeModel, StepTimes

_KNOWN_LENGTHS = 9

Floats = NDArray[np.float64]

_UNMEASURED = StepTimes(knots=((1, 1.0), (2, 1.02)))
"""Where nothing was measured: 8 rows take 1.15 times the time of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCost:
    """What drafts add to the time of a round in which all sequences draft alike.

    Attributes:
        model: times of rounds, as they are known now.
        round_cost_ratio: for drafts of any length (looking up, accepting, rolling back), as a share of the round.
        token_s: seconds for each token of the longest draft, once for all sequences: a step of a local draft model.
        num_sequences: sequences that decode now.
        known_s: `round_s` of the first lengths, worked out once for all sequences of a round.
    """

    model: StepTimeModel = field(default_factory=lambda: StepTimeModel(assumed=_UNMEASURED))
    round_cost_ratio: float = 0.02
    token_s: float = 0.0
    num_sequences: int = 1
    known_s: tuple[float, ...] = ()

    @classmethod
    def of(cls, *knots: tuple[int, float]) -> "DraftCost":
        """The cost where passes take so many seconds by their rows."""
        return cls(model=StepTimeModel(assumed=StepTimes(knots=knots)))

    @classmethod
    def free(cls) -> "DraftCost":
        """No cost at all: drafts are as long as allowed."""
        return replace(cls.of((1, 1.0)), round_cost_ratio=0.0)

    def at(self, num_sequences: int) -> "DraftCost":
        """The cost while so many sequences decode, at least 1."""
        here = replace(self, num_sequences=num_sequences, known_s=())
        return replace(here, known_s=tuple(here.round_s(length) for length in range(_KNOWN_LENGTHS)))

    def round_s(self, num_tokens: int) -> float:
        """Seconds of a round in which each sequence drafts so many tokens."""
        if num_tokens < len(self.known_s):
            return self.known_s[num_tokens]
        n, times = self.num_sequences, self.model.times
        seconds = times.seconds(n * (1 + num_tokens), num_sequences=n) + num_tokens * self.token_s
        return seconds + self.round_cost_ratio * times.seconds(n) if num_tokens else seconds


def draft_length(survival: Seq[float], cost: DraftCost, *, extra_s: float = 0.0) -> int:
    """The number of draft tokens with the most expected tokens per second; 0 when plain decoding has more.

    Args:
        survival: chance that draft token i is accepted; never rises with i.
        cost: what drafts cost now.
        extra_s: what drafts of any length cost besides, for all sequences together.
    """
    best_length, best_rate = 0, 1.0 / cost.round_s(0)
    expected = 1.0
    for length, chance in enumerate(survival, start=1):
        expected += chance
        rate = expected / (cost.round_s(length) + extra_s)
        if rate > best_rate:
            best_length, best_rate = length, rate
    return best_length


def expected_tokens(acceptance_rate: float, num_tokens: int) -> float:
    """Tokens of a round with a draft: 1 + a + a**2 + ..., the target's own token included.

    Args:
        acceptance_rate: chance that a draft token is accepted after those before it, 0..1.
        num_tokens: of the draft.
    """
    return float(sum(acceptance_rate**position for position in range(num_tokens + 1)))


def uniform_length(
    acceptance_rate: float,
    times: StepTimes,
    *,
    num_sequences: int,
    max_tokens: int,
    num_context_tokens: float = 0.0,
) -> tuple[int, float]:
    """The best common draft length of sequences that are all alike.

    Args:
        acceptance_rate: chance that a draft token is accepted after those before it, 0..1.
        times: of rounds.
        num_sequences: that decode, at least 1.
        max_tokens: longest draft.
        num_context_tokens: KV entries that they hold, summed.

    Returns:
        The length, 0 where plain decoding brings more, and tokens per second of all sequences together.
    """

    def rate(length: int) -> float:
        rows = num_sequences * (1 + length)
        seconds = times.seconds(rows, num_context_tokens, num_sequences=num_sequences)
        return num_sequences * expected_tokens(acceptance_rate, length) / seconds

    best = max(range(max_tokens + 1), key=rate)
    return best, rate(best)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLoad:
    """The round that drafts would join.

    Attributes:
        num_sequences: that decode, with or without a draft.
        num_prompt_rows: of prompts that are computed in the same pass.
        num_context_tokens: KV entries that the decoding sequences hold, summed.
    """

    num_sequences: int
    num_prompt_rows: int = 0
    num_context_tokens: int = 0


def draft_lengths(
    survival_RK: Floats,
    times: StepTimes,
    load: RoundLoad,
    *,
    round_cost_ratio: float = 0.0,
    gain: float = 1.0,
) -> NDArray[np.int64]:
    """How many tokens of each draft to verify: those of all drafts together with the most expected tokens per second.

    Args:
        survival_RK: for each of R drafts, chance that its token i is accepted; never rises with i, 0 behind its end.
        times: of rounds.
        load: the round.
        round_cost_ratio: what any draft at all adds, as a share of the round.
        gain: how many times more tokens per second drafts must promise than no drafts; else none is taken.

    Returns:
        A length for each draft, 0 to K, [R].
    """
    num_drafts, longest = survival_RK.shape
    flat = survival_RK.ravel()
    # Among equal chances any order will do: only how many are taken of each draft counts.
    order = np.argsort(-flat)
    tokens = load.num_sequences + np.cumsum(flat[order])
    plain_s, seconds = _seconds(times, load, len(flat))
    rates = tokens / (seconds + round_cost_ratio * plain_s)
    best = int(np.argmax(rates)) if len(flat) else 0
    if not len(flat) or rates[best] <= gain * load.num_sequences / plain_s:
        return np.zeros(num_drafts, np.int64)
    return np.bincount(order[: best + 1] // longest, minlength=num_drafts)


def padded(rows: Seq[Seq[float]]) -> Floats:
    """Rows of different lengths as a matrix, 0 behind their ends."""
    longest = max(map(len, rows), default=0)
    columns = zip_longest(*rows, fillvalue=0.0)
    return np.fromiter(chain.from_iterable(columns), np.float64, longest * len(rows)).reshape(longest, len(rows)).T


def _seconds(times: StepTimes, load: RoundLoad, num_tokens: int) -> tuple[float, Floats]:
    """Time of the round without drafts, and with 1, 2, ... `num_tokens` draft rows.

    The time of prompts in the same pass is left out: it is spent anyway, and would make drafts look cheap. That drafts
    come on top of them, where rows are dear, is counted.
    """
    rows, seconds = _knots(times)
    num_rows = load.num_sequences + load.num_prompt_rows
    pass_s = np.interp(np.arange(num_rows, num_rows + num_tokens + 1), rows, seconds)
    plain_s = times.seconds(load.num_sequences, load.num_context_tokens)
    taken_s = plain_s + pass_s - pass_s[0] + times.draft_row_s * np.arange(num_tokens + 1)
    return plain_s, taken_s[1:]


@lru_cache(maxsize=8)
def _knots(times: StepTimes) -> tuple[Floats, Floats]:
    """Rows and seconds of a table, going on as straight as `StepTimes` does."""
    far = 1 << 20
    knots = (*times.knots, (far, times.forward_s(far)))
    return np.array([rows for rows, _ in knots], float), np.array([seconds for _, seconds in knots])
