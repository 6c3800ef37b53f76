"""How far and how wide to draft ahead of a verdict: draft length K, and guesses of the next token for each outcome.

While a verifier checks n draft tokens, k = 0..n of them may turn out accepted, and then the target draws a token x. A
table that holds (k, x) is a hit. With F guesses of x the chance to miss it is about (1 + F)^-r, after Saguaro's law
(arXiv 2603.03251), shifted so that no guess is a sure miss. Giving each next guess to the outcome where it gains most
makes 1 + F_k proportional to a^(k / (1 + r)), times (1 - a)^(-1 / (1 + r)) for k = n: that paper's geometric fan-out,
in whole guesses, and for any number of sequences with different acceptance a at once.

r is a constant. The order of guesses depends on it only through the exponent 1 / (1 + r), so an estimate could gain
little, while it would have to remember every table that was sent until its verdict.

Pure; no torch.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.engine.drafters.step_cost import PassCost

MISS_EXPONENT = 0.75
"""r: four guesses then hit in 0.70 of the cases, as measured at temperatures 0 to 1 (DESIGN section 7)."""

MIN_ACCEPTANCE, MAX_ACCEPTANCE = 0.05, 0.98
"""Estimates are kept inside: at the ends an outcome would never get a guess again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A sequence of a round that wants drafts.

    Attributes:
        num_tokens: draft tokens wanted for each outcome, >= 1.
        num_in_flight: draft tokens that are being verified, n.
        acceptance: chance that a draft token is accepted after those before it, 0..1.
        num_trunk_rows: rows to compute before its outcomes can be ranked.
    """

    num_tokens: int
    num_in_flight: int
    acceptance: float
    num_trunk_rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut:
    """What to draft for one sequence.

    Attributes:
        num_tokens: draft tokens for each outcome, K; 0 without guesses.
        guesses: guesses of the next token for k = 0..n accepted tokens.
    """

    num_tokens: int
    guesses: tuple[int, ...]

    @property
    def num_branches(self) -> int:
        """All guesses: the rows of each pass once the trunk is done."""
        return sum(self.guesses)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLimits:
    """What bounds a plan besides time.

    Attributes:
        max_rows: most rows of one pass, all verifiers together.
        max_fan_out: most guesses of one outcome.
        max_guesses: most guesses of the plan: what memory is there for.
        other_rows: rows that each other verifier takes up in a pass now; 0 or absent when it takes none.
    """

    max_rows: int
    max_fan_out: int
    max_guesses: int
    other_rows: tuple[int, ...] = ()


def outcome_chances(acceptance: float, num_in_flight: int) -> tuple[float, ...]:
    """Chance that exactly k = 0..n draft tokens are accepted; they sum to 1."""
    chances = [acceptance**k * (1.0 - acceptance) for k in range(num_in_flight)]
    return (*chances, acceptance**num_in_flight)


def hit_chance(num_guesses: int) -> float:
    """Chance that the token is among the likeliest `num_guesses`."""
    return 1.0 - float((1 + num_guesses) ** -MISS_EXPONENT)


def expected_gain(acceptance: float, num_tokens: int) -> float:
    """Draft tokens that a draft of `num_tokens` gets accepted on average."""
    return sum(acceptance**i for i in range(1, num_tokens + 1))


def fair_share(capacity: int, other_rows: Iterable[int]) -> int:
    """The part of `capacity` for one more that takes all it can get: equal parts, and what others leave of theirs."""
    remaining = capacity
    taken = sorted(rows for rows in other_rows if rows > 0)
    num_sharing = len(taken) + 1
    for rows in taken:
        if rows * num_sharing > remaining:
            break
        remaining -= rows
        num_sharing -= 1
    return remaining // num_sharing


def plan(wants: Sequence[Want], *, time_s: float, cost: PassCost, limits: RowLimits) -> tuple[FanOut, ...]:
    """Fit drafts of one verifier's round into the time until its verdict.

    One pass computes the trunks, then each draft token takes a pass over all branches. The draft length is the one
    whose tables are worth most: chance of a hit, times draft tokens accepted after it. As long as
    memory allows there are as many guesses as sequences, of one token each: where not even that is in time, less could
    not be done.

    Args:
        wants: the sequences, likely with different acceptance.
        time_s: seconds until the verdict, a safety margin taken off.
        cost: of a pass.
        limits: on rows.

    Returns:
        One entry per want.
    """
    if not wants:
        return ()
    wants = [_clamped(want) for want in wants]
    max_guesses = min(limits.max_rows, limits.max_guesses)
    order = _guesses_by_gain(wants, max_guesses=max_guesses, max_fan_out=limits.max_fan_out)
    best_value, best_length, best_rows = -1.0, 1, 0
    for length in range(1, max(want.num_tokens for want in wants) + 1):
        num_rows = fair_share(_pass_rows(wants, length, time_s, cost, limits), limits.other_rows)
        if length == 1:
            num_rows = max(num_rows, len(wants))
        value = _value(wants, order[:num_rows], length)
        if value > best_value:
            best_value, best_length, best_rows = value, length, num_rows
    return _spread(wants, order[:best_rows], best_length)


def _pass_rows(wants: Sequence[Want], length: int, time_s: float, cost: PassCost, limits: RowLimits) -> int:
    """Rows that a pass may have, all verifiers together, when the trunks and `length` draft tokens are to be in time.

    Work of others joins the pass of the trunks, too, unless that makes it longer than the passes after it: then some of
    it will have to wait.
    """
    trunk_rows = sum(want.num_trunk_rows for want in wants)

    def beside_trunk(num_rows: int) -> int:
        return cost.rows_within((time_s - cost.seconds(num_rows)) / length, limits.max_rows)

    in_equal_passes = cost.rows_within(time_s / (1 + length), limits.max_rows)
    if in_equal_passes < trunk_rows:
        return beside_trunk(trunk_rows)
    return max(in_equal_passes, beside_trunk(trunk_rows + sum(limits.other_rows)))


@dataclass(frozen=True, slots=True)
class _Guess:
    """One more guess for one outcome of one sequence, and the chance of a hit that it adds."""

    sequence: int
    num_accepted: int
    added_chance: float


def _clamped(want: Want) -> Want:
    return Want(
        num_tokens=want.num_tokens,
        num_in_flight=want.num_in_flight,
        acceptance=min(max(want.acceptance, MIN_ACCEPTANCE), MAX_ACCEPTANCE),
        num_trunk_rows=want.num_trunk_rows,
    )


def _guesses_by_gain(wants: Sequence[Want], *, max_guesses: int, max_fan_out: int) -> list[_Guess]:
    """The best guesses of all sequences, best first, so that any budget is well spent by a prefix of them."""
    heap: list[tuple[float, int, int, int]] = []
    chances = [outcome_chances(want.acceptance, want.num_in_flight) for want in wants]
    gains = [expected_gain(want.acceptance, want.num_tokens) for want in wants]
    for sequence, of_sequence in enumerate(chances):
        for k, chance in enumerate(of_sequence):
            heap.append((-chance * hit_chance(1) * gains[sequence], sequence, k, 0))
    heapq.heapify(heap)
    order: list[_Guess] = []
    while heap and len(order) < max_guesses:
        _, sequence, k, num = heapq.heappop(heap)
        chance = chances[sequence][k]
        order.append(_Guess(sequence, k, chance * (hit_chance(num + 1) - hit_chance(num))))
        if num + 1 < max_fan_out:
            next_chance = chance * (hit_chance(num + 2) - hit_chance(num + 1))
            heapq.heappush(heap, (-next_chance * gains[sequence], sequence, k, num + 1))
    return order


def _value(wants: Sequence[Want], guesses: Sequence[_Guess], length: int) -> float:
    gains = [expected_gain(want.acceptance, min(length, want.num_tokens)) for want in wants]
    return sum(guess.added_chance * gains[guess.sequence] for guess in guesses)


def _spread(wants: Sequence[Want], guesses: Sequence[_Guess], length: int) -> tuple[FanOut, ...]:
    counts = [[0] * (want.num_in_flight + 1) for want in wants]
    for guess in guesses:
        counts[guess.sequence][guess.num_accepted] += 1
    return tuple(
        FanOut(num_tokens=min(length, want.num_tokens) if any(of_sequence) else 0, guesses=tuple(of_sequence))
        for want, of_sequence in zip(wants, counts, strict=True)
    )
