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

PATIENCE_S, PATIENCE_SPREAD_S = 5.0, 25.0
"""Another drafter must be better for this long, and up to so much longer: a lot that differs from verifier to verifier.
Who moves first changes what the others see, before they all follow."""

_LOAD_STEPS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A drafter that runs.

    Attributes:
        replica: its id.
        incarnation: random number drawn when it started.
        node_id: its node.
        address: of its listener.
        max_sequences: how many sequences it can follow.
        num_sequences: how many it follows, as far as is known.
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
            num_sequences=record.num_sequences,
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
    num_own: int = 0,
) -> Candidate | None:
    """The drafter to use; None when there is none.

    Args:
        candidates: the drafters that run.
        verifier: name of the one that chooses; spreads verifiers over equally good drafters.
        node_id: its node.
        current: incarnation of the drafter that it uses now.
        excluded: incarnations that are not to be used.
        num_own: sequences that the verifier would bring along to another drafter.
    """
    usable = [candidate for candidate in candidates if candidate.incarnation not in excluded]
    if not usable:
        return None

    def cost(candidate: Candidate) -> float:
        return _cost(candidate, node_id, 0 if candidate.incarnation == current else num_own)

    best = min(usable, key=lambda candidate: (cost(candidate), _lot(verifier, candidate)))
    limit = cost(best) + SWITCH_MARGIN
    kept = (each for each in usable if each.incarnation == current and cost(each) <= limit)
    return next(kept, best)


def patience_s(verifier: str) -> float:
    """How long another drafter must be better before the verifier moves to it."""
    return PATIENCE_S + PATIENCE_SPREAD_S * crc32(verifier.encode()) / (1 << 32)


def coarse_load(num_sequences: int, max_sequences: int) -> int:
    """A number of sequences in steps of a sixteenth of the capacity, and as it is once the drafter is full."""
    step = max(1, max_sequences // _LOAD_STEPS)
    return num_sequences if num_sequences >= max_sequences else num_sequences // step * step


def _cost(candidate: Candidate, node_id: str, num_more: int) -> float:
    num_sequences = candidate.num_sequences + num_more
    cost = num_sequences / max(1, candidate.max_sequences)
    if num_sequences >= candidate.max_sequences:
        cost += FULL_COST
    return cost if candidate.node_id == node_id else cost + REMOTE_COST


def _lot(verifier: str, candidate: Candidate) -> int:
    """A number that differs from pair to pair, the same everywhere (rendezvous hashing)."""
    return crc32(f"{verifier}/{candidate.replica}/{candidate.incarnation}".encode())
