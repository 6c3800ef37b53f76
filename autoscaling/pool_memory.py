"""What was seen before and cannot be seen now: predictions take it where the reports are silent."""

from dataclasses import dataclass, replace
from math import exp

from autoscaling.pool_demand import Demand

BULK_AVERAGE_S = 10.0
"""Right after a move work is not yet where it wants to be: how it divides is averaged over about so long."""

BULK_MEMORY_S = 1800.0
"""How long that is remembered while one pool is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The last word on what shows only at times.

    Attributes:
        acceptance_rate: of drafts; None while nothing was drafted.
        bulk_ratio: share of the work in the batch pool while there were two pools, averaged; None while unknown.
        both_seen_s: clock time at which there were last two pools with work.
    """

    acceptance_rate: float | None = None
    bulk_ratio: float | None = None
    both_seen_s: float = 0.0


def learn(learned: Learned, demand: Demand, now_s: float) -> Learned:
    """What is known after one more look. Looking twice at the same time teaches nothing new."""
    if demand.acceptance_rate is not None:
        learned = replace(learned, acceptance_rate=demand.acceptance_rate)
    if demand.has_both_pools and demand.num_sequences:
        ratio, last = demand.batch.num_sequences / demand.num_sequences, learned.bulk_ratio
        if last is not None:
            ratio = last + (ratio - last) * (1 - exp((learned.both_seen_s - now_s) / BULK_AVERAGE_S))
        return replace(learned, bulk_ratio=ratio, both_seen_s=now_s)
    if now_s - learned.both_seen_s > BULK_MEMORY_S:
        return replace(learned, bulk_ratio=None)
    return learned
