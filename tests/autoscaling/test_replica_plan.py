"""How many replicas: up soon, down late, never out of bounds."""

from itertools import pairwise

import pytest

from autoscaling.pool_config import PoolConfig
from tests.autoscaling.pool_cluster import FakeCluster, FakeReplica, Work, cluster

SCALED = PoolConfig(min_replicas=1, max_replicas=6, tpot_slo_s=0.03, scale_down_hold_s=20.0)


def plan(found: FakeCluster) -> int:
    return found.decisions[-1].num_replicas


def add(found: FakeCluster) -> None:
    """Serve starts and stops replicas as planned."""
    while len(found.replicas) < plan(found):
        found.replicas[f"new{len(found.decisions)}-{len(found.replicas)}"] = FakeReplica(
            role=found.config.initial_role()
        )
    while len(found.replicas) > plan(found):
        found.replicas.popitem()


def test_a_fixed_number_is_the_number_of_live_replicas() -> None:
    found = cluster("sss", work=Work(auto=500))
    found.run(10)
    assert plan(found) == 3


def test_more_load_than_fits_asks_for_as_many_replicas_as_it_needs_within_seconds() -> None:
    found = cluster("s", SCALED, work=Work(auto=8))
    found.run(10)
    assert plan(found) == 1
    found.work = Work(auto=150)
    found.run(4)
    assert 3 <= plan(found) <= 6


def test_fewer_replicas_come_one_at_a_time_and_late() -> None:
    found = cluster("ssss", SCALED, work=Work(auto=150))
    found.run(5)
    many = plan(found)
    found.work = Work(auto=4)
    found.run(19)
    assert plan(found) == many
    found.run(2)
    assert plan(found) == many - 1
    found.run(20)
    assert plan(found) == many - 2
    found.run(200)
    assert plan(found) == 1


def test_a_short_lull_takes_no_replica_away() -> None:
    found = cluster("ssss", SCALED, work=Work(auto=150))
    found.run(5)
    many = plan(found)
    for _ in range(10):
        found.work = Work(auto=4)
        found.run(10)
        found.work = Work(auto=150)
        found.run(1)
    assert plan(found) == many


@pytest.mark.parametrize(("lowest", "wanted"), [(0, 0), (1, 1), (2, 2)])
def test_no_load_leaves_the_fewest_replicas(lowest: int, wanted: int) -> None:
    found = cluster("sss", PoolConfig(min_replicas=lowest, max_replicas=6, scale_down_hold_s=5.0))
    found.run(60)
    assert plan(found) == wanted


def test_without_any_replica_the_plan_holds() -> None:
    found = cluster("sss", PoolConfig(min_replicas=2, max_replicas=6), work=Work(auto=40))
    found.run(5)
    before = plan(found)
    for each in found.replicas.values():
        each.is_silent = True
    found.run(30)
    assert plan(found) == before >= 2


def test_full_kv_blocks_ask_for_more_replicas_than_seats_do() -> None:
    from dataclasses import replace

    from autoscaling.pool_demand import Demand, PoolWork
    from autoscaling.replica_plan import capacity

    demand = Demand(speculative=PoolWork(num_replicas=1, num_sequences=10), batch=PoolWork())
    assert capacity(SCALED, demand, None) == 16
    assert capacity(SCALED, replace(demand, kv_sequences=11.0), None) == 11


@pytest.mark.parametrize("num_sequences", [30, 66, 90, 120])
def test_a_steady_noisy_load_is_planned_for_once(num_sequences: int) -> None:
    found = cluster("s", SCALED, work=Work(auto=num_sequences), noise_ratio=0.1)
    plans = []
    for _ in range(300):
        found.beat()
        add(found)
        plans.append(plan(found))
    assert len({*plans[100:]}) <= 2
    assert sum(one != other for one, other in pairwise(plans[100:])) <= 1


def test_where_the_role_is_fixed_only_its_seats_count() -> None:
    config = PoolConfig(
        mode="speculative", min_replicas=1, max_replicas=6, speculative_max_num_seqs=4, batch_max_num_seqs=128
    )
    found = cluster("s", config, work=Work(auto=12))
    found.run(20)
    assert plan(found) >= 3
