"""The channel over ZeroMQ: DEALER at the verifier, ROUTER at the drafter, ipc on a node and tcp across, CURVE on both.

libzmq sets TCP_NODELAY on every tcp connection (`tune_tcp_socket` in its tcp.cpp): small messages leave at once.
"""

import math
import os
import time
from pathlib import Path

import zmq

from cluster.clock import Clock, MonotonicClock
from cluster.errors import ConfigError
from cluster.messages import Message, Ping, Pong
from cluster.transport import zmq_ipc
from cluster.transport.address import Address
from cluster.transport.channel import PEER_TIMEOUT_S, PING_INTERVAL_S, PeerGone, PeerId, Traffic
from cluster.transport.codec import encode
from cluster.transport.counters import Counters
from cluster.transport.inbox import MAX_QUEUED_MESSAGES, Inbox
from cluster.transport.zmq_auth import AllowList, Context, Keys
from cluster.transport.zmq_loop import SocketLoop
from cluster.transport.zmq_socket import (
    bind_ipc,
    bind_tcp,
    decode_one,
    deliver,
    make_socket,
    release,
    send,
    set_client_keys,
)

_Received = tuple[PeerId, Message | PeerGone]

_WILDCARDS = frozenset({"0.0.0.0", "::", "*", ""})
_NUM_PATIENT_PINGS = 8


class ZmqListener:
    """The drafter's end; see `channel.Listener`. Draws new keys, and lets in who holds the address.

    Args:
        node_id: the node that this runs on.
        host: address or name of the interface to listen on, as other nodes reach it; None for ipc alone.
        ipc_dir: where to make the private folder of the unix socket; None for tcp alone.
        port: tcp port, 0 for any that is free.
        peer_timeout_s: silence after which a peer is gone.
        max_queued: longest queue to each peer, and from all of them, in messages.

    Raises:
        ConfigError: host, port or folder cannot be used.
    """

    def __init__(
        self,
        node_id: str,
        *,
        host: str | None,
        ipc_dir: Path | None,
        port: int = 0,
        peer_timeout_s: float = PEER_TIMEOUT_S,
        max_queued: int = MAX_QUEUED_MESSAGES,
    ) -> None:
        if host in _WILDCARDS or (host is None and ipc_dir is None):
            raise ConfigError(field="host", value=host, allowed="the address of one interface, as other nodes reach it")
        self._peer_timeout_s, self._tick_s = peer_timeout_s, peer_timeout_s / 10
        self._counters = Counters()
        self._inbox: Inbox[_Received] = Inbox(max_messages=max_queued)
        self._heard_s: dict[PeerId, float] = {}
        self._listened_s = 0.0
        self._last_pass_s = time.monotonic()
        self._path = None if ipc_dir is None else zmq_ipc.make_socket_path(ipc_dir)
        try:
            self.address, self._loop = self._open(node_id, host, port, max_queued)
        except BaseException:
            self._remove_path()
            raise
        self._loop.start()

    def send(self, peer: PeerId, message: Message) -> bool:
        """As in `channel.Listener`."""
        if peer in self._heard_s:
            return send(self._loop, self._counters, message, peer=peer)
        self._counters.count_dropped()
        return False

    def receive(self, timeout_s: float = 0.0) -> list[_Received]:
        """As in `channel.Listener`."""
        return self._loop.receive(timeout_s)

    @property
    def traffic(self) -> Traffic:
        """As in `channel.Listener`."""
        return self._counters.snapshot()

    def close(self) -> None:
        """As in `channel.Listener`."""
        self._loop.close()
        self._remove_path()

    def _open(
        self, node_id: str, host: str | None, port: int, max_queued: int
    ) -> tuple[Address, SocketLoop[_Received]]:
        context, server, client = Context(), Keys.generate(), Keys.generate()
        allow_list = AllowList(context, client.public)
        socket = make_socket(context, zmq.ROUTER, max_queued=max_queued, peer_timeout_s=self._peer_timeout_s)
        socket.router_mandatory = True  # an unknown peer is an error, not silence
        socket.router_handover = True  # a peer that comes back takes its place over from its dead connection
        allow_list.guard(socket, server)
        try:
            address = Address(
                node_id=node_id,
                ipc=None if self._path is None else bind_ipc(socket, self._path),
                tcp=None if host is None else bind_tcp(socket, host, port),
                server_public_key=server.public,
                client_public_key=client.public,
                client_secret_key=client.secret,
            )
        except BaseException:
            release(context, (socket, allow_list.socket))
            raise
        loop = SocketLoop(
            context,
            socket,
            inbox=self._inbox,
            on_message=self._handle,
            on_tick=self._expire,
            tick_s=self._tick_s,
            name="outrider-listener",
            allow_list=allow_list,
        )
        return address, loop

    def _handle(self, frames: list[bytes]) -> None:
        peer = frames[0]
        message = decode_one(frames[1:], self._counters)
        if message is None:
            return
        self._heard_s[peer] = self._listened_s
        if isinstance(message, Ping):
            self._loop.send([peer, encode(Pong(number=message.number))])
        elif not isinstance(message, Pong):
            deliver(self._inbox, self._counters, (peer, message), len(frames[1]))

    def _expire(self) -> None:
        # A pass that comes late counts as two ticks at most: while this process was paused it could hear nobody, and
        # the others' pings still wait in the socket.
        now_s = time.monotonic()
        self._listened_s += min(now_s - self._last_pass_s, 2 * self._tick_s)
        self._last_pass_s = now_s
        limit_s = self._listened_s - self._peer_timeout_s
        for peer in [peer for peer, heard_s in self._heard_s.items() if heard_s < limit_s]:
            del self._heard_s[peer]
            self._inbox.put_always((peer, PeerGone()))

    def _remove_path(self) -> None:
        if self._path is not None:
            zmq_ipc.remove_socket_path(self._path)


class ZmqChannel:
    """The verifier's end; see `channel.Channel`. Made by `connect`, which describes the arguments."""

    def __init__(
        self,
        endpoint: str,
        address: Address,
        *,
        clock: Clock,
        ping_interval_s: float,
        peer_timeout_s: float,
        max_queued: int,
    ) -> None:
        self._clock, self._ping_interval_s = clock, ping_interval_s
        self._counters = Counters()
        self._inbox: Inbox[Message] = Inbox(max_messages=max_queued)
        self._last_heard_s = -math.inf
        self._ping_number = self._num_unanswered = 0
        self._next_ping_s = -math.inf
        context = Context()
        socket = make_socket(context, zmq.DEALER, max_queued=max_queued, peer_timeout_s=peer_timeout_s)
        try:
            socket.routing_id = b"v" + os.urandom(15)  # ours, not the router's: it outlives the connection
            set_client_keys(socket, address)
            socket.connect(endpoint)
        except BaseException:
            release(context, (socket,))
            raise
        self._loop = SocketLoop(
            context,
            socket,
            inbox=self._inbox,
            on_message=self._handle,
            on_tick=self._ping,
            tick_s=ping_interval_s / 4,
            name="outrider-channel",
        )
        self._loop.start()

    def send(self, message: Message) -> bool:
        """As in `channel.Channel`."""
        return send(self._loop, self._counters, message)

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        """As in `channel.Channel`."""
        return self._loop.receive(timeout_s)

    @property
    def last_heard_s(self) -> float:
        """As in `channel.Channel`."""
        return self._last_heard_s

    @property
    def traffic(self) -> Traffic:
        """As in `channel.Channel`."""
        return self._counters.snapshot()

    def close(self) -> None:
        """As in `channel.Channel`."""
        self._loop.close()

    def _handle(self, frames: list[bytes]) -> None:
        message = decode_one(frames, self._counters)
        if message is None:
            return
        self._last_heard_s = self._clock.now_s()
        self._num_unanswered = 0
        if isinstance(message, Ping):
            self._loop.send([encode(Pong(number=message.number))])
        elif not isinstance(message, Pong):
            deliver(self._inbox, self._counters, message, len(frames[0]))

    def _ping(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_ping_s:
            return
        self._loop.send([encode(Ping(number=self._ping_number))])
        self._ping_number += 1
        # Without a listener pings pile up in the queue, and leave when it is back: ever fewer, or they would fill it.
        self._num_unanswered += 1
        patience = max(1, self._num_unanswered - _NUM_PATIENT_PINGS)
        self._next_ping_s = now_s + self._ping_interval_s * patience


def connect(
    address: Address,
    node_id: str,
    *,
    clock: Clock | None = None,
    ping_interval_s: float = PING_INTERVAL_S,
    peer_timeout_s: float = PEER_TIMEOUT_S,
    max_queued: int = MAX_QUEUED_MESSAGES,
) -> ZmqChannel:
    """The verifier's end of a new connection. Does not wait: what is sent before the listener is there is queued.

    Args:
        address: of the listener.
        node_id: the node that this runs on. On the listener's own node its unix socket is used, if that is there.
        clock: for `last_heard_s`; the machine's by default.
        ping_interval_s: how often to show that we are there.
        peer_timeout_s: silence after which a connection is given up and made again.
        max_queued: longest queue in each direction, in messages.

    Raises:
        ConfigError: the address has no endpoint for this node, or no usable keys.
    """
    is_near = address.ipc is not None and address.node_id == node_id
    if is_near and (address.tcp is None or zmq_ipc.path_of(address.ipc or "").is_socket()):
        endpoint = address.ipc
    else:
        endpoint = address.tcp
    if endpoint is None:
        raise ConfigError(field="address", value=address, allowed=f"an endpoint that node {node_id} can reach")
    return ZmqChannel(
        endpoint,
        address,
        clock=clock or MonotonicClock(),
        ping_interval_s=ping_interval_s,
        peer_timeout_s=peer_timeout_s,
        max_queued=max_queued,
    )
