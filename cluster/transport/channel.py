"""What both ends of a channel offer, whatever carries the bytes.

A verifier holds one `Channel` per drafter, a drafter one `Listener` for all its verifiers. Neither call ever waits for
the other side: a message that does not fit is dropped and counted, since a lost message costs speed and nothing else.
"""

from dataclasses import dataclass
from typing import Protocol

from cluster.messages import Message
from cluster.transport.address import Address

PeerId = bytes
"""Names a connection at its listener; stays the same when the connection is lost and made again."""

PING_INTERVAL_S = 0.4
"""How often a channel says that it is still there."""

PEER_TIMEOUT_S = 1.5
"""Silence after which a listener takes a peer for gone."""


@dataclass(frozen=True, slots=True)
class PeerGone:
    """Takes the place of a message: the peer was silent for too long. If it speaks again, it does so as a new peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one end has carried so far; pings and pongs are left out.

    Attributes:
        sent: messages taken over for sending.
        received: valid messages that came in.
        dropped: messages that did not fit into a queue, at sending or at receiving.
        malformed: pieces that came in and were no valid message.
        bytes_sent: encoded bytes of `sent`.
        bytes_received: encoded bytes of `received`.
    """

    sent: int = 0
    received: int = 0
    dropped: int = 0
    malformed: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


class Channel(Protocol):
    """The verifier's end of one connection. `receive` belongs to one thread, everything else to all."""

    def send(self, message: Message) -> bool:
        """Hand a message over without waiting; False when it was dropped. Before the listener is there it is queued."""
        ...

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        """Valid messages in order of arrival; waits up to `timeout_s` for the first, and not at all once closed."""
        ...

    @property
    def last_heard_s(self) -> float:
        """Clock time of the last valid message, pongs included; minus infinity before the first."""
        ...

    @property
    def traffic(self) -> Traffic:
        """The counters so far."""
        ...

    def close(self) -> None:
        """Release threads, sockets and files; what is queued is lost. May be called again."""
        ...


class Listener(Protocol):
    """The drafter's end of many connections. `receive` belongs to one thread, everything else to all."""

    @property
    def address(self) -> Address:
        """What a verifier needs to connect; holds a secret key."""
        ...

    def send(self, peer: PeerId, message: Message) -> bool:
        """Hand a message over without waiting; False when it was dropped: the queue is full or the peer unknown."""
        ...

    def receive(self, timeout_s: float = 0.0) -> list[tuple[PeerId, Message | PeerGone]]:
        """As `Channel.receive`, with the sender; `PeerGone` comes once, after the last message of a peer."""
        ...

    @property
    def traffic(self) -> Traffic:
        """The counters so far."""
        ...

    def close(self) -> None:
        """Release threads, sockets and files; what is queued is lost. May be called again."""
        ...
