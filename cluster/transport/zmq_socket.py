"""How our ZeroMQ sockets are set up, and what both ends do alike with messages."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import zmq

from cluster.errors import ConfigError
from cluster.messages import MAX_MESSAGE_BYTES, Message
from cluster.transport import zmq_ipc
from cluster.transport.address import Address
from cluster.transport.counters import Counters, decode_counted, encode_counted
from cluster.transport.inbox import Inbox
from cluster.transport.zmq_auth import Context, Socket
from cluster.transport.zmq_loop import SocketLoop

# CURVE puts a command name, a nonce and a signature around a frame.
_MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + 1024
_RECONNECT_MS = (100, 1000)
_CONNECT_TIMEOUT_MS = 1000
_HANDSHAKE_TIMEOUT_MS = 2000
_MAX_HEARTBEAT_TTL_MS = 6_553_500  # 16 bits of tenths of a second

Item = TypeVar("Item")


def make_socket(context: Context, kind: int, *, max_queued: int, peer_timeout_s: float) -> Socket:
    """A socket that never waits at closing, has bounded queues, and gives up connections on which nothing comes."""
    socket = context.socket(kind)
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = max_queued
    socket.maxmsgsize = _MAX_FRAME_BYTES
    timeout_ms = round(peer_timeout_s * 1e3)
    # libzmq's own heartbeats find dead connections, so that new ones are made; pings tell whether a process lives.
    socket.heartbeat_ivl = max(1, timeout_ms // 3)
    socket.heartbeat_timeout, socket.heartbeat_ttl = timeout_ms, min(timeout_ms, _MAX_HEARTBEAT_TTL_MS)
    socket.reconnect_ivl, socket.reconnect_ivl_max = _RECONNECT_MS
    socket.connect_timeout, socket.handshake_ivl = _CONNECT_TIMEOUT_MS, _HANDSHAKE_TIMEOUT_MS
    socket.ipv6 = True
    return socket


def set_client_keys(socket: Socket, address: Address) -> None:
    """Make a socket speak only to the holder of the address's server key.

    Raises:
        ConfigError: a key is missing or is none.
    """
    try:
        socket.curve_serverkey = (address.server_public_key or "").encode()
        socket.curve_publickey = (address.client_public_key or "").encode()
        socket.curve_secretkey = (address.client_secret_key or "").encode()
    except (zmq.ZMQError, ValueError) as error:
        raise ConfigError(field="address", value=address, allowed="three keys of 40 letters") from error


def bind_ipc(socket: Socket, path: Path) -> str:
    """Bind to a unix socket; the endpoint."""
    endpoint = zmq_ipc.endpoint_of(path)
    socket.bind(endpoint)
    return endpoint


def bind_tcp(socket: Socket, host: str, port: int) -> str:
    """Bind to one interface; the endpoint, with the port that was chosen when `port` is 0.

    Raises:
        ConfigError: the address is not ours, or the port is taken.
    """
    name = f"[{host}]" if ":" in host else host
    try:
        socket.bind(f"tcp://{name}:{port or '*'}")
    except zmq.ZMQError as error:
        raise ConfigError(field="host", value=f"{host}:{port}", allowed=f"an address to listen on ({error})") from error
    port = int(socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
    return f"tcp://{name}:{port}"


def release(context: Context, sockets: Iterable[Socket]) -> None:
    """Close what was not yet handed to a loop."""
    for socket in sockets:
        socket.close(0)
    context.term()


def send(loop: SocketLoop[Item], counters: Counters, message: Message, *, peer: bytes | None = None) -> bool:
    """Encode and queue a message, and count it; False when it was dropped."""
    data = encode_counted(message, counters)
    if data is None:
        return False
    if loop.send([data] if peer is None else [peer, data]):
        counters.count_sent(len(data))
        return True
    counters.count_dropped()
    return False


def decode_one(frames: list[bytes], counters: Counters) -> Message | None:
    """The message in exactly one frame; None, counted, if there is no such thing."""
    if len(frames) == 1:
        return decode_counted(frames[0], counters)
    counters.count_malformed()
    return None


def deliver(inbox: Inbox[Item], counters: Counters, item: Item, num_bytes: int) -> None:
    """Pass a valid message on to the owner, and count it."""
    if inbox.put(item, num_bytes):
        counters.count_received(num_bytes)
    else:
        counters.count_dropped()
