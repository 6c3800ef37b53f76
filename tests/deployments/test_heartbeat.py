import asyncio
from collections.abc import Awaitable, Callable

import pytest

from autoscaling.types import HeartbeatReply, LatencyWindow, ReplicaReport
from cluster.clock import ManualClock
from cluster.engine.step_time import StepTimes
from cluster.routing.types import DomainStats, PoolLoad
from cluster.types import Role
from deployments.heartbeat import Heartbeat, decode_reply, decode_report, encode

pytestmark = pytest.mark.anyio

PERIOD_S = 0.05


class Verifier:
    """Has a role, and remembers what was asked of it."""

    def __init__(self) -> None:
        self.role = Role.SPECULATIVE
        self.asked: list[Role] = []
        self.refuses = False

    def report(self) -> ReplicaReport:
        return ReplicaReport(replica_id="r1", role=self.role)

    async def set_role(self, role: Role) -> float:
        self.asked.append(role)
        if self.refuses:
            raise RuntimeError("no")
        self.role = role
        return 0.01


def heartbeat(verifier: Verifier, send: Callable[[bytes], Awaitable[bytes]]) -> Heartbeat:
    clock = ManualClock(10.0)
    return Heartbeat(send=send, report=verifier.report, set_role=verifier.set_role, period_s=PERIOD_S, clock=clock)


def answering(role: Role, num_replicas: int = 0) -> Callable[[bytes], Awaitable[bytes]]:
    async def send(data: bytes) -> bytes:
        assert decode_report(data).replica_id == "r1"
        return encode(HeartbeatReply(role=role, num_replicas=num_replicas))

    return send


async def hang(data: bytes) -> bytes:
    await asyncio.Event().wait()
    return data


async def fail(data: bytes) -> bytes:
    raise ConnectionError("gone")


async def talk_nonsense(data: bytes) -> bytes:
    return b"\x93nonsense"


async def test_the_role_in_the_reply_is_taken() -> None:
    verifier = Verifier()
    beat = heartbeat(verifier, answering(Role.BATCH, 3))
    await beat.beat()
    await beat.beat()
    assert (verifier.role, verifier.asked, beat.planned_replicas) == (Role.BATCH, [Role.BATCH], 3)
    assert (beat.stats.num_answered, beat.stats.num_failed, beat.reply_age_s) == (2, 0, 0.0)


@pytest.mark.parametrize("send", [hang, fail, talk_nonsense])
async def test_a_controller_that_hangs_fails_or_talks_nonsense_changes_nothing(
    send: Callable[[bytes], Awaitable[bytes]],
) -> None:
    verifier = Verifier()
    beat = heartbeat(verifier, send)
    await asyncio.wait_for(beat.beat(), 5)
    assert (verifier.role, verifier.asked, beat.stats.num_failed) == (Role.SPECULATIVE, [], 1)


async def test_a_hanging_call_is_cancelled_before_the_next_heartbeat() -> None:
    cancelled = asyncio.Event()

    async def send(data: bytes) -> bytes:
        try:
            return await hang(data)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await heartbeat(Verifier(), send).beat()
    assert cancelled.is_set()


async def test_a_change_of_role_that_fails_is_tried_again_with_the_next_heartbeat() -> None:
    verifier = Verifier()
    verifier.refuses = True
    beat = heartbeat(verifier, answering(Role.BATCH))
    await beat.beat()
    verifier.refuses = False
    await beat.beat()
    assert verifier.asked == [Role.BATCH, Role.BATCH]
    assert verifier.role is Role.BATCH


async def test_heartbeats_go_on_after_failures_and_follow_a_controller_that_comes_back() -> None:
    verifier, answers = Verifier(), [fail, hang, talk_nonsense, answering(Role.BATCH)]

    async def send(data: bytes) -> bytes:
        return await (answers.pop(0) if len(answers) > 1 else answers[0])(data)

    beat = Heartbeat(send=send, report=verifier.report, set_role=verifier.set_role, period_s=PERIOD_S)
    task = asyncio.create_task(beat.run())
    try:
        for _ in range(1000):
            if beat.stats.num_answered >= 2:
                break
            await asyncio.sleep(0.01)
    finally:
        task.cancel()
    assert verifier.role is Role.BATCH
    assert beat.stats.num_failed == 3


def test_reports_and_replies_survive_the_wire() -> None:
    report = ReplicaReport(
        replica_id="r1",
        role=Role.BATCH,
        acceptance_rate=0.5,
        step_times=StepTimes(knots=((1, 0.01), (8, 0.02)), context_s=1e-6),
        latency=LatencyWindow(ttft_p95_s=0.2, num_requests=3),
        domains={"code_synthesis": DomainStats(num_requests=2)},
    )
    assert decode_report(encode(report)) == report
    reply = HeartbeatReply(
        role=Role.BATCH, num_replicas=2, pools={Role.BATCH: PoolLoad(num_replicas=1, tpot_s=0.1)}, domains={}
    )
    assert decode_reply(encode(reply)) == reply
