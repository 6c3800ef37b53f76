"""How good a split of the replicas would be, and which one to aim for.

A split is judged in this order:

1. Latency objectives of interactive work: the sequences that would probably miss TTFT or TPOT.
2. Output tokens per second over all replicas. Their number is given, so this is tokens per GPU-second.
3. Where nothing is lost, more speculative replicas: they answer the next burst sooner (`HEADROOM`).

What a pool would have to carry follows from the work that is there now, wherever it is, since the work of a pool moves
with new arrivals. Interactive work is what the speculative pool has; bulk work is what the batch pool has.

- A speculative pool with free seats has got all that wants it, and would keep what finds a seat. A full one hides
  demand: as much as came when a larger one had free seats (`wanted_ratio`), or else all work might come. The rest goes
  to the batch pool, where it still counts as interactive.
- Work that waits for a speculative seat while the batch pool has free ones insists: it would wait after a move as well.
- With one pool empty, work would divide as it last did (`bulk_ratio`). While that is unknown, all of it counts as
  interactive, and would find its best place.

Measured latencies correct the prediction upwards: the time per token by its ratio to the predicted one (at most
twice), the time to the first token in proportion to the load of a replica, and only where the pool has no free seats.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from autoscaling.inversion import Rate, role_rate
from autoscaling.pool_config import PoolConfig
from autoscaling.pool_demand import Demand, PoolWork
from autoscaling.types import DecisionReason
from cluster.engine.step_time import StepTimes
from cluster.types import Role

MAX_CORRECTION = 2.0
EQUAL_RATIO = 0.99
"""A split with this share of another's tokens loses nothing against it."""

MAX_CANDIDATES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a split promises.

    Attributes:
        num_speculative: the split.
        num_missing: interactive sequences that would probably miss an objective.
        tokens_per_s: over all replicas.
        load_ratio: share of the speculative pool's seats in use, above 1 when sequences wait.
        tpot_s: predicted for the speculative pool; for the batch pool without one.
        ttft_s: the same for the time to the first token, without computing the prompt.
    """

    num_speculative: int
    num_missing: float
    tokens_per_s: float
    load_ratio: float
    tpot_s: float
    ttft_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """Work of one pool: sequences, of these interactive ones, and the replicas that would share it."""

    num_sequences: float
    num_interactive: float
    num_replicas: int


class SplitModel:
    """Predicts splits of the replicas that are there now.

    Args:
        config: seats and objectives.
        demand: the work.
        times: of a round.
        acceptance_rate: of drafts.
        bulk_ratio: share of the work that went to the batch pool while there were two; None while unknown.
        wanted_ratio: share of the work that came to a speculative pool with free seats; None while unknown.
    """

    def __init__(
        self,
        config: PoolConfig,
        demand: Demand,
        *,
        times: StepTimes,
        acceptance_rate: float,
        bulk_ratio: float | None = None,
        wanted_ratio: float | None = None,
    ) -> None:
        self._config, self._demand = config, demand
        self._times, self._acceptance_rate = times, acceptance_rate
        self._bulk_ratio, self._wanted_ratio = bulk_ratio, wanted_ratio
        self._rates: dict[tuple[Role, float], Rate] = {}
        self._corrections = {
            Role.SPECULATIVE: self._correction(Role.SPECULATIVE, demand.speculative),
            Role.BATCH: self._correction(Role.BATCH, demand.batch),
        }

    @property
    def num_interactive(self) -> float:
        """Sequences whose latency counts."""
        if self._demand.has_both_pools:
            return float(self._demand.speculative.num_sequences)
        return self._demand.num_sequences * (1 - (self._bulk_ratio or 0.0))

    def rate(self, role: Role, concurrency: float) -> Rate:
        """What one replica in this role delivers to so many sequences."""
        key = (role, concurrency)
        if key not in self._rates:
            self._rates[key] = role_rate(
                self._times,
                role,
                acceptance_rate=self._acceptance_rate,
                concurrency=concurrency,
                max_num_seqs=self._config.max_num_seqs(role),
                max_tokens=self._config.num_speculative_tokens,
                mean_context_tokens=self._demand.mean_context_tokens,
            )
        return self._rates[key]

    def score(self, num_speculative: int) -> Score:
        """What so many speculative replicas promise, the others being batch."""
        interactive, bulk = self._divide(num_speculative)
        speculative_s = self._latency(Role.SPECULATIVE, interactive)
        batch_s = self._latency(Role.BATCH, bulk)
        seats = num_speculative * self._config.speculative_max_num_seqs
        tpot_s, ttft_s = speculative_s if num_speculative else batch_s
        return Score(
            num_speculative=num_speculative,
            num_missing=self._missing(interactive, speculative_s) + self._missing(bulk, batch_s),
            tokens_per_s=self._tokens_per_s(Role.SPECULATIVE, interactive) + self._tokens_per_s(Role.BATCH, bulk),
            load_ratio=interactive.num_sequences / seats if seats else 0.0,
            tpot_s=tpot_s,
            ttft_s=ttft_s,
        )

    def _divide(self, num_speculative: int) -> tuple[_Share, _Share]:
        """The work of the speculative and of the batch pool."""
        total, interactive = float(self._demand.num_sequences), self.num_interactive
        num_batch = self._demand.num_replicas - num_speculative
        in_speculative = total
        if num_batch > 0:
            wanted, insists = self._wanted()
            seats = float(num_speculative * self._config.speculative_max_num_seqs)
            in_speculative = wanted if insists and num_speculative else min(wanted, seats)
        first = min(interactive, in_speculative)
        return (
            _Share(num_sequences=in_speculative, num_interactive=first, num_replicas=num_speculative),
            _Share(num_sequences=total - in_speculative, num_interactive=interactive - first, num_replicas=num_batch),
        )

    def _wanted(self) -> tuple[float, bool]:
        """Sequences that would come to a speculative pool beside a batch pool, and whether they would wait there."""
        total, pool, batch = float(self._demand.num_sequences), self._demand.speculative, self._demand.batch
        if not self._demand.has_both_pools:
            return (total, False) if self._bulk_ratio is None else (self.num_interactive, True)
        if pool.num_waiting and batch.num_sequences < batch.num_replicas * self._config.batch_max_num_seqs:
            return float(pool.num_sequences), True
        if not self._is_full():
            return float(pool.num_sequences), False
        hidden = total if self._wanted_ratio is None else self._wanted_ratio * total
        return max(hidden, float(pool.num_sequences)), False

    def _is_full(self) -> bool:
        return self._demand.speculative.is_full(self._config.speculative_max_num_seqs)

    def _tokens_per_s(self, role: Role, share: _Share) -> float:
        if not share.num_replicas:
            return 0.0
        return share.num_replicas * self.rate(role, share.num_sequences / share.num_replicas).tokens_per_s

    def _latency(self, role: Role, share: _Share) -> tuple[float, float]:
        """(time per output token, time to the first token)."""
        if not share.num_replicas:
            return 0.0, 0.0
        rate = self.rate(role, share.num_sequences / share.num_replicas)
        queue_s = rate.num_waiting * self._demand.tokens_per_sequence / rate.tokens_per_s if rate.num_waiting else 0.0
        measured_s = self._measured_ttft_s(share) if role is Role.SPECULATIVE else 0.0
        return rate.tpot_s * self._corrections[role], max(queue_s, measured_s)

    def _measured_ttft_s(self, share: _Share) -> float:
        """The time to the first token that was measured, at the load that the split would give a replica."""
        pool = self._demand.speculative
        if pool.ttft_p95_s is None or not pool.num_sequences or not self._is_full():
            return 0.0  # Long waits beside free seats come from long prompts: more seats are no help.
        has_all = share.num_replicas == self._demand.num_replicas
        num_sequences = self._demand.num_sequences if has_all else pool.num_sequences
        return pool.ttft_p95_s * (num_sequences / share.num_replicas) / (pool.num_sequences / pool.num_replicas)

    def _missing(self, share: _Share, latency_s: tuple[float, float]) -> float:
        tpot_s, ttft_s = latency_s
        ratio = max(tpot_s / self._config.tpot_slo_s, ttft_s / self._config.ttft_slo_s)
        # Latencies spread around their mean: some miss before the mean does, and some still keep it after.
        return share.num_interactive * min(max((ratio - 0.8) / 0.4, 0.0), 1.0)

    def _correction(self, role: Role, pool: PoolWork) -> float:
        if pool.tpot_p95_s is None:
            return 1.0
        predicted_s = self.rate(role, pool.num_sequences / pool.num_replicas).tpot_s
        return min(max(pool.tpot_p95_s / predicted_s, 1.0), MAX_CORRECTION)


def bounds(config: PoolConfig, num_replicas: int) -> tuple[int, int]:
    """Fewest and most speculative replicas among so many. One replica alone is free to be either."""
    if config.mode != "dynamic":
        fixed = num_replicas if config.mode == "speculative" else 0
        return fixed, fixed
    if num_replicas < 2:
        return 0, num_replicas
    low = min(config.min_speculative, num_replicas)
    high = num_replicas if config.max_speculative is None else min(config.max_speculative, num_replicas)
    return low, max(min(high, num_replicas - config.min_batch), low)


def candidates(low: int, high: int, current: int) -> list[int]:
    """Splits worth a look: all of them, or with many replicas the bounds and those at doubling distances."""
    if high - low < MAX_CANDIDATES:
        return list(range(low, high + 1))
    steps = [1 << power for power in range((high - low).bit_length())]
    found = {low, current, high, *(current - each for each in steps), *(current + each for each in steps)}
    return sorted(each for each in found if low <= each <= high)


def choose(
    config: PoolConfig, scores: Iterable[Score], current: int, num_interactive: float
) -> tuple[Score, DecisionReason]:
    """The split to aim for, and why; the current one with reason steady where no other is clearly better.

    Args:
        config: the margin.
        scores: of the splits within bounds, the current one among them.
        current: the split in force.
        num_interactive: sequences whose latency counts.
    """
    by_split = {score.num_speculative: score for score in scores}
    now = by_split[current]
    tolerance = max(0.5, config.margin_ratio * num_interactive)
    least = min(score.num_missing for score in by_split.values())
    good = [score for score in by_split.values() if score.num_missing <= least + tolerance]
    best = max(good, key=lambda each: (each.tokens_per_s, -abs(each.num_speculative - current), each.num_speculative))
    # Twice, so that a split which is chosen is not left at once for a tolerance's difference.
    if now.num_missing > least + 2 * tolerance:
        return best, DecisionReason.SLO
    if best.tokens_per_s > (1 + config.margin_ratio) * now.tokens_per_s:
        return best, DecisionReason.THROUGHPUT
    return _with_headroom(config, good, now), DecisionReason.HEADROOM


def _with_headroom(config: PoolConfig, good: list[Score], now: Score) -> Score:
    """The most speculative replicas at which nothing is lost and seats stay free; else the current split."""
    larger = [
        score
        for score in good
        if score.num_speculative > now.num_speculative
        and score.tokens_per_s >= EQUAL_RATIO * now.tokens_per_s
        and score.num_missing <= now.num_missing
        and score.load_ratio <= config.target_load_ratio
    ]
    return max(larger, key=lambda each: each.num_speculative, default=now)
