"""A verifier's heartbeat: its report goes up, its role comes down; silence changes nothing."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from autoscaling.types import HeartbeatReply, ReplicaReport
from cluster.clock import Clock, MonotonicClock
from cluster.types import Role

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

logger = logging.getLogger(__name__)

WAIT_RATIO = 0.8
"""How long a reply is waited for, as a share of the period."""

_encoder = msgspec.msgpack.Encoder()
_report_decoder = msgspec.msgpack.Decoder(ReplicaReport)
_reply_decoder = msgspec.msgpack.Decoder(HeartbeatReply)


def encode(message: ReplicaReport | HeartbeatReply) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode_report(data: bytes) -> ReplicaReport:
    """The report behind bytes.

    Raises:
        msgspec.DecodeError: they are none, or of another version.
    """
    return _report_decoder.decode(data)


def decode_reply(data: bytes) -> HeartbeatReply:
    """The reply behind bytes.

    Raises:
        msgspec.DecodeError: they are none, or of another version.
    """
    return _reply_decoder.decode(data)


@dataclass(slots=True)
class HeartbeatStats:
    """What became of heartbeats so far.

    Attributes:
        num_answered: heartbeats with a valid reply in time.
        num_failed: heartbeats without one.
        last_reply_s: clock time of the last reply, or of the start.
    """

    last_reply_s: float
    num_answered: int = 0
    num_failed: int = 0


class Heartbeat:
    """Tells the controller how this replica does, and does what it says.

    Args:
        send: brings an encoded report to the controller and its encoded reply back.
        report: what to tell now.
        set_role: changes the role; called only with another role than the reported one.
        period_s: time between two heartbeats.
        clock: for the age of replies.
    """

    def __init__(
        self,
        *,
        send: Callable[[bytes], Awaitable[bytes]],
        report: Callable[[], ReplicaReport],
        set_role: Callable[[Role], Awaitable[object]],
        period_s: float,
        clock: Clock | None = None,
    ) -> None:
        self._send, self._report, self._set_role, self._period_s = send, report, set_role, period_s
        self._clock = clock or MonotonicClock()
        self.stats = HeartbeatStats(self._clock.now_s())
        self.planned_replicas = 0

    @property
    def reply_age_s(self) -> float:
        """Time since the last reply, or since the start."""
        return self._clock.now_s() - self.stats.last_reply_s

    async def run(self) -> None:
        """Beat until cancelled."""
        await asyncio.sleep(random.uniform(0, self._period_s))  # Replicas that start together beat one after another.
        while True:
            began_s = self._clock.now_s()
            await self.beat()
            await asyncio.sleep(max(0.0, began_s + self._period_s - self._clock.now_s()))

    async def beat(self) -> None:
        """One heartbeat. Whatever goes wrong with it, the role stays."""
        try:
            report = self._report()
            data = await asyncio.wait_for(self._send(encode(report)), self._period_s * WAIT_RATIO)
            reply = decode_reply(data)
        except Exception as error:  # noqa: BLE001 -- a controller that is gone, late or broken must cost nothing
            self.stats.num_failed += 1
            logger.debug("no reply to a heartbeat: %r", error)
            return
        self.stats.num_answered += 1
        self.stats.last_reply_s = self._clock.now_s()
        self.planned_replicas = reply.num_replicas
        if reply.role is not report.role:
            await self._change(reply.role)

    async def _change(self, role: Role) -> None:
        try:
            await self._set_role(role)
        except Exception:
            logger.warning("the role cannot be changed to %s", role.value, exc_info=True)


def sender(controller: "DeploymentHandle[Any]") -> Callable[[bytes], Awaitable[bytes]]:
    """How heartbeats reach the controller: by its Serve handle; a call that is given up is cancelled there too."""
    call = controller.options(method_name="heartbeat")

    async def send(data: bytes) -> bytes:
        response: Any = call.remote(data)
        try:
            reply: bytes = await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        return reply

    return send
