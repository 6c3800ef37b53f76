"""Which pool a request belongs to, and why. Pure; the seed documents' five rules are here too."""

from collections import deque
from dataclasses import dataclass

from deployments.schema import Domain, SamplingBody
from deployments.schema_seed import SeedRequest

SPECULATIVE, BATCH = "speculative", "batch"

CONCURRENCY_GUARD = 32
CREATIVE_TEMPERATURE = 0.8
MIN_ACCEPTANCE = 0.65
LOW_ENTROPY_DOMAINS: frozenset[Domain] = frozenset({"code_synthesis", "structured_json", "rag_summary"})


@dataclass(frozen=True, slots=True)
class Route:
    """A decision.

    Attributes:
        pool: speculative or batch.
        reason: one of a fixed set of words.
    """

    pool: str
    reason: str


class AcceptanceWindow:
    """Acceptance rate over the last requests that drafted.

    Args:
        size: requests remembered.
    """

    def __init__(self, size: int = 64) -> None:
        self._entries: deque[tuple[int, int]] = deque(maxlen=size)

    def add(self, num_accepted: int, num_drafted: int) -> None:
        """A request ended."""
        if num_drafted:
            self._entries.append((num_accepted, num_drafted))

    @property
    def rate(self) -> float:
        """Accepted / drafted; 1 while nothing was drafted."""
        drafted = sum(entry[1] for entry in self._entries)
        return sum(entry[0] for entry in self._entries) / drafted if drafted else 1.0


def route_openai(body: SamplingBody) -> Route:
    """Explicit wish, then service tier, else the default."""
    if body.speculation is not None and body.speculation.mode != "auto":
        return Route(BATCH if body.speculation.mode == "off" else SPECULATIVE, "caller_override")
    if body.service_tier == "flex":
        return Route(BATCH, "service_tier")
    if body.service_tier == "priority":
        return Route(SPECULATIVE, "service_tier")
    return Route(SPECULATIVE, "standard")


def route_seed(body: SeedRequest, *, active_requests: int, acceptance_rate: float) -> Route:
    """The five rules of the seed documents, in their order.

    Args:
        body: the request.
        active_requests: requests in progress besides this one.
        acceptance_rate: recent acceptance, 1 while nothing was drafted.
    """
    if active_requests >= CONCURRENCY_GUARD:
        return Route(BATCH, "concurrency_guard")
    if body.force_speculative is not None:
        return Route(SPECULATIVE if body.force_speculative else BATCH, "caller_override")
    if body.domain == "creative_writing" and body.temperature > CREATIVE_TEMPERATURE:
        return Route(BATCH, "high_entropy_domain")
    if body.domain in LOW_ENTROPY_DOMAINS:
        return Route(SPECULATIVE, "low_entropy_domain")
    if acceptance_rate < MIN_ACCEPTANCE:
        return Route(BATCH, "low_acceptance")
    return Route(SPECULATIVE, "standard")
