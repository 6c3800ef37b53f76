"""The pool for a request: the seed documents' five rules, and the learned policy, which compares expected goodput."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, Protocol

from cluster.routing.ranking import STALE_AFTER_S
from cluster.routing.types import Domain, DomainStats, PoolLoad, Reason, Route, RouteRequest, RouteSnapshot
from cluster.types import Role, SpeculationMode

PolicyName = Literal["learned", "rules"]
Inputs = tuple[tuple[str, str], ...]

MAX_ACTIVE: Final = 32
CREATIVE_TEMPERATURE: Final = 0.8
MIN_ACCEPTANCE: Final = 0.65
LOW_ENTROPY_DOMAINS: Final = frozenset({Domain.CODE_SYNTHESIS, Domain.STRUCTURED_JSON, Domain.RAG_SUMMARY})

LOW_ENTROPY_BITS, HIGH_ENTROPY_BITS = 1.2, 3.5
PRIOR_ACCEPTANCE: Final[Mapping[Domain, float]] = MappingProxyType(
    {
        Domain.STRUCTURED_JSON: 0.85,
        Domain.CODE_SYNTHESIS: 0.78,
        Domain.RAG_SUMMARY: 0.72,
        Domain.GENERAL_CHAT: 0.65,
        Domain.CREATIVE_WRITING: 0.38,
    }
)
"""The seed documents' table: what is believed of a domain before anything was seen of it."""

PRIOR_DRAFT_TOKENS: Final = 256
"""The table weighs as much as so many verified draft tokens."""

NUM_DRAFT_TOKENS: Final = 5
"""Length of the draft for which domains are compared: the seed documents' default K."""

USUAL_TOKENS, MAX_SIZE = 256, 4.0
"""Output of a usual request, and how many of these the longest one counts as: `max_tokens` is only an upper bound."""

TIE_RATIO: Final = 1.05
"""One pool must promise so much more than the other, else it is a tie."""

_OTHER = {Role.SPECULATIVE: Role.BATCH, Role.BATCH: Role.SPECULATIVE}


class Policy(Protocol):
    """Chooses a pool. Pure: the same values in, the same route out."""

    def choose(self, request: RouteRequest, snapshot: RouteSnapshot) -> Route:
        """The route of one request."""
        ...


class RulesPolicy:
    """The five rules of the seed documents, in their order; the first that applies decides.

    1. active requests >= 32: batch (`concurrency_guard`)
    2. the request says on or off: as asked (`caller_override`)
    3. creative_writing and temperature > 0.8: batch (`high_entropy_domain`)
    4. code_synthesis, structured_json or rag_summary: speculative (`low_entropy_domain`)
    5. recent acceptance < 0.65: batch (`low_acceptance`), else speculative (`standard`)

    "Batch" stands for the documents' "no speculation": nobody drafts then, whichever replica serves the request.
    """

    def choose(self, request: RouteRequest, snapshot: RouteSnapshot) -> Route:
        """The route of one request; `inputs` are what the rules looked at until one applied."""
        speculates, reason, num_looked_at = self._decide(request, snapshot)
        inputs = (
            ("active_requests", str(snapshot.num_active)),
            ("speculation", request.mode.value),
            ("domain", request.domain.value),
            ("temperature", f"{request.temperature:g}"),
            ("acceptance_rate", f"{snapshot.acceptance_rate:.3f}"),
        )
        pool = Role.SPECULATIVE if speculates else Role.BATCH
        return Route(pool=pool, reason=reason, inputs=inputs[:num_looked_at], drafts=speculates)

    def _decide(self, request: RouteRequest, snapshot: RouteSnapshot) -> tuple[bool, Reason, int]:
        """Whether to speculate, why, and how many inputs were looked at."""
        if snapshot.num_active >= MAX_ACTIVE:
            return False, Reason.CONCURRENCY_GUARD, 1
        if request.mode is not SpeculationMode.AUTO:
            return request.mode is SpeculationMode.ON, Reason.CALLER_OVERRIDE, 2
        if request.domain is Domain.CREATIVE_WRITING and request.temperature > CREATIVE_TEMPERATURE:
            return False, Reason.HIGH_ENTROPY_DOMAIN, 4
        if request.domain in LOW_ENTROPY_DOMAINS:
            return True, Reason.LOW_ENTROPY_DOMAIN, 4
        if snapshot.acceptance_rate < MIN_ACCEPTANCE:
            return False, Reason.LOW_ACCEPTANCE, 5
        return True, Reason.STANDARD, 5


class LearnedPolicy:
    """What the request says, else the pool with the higher expected goodput for requests of its kind.

    1. `speculation.mode` on or off: as asked (`caller_override`).
    2. `service_tier` priority: speculative; flex: batch (`service_tier`). Where that pool is full, more of its
       sequences wait than run, and in the other one none waits: the other one (`overflow`).
    3. a feature that one pool alone can serve: that pool (`feature`).
    4. only one pool has replicas: that one; no pools: speculative (`no_choice`). This also holds against 2 and 3.
    5. the pool with the higher goodput (`goodput`), see `expected_goodput`. Less than 5 % between them, an unknown time
       per token, or a snapshot older than `ranking.STALE_AFTER_S`: speculative (`standard`).

    The role of the replica decides about drafting, except that nobody drafts for "off", and for flex without a batch
    pool.
    """

    def choose(self, request: RouteRequest, snapshot: RouteSnapshot) -> Route:
        """The route of one request."""
        if request.mode is not SpeculationMode.AUTO:
            asks = request.mode is SpeculationMode.ON
            return Route(
                pool=Role.SPECULATIVE if asks else Role.BATCH,
                reason=Reason.CALLER_OVERRIDE,
                inputs=(("speculation", request.mode.value),),
                drafts=asks,
            )
        tier_pool = {"priority": Role.SPECULATIVE, "flex": Role.BATCH}.get(request.service_tier or "")
        if tier_pool is not None:
            return _as_wished(tier_pool, Reason.SERVICE_TIER, ("service_tier", str(request.service_tier)), snapshot)
        if request.only_pool is not None:
            return _as_wished(request.only_pool, Reason.FEATURE, ("only_pool", request.only_pool.value), snapshot)
        return _by_load(request, snapshot)


def choose(policy: PolicyName, request: RouteRequest, snapshot: RouteSnapshot) -> Route:
    """The route of one request under a policy by name."""
    return POLICIES[policy].choose(request, snapshot)


def mean_acceptance_length(acceptance_rate: float) -> float:
    """Tokens per round at K = 5 when each draft token is accepted with the same chance: 1 + a + ... + a^K."""
    return sum(acceptance_rate**power for power in range(NUM_DRAFT_TOKENS + 1))


def domain_acceptance(domain: Domain, stats: DomainStats) -> float:
    """The chance that a draft token of this domain is accepted.

    What was seen, and the table's figure with the weight of 256 draft tokens:
    (accepted + 256 * table) / (drafted + 256). A measured entropy corrects the table: below 1.2 bits it says at least
    0.72 (the least of the low-entropy domains), above 3.5 bits at most 0.38 (creative writing).
    """
    prior = PRIOR_ACCEPTANCE[domain]
    if stats.entropy_bits is not None and stats.entropy_bits < LOW_ENTROPY_BITS:
        prior = max(prior, PRIOR_ACCEPTANCE[Domain.RAG_SUMMARY])
    elif stats.entropy_bits is not None and stats.entropy_bits > HIGH_ENTROPY_BITS:
        prior = min(prior, PRIOR_ACCEPTANCE[Domain.CREATIVE_WRITING])
    num_accepted = min(stats.num_accepted_tokens, stats.num_draft_tokens) + PRIOR_DRAFT_TOKENS * prior
    return num_accepted / (stats.num_draft_tokens + PRIOR_DRAFT_TOKENS)


def expected_goodput(request: RouteRequest, snapshot: RouteSnapshot, role: Role) -> float | None:
    """Tokens per second that a pool promises to a request; None while the pool's time per token is unknown.

        goodput = gain / (tpot_s * (1 + size * turns))

        gain   batch: 1. speculative: MAL(acceptance of the request's domain) / MAL(acceptance of the pool), since
               `tpot_s` is that of the requests which the pool serves now; MAL(a) = 1 + a + ... + a^5
        turns  waiting / running sequences of the pool: how often its places must change hands before it is served
        size   max_tokens / 256, between 1 and 4: a long request keeps its place for as many usual ones, and those
               behind it wait

    So guessable text and short requests gain most in the speculative pool, and long or unguessable ones leave it first
    when it fills up.
    """
    load = snapshot.pools.get(role, PoolLoad())
    if load.tpot_s is None or load.tpot_s <= 0:
        return None
    turns = load.num_waiting / max(1, load.num_running)
    size = min(max(request.max_tokens / USUAL_TOKENS, 1.0), MAX_SIZE)
    gain = 1.0
    if role is Role.SPECULATIVE:
        pool_rate = PRIOR_ACCEPTANCE[Domain.GENERAL_CHAT] if load.acceptance_rate is None else load.acceptance_rate
        own_rate = domain_acceptance(request.domain, _stats(request, snapshot))
        gain = mean_acceptance_length(own_rate) / mean_acceptance_length(pool_rate)
    return gain / (load.tpot_s * (1 + size * turns))


def _by_load(request: RouteRequest, snapshot: RouteSnapshot) -> Route:
    """Where the request leaves the choice."""
    inputs: Inputs = (("replicas", _replicas_text(snapshot)),)
    pools = [role for role in Role if _num_replicas(snapshot, role)]
    if len(pools) < 2:
        return Route(pool=pools[0] if pools else Role.SPECULATIVE, reason=Reason.NO_CHOICE, inputs=inputs)
    inputs += (("snapshot_age_s", f"{snapshot.age_s:.2f}"),)
    if snapshot.age_s > STALE_AFTER_S:
        return Route(pool=Role.SPECULATIVE, reason=Reason.STANDARD, inputs=inputs)
    speculative = expected_goodput(request, snapshot, Role.SPECULATIVE)
    batch = expected_goodput(request, snapshot, Role.BATCH)
    inputs += (*_request_inputs(request, snapshot), *_goodput_inputs(speculative, batch))
    if speculative is None or batch is None:
        return Route(pool=Role.SPECULATIVE, reason=Reason.STANDARD, inputs=inputs)
    if batch > TIE_RATIO * speculative:
        return Route(pool=Role.BATCH, reason=Reason.GOODPUT, inputs=inputs)
    reason = Reason.GOODPUT if speculative > TIE_RATIO * batch else Reason.STANDARD
    return Route(pool=Role.SPECULATIVE, reason=reason, inputs=inputs)


def _as_wished(pool: Role, reason: Reason, wish: tuple[str, str], snapshot: RouteSnapshot) -> Route:
    """A pool that the request asks for, unless only the other one has replicas."""
    inputs: Inputs = (wish, ("replicas", _replicas_text(snapshot)))
    drafts = pool is Role.SPECULATIVE or _num_replicas(snapshot, pool) > 0
    if _num_replicas(snapshot, pool) == 0 < _num_replicas(snapshot, _OTHER[pool]):
        return Route(pool=_OTHER[pool], reason=Reason.NO_CHOICE, inputs=inputs, drafts=drafts)
    if reason is Reason.SERVICE_TIER and _overflows(pool, snapshot):
        waiting = ", ".join(f"{snapshot.pools[role].num_waiting} {role.value}" for role in Role)
        return Route(pool=_OTHER[pool], reason=Reason.OVERFLOW, inputs=(*inputs, ("waiting", waiting)), drafts=drafts)
    return Route(pool=pool, reason=reason, inputs=inputs, drafts=drafts)


def _overflows(pool: Role, snapshot: RouteSnapshot) -> bool:
    """True where a pool is full and more of its work waits than runs, while in the other one none waits."""
    if snapshot.age_s > STALE_AFTER_S or _num_replicas(snapshot, _OTHER[pool]) == 0:
        return False
    load, other = snapshot.pools.get(pool, PoolLoad()), snapshot.pools[_OTHER[pool]]
    is_full = load.num_running + load.num_waiting > load.num_seats
    return is_full and load.num_waiting > max(1, load.num_running) and other.num_waiting == 0


def _stats(request: RouteRequest, snapshot: RouteSnapshot) -> DomainStats:
    return snapshot.domains.get(request.domain.value, DomainStats())


def _num_replicas(snapshot: RouteSnapshot, role: Role) -> int:
    return snapshot.pools[role].num_replicas if role in snapshot.pools else 0


def _replicas_text(snapshot: RouteSnapshot) -> str:
    return ", ".join(f"{_num_replicas(snapshot, role)} {role.value}" for role in Role)


def _request_inputs(request: RouteRequest, snapshot: RouteSnapshot) -> Inputs:
    stats = _stats(request, snapshot)
    entropy = "unknown" if stats.entropy_bits is None else f"{stats.entropy_bits:.2f} bits"
    return (
        ("domain", request.domain.value),
        ("domain_acceptance", f"{domain_acceptance(request.domain, stats):.3f} ({stats.num_draft_tokens} drafted)"),
        ("domain_entropy", entropy),
        ("max_tokens", str(request.max_tokens)),
    )


def _goodput_inputs(speculative: float | None, batch: float | None) -> Inputs:
    pairs = (("goodput_speculative", speculative), ("goodput_batch", batch))
    return tuple((name, "unknown" if value is None else f"{value:.2f} tokens/s") for name, value in pairs)


POLICIES: Final[Mapping[PolicyName, Policy]] = MappingProxyType({"rules": RulesPolicy(), "learned": LearnedPolicy()})
