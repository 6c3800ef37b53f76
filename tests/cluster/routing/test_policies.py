import math
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.routing.policies import (
    PRIOR_ACCEPTANCE,
    PRIOR_DRAFT_TOKENS,
    TIE_RATIO,
    PolicyName,
    choose,
    domain_acceptance,
    expected_goodput,
    mean_acceptance_length,
)
from cluster.routing.ranking import STALE_AFTER_S
from cluster.routing.types import Domain, DomainStats, PoolLoad, Reason, Route, RouteRequest, RouteSnapshot
from cluster.types import Role, SpeculationMode

steady = settings(derandomize=True, deadline=None)
SPECULATIVE, BATCH = Role.SPECULATIVE, Role.BATCH
AUTO, ON, OFF = SpeculationMode.AUTO, SpeculationMode.ON, SpeculationMode.OFF
OTHER = {SPECULATIVE: BATCH, BATCH: SPECULATIVE}

policies = st.sampled_from(get_args(PolicyName))
counts = st.integers(0, 200)
loads = st.builds(
    PoolLoad,
    num_replicas=st.sampled_from((0, 1, 3)),
    num_running=counts,
    num_waiting=counts,
    tpot_s=st.sampled_from((None, 0.0, 0.01, 0.02, 0.03, 0.05)),
    acceptance_rate=st.none() | st.floats(0.0, 1.0),
)
stats = st.builds(
    DomainStats,
    num_draft_tokens=st.integers(0, 5000),
    num_accepted_tokens=st.integers(0, 5000),
    entropy_bits=st.none() | st.floats(0.0, 8.0),
)
snapshots = st.builds(
    RouteSnapshot,
    num_active=st.integers(0, 64),
    acceptance_rate=st.floats(0.0, 1.0),
    pools=st.fixed_dictionaries({}, optional={SPECULATIVE: loads, BATCH: loads}),
    domains=st.dictionaries(st.sampled_from([domain.value for domain in Domain]), stats),
    age_s=st.sampled_from((0.0, 1.0, 2.0, STALE_AFTER_S + 1, math.inf)),
)
requests = st.builds(
    RouteRequest,
    mode=st.sampled_from(SpeculationMode),
    service_tier=st.sampled_from((None, "auto", "default", "flex", "priority", "scale")),
    domain=st.sampled_from(Domain),
    temperature=st.floats(0.0, 2.0),
    max_tokens=st.integers(1, 8192),
    only_pool=st.sampled_from((None, None, None, SPECULATIVE, BATCH)),
)
drafted = st.integers(1, 5000)


def _short(route: Route) -> tuple[Role, Reason, bool]:
    return route.pool, route.reason, route.drafts


def _pools(speculative: PoolLoad, batch: PoolLoad, **fields: object) -> RouteSnapshot:
    return replace(RouteSnapshot(pools={SPECULATIVE: speculative, BATCH: batch}, age_s=0.0), **fields)  # type: ignore[arg-type]


IDLE = PoolLoad(num_replicas=1, num_running=1, tpot_s=0.01)
BUSY = PoolLoad(num_replicas=1, num_running=16, num_waiting=8, tpot_s=0.03)
WIDE = PoolLoad(num_replicas=1, num_running=64, tpot_s=0.04)


CREATIVE, CODE, CHAT = Domain.CREATIVE_WRITING, Domain.CODE_SYNTHESIS, Domain.GENERAL_CHAT


@pytest.mark.parametrize(
    ("asked", "num_active", "acceptance_rate", "expected"),
    [
        ((ON, CHAT, 1.0), 32, 1.0, (BATCH, Reason.CONCURRENCY_GUARD)),
        ((ON, CREATIVE, 2.0), 31, 0.0, (SPECULATIVE, Reason.CALLER_OVERRIDE)),
        ((OFF, CODE, 0.0), 0, 1.0, (BATCH, Reason.CALLER_OVERRIDE)),
        ((AUTO, CREATIVE, 0.81), 0, 1.0, (BATCH, Reason.HIGH_ENTROPY_DOMAIN)),
        ((AUTO, CREATIVE, 0.8), 0, 1.0, (SPECULATIVE, Reason.STANDARD)),
        ((AUTO, CREATIVE, 0.8), 0, 0.6, (BATCH, Reason.LOW_ACCEPTANCE)),
        ((AUTO, CODE, 2.0), 31, 0.0, (SPECULATIVE, Reason.LOW_ENTROPY_DOMAIN)),
        ((AUTO, Domain.STRUCTURED_JSON, 1.0), 0, 0.0, (SPECULATIVE, Reason.LOW_ENTROPY_DOMAIN)),
        ((AUTO, Domain.RAG_SUMMARY, 1.0), 0, 0.0, (SPECULATIVE, Reason.LOW_ENTROPY_DOMAIN)),
        ((AUTO, CHAT, 2.0), 0, 0.6499, (BATCH, Reason.LOW_ACCEPTANCE)),
        ((AUTO, CHAT, 2.0), 0, 0.65, (SPECULATIVE, Reason.STANDARD)),
        ((AUTO, CHAT, 1.0), 31, 1.0, (SPECULATIVE, Reason.STANDARD)),
        ((AUTO, CODE, 1.0), 32, 1.0, (BATCH, Reason.CONCURRENCY_GUARD)),
    ],
)
def test_the_five_rules_decide_as_the_documents_say(
    asked: tuple[SpeculationMode, Domain, float], num_active: int, acceptance_rate: float, expected: tuple[Role, Reason]
) -> None:
    mode, domain, temperature = asked
    request = RouteRequest(mode=mode, domain=domain, temperature=temperature, service_tier="flex")
    route = choose("rules", request, RouteSnapshot(num_active=num_active, acceptance_rate=acceptance_rate))
    assert (route.pool, route.reason) == expected
    assert route.drafts == (route.pool is SPECULATIVE)


@steady
@given(policies, requests, snapshots)
def test_the_same_values_give_the_same_route(
    policy: PolicyName, request: RouteRequest, snapshot: RouteSnapshot
) -> None:
    route = choose(policy, request, snapshot)
    assert route == choose(policy, replace(request), replace(snapshot, pools=dict(snapshot.pools)))
    assert route.inputs and all(name and value for name, value in route.inputs)


@steady
@given(requests, snapshots)
def test_an_override_always_wins_over_tier_features_and_load(request: RouteRequest, snapshot: RouteSnapshot) -> None:
    for mode, pool in ((ON, SPECULATIVE), (OFF, BATCH)):
        route = choose("learned", replace(request, mode=mode), snapshot)
        assert _short(route) == (pool, Reason.CALLER_OVERRIDE, mode is ON)


@steady
@given(policies, requests, snapshots)
def test_nobody_drafts_for_a_request_that_says_off(
    policy: PolicyName, request: RouteRequest, snapshot: RouteSnapshot
) -> None:
    assert not choose(policy, replace(request, mode=OFF), snapshot).drafts


@steady
@given(requests, snapshots)
def test_a_pool_without_replicas_is_never_chosen_while_the_other_has_some(
    request: RouteRequest, snapshot: RouteSnapshot
) -> None:
    route = choose("learned", replace(request, mode=AUTO), snapshot)
    others = snapshot.pools.get(OTHER[route.pool], PoolLoad())
    assert snapshot.pools.get(route.pool, PoolLoad()).num_replicas or not others.num_replicas


@steady
@given(requests, snapshots, drafted, st.data())
def test_more_acceptance_never_moves_a_request_to_the_batch_pool(
    request: RouteRequest, snapshot: RouteSnapshot, num_drafted: int, data: st.DataObject
) -> None:
    low, high = sorted((data.draw(st.integers(0, num_drafted)), data.draw(st.integers(0, num_drafted))))
    known = snapshot.domains.get(request.domain.value, DomainStats())

    def pool(num_accepted: int) -> Role:
        own = replace(known, num_draft_tokens=num_drafted, num_accepted_tokens=num_accepted)
        domains = snapshot.domains | {request.domain.value: own}
        return choose("learned", request, replace(snapshot, domains=domains)).pool

    assert (pool(low), pool(high)) != (SPECULATIVE, BATCH)


@steady
@given(requests, snapshots, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_recent_acceptance_never_moves_a_request_to_the_batch_pool_under_either_policy(
    request: RouteRequest, snapshot: RouteSnapshot, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    for policy in get_args(PolicyName):
        before = choose(policy, request, replace(snapshot, acceptance_rate=low)).pool
        after = choose(policy, request, replace(snapshot, acceptance_rate=high)).pool
        assert (before, after) != (SPECULATIVE, BATCH)


@steady
@given(requests, snapshots, st.integers(1, 500))
def test_a_longer_queue_never_draws_a_request_in(request: RouteRequest, snapshot: RouteSnapshot, more: int) -> None:
    for role, load in snapshot.pools.items():
        longer = replace(load, num_waiting=load.num_waiting + more)
        before = choose("learned", request, snapshot).pool
        after = choose("learned", request, replace(snapshot, pools=snapshot.pools | {role: longer})).pool
        assert after is before or before is role


@pytest.mark.parametrize(
    ("request_fields", "expected"),
    [
        ({"service_tier": "priority"}, (SPECULATIVE, Reason.SERVICE_TIER, True)),
        ({"service_tier": "flex"}, (BATCH, Reason.SERVICE_TIER, True)),
        ({"service_tier": "flex", "only_pool": SPECULATIVE}, (BATCH, Reason.SERVICE_TIER, True)),
        ({"only_pool": SPECULATIVE}, (SPECULATIVE, Reason.FEATURE, True)),
        ({"service_tier": "auto"}, (BATCH, Reason.GOODPUT, True)),
        ({"service_tier": "default"}, (BATCH, Reason.GOODPUT, True)),
    ],
)
def test_tier_then_feature_then_goodput_decide(
    request_fields: dict[str, object], expected: tuple[Role, Reason, bool]
) -> None:
    request = replace(RouteRequest(domain=Domain.CREATIVE_WRITING), **request_fields)  # type: ignore[arg-type]
    assert _short(choose("learned", request, _pools(BUSY, WIDE))) == expected


def test_flex_without_a_batch_pool_runs_where_there_is_room_and_nobody_drafts_for_it() -> None:
    flex = RouteRequest(service_tier="flex")
    assert _short(choose("learned", flex, RouteSnapshot())) == (BATCH, Reason.SERVICE_TIER, False)
    alone = RouteSnapshot(pools={SPECULATIVE: IDLE}, age_s=0.0)
    assert _short(choose("learned", flex, alone)) == (SPECULATIVE, Reason.NO_CHOICE, False)
    priority = RouteRequest(service_tier="priority")
    assert _short(choose("learned", priority, RouteSnapshot(pools={BATCH: WIDE}))) == (BATCH, Reason.NO_CHOICE, True)


def test_without_pools_or_news_of_them_requests_go_to_the_speculative_pool() -> None:
    request = RouteRequest(domain=Domain.CREATIVE_WRITING)
    assert _short(choose("learned", request, RouteSnapshot())) == (SPECULATIVE, Reason.NO_CHOICE, True)
    alone = RouteSnapshot(pools={BATCH: WIDE, SPECULATIVE: PoolLoad()}, age_s=0.0)
    assert _short(choose("learned", request, alone)) == (BATCH, Reason.NO_CHOICE, True)
    fresh = _pools(BUSY, WIDE, age_s=STALE_AFTER_S)
    assert choose("learned", request, fresh).pool is BATCH
    stale = replace(fresh, age_s=STALE_AFTER_S + 0.1)
    assert _short(choose("learned", request, stale)) == (SPECULATIVE, Reason.STANDARD, True)
    unknown = _pools(replace(BUSY, tpot_s=None), WIDE)
    assert _short(choose("learned", request, unknown)) == (SPECULATIVE, Reason.STANDARD, True)


def test_the_goodput_is_the_formula_in_its_docstring() -> None:
    own = DomainStats(num_draft_tokens=744, num_accepted_tokens=600)
    load = PoolLoad(num_replicas=1, num_running=16, num_waiting=4, tpot_s=0.02, acceptance_rate=0.5)
    snapshot = _pools(load, replace(load, tpot_s=0.04), domains={"code_synthesis": own})
    request = RouteRequest(domain=Domain.CODE_SYNTHESIS, max_tokens=512)
    rate = (600 + PRIOR_DRAFT_TOKENS * 0.78) / (744 + PRIOR_DRAFT_TOKENS)
    assert domain_acceptance(Domain.CODE_SYNTHESIS, own) == pytest.approx(rate)
    gain = mean_acceptance_length(rate) / 1.96875
    assert expected_goodput(request, snapshot, SPECULATIVE) == pytest.approx(gain / (0.02 * (1 + 2 * 0.25)))
    assert expected_goodput(request, snapshot, BATCH) == pytest.approx(1 / (0.04 * (1 + 2 * 0.25)))


def test_a_domain_is_believed_to_be_as_the_table_says_until_enough_was_seen() -> None:
    for domain, prior in PRIOR_ACCEPTANCE.items():
        assert domain_acceptance(domain, DomainStats()) == prior
        few = DomainStats(num_draft_tokens=10, num_accepted_tokens=0)
        many = DomainStats(num_draft_tokens=100_000, num_accepted_tokens=0)
        assert domain_acceptance(domain, few) > 0.9 * prior
        assert domain_acceptance(domain, many) < 0.01


def test_measured_entropy_corrects_the_table_outside_its_bands_only() -> None:
    def rate(domain: Domain, bits: float) -> float:
        return domain_acceptance(domain, DomainStats(entropy_bits=bits))

    assert rate(Domain.CREATIVE_WRITING, 1.19) == 0.72
    assert rate(Domain.CREATIVE_WRITING, 1.2) == rate(Domain.CREATIVE_WRITING, 3.5) == 0.38
    assert rate(Domain.CODE_SYNTHESIS, 3.51) == 0.38
    assert rate(Domain.CODE_SYNTHESIS, 3.5) == rate(Domain.CODE_SYNTHESIS, 0.5) == 0.78


def test_a_difference_below_five_percent_is_a_tie_and_goes_to_the_speculative_pool() -> None:
    request = RouteRequest(domain=Domain.GENERAL_CHAT)
    for factor, expected in (
        (TIE_RATIO + 0.001, (BATCH, Reason.GOODPUT)),
        (TIE_RATIO - 0.001, (SPECULATIVE, Reason.STANDARD)),
        (1 / TIE_RATIO + 0.001, (SPECULATIVE, Reason.STANDARD)),
        (1 / TIE_RATIO - 0.001, (SPECULATIVE, Reason.GOODPUT)),
    ):
        route = choose("learned", request, _pools(IDLE, replace(IDLE, tpot_s=0.01 / factor)))
        assert (route.pool, route.reason) == expected, factor


def test_at_low_load_everything_speculates_and_at_high_load_guessable_and_short_requests_do() -> None:
    def pool(domain: Domain, max_tokens: int, speculative: PoolLoad) -> Role:
        return choose("learned", RouteRequest(domain=domain, max_tokens=max_tokens), _pools(speculative, WIDE)).pool

    assert {pool(domain, 4096, IDLE) for domain in Domain} == {SPECULATIVE}
    assert pool(Domain.STRUCTURED_JSON, 64, BUSY) is SPECULATIVE
    assert pool(Domain.STRUCTURED_JSON, 4096, BUSY) is BATCH
    assert pool(Domain.CREATIVE_WRITING, 64, BUSY) is BATCH


def test_a_tier_yields_where_its_pool_is_hopelessly_full_and_the_other_one_has_places() -> None:
    full = PoolLoad(num_replicas=2, num_running=8, num_waiting=9, num_seats=8, tpot_s=0.02)
    burst = PoolLoad(num_replicas=2, num_running=0, num_waiting=9, num_seats=64, tpot_s=0.02)
    free = PoolLoad(num_replicas=2, num_running=3, num_waiting=0, tpot_s=0.02)
    flex, priority = RouteRequest(service_tier="flex"), RouteRequest(service_tier="priority")
    batch_full = RouteSnapshot(pools={BATCH: full, SPECULATIVE: free}, age_s=0.1)
    assert _short(choose("learned", flex, batch_full)) == (SPECULATIVE, Reason.OVERFLOW, True)
    assert _short(choose("learned", priority, batch_full)) == (SPECULATIVE, Reason.SERVICE_TIER, True)
    speculative_full = RouteSnapshot(pools={BATCH: free, SPECULATIVE: full}, age_s=0.1)
    assert _short(choose("learned", priority, speculative_full)) == (BATCH, Reason.OVERFLOW, True)
    for snapshot in (
        RouteSnapshot(pools={BATCH: full, SPECULATIVE: full}, age_s=0.1),
        RouteSnapshot(pools={BATCH: full, SPECULATIVE: free}, age_s=60.0),
        RouteSnapshot(pools={BATCH: free, SPECULATIVE: free}, age_s=0.1),
        RouteSnapshot(pools={BATCH: burst, SPECULATIVE: free}, age_s=0.1),
    ):
        assert _short(choose("learned", flex, snapshot)) == (BATCH, Reason.SERVICE_TIER, True)
