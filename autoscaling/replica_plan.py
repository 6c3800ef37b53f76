"""How many verifier replicas the load asks for: up at once, down slowly, one at a time."""

from dataclasses import dataclass, replace
from math import ceil

from autoscaling.pool_config import PoolConfig
from autoscaling.pool_demand import Demand
from autoscaling.pool_objective import SplitModel
from cluster.types import Role

SPARE_RATIO = 0.1
"""A replica goes only where the others could carry so much more than there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """What is remembered of the plan.

    Attributes:
        num_replicas: the plan in force; None before the first.
        more_since_s: since when the load has asked for more; None while it does not.
        fewer_since_s: the same for fewer.
    """

    num_replicas: int | None = None
    more_since_s: float | None = None
    fewer_since_s: float | None = None


def planned(config: PoolConfig, state: PlanState, num_live: int) -> int:
    """The plan within its bounds; the live replicas where their number is fixed."""
    if config.min_replicas is None or config.max_replicas is None:
        return num_live
    wanted = num_live if state.num_replicas is None else state.num_replicas
    return min(max(wanted, config.min_replicas), config.max_replicas)


def replan(config: PoolConfig, state: PlanState, demand: Demand, model: SplitModel | None, now_s: float) -> PlanState:
    """The plan after one more look at the load.

    Args:
        config: bounds, target load and delays.
        state: the plan so far.
        demand: the load.
        model: predicts what a replica carries; None while nothing is known of its speed.
        now_s: clock time.
    """
    current = planned(config, state, demand.num_replicas)
    carries = capacity(config, demand, model) * config.target_load_ratio
    wanted = ceil(demand.num_sequences / carries)
    enough = max(ceil((1 + SPARE_RATIO) * demand.num_sequences / carries), config.min_replicas or 0)
    state = replace(
        state,
        num_replicas=current,
        more_since_s=_since(state.more_since_s, wanted > current, now_s),
        fewer_since_s=_since(state.fewer_since_s, enough < current, now_s),
    )
    if state.more_since_s is not None and now_s - state.more_since_s >= config.scale_up_hold_s:
        return replace(state, num_replicas=wanted, more_since_s=None)
    if state.fewer_since_s is not None and now_s - state.fewer_since_s >= config.scale_down_hold_s:
        return replace(state, num_replicas=current - 1, fewer_since_s=None)
    return state


def _since(since_s: float | None, holds: bool, now_s: float) -> float | None:
    if not holds:
        return None
    return now_s if since_s is None else since_s


def capacity(config: PoolConfig, demand: Demand, model: SplitModel | None) -> float:
    """Sequences that one replica carries within the time per token, in the better role that it may have; at least 1."""
    roles = tuple(Role) if config.mode == "dynamic" else (Role(config.mode),)
    if model is None:
        seats = float(config.max_num_seqs(roles[0]))
    else:
        seats = float(max(_within_slo(config, model, role) for role in roles))
        if not seats:  # The objective is out of reach: more replicas than seats ask for would not reach it either.
            seats = float(config.max_num_seqs(roles[0]))
    if demand.kv_sequences is not None:
        seats = min(seats, demand.kv_sequences)
    return max(seats, 1.0)


def _within_slo(config: PoolConfig, model: SplitModel, role: Role) -> int:
    """Most sequences at which a replica keeps the time per token; 0 where not even one does."""
    low, high = 0, config.max_num_seqs(role)
    while low < high:
        middle = (low + high + 1) // 2
        if model.rate(role, float(middle)).tpot_s <= config.tpot_slo_s:
            low = middle
        else:
            high = middle - 1
    return low
