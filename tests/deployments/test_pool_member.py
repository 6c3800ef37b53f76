import asyncio

import pytest

from autoscaling.pool_config import PoolConfig
from autoscaling.types import HeartbeatReply, LatencyWindow, ReplicaReport
from cluster.clock import ManualClock
from cluster.engine.step_time import StepTimes
from cluster.types import Role
from deployments.heartbeat import encode
from deployments.pool_member import PoolMember
from deployments.replica_stats import stats_from_json

pytestmark = pytest.mark.anyio


class Verifier:
    def __init__(self, step_times: StepTimes | None = None) -> None:
        self.role = Role.SPECULATIVE
        self.asked: list[Role] = []
        self.step_times, self.num_running = step_times, 0

    def report(self) -> ReplicaReport:
        return ReplicaReport(
            replica_id="r1",
            role=self.role,
            num_running=self.num_running,
            num_outstanding_tokens=12,
            step_times=self.step_times,
            latency=LatencyWindow(tpot_p95_s=0.07),
        )

    async def set_role(self, role: Role) -> float:
        self.role = role
        self.asked.append(role)
        return 0.0


async def to_batch(data: bytes) -> bytes:
    return encode(HeartbeatReply(role=Role.BATCH, num_replicas=4))


async def joined(member: PoolMember) -> None:
    await member.join()
    for _ in range(500):
        if 'result="answered"} 0.0' not in member.metrics():
            break
        await asyncio.sleep(0.01)
    member.leave()


async def test_a_member_begins_in_the_first_role_and_then_follows_the_controller() -> None:
    verifier = Verifier()
    member = PoolMember(verifier, PoolConfig(heartbeat_s=0.05), to_batch)
    assert member.autoscaling_stats() == {}
    await joined(member)
    assert verifier.asked[:2] == [Role.SPECULATIVE, Role.BATCH]
    assert member.autoscaling_stats() == {"planned_replicas": 4.0}
    assert 'outrider_heartbeats_total{engine="r1",result="failed"} 0.0' in member.metrics()


async def test_without_a_controller_nothing_beats_and_the_role_stays_as_it_is() -> None:
    verifier = Verifier()
    member = PoolMember(verifier)
    await member.join()
    assert (verifier.asked, member.metrics(), member.autoscaling_stats()) == ([], "", {})


async def test_in_mode_batch_a_member_begins_there() -> None:
    verifier = Verifier()
    await PoolMember(verifier, PoolConfig(mode="batch")).join()
    assert verifier.role is Role.BATCH


def test_routers_are_told_role_load_and_what_one_more_request_would_see() -> None:
    verifier = Verifier(StepTimes(knots=((1, 0.01), (2, 0.02), (64, 0.64))))
    member = PoolMember(verifier, PoolConfig(num_speculative_tokens=0), clock=ManualClock())
    stats = stats_from_json(member.routing_stats())
    assert stats is not None
    assert (stats.role, stats.num_outstanding_tokens, stats.tpot_s) == (Role.SPECULATIVE, 12, 0.01)
    verifier.num_running = 3
    busier = stats_from_json(member.routing_stats())
    assert busier is not None
    assert busier.tpot_s == pytest.approx(0.04)


def test_before_the_first_fit_routers_are_told_what_was_measured() -> None:
    stats = stats_from_json(PoolMember(Verifier(), PoolConfig(), clock=ManualClock()).routing_stats())
    assert stats is not None
    assert stats.tpot_s == 0.07
