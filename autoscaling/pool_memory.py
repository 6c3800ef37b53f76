"""What was seen before and cannot be seen now: predictions take it where the reports are silent."""

from dataclasses import dataclass, replace
from math import exp

from autoscaling.pool_demand import Demand

AVERAGE_S = 10.0
"""Right after a move work is not yet where it wants to be: how it divides is averaged over about so long."""

BULK_MEMORY_S = 1800.0
"""How long that is remembered while one pool is empty."""

WANTED_MEMORY_S = 600.0
"""How long it is remembered how much work came to a speculative pool with free seats, while there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The last word on what shows only at times.

    Attributes:
        acceptance_rate: of drafts; None while nothing was drafted.
        bulk_ratio: share of the work in the batch pool while there were two pools, averaged; None while unknown.
        both_seen_s: clock time at which there were last two pools with work.
        wanted_ratio: share of the work that came to a speculative pool with free seats, averaged; None while unknown.
        wanted_seen_s: clock time at which that was last seen.
        wanted_replicas: speculative replicas then.
    """

    acceptance_rate: float | None = None
    bulk_ratio: float | None = None
    both_seen_s: float = 0.0
    wanted_ratio: float | None = None
    wanted_seen_s: float = 0.0
    wanted_replicas: int = 0


def learn(learned: Learned, demand: Demand, now_s: float, speculative_max_num_seqs: int) -> Learned:
    """What is known after one more look. Looking twice at the same time teaches nothing new."""
    if demand.acceptance_rate is not None:
        learned = replace(learned, acceptance_rate=demand.acceptance_rate)
    if demand.has_both_pools and demand.num_sequences:
        ratio = demand.batch.num_sequences / demand.num_sequences
        ratio = _averaged(learned.bulk_ratio, ratio, now_s - learned.both_seen_s)
        learned = replace(learned, bulk_ratio=ratio, both_seen_s=now_s)
        return _learn_wanted(learned, demand, now_s, speculative_max_num_seqs)
    if now_s - learned.both_seen_s > BULK_MEMORY_S:
        return replace(learned, bulk_ratio=None)
    return learned


def _learn_wanted(learned: Learned, demand: Demand, now_s: float, max_num_seqs: int) -> Learned:
    """Free seats show how much work wants them; a full pool that is no smaller than then, that more does by now."""
    pool, is_old = demand.speculative, now_s - learned.wanted_seen_s > WANTED_MEMORY_S
    if pool.is_full(max_num_seqs):
        is_refuted = pool.num_replicas >= learned.wanted_replicas
        return replace(learned, wanted_ratio=None) if is_refuted or is_old else learned
    last = None if is_old or pool.num_replicas != learned.wanted_replicas else learned.wanted_ratio
    ratio = _averaged(last, pool.num_sequences / demand.num_sequences, now_s - learned.wanted_seen_s)
    return replace(learned, wanted_ratio=ratio, wanted_seen_s=now_s, wanted_replicas=pool.num_replicas)


def _averaged(last: float | None, ratio: float, since_s: float) -> float:
    return ratio if last is None else last + (ratio - last) * (1 - exp(-since_s / AVERAGE_S))
