"""One replica by its load, as the cost model has it: where a fixed K stops paying, and what the budget does instead."""

from collections.abc import Callable
from dataclasses import dataclass

from autoscaling.simulation.cost import CostModel
from cluster.engine.budget import expected_tokens, uniform_length

MAX_SEQUENCES = 4096
CONTEXT_TOKENS = 1000
"""KV entries of a sequence in these comparisons."""

ALPHAS = (0.5, 0.65, 0.78, 0.85)
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """One replica by its load.

    Attributes:
        speed_up: of a fixed K over plain decoding: (sequences, ratio), by the name of the acceptance rate.
        budget_lengths: draft length that the production budget chooses: (sequences, K), by the same names.
        tpot_s: time per token: (sequences, seconds), by kind of decoding.
        tokens_per_s: output: (sequences, tokens per second), by kind of decoding.
    """

    speed_up: dict[str, list[tuple[float, float]]]
    budget_lengths: dict[str, list[tuple[float, float]]]
    tpot_s: dict[str, list[tuple[float, float]]]
    tokens_per_s: dict[str, list[tuple[float, float]]]


def fixed_rate(cost: CostModel, alpha: float, num_tokens: int, num_sequences: int) -> float:
    """Tokens per second of equal sequences that each draft so many tokens."""
    rows = num_sequences * (1 + num_tokens)
    times = cost.times_at(num_sequences)
    seconds = times.seconds(rows, num_sequences * CONTEXT_TOKENS, num_sequences=num_sequences)
    return num_sequences * expected_tokens(alpha, num_tokens) / seconds


def inversion_point(cost: CostModel, alpha: float, num_tokens: int) -> int | None:
    """The fewest sequences at which a fixed K brings fewer tokens per second than none; None where it always pays."""
    low, high = 0, MAX_SEQUENCES
    if not _loses(cost, alpha, num_tokens, high):
        return None
    while high - low > 1:  # losing is monotone: rows only become dearer
        middle = (low + high) // 2
        low, high = (low, middle) if _loses(cost, alpha, num_tokens, middle) else (middle, high)
    return high


def alpha_for(cost: CostModel, num_tokens: int, speed_up: float) -> float | None:
    """Acceptance at which one sequence is so many times faster; None where not even 1 is enough."""

    def gain(alpha: float) -> float:
        return fixed_rate(cost, alpha, num_tokens, 1) / fixed_rate(cost, 0.0, 0, 1)

    return None if gain(1.0) < speed_up else least_alpha(lambda alpha: gain(alpha) >= speed_up)


def least_alpha(holds: Callable[[float], bool]) -> float:
    """The least acceptance for which something holds, which holds for all above it as well."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def curves(cost: CostModel, num_tokens: int) -> Curves:
    """What the pictures show."""
    names = {alpha: f"alpha {alpha:g}" for alpha in ALPHAS}
    rates: dict[str, Callable[[int], float]] = {
        "plain": lambda count: fixed_rate(cost, 0.0, 0, count),
        f"fixed K = {num_tokens}, alpha 0.65": lambda count: fixed_rate(cost, 0.65, num_tokens, count),
        "budget, alpha 0.65": lambda count: budget_choice(cost, 0.65, num_tokens, count)[1],
    }
    return Curves(
        speed_up={
            name: [(n, fixed_rate(cost, alpha, num_tokens, n) / fixed_rate(cost, 0.0, 0, n)) for n in CONCURRENCIES]
            for alpha, name in names.items()
        },
        budget_lengths={
            name: [(n, float(budget_choice(cost, alpha, num_tokens, n)[0])) for n in CONCURRENCIES]
            for alpha, name in names.items()
        },
        tpot_s={name: [(n, n / rate(n)) for n in CONCURRENCIES] for name, rate in rates.items()},
        tokens_per_s={name: [(n, rate(n)) for n in CONCURRENCIES] for name, rate in rates.items()},
    )


def budget_choice(cost: CostModel, alpha: float, num_tokens: int, num_sequences: int) -> tuple[int, float]:
    """What the production budget chooses for equal sequences: draft length and tokens per second."""
    return uniform_length(
        alpha,
        cost.times_at(num_sequences),
        num_sequences=num_sequences,
        max_tokens=num_tokens,
        num_context_tokens=num_sequences * CONTEXT_TOKENS,
    )


def cost_within(cost: CostModel, tpot_s: float, rate: Callable[[int], float]) -> tuple[float, int] | None:
    """Dollars per million tokens at the most sequences within a time per token; None where one is too slow already."""
    fitting = [count for count in range(1, 513) if count / rate(count) <= tpot_s]
    if not fitting:
        return None
    best = max(fitting, key=rate)
    return cost.price_per_hour / 3600 / rate(best) * 1e6, best


def _loses(cost: CostModel, alpha: float, num_tokens: int, num_sequences: int) -> bool:
    return fixed_rate(cost, alpha, num_tokens, num_sequences) < fixed_rate(cost, 0.0, 0, num_sequences)
