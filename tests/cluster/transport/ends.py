"""Ends of channels that tests open, all closed by an exit stack."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from cluster.transport.address import Address
from cluster.transport.channel import Channel, Listener
from cluster.transport.zmq import ZmqListener, connect

PEER_TIMEOUT_S = 1.0
PING_INTERVAL_S = 0.1
MAX_QUEUED = 64


@dataclass(frozen=True, slots=True)
class Ends:
    """A listener, and channels to it.

    Attributes:
        listener: the drafter's end.
        new_channel: makes a channel without closing it.
        stack: closes what tests open.
    """

    listener: Listener
    new_channel: Callable[[], Channel]
    stack: ExitStack = field(repr=False)

    def connect(self) -> Channel:
        """A new channel that is closed after the test."""
        return self.stack.enter_context(closing(self.new_channel()))


def zmq_ends(stack: ExitStack, tmp_path: Path, *, node_id: str) -> Ends:
    """Ends over ZeroMQ; with the node id "here" they use ipc."""
    listener = ZmqListener(
        "here", host="127.0.0.1", ipc_dir=tmp_path, peer_timeout_s=PEER_TIMEOUT_S, max_queued=MAX_QUEUED
    )
    stack.callback(listener.close)

    def new_channel() -> Channel:
        return connect(
            listener.address,
            node_id,
            ping_interval_s=PING_INTERVAL_S,
            peer_timeout_s=PEER_TIMEOUT_S,
            max_queued=MAX_QUEUED,
        )

    return Ends(listener, new_channel, stack)


def open_channel(stack: ExitStack, address: Address, node_id: str = "there") -> Channel:
    """A channel over ZeroMQ that is closed after the test."""
    channel = connect(address, node_id, ping_interval_s=PING_INTERVAL_S, peer_timeout_s=PEER_TIMEOUT_S)
    return stack.enter_context(closing(channel))


def port_of(listener: ZmqListener) -> int:
    """Its tcp port."""
    return int((listener.address.tcp or "").rpartition(":")[2])
