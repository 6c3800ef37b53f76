"""Who may connect: one client key, asked for by libzmq through ZAP (ZeroMQ RFC 27) at each handshake."""

from dataclasses import dataclass, field

import zmq
from zmq.utils import z85

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]

_ENDPOINT = "inproc://zeromq.zap.01"
_DOMAIN = "outrider"
_VERSION = b"1.0"
_NUM_FRAMES = 7  # version, request id, domain, address, identity, mechanism, the client's public key


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """A CURVE key pair as Z85 text."""

    public: str
    secret: str = field(repr=False)

    @classmethod
    def generate(cls) -> "Keys":
        """A new pair."""
        public, secret = zmq.curve_keypair()
        return cls(public=public.decode(), secret=secret.decode())


def has_input(socket: Socket) -> bool:
    """True when a message can be read; also works off what libzmq's own thread has for the socket."""
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


class AllowList:
    """Answers libzmq's question whether a client may connect.

    Args:
        context: of the sockets that are guarded; it serves no others.
        allowed_key: Z85 text of the public key of every client that may.
    """

    def __init__(self, context: Context, allowed_key: str) -> None:
        self._allowed = z85.decode(allowed_key)
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(_ENDPOINT)

    def guard(self, socket: Socket, keys: Keys) -> None:
        """Make a socket encrypt, and ask here; without an answer nobody gets in. To be called before it is bound."""
        socket.curve_server = True
        socket.curve_publickey = keys.public.encode()
        socket.curve_secretkey = keys.secret.encode()
        socket.zap_domain = _DOMAIN.encode()
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def answer(self) -> None:
        """Answer all questions that wait."""
        while has_input(self.socket):
            frames = self.socket.recv_multipart()
            is_allowed = (
                len(frames) == _NUM_FRAMES
                and frames[2] == _DOMAIN.encode()
                and frames[5] == b"CURVE"
                and frames[6] == self._allowed
            )
            status = (b"200", b"OK") if is_allowed else (b"400", b"unknown key")
            self.socket.send_multipart([_VERSION, frames[1], *status, b"", b""])
