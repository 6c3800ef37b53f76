"""Which role each verifier replica should have, and how many replicas there should be: one pure step per heartbeat.

    state, snapshot = initial_state(), Snapshot()
    snapshot = heard(snapshot, report, now_s)                # or heard_all(...) for many at once
    state, decision = step(config, state, snapshot, now_s)   # once per heartbeat period, or more often
    seen = overview(config, snapshot, now_s)                 # once per step
    reply = reply_for(decision, seen, report)                # for each report
    state = pin(state, Pin(num_speculative=1, until_s=now_s + 60));  state = unpin(state)

What the replicas report is the truth: their roles are taken as they are, and only what was asked of one and not yet
done is remembered besides. So a new controller goes on where the old one was. `pool_objective` says which split is
best, `pool_moves` when a move may begin, `replica_plan` how many replicas there should be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autoscaling.pool_config import PoolConfig
from autoscaling.pool_demand import Demand, demand_of, live_replicas
from autoscaling.pool_memory import Learned, learn
from autoscaling.pool_moves import Moves, begin, obstacle, settle, wished
from autoscaling.pool_objective import Score, SplitModel, bounds, candidates, choose
from autoscaling.pool_overview import Overview, heard, heard_all, overview
from autoscaling.replica_plan import PlanState, planned, replan
from autoscaling.types import Decision, DecisionReason, HeartbeatReply, Move, Pin, ReplicaReport, Snapshot
from cluster.types import Role

__all__ = [
    "ControllerState",
    "Overview",
    "heard",
    "heard_all",
    "initial_state",
    "overview",
    "pin",
    "reply_for",
    "step",
    "unpin",
]

WARM_UP_HEARTBEATS = 2
"""A new controller first listens for so long."""

_Inputs = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """What the controller remembers from step to step. Soft: a new one is as good after two heartbeats.

    Attributes:
        started_s: clock time of the first report; None before it.
        known: replicas that were heard of before.
        moves: of roles.
        plan: of the number of replicas.
        pin: an operator's word; None without one.
        learned: what predictions take where the reports are silent.
    """

    started_s: float | None = None
    known: frozenset[str] = frozenset()
    moves: Moves = field(default_factory=Moves)
    plan: PlanState = field(default_factory=PlanState)
    pin: Pin | None = None
    learned: Learned = field(default_factory=Learned)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """What one step sees: live replicas, their work, and predictions for it where there is enough to predict from."""

    live: Mapping[str, ReplicaReport]
    demand: Demand
    model: SplitModel | None
    now_s: float


def initial_state() -> ControllerState:
    """The state of a controller that has just started."""
    return ControllerState()


def pin(state: ControllerState, pin: Pin) -> ControllerState:
    """Fix the split until the pin's end; it is kept within the bounds of the pools."""
    return replace(state, pin=pin)


def unpin(state: ControllerState) -> ControllerState:
    """Let the load decide again."""
    return replace(state, pin=None)


def reply_for(decision: Decision, seen: Overview, report: ReplicaReport) -> HeartbeatReply:
    """The answer to a report: the role wanted of that replica, its own where none is known, and the plan."""
    return HeartbeatReply(
        role=decision.roles.get(report.replica_id, report.role),
        num_replicas=decision.num_replicas,
        pools=seen.pools,
        domains=seen.domains,
    )


def step(
    config: PoolConfig, state: ControllerState, snapshot: Snapshot, now_s: float
) -> tuple[ControllerState, Decision]:
    """Decide on roles and on the number of replicas.

    Args:
        config: of the pools.
        state: of the step before.
        snapshot: what was heard.
        now_s: clock time; never goes back.

    Returns:
        The new state, and the decision. The same arguments give the same decision, and a second step on its state at
        the same time begins no second move.
    """
    live = live_replicas(config, snapshot, now_s)
    if state.pin is not None and state.pin.until_s <= now_s:
        state = unpin(state)
    if live and state.started_s is None:
        state = replace(state, started_s=now_s)
    is_warm = state.started_s is not None and now_s - state.started_s >= WARM_UP_HEARTBEATS * config.heartbeat_s
    state = replace(state, moves=settle(config, state.moves, live, now_s))
    if is_warm and config.mode == "dynamic" and not config.dry_run:
        state = _assign_new(config, state, live, now_s)
    state = replace(state, known=frozenset(snapshot.replicas))

    demand = demand_of(live, _wanted_roles(state.moves, live))
    state = replace(state, learned=learn(state.learned, demand, now_s, config.speculative_max_num_seqs))
    model = _model(config, state, demand)
    if is_warm and live and config.max_replicas is not None:
        state = replace(state, plan=replan(config, state.plan, demand, model, now_s))
    sight = _Sight(live=live, demand=demand, model=model if is_warm else None, now_s=now_s)
    reason, moves, inputs = _decide(config, state, sight)
    begun = moves.move if moves.move is not state.moves.move else None
    state = replace(state, moves=moves)
    return state, Decision(
        at_s=now_s,
        reason=reason,
        move=begun,
        roles=_roles(config, state.moves, snapshot, live),
        num_replicas=planned(config, state.plan, len(live)),
        inputs=_describe(demand) | inputs,
    )


def _wanted_roles(moves: Moves, live: Mapping[str, ReplicaReport]) -> dict[str, Role]:
    """The roles of the live replicas, with what was asked of them and is not done yet."""
    roles = {replica_id: report.role for replica_id, report in live.items()}
    asked = [*moves.assigned.values(), *([moves.move] if moves.move is not None else [])]
    return roles | {each.replica_id: each.role for each in asked if each.replica_id in roles}


def _roles(config: PoolConfig, moves: Moves, snapshot: Snapshot, live: Mapping[str, ReplicaReport]) -> dict[str, Role]:
    """Wanted role of everyone heard of; who is not live keeps its own."""
    if config.mode != "dynamic":
        return dict.fromkeys(snapshot.replicas, config.initial_role())
    return {replica_id: each.report.role for replica_id, each in snapshot.replicas.items()} | _wanted_roles(moves, live)


def _model(config: PoolConfig, state: ControllerState, demand: Demand) -> SplitModel | None:
    if demand.times is None:
        return None
    learned = state.learned
    rate = config.assumed_acceptance_rate if learned.acceptance_rate is None else learned.acceptance_rate
    return SplitModel(
        config,
        demand,
        times=demand.times,
        acceptance_rate=rate,
        bulk_ratio=learned.bulk_ratio,
        wanted_ratio=learned.wanted_ratio,
    )


def _assign_new(
    config: PoolConfig, state: ControllerState, live: Mapping[str, ReplicaReport], now_s: float
) -> ControllerState:
    """Give new replicas the role that fits. They have no work yet, so this is no move: nothing is disturbed."""
    roles = _wanted_roles(state.moves, live)
    assigned = dict(state.moves.assigned)
    for replica_id in sorted(live.keys() - state.known):
        report = live[replica_id]
        if report.num_running or report.num_waiting:
            continue  # It was silent for a while and has work: its role is taken as it is.
        roles[replica_id] = _fitting_role(config, state, live, roles, replica_id)
        if roles[replica_id] is not report.role:
            assigned[replica_id] = Move(replica_id=replica_id, role=roles[replica_id], began_s=now_s)
    return replace(state, moves=replace(state.moves, assigned=assigned))


def _fitting_role(
    config: PoolConfig, state: ControllerState, live: Mapping[str, ReplicaReport], roles: dict[str, Role], new: str
) -> Role:
    demand = demand_of(live, roles | {new: Role.BATCH})
    low, high = bounds(config, demand.num_replicas)
    current = demand.speculative.num_replicas
    if not low <= current <= high - 1:
        return Role.SPECULATIVE if current < low else Role.BATCH
    if state.pin is not None:
        return Role.SPECULATIVE if current < state.pin.num_speculative else Role.BATCH
    model = _model(config, state, demand)
    if model is None:
        return live[new].role
    scores = [model.score(current), model.score(current + 1)]
    # Without a margin: there is nothing to be disturbed yet.
    best, _ = choose(replace(config, margin_ratio=0.0), scores, current + 1, model.num_interactive)
    return Role.SPECULATIVE if best.num_speculative > current else Role.BATCH


def _decide(config: PoolConfig, state: ControllerState, sight: _Sight) -> tuple[DecisionReason, Moves, _Inputs]:
    """The reason, the moves with the one that begins now, and the figures that decided."""
    if not sight.live:
        return DecisionReason.NO_REPLICAS, state.moves, {}
    if config.mode != "dynamic":
        return DecisionReason.PINNED, state.moves, {}
    if state.moves.move is not None:
        return DecisionReason.MOVING, state.moves, {}
    target, reason, inputs = _target(config, state, sight)
    current = sight.demand.speculative.num_replicas
    direction = (target > current) - (target < current)
    moves = wished(state.moves, direction, sight.now_s)
    if direction:
        reason, moves = _towards(config, moves, sight, direction, reason)
    return reason, moves, inputs


def _towards(
    config: PoolConfig, moves: Moves, sight: _Sight, direction: int, reason: DecisionReason
) -> tuple[DecisionReason, Moves]:
    """Begin a move if nothing speaks against it."""
    num_sequences: int | None = None
    if reason not in (DecisionReason.PINNED, DecisionReason.BOUNDS):
        num_sequences = sight.demand.num_sequences
        waits_for = obstacle(config, moves, num_sequences, sight.now_s)
        if waits_for is not None:
            return waits_for, moves
    if config.dry_run:
        return DecisionReason.DRY_RUN, moves
    giving = Role.BATCH if direction > 0 else Role.SPECULATIVE
    fit = (report for report in sight.live.values() if report.role is giving)
    begun = begin(moves, fit, direction, sight.now_s, num_sequences=num_sequences)
    # Without a move every replica of that pool was asked a while ago, and did not answer.
    return (reason if begun.move is not None else DecisionReason.WAITING), begun


def _target(config: PoolConfig, state: ControllerState, sight: _Sight) -> tuple[int, DecisionReason, _Inputs]:
    """The split to aim for, why, and the figures."""
    demand, model = sight.demand, sight.model
    current = demand.speculative.num_replicas
    low, high = bounds(config, demand.num_replicas)
    if state.pin is not None:
        target = min(max(state.pin.num_speculative, low), high)
        return target, DecisionReason.PINNED, {"target_speculative": float(target)}
    if not low <= current <= high:
        target = min(max(current, low), high)
        return target, DecisionReason.BOUNDS, {"target_speculative": float(target)}
    if model is None:
        return current, DecisionReason.STALE, {}
    scores = {split: model.score(split) for split in candidates(low, high, current)}
    best, reason = choose(config, scores.values(), current, model.num_interactive)
    if best.num_speculative == current:
        is_alone = demand.num_replicas == 1
        reason = DecisionReason.SINGLE_REPLICA if is_alone else DecisionReason.STEADY
    return best.num_speculative, reason, _compare(scores[current], best)


def _compare(now: Score, best: Score) -> _Inputs:
    return {
        "target_speculative": float(best.num_speculative),
        "tokens_per_s_now": now.tokens_per_s,
        "tokens_per_s_target": best.tokens_per_s,
        "missing_now": now.num_missing,
        "missing_target": best.num_missing,
        "tpot_s_now": now.tpot_s,
        "tpot_s_target": best.tpot_s,
        "ttft_s_now": now.ttft_s,
        "ttft_s_target": best.ttft_s,
    }


def _describe(demand: Demand) -> _Inputs:
    inputs = {
        "num_speculative": float(demand.speculative.num_replicas),
        "num_batch": float(demand.batch.num_replicas),
        "sequences_speculative": float(demand.speculative.num_sequences),
        "sequences_batch": float(demand.batch.num_sequences),
    }
    if demand.acceptance_rate is not None:
        inputs["acceptance_rate"] = demand.acceptance_rate
    return inputs
