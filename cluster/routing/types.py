"""Values that routing decides on."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from cluster.types import Role, SpeculationMode


class Domain(StrEnum):
    """Kinds of text that differ in how well they can be guessed."""

    CODE_SYNTHESIS = "code_synthesis"
    STRUCTURED_JSON = "structured_json"
    RAG_SUMMARY = "rag_summary"
    CREATIVE_WRITING = "creative_writing"
    GENERAL_CHAT = "general_chat"


class Reason(StrEnum):
    """Why a request went to a pool. The first six are the seed documents' own words.

    - concurrency_guard: too many requests are active for speculation to pay.
    - caller_override: the request says so itself.
    - high_entropy_domain: such text cannot be guessed.
    - low_entropy_domain: such text is guessed well.
    - low_acceptance: recent drafts were not accepted.
    - standard: none of the others.
    - service_tier: the request's tier says so.
    - feature: only one pool can serve what is asked for.
    - goodput: this pool promises more goodput for requests of this class now.
    - overflow: the pool it belongs to is full, and the other one is not.
    - no_choice: no pools are in use, or one of them is empty.
    """

    CONCURRENCY_GUARD = "concurrency_guard"
    CALLER_OVERRIDE = "caller_override"
    HIGH_ENTROPY_DOMAIN = "high_entropy_domain"
    LOW_ENTROPY_DOMAIN = "low_entropy_domain"
    LOW_ACCEPTANCE = "low_acceptance"
    STANDARD = "standard"
    SERVICE_TIER = "service_tier"
    FEATURE = "feature"
    GOODPUT = "goodput"
    OVERFLOW = "overflow"
    NO_CHOICE = "no_choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRequest:
    """What routing looks at in a request.

    Attributes:
        mode: what it says about speculation; `force_speculative` of the seed service arrives as on or off.
        service_tier: "priority", "flex", "auto", "default" or None.
        domain: given by the client, else detected.
        is_domain_given: the client said it.
        temperature: of sampling.
        num_prompt_tokens: length of the prompt.
        max_tokens: most output tokens.
        only_pool: the one pool that can serve a feature it asks for; None when both can.
    """

    mode: SpeculationMode = SpeculationMode.AUTO
    service_tier: str | None = None
    domain: Domain = Domain.GENERAL_CHAT
    is_domain_given: bool = False
    temperature: float = 1.0
    num_prompt_tokens: int = 0
    max_tokens: int = 1
    only_pool: Role | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainStats:
    """What was seen of one domain recently.

    Attributes:
        num_requests: requests that ended.
        num_output_tokens: their output.
        num_draft_tokens: draft tokens verified for them.
        num_accepted_tokens: of those.
        entropy_bits: the target's mean entropy at their output tokens; None while unknown.
    """

    num_requests: int = 0
    num_output_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    entropy_bits: float | None = None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted; None while nothing was drafted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """One pool, all replicas together.

    Attributes:
        num_replicas: that take work.
        num_running: sequences in their batches.
        num_waiting: sequences that wait for a place.
        num_seats: places in those batches; 0 while unknown.
        tokens_per_s: output of the last seconds.
        tpot_s: expected time per output token of one more request; None while unknown.
        acceptance_rate: accepted / drafted of the last seconds, under which `tpot_s` holds; None while nothing was
            drafted.
    """

    num_replicas: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_seats: int = 0
    tokens_per_s: float = 0.0
    tpot_s: float | None = None
    acceptance_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    """What is known about the cluster when a request is routed.

    Attributes:
        num_active: requests in progress at this gateway, besides this one.
        acceptance_rate: of recent requests over all domains; 1 while nothing was drafted.
        pools: load by role; a missing role has no replicas.
        domains: by `Domain` value.
        age_s: age of `pools`; old ones are not trusted. Infinite when nothing was heard.
    """

    num_active: int = 0
    acceptance_rate: float = 1.0
    pools: dict[Role, PoolLoad] = field(default_factory=dict)
    domains: dict[str, DomainStats] = field(default_factory=dict)
    age_s: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A decision.

    Attributes:
        pool: where the request should go; a router may send it elsewhere when that pool is empty.
        reason: one of a fixed set of words.
        inputs: what decided, for logs and `outrider explain`: name and value.
        drafts: False where nobody may draft for the request, whatever the role of the replica that it meets: the
            request or one of the five rules says so. True leaves drafting to the replica.
    """

    pool: Role
    reason: Reason
    inputs: tuple[tuple[str, str], ...] = ()
    drafts: bool = True


def merge_domains(found: Iterable[dict[str, DomainStats]]) -> dict[str, DomainStats]:
    """Statistics by domain, added up; entropies are weighted with the output tokens."""
    by_name: dict[str, list[DomainStats]] = {}
    for domains in found:
        for name, stats in domains.items():
            by_name.setdefault(name, []).append(stats)
    return {name: _merged(parts) for name, parts in by_name.items()}


def _merged(parts: list[DomainStats]) -> DomainStats:
    with_bits = [(each.entropy_bits, each.num_output_tokens) for each in parts if each.entropy_bits is not None]
    num_tokens = sum(tokens for _, tokens in with_bits)
    return DomainStats(
        num_requests=sum(each.num_requests for each in parts),
        num_output_tokens=sum(each.num_output_tokens for each in parts),
        num_draft_tokens=sum(each.num_draft_tokens for each in parts),
        num_accepted_tokens=sum(each.num_accepted_tokens for each in parts),
        entropy_bits=sum(bits * tokens for bits, tokens in with_bits) / num_tokens if num_tokens else None,
    )
