"""Who gets through to a listener over ZeroMQ, and what becomes of garbage."""

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
import zmq

from cluster.transport.address import Address
from cluster.transport.codec import encode
from cluster.transport.zmq import ZmqListener
from cluster.transport.zmq_auth import Keys
from tests.cluster.transport.ends import PEER_TIMEOUT_S, open_channel, port_of
from tests.cluster.transport.helpers import introduce, take, take_from, wait_until
from tests.cluster.transport.relay import Relay
from tests.cluster.transport.samples import round_of, table_of

GARBAGE = (
    b"",
    b"\xc1",
    b"\xdd\xff\xff\xff\xff",
    b"\x92\x08",
    b"GET / HTTP/1.1\r\n\r\n",
    bytes(1000),
    encode(round_of(1))[:-1],
)


def _raw_client(stack: ExitStack, address: Address, *, is_secure: bool = True) -> "zmq.Socket[bytes]":
    """A socket that speaks ZeroMQ, and to which our messages mean nothing."""
    context = stack.enter_context(zmq.Context())
    socket = stack.enter_context(context.socket(zmq.DEALER))
    socket.linger = 0
    if is_secure:
        socket.curve_serverkey = (address.server_public_key or "").encode()
        socket.curve_publickey = (address.client_public_key or "").encode()
        socket.curve_secretkey = (address.client_secret_key or "").encode()
    socket.connect(address.tcp or "")
    return socket


def test_garbage_is_counted_as_malformed_and_nothing_else_happens(stack: ExitStack, listener: ZmqListener) -> None:
    good = open_channel(stack, listener.address)
    introduce(good, listener)
    bad = _raw_client(stack, listener.address)
    for data in GARBAGE:
        bad.send(data)
    bad.send_multipart([encode(round_of(1)), encode(round_of(2))])
    wait_until(lambda: listener.traffic.malformed == len(GARBAGE) + 1, "garbage")
    good.send(round_of(3))
    assert [message for _, message in take_from(listener, 1)] == [round_of(3)]
    assert listener.receive(1.5 * PEER_TIMEOUT_S) == [], "a peer that never said anything sensible cannot be gone"


def test_a_peer_may_go_on_after_garbage(stack: ExitStack, listener: ZmqListener) -> None:
    bad = _raw_client(stack, listener.address)
    bad.send(b"\xc1")
    bad.send(encode(round_of(1)))
    ((peer, message),) = take_from(listener, 1)
    assert message == round_of(1)
    assert listener.send(peer, table_of(1))
    assert bad.recv() == encode(table_of(1))


def test_garbage_from_the_listener_is_counted_at_the_channel(stack: ExitStack) -> None:
    server, client = Keys.generate(), Keys.generate()
    router = stack.enter_context(stack.enter_context(zmq.Context()).socket(zmq.ROUTER))
    router.linger, router.curve_server, router.curve_secretkey = 0, True, server.secret.encode()
    port = router.bind_to_random_port("tcp://127.0.0.1")
    address = Address(
        node_id="here",
        tcp=f"tcp://127.0.0.1:{port}",
        server_public_key=server.public,
        client_public_key=client.public,
        client_secret_key=client.secret,
    )
    channel = open_channel(stack, address)
    peer, _ = router.recv_multipart()
    for data in GARBAGE:
        router.send_multipart([peer, data])
    router.send_multipart([peer, encode(table_of(1))])
    assert take(channel, 1) == [table_of(1)]
    assert channel.traffic.malformed == len(GARBAGE)


def _foreign(address: Address, fault: str) -> Address:
    foreign = Keys.generate()
    if fault == "own keys":
        return replace(address, client_public_key=foreign.public, client_secret_key=foreign.secret)
    if fault == "public key without its secret":
        return replace(address, client_secret_key=foreign.secret)
    return replace(address, server_public_key=foreign.public)


@pytest.mark.parametrize("node_id", ["here", "there"])
@pytest.mark.parametrize("fault", ["own keys", "public key without its secret", "another server key"])
def test_a_client_without_the_key_never_gets_a_message_through(
    stack: ExitStack, listener: ZmqListener, fault: str, node_id: str
) -> None:
    stranger = open_channel(stack, _foreign(listener.address, fault), node_id)
    for number in range(20):
        stranger.send(round_of(number))
    assert listener.receive(1.0) == []
    friend = open_channel(stack, listener.address, node_id)
    introduce(friend, listener)
    assert listener.traffic.received == 1 and listener.traffic.malformed == 0
    assert stranger.traffic.received == 0 and stranger.last_heard_s < 0


def test_a_client_that_does_not_encrypt_never_gets_a_message_through(stack: ExitStack, listener: ZmqListener) -> None:
    stranger = _raw_client(stack, listener.address, is_secure=False)
    stranger.send(encode(round_of(1)))
    assert listener.receive(1.0) == []
    assert listener.traffic.malformed == 0


def test_nothing_readable_crosses_the_wire(stack: ExitStack, listener: ZmqListener) -> None:
    with Relay("127.0.0.1", port_of(listener)) as relay:
        pieces: list[bytes] = []
        relay.on_bytes = pieces.append
        channel = open_channel(stack, replace(listener.address, tcp=f"tcp://127.0.0.1:{relay.port}"))
        introduce(channel, listener)
        assert encode(round_of(0))[:20] not in b"".join(pieces)
        assert len(b"".join(pieces)) > len(encode(round_of(0)))


def test_every_listener_draws_keys_of_its_own(stack: ExitStack, tmp_path: Path) -> None:
    addresses = []
    for _ in range(2):
        listener = stack.enter_context(closing(ZmqListener("here", host=None, ipc_dir=tmp_path)))
        addresses.append(listener.address)
    for name in ("ipc", "server_public_key", "client_public_key", "client_secret_key"):
        assert getattr(addresses[0], name) != getattr(addresses[1], name)
