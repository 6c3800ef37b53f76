"""Which replica takes a request: of the wanted pool, the least busy, or one that computed the prefix before.

One pass over the candidates, without sorting: the first group holds the one replica that should be tried, the others
follow in the order in which they may stand in for it. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from cluster.types import Role

STALE_AFTER_S = 5.0
"""What a replica said longer ago than this says nothing about its role any more."""

AFFINITY_RATIO = 1.25
AFFINITY_TOKENS = 512
"""A replica that knows the prefix wins while its load is at most `AFFINITY_RATIO` times the least load plus this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoad:
    """What a router knows of one replica.

    Attributes:
        replica_id: names it.
        role: what it does now; None while unknown.
        num_outstanding_tokens: prompt tokens to compute and output tokens to come.
        num_ongoing: requests in progress; decides between equal tokens.
        age_s: age of what it said about itself.
        is_draining: it takes new work only when there is no other.
        has_prefix: it computed the request's prefix before.
    """

    replica_id: str
    role: Role | None = None
    num_outstanding_tokens: int = 0
    num_ongoing: int = 0
    age_s: float = 0.0
    is_draining: bool = False
    has_prefix: bool = False


def rank_replicas(
    candidates: Sequence[ReplicaLoad],
    pool: Role | None,
    *,
    stale_after_s: float = STALE_AFTER_S,
    offset: int = 0,
) -> list[list[str]]:
    """Groups of replica ids, best first; every candidate stands in exactly one of them.

    The first group is the one replica to try; then the rest of its kind, then the others. The kinds, best first: known
    to be in the wanted pool; of unknown role (or known too long ago); of the other pool; draining. Without a wanted
    pool, or when nothing is known of any replica, all that do not drain are of one kind: load alone decides.

    Args:
        candidates: the replicas that may be chosen.
        pool: the wanted one; None for any.
        stale_after_s: a role older than this counts as unknown.
        offset: candidate from which the search begins, modulo their number; the first of equally good ones wins, so
            routers that begin elsewhere do not all take the same.
    """
    if not candidates:
        return []
    start = offset % len(candidates)
    kinds: tuple[list[ReplicaLoad], ...] = ([], [], [], [])
    for candidate in (*candidates[start:], *candidates[:start]) if start else candidates:
        if candidate.is_draining:
            kind = 3
        elif pool is None:
            kind = 0
        elif candidate.role is None or not candidate.age_s <= stale_after_s:  # so NaN is as good as unknown
            kind = 1
        else:
            kind = 0 if candidate.role is pool else 2
        kinds[kind].append(candidate)
    filled = [kind for kind in kinds if kind]
    best = _best(filled[0])
    others = [[each.replica_id for each in kind if each is not best] for kind in filled]
    return [[best.replica_id], *(group for group in others if group)]


def _best(candidates: Sequence[ReplicaLoad]) -> ReplicaLoad:
    """The least busy candidate, or the least busy one with the prefix when it is not much busier."""
    best = min(candidates, key=_load)
    holders = [each for each in candidates if each.has_prefix]
    if not holders:
        return best
    holder = min(holders, key=_load)
    limit = best.num_outstanding_tokens * AFFINITY_RATIO + AFFINITY_TOKENS
    return holder if holder.num_outstanding_tokens <= limit else best


_load = attrgetter("num_outstanding_tokens", "num_ongoing")
