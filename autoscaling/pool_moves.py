"""Moves of replicas between the pools: when one may begin, which replica it takes, and how it ends.

Hysteresis in three parts:

- Another split has to be the better one for `hold_s`, at every step.
- After a move none goes the other way for `cooldown_s`. Further moves the same way need no pause: they lead to the same
  split, which was held for long enough.
- A move back under about the same load shows that the prediction was wrong, not that the load has changed. From then
  on every move under that load waits, `FLAP_FACTOR` times longer each time, up to `MAX_COOLDOWN_S`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autoscaling.pool_config import PoolConfig
from autoscaling.types import DecisionReason, Move, ReplicaReport
from cluster.types import Role

FLAP_FACTOR = 4.0
MAX_COOLDOWN_S = 600.0
FORGET_AFTER_S = 2 * MAX_COOLDOWN_S
"""After so long without a move, earlier moves say nothing any more."""

SAME_LOAD_RATIO = 0.3
"""Loads that differ by less than this share are about the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A better split: more (+1) or fewer (-1) speculative replicas, and since when it has been better."""

    direction: int
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last move that was made because of the load.

    Attributes:
        direction: +1 for one more speculative replica, -1 for one fewer.
        ended_s: clock time of its confirmation.
        num_sequences: load under which it was decided.
        num_flaps: moves under about the same load since one of them was taken back, that one included.
    """

    direction: int
    ended_s: float
    num_sequences: int
    num_flaps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What is remembered of moves.

    Attributes:
        move: the one in flight.
        num_sequences: load that asked for it; None where an operator or the bounds did.
        wish: what may become the next one.
        last: the last one that was made because of the load.
        assigned: roles given to new replicas that do not report them yet, by replica.
        left_alone: clock time until which a replica is not chosen, by replica.
    """

    move: Move | None = None
    num_sequences: int | None = None
    wish: Wish | None = None
    last: Finished | None = None
    assigned: Mapping[str, Move] = field(default_factory=dict)
    left_alone: Mapping[str, float] = field(default_factory=dict)


def settle(config: PoolConfig, moves: Moves, live: Mapping[str, ReplicaReport], now_s: float) -> Moves:
    """Confirm what has been done by now, and give up what should have been."""
    left_alone = {replica_id: until_s for replica_id, until_s in moves.left_alone.items() if until_s > now_s}
    assigned = {}
    for replica_id, each in moves.assigned.items():
        if replica_id not in live or live[replica_id].role is each.role:
            continue
        if now_s - each.began_s > config.move_timeout_s:
            left_alone[replica_id] = now_s + config.leave_alone_s
        else:
            assigned[replica_id] = each
    moves = replace(moves, assigned=assigned, left_alone=left_alone)
    if moves.move is None:
        return moves
    report = live.get(moves.move.replica_id)
    if report is None:  # It is gone, or going: the bounds see to the rest.
        return replace(moves, move=None)
    if report.role is moves.move.role:
        return _confirmed(moves, moves.move.role, now_s)
    if now_s - moves.move.began_s > config.move_timeout_s:
        return replace(moves, move=None, left_alone=left_alone | {moves.move.replica_id: now_s + config.leave_alone_s})
    return moves


def _confirmed(moves: Moves, role: Role, now_s: float) -> Moves:
    num_sequences, last, num_flaps = moves.num_sequences, moves.last, 0
    if num_sequences is None:
        return replace(moves, move=None)
    direction = 1 if role is Role.SPECULATIVE else -1
    if last is not None and _is_comparable(last, num_sequences, now_s):
        num_flaps = last.num_flaps + (direction != last.direction or last.num_flaps > 0)
    finished = Finished(direction=direction, ended_s=now_s, num_sequences=num_sequences, num_flaps=num_flaps)
    return replace(moves, move=None, last=finished)


def _is_comparable(last: Finished, num_sequences: int, now_s: float) -> bool:
    """The load is about what it was at the last move, which is not long ago."""
    difference = abs(last.num_sequences - num_sequences)
    is_same = difference <= SAME_LOAD_RATIO * max(last.num_sequences, num_sequences)
    return is_same and now_s - last.ended_s <= FORGET_AFTER_S


def wished(moves: Moves, direction: int, now_s: float) -> Moves:
    """Remember in which direction a better split lies; 0 for nowhere."""
    if direction == 0:
        return replace(moves, wish=None)
    if moves.wish is not None and moves.wish.direction == direction:
        return moves
    return replace(moves, wish=Wish(direction=direction, since_s=now_s))


def obstacle(config: PoolConfig, moves: Moves, num_sequences: int, now_s: float) -> DecisionReason | None:
    """Why the wish has to wait; None when it may become a move."""
    wish, last = moves.wish, moves.last
    if wish is None or now_s - wish.since_s < config.hold_s:
        return DecisionReason.WAITING
    if last is None:
        return None
    num_flaps = last.num_flaps if _is_comparable(last, num_sequences, now_s) else 0
    cooldown_s = min(config.cooldown_s * FLAP_FACTOR**num_flaps, max(MAX_COOLDOWN_S, config.cooldown_s))
    if (last.direction != wish.direction or num_flaps) and now_s - last.ended_s < cooldown_s:
        return DecisionReason.COOLDOWN
    return None


def begin(
    moves: Moves, fit: Iterable[ReplicaReport], direction: int, now_s: float, *, num_sequences: int | None
) -> Moves:
    """Take the least loaded replica; without any that may be asked, nothing is in flight afterwards.

    Args:
        moves: what is remembered.
        fit: replicas of the pool that gives one.
        direction: +1 for one more speculative replica, -1 for one fewer.
        now_s: clock time.
        num_sequences: load that asks for it; None where an operator or the bounds do.
    """
    asked = [
        (report.num_running + report.num_waiting, report.num_outstanding_tokens, report.replica_id)
        for report in fit
        if report.replica_id not in moves.left_alone and report.replica_id not in moves.assigned
    ]
    if not asked:
        return moves
    role = Role.SPECULATIVE if direction > 0 else Role.BATCH
    return replace(moves, move=Move(replica_id=min(asked)[2], role=role, began_s=now_s), num_sequences=num_sequences)
