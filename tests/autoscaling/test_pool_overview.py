"""What the replies say of the pools and the domains."""

from dataclasses import replace

import pytest

from autoscaling.inversion import role_rate
from autoscaling.pool_config import PoolConfig
from autoscaling.pool_controller import heard, heard_all, overview
from autoscaling.types import ReplicaReport, Snapshot
from cluster.routing.types import DomainStats
from cluster.types import Role
from tests.autoscaling.pool_cluster import TIMES

CONFIG = PoolConfig()


def report(name: str, role: Role = Role.SPECULATIVE, num_running: int = 4, **more: object) -> ReplicaReport:
    made = ReplicaReport(
        replica_id=name, role=role, num_running=num_running, tokens_per_s=100.0, step_times=TIMES, acceptance_rate=0.5
    )
    return replace(made, **more)  # type: ignore[arg-type]


def test_pools_are_added_up_and_tell_what_one_more_request_would_get() -> None:
    snapshot = heard_all(Snapshot(), [report("a"), report("b", num_running=6, num_waiting=2)], 1.0)
    pools = overview(CONFIG, snapshot, 1.0).pools
    assert set(pools) == {Role.SPECULATIVE}
    pool = pools[Role.SPECULATIVE]
    assert (pool.num_replicas, pool.num_running, pool.num_waiting, pool.tokens_per_s) == (2, 10, 2, 200.0)
    expected = role_rate(TIMES, Role.SPECULATIVE, acceptance_rate=0.5, concurrency=7, max_num_seqs=16, max_tokens=7)
    assert pool.tpot_s == expected.tpot_s
    assert pool.acceptance_rate == 0.5


def test_old_and_draining_replicas_are_left_out() -> None:
    snapshot = heard(Snapshot(), report("old"), 1.0)
    snapshot = heard_all(snapshot, [report("leaving", is_draining=True), report("b", Role.BATCH)], 5.0)
    assert {role: pool.num_replicas for role, pool in overview(CONFIG, snapshot, 5.0).pools.items()} == {Role.BATCH: 1}


def test_the_time_per_token_is_unknown_without_step_times() -> None:
    snapshot = heard(Snapshot(), report("a", step_times=None), 1.0)
    assert overview(CONFIG, snapshot, 1.0).pools[Role.SPECULATIVE].tpot_s is None


def test_domains_are_added_up_with_entropy_by_tokens() -> None:
    one = DomainStats(num_requests=1, num_output_tokens=10, num_draft_tokens=8, num_accepted_tokens=4, entropy_bits=1.0)
    two = DomainStats(num_requests=2, num_output_tokens=30, num_draft_tokens=2, num_accepted_tokens=1, entropy_bits=3.0)
    silent = DomainStats(num_requests=1, num_output_tokens=100)
    reports = [report("a", domains={"x": one}), report("b", domains={"x": two}), report("c", domains={"x": silent})]
    merged = overview(CONFIG, heard_all(Snapshot(), reports, 1.0), 1.0).domains["x"]
    assert (merged.num_requests, merged.num_output_tokens, merged.acceptance_rate) == (4, 140, 0.5)
    assert merged.entropy_bits == pytest.approx(2.5)
