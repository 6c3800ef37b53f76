import math
import time

from hypothesis import given
from hypothesis import strategies as st

from cluster.routing.ranking import AFFINITY_RATIO, AFFINITY_TOKENS, STALE_AFTER_S, ReplicaLoad, rank_replicas
from cluster.types import Role

loads = st.builds(
    ReplicaLoad,
    replica_id=st.just(""),
    role=st.sampled_from([None, *Role]),
    num_outstanding_tokens=st.integers(0, 5000),
    num_ongoing=st.integers(0, 50),
    age_s=st.sampled_from([0.0, 1.0, STALE_AFTER_S + 1, math.inf, math.nan]),
    is_draining=st.booleans(),
    has_prefix=st.booleans(),
)
pools = st.sampled_from([None, *Role])


def named(drawn: list[ReplicaLoad]) -> list[ReplicaLoad]:
    return [
        ReplicaLoad(
            replica_id=f"r{index}",
            role=load.role,
            num_outstanding_tokens=load.num_outstanding_tokens,
            num_ongoing=load.num_ongoing,
            age_s=load.age_s,
            is_draining=load.is_draining,
            has_prefix=load.has_prefix,
        )
        for index, load in enumerate(drawn)
    ]


candidates = st.lists(loads, max_size=12).map(named)


def is_known(load: ReplicaLoad) -> bool:
    return load.role is not None and load.age_s <= STALE_AFTER_S


@given(candidates, pools, st.integers(-5, 50))
def test_every_candidate_stands_in_exactly_one_group_and_nobody_else_does(
    found: list[ReplicaLoad], pool: Role | None, offset: int
) -> None:
    groups = rank_replicas(found, pool, offset=offset)
    assert sorted(name for group in groups for name in group) == sorted(load.replica_id for load in found)
    assert all(groups)


@given(candidates, pools, st.integers(0, 50))
def test_the_first_is_of_the_best_kind_there_is(found: list[ReplicaLoad], pool: Role | None, offset: int) -> None:
    by_name = {load.replica_id: load for load in found}
    groups = rank_replicas(found, pool, offset=offset)
    if not groups:
        return
    (first,) = (by_name[name] for name in groups[0])
    if any(not load.is_draining for load in found):
        assert not first.is_draining
    staying = [load for load in found if not load.is_draining]
    if pool is not None and any(is_known(load) and load.role is pool for load in staying):
        assert first.role is pool
        assert is_known(first)


@given(candidates, st.integers(0, 50))
def test_without_a_wanted_pool_load_alone_decides(found: list[ReplicaLoad], offset: int) -> None:
    plain = [
        ReplicaLoad(replica_id=load.replica_id, num_outstanding_tokens=load.num_outstanding_tokens) for load in found
    ]
    groups = rank_replicas(plain, None, offset=offset)
    if groups:
        by_name = {load.replica_id: load.num_outstanding_tokens for load in plain}
        assert by_name[groups[0][0]] == min(by_name.values())


@given(st.lists(loads, min_size=1, max_size=12).map(named), st.sampled_from(list(Role)))
def test_unknown_roles_degrade_to_load_routing(found: list[ReplicaLoad], pool: Role) -> None:
    unknown = [
        ReplicaLoad(
            replica_id=load.replica_id,
            role=load.role if index % 2 else None,
            num_outstanding_tokens=load.num_outstanding_tokens,
            num_ongoing=load.num_ongoing,
            age_s=math.inf if index % 2 else 0.0,
        )
        for index, load in enumerate(found)
    ]
    by_name = {load.replica_id: (load.num_outstanding_tokens, load.num_ongoing) for load in unknown}
    groups = rank_replicas(unknown, pool)
    assert by_name[groups[0][0]] == min(by_name.values())
    assert len(groups) == (2 if len(unknown) > 1 else 1)


@given(candidates, pools)
def test_a_holder_of_the_prefix_is_never_much_busier_than_the_least_busy(
    found: list[ReplicaLoad], pool: Role | None
) -> None:
    groups = rank_replicas(found, pool)
    if not groups:
        return
    by_name = {load.replica_id: load for load in found}
    first = by_name[groups[0][0]]
    same_kind = [first, *(by_name[name] for name in (groups[1] if len(groups) > 1 else ()))]
    same_kind = [load for load in same_kind if load.is_draining == first.is_draining]
    if pool is not None and is_known(first) and first.role is pool:
        same_kind = [load for load in same_kind if is_known(load) and load.role is pool]
        least = min(load.num_outstanding_tokens for load in same_kind)
        assert first.num_outstanding_tokens <= least * AFFINITY_RATIO + AFFINITY_TOKENS


def load(name: str, tokens: int, role: Role = Role.SPECULATIVE, **more: bool) -> ReplicaLoad:
    return ReplicaLoad(replica_id=name, role=role, num_outstanding_tokens=tokens, **more)


def test_a_prefix_wins_over_a_little_load_and_loses_against_much() -> None:
    for extra, expected in ((AFFINITY_TOKENS, "holder"), (AFFINITY_TOKENS + 1, "idle")):
        found = [load("idle", 0), load("holder", extra, has_prefix=True)]
        assert rank_replicas(found, Role.SPECULATIVE)[0] == [expected]


def test_a_prefix_in_the_other_pool_does_not_count() -> None:
    found = [load("mine", 100), load("other", 0, Role.BATCH, has_prefix=True)]
    assert rank_replicas(found, Role.SPECULATIVE) == [["mine"], ["other"]]


def test_an_empty_pool_falls_back_to_unknown_ones_then_the_other_pool_then_draining_ones() -> None:
    found = [
        load("draining", 0, is_draining=True),
        load("other", 1, Role.BATCH),
        ReplicaLoad(replica_id="unknown", num_outstanding_tokens=900),
    ]
    assert rank_replicas(found, Role.SPECULATIVE) == [["unknown"], ["other"], ["draining"]]


def test_equally_good_ones_take_turns() -> None:
    found = [load(f"r{index}", 0) for index in range(4)]
    assert [rank_replicas(found, None, offset=turn)[0][0] for turn in range(5)] == ["r0", "r1", "r2", "r3", "r0"]


def test_a_thousand_candidates_are_ranked_in_a_moment() -> None:
    found = [load(f"r{index}", index * 7919 % 5000, [*Role][index % 2]) for index in range(1000)]
    best_s = math.inf
    for _ in range(20):
        began_s = time.perf_counter()
        rank_replicas(found, Role.BATCH)
        best_s = min(best_s, time.perf_counter() - began_s)
    assert best_s < 0.01
