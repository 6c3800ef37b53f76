"""Peers with the right keys and no sense: one that writes to a drafter, and one that verifiers take for a drafter."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import zmq

from cluster.errors import OutriderError
from cluster.messages import PROTOCOL_VERSION, Hello, Ping, Pong, Welcome
from cluster.transport.address import Address
from cluster.transport.codec import decode, encode
from cluster.transport.zmq_auth import Keys
from deployments.discovery import DrafterRecord
from tests.cluster.transport.samples import SAMPLES

_POLL_MS = 50


def pieces(seed: int) -> Iterator[bytes]:
    """Nonsense without end: random bytes, parts of messages, messages with some bits wrong, messages out of place."""
    generator = random.Random(seed)
    whole = [encode(message) for message in SAMPLES]
    while True:
        data = bytearray(generator.choice(whole))
        yield generator.randbytes(generator.randrange(200))
        yield bytes(data[: generator.randrange(len(data))])
        yield bytes(data)
        for _ in range(3):
            data[generator.randrange(len(data))] = generator.randrange(256)
        yield bytes(data)


@contextmanager
def stranger(address: Address) -> Iterator[Callable[[bytes], None]]:
    """Gives what sends a piece to a listener."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.curve_serverkey = (address.server_public_key or "").encode()
        socket.curve_publickey = (address.client_public_key or "").encode()
        socket.curve_secretkey = (address.client_secret_key or "").encode()
        socket.connect(address.ipc or address.tcp or "")
        yield socket.send


class GarbageDrafter:
    """Answers every message with garbage; use it as a context manager.

    Args:
        like: a real drafter, whose place it may take.
        is_polite: it welcomes verifiers and answers pings, as a drafter would.

    Attributes:
        record: how verifiers find it.
    """

    def __init__(self, like: DrafterRecord, *, is_polite: bool) -> None:
        server, client = Keys.generate(), Keys.generate()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger, self._socket.curve_server = 0, True
        self._socket.curve_secretkey = server.secret.encode()
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        address = Address(
            node_id=like.node_id,
            tcp=f"tcp://127.0.0.1:{port}",
            server_public_key=server.public,
            client_public_key=client.public,
            client_secret_key=client.secret,
        )
        self._incarnation, self._is_polite = like.incarnation + 1, is_polite
        self.record = replace(like, replica="garbage", incarnation=self._incarnation, address=address.to_json())
        self._pieces, self._is_over = pieces(seed=1), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "GarbageDrafter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._socket.close()
        self._context.term()

    def _run(self) -> None:
        while not self._is_over.is_set():
            if self._socket.poll(_POLL_MS):
                peer, data = self._socket.recv_multipart()
                self._socket.send_multipart([peer, self._answer(data)])

    def _answer(self, data: bytes) -> bytes:
        message = decode(data)
        if self._is_polite and isinstance(message, Ping):
            return encode(Pong(number=message.number))
        if self._is_polite and isinstance(message, Hello):
            return encode(
                Welcome(
                    version=PROTOCOL_VERSION,
                    incarnation=self._incarnation,
                    num_speculative_tokens=4,
                    max_model_len=2048,
                )
            )
        return next(piece for piece in self._pieces if not _is_sensible(piece))


def _is_sensible(piece: bytes) -> bool:
    try:
        decode(piece)
    except OutriderError:
        return False
    return True
