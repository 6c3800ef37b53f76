"""Which drafter a verifier takes: near, not full, and not another one every time. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from zlib import crc32

from cluster.errors import ConfigError
from cluster.transport.address import Address
from deployments.discovery import DrafterRecord

REMOTE_COST = 0.25
"""A drafter on another node is as good as one here that is fuller by this share."""

FULL_COST = 1.0
"""What is added once a drafter follows as many sequences as it can."""

SWITCH_MARGIN = 0.3
"""Another drafter must be better by this much: a change opens every sequence again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A drafter that runs.

    Attributes:
        replica: its id.
        incarnation: random number drawn when it started.
        node_id: its node.
        address: of its listener.
        max_sequences: how many sequences it can follow.
        num_sequences: how many it follows, where that is known.
    """

    replica: str
    incarnation: int
    node_id: str
    address: Address
    max_sequences: int
    num_sequences: int = 0


def candidates_of(records: Iterable[DrafterRecord]) -> tuple[Candidate, ...]:
    """Those of the published drafters whose address can be used."""
    found = []
    for record in records:
        try:
            address = Address.from_json(record.address)
        except ConfigError:
            continue
        candidate = Candidate(
            replica=record.replica,
            incarnation=record.incarnation,
            node_id=record.node_id,
            address=address,
            max_sequences=record.max_sequences,
        )
        found.append(candidate)
    return tuple(found)


def choose(
    candidates: Iterable[Candidate],
    *,
    verifier: str,
    node_id: str,
    current: int | None = None,
    excluded: Collection[int] = (),
) -> Candidate | None:
    """The drafter to use; None when there is none.

    Args:
        candidates: the drafters that run.
        verifier: name of the one that chooses; spreads verifiers over equally good drafters.
        node_id: its node.
        current: incarnation of the drafter that it uses now.
        excluded: incarnations that are not to be used.
    """
    usable = [candidate for candidate in candidates if candidate.incarnation not in excluded]
    if not usable:
        return None
    best = min(usable, key=lambda candidate: (_cost(candidate, node_id), _lot(verifier, candidate)))
    limit = _cost(best, node_id) + SWITCH_MARGIN
    kept = (each for each in usable if each.incarnation == current and _cost(each, node_id) <= limit)
    return next(kept, best)


def _cost(candidate: Candidate, node_id: str) -> float:
    cost = candidate.num_sequences / max(1, candidate.max_sequences)
    if candidate.num_sequences >= candidate.max_sequences:
        cost += FULL_COST
    return cost if candidate.node_id == node_id else cost + REMOTE_COST


def _lot(verifier: str, candidate: Candidate) -> int:
    """A number that differs from pair to pair, the same everywhere (rendezvous hashing)."""
    return crc32(f"{verifier}/{candidate.replica}/{candidate.incarnation}".encode())
