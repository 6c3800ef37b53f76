"""The channel inside one process, for tests: the same calls and the same bytes, and faults on demand.

listener, channel = memory_pair()
channel.uplink.tamper = garble              # from verifier to drafter
channel.downlink.delay_s = 0.5              # from drafter to verifier
channel.uplink.is_cut = channel.downlink.is_cut = True
"""

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from cluster.clock import Clock, MonotonicClock
from cluster.messages import Message, Ping, Pong
from cluster.transport.address import Address
from cluster.transport.channel import PEER_TIMEOUT_S, PeerGone, PeerId, Traffic
from cluster.transport.codec import encode
from cluster.transport.counters import Counters, decode_counted, encode_counted
from cluster.transport.inbox import MAX_QUEUED_MESSAGES

Item = TypeVar("Item")

# A manual clock moves without telling, so a waiting end looks at it this often.
_LOOK_S = 0.02


def lose(data: bytes) -> Sequence[bytes]:
    """A `tamper` that loses every message."""
    del data
    return ()


def garble(data: bytes) -> Sequence[bytes]:
    """A `tamper` that makes every message malformed."""
    return (b"\xc1" + data[1:],)


class Link:
    """One direction of a connection. The attributes may be set at any time, and act on what is sent from then on.

    Attributes:
        is_cut: everything is lost, signs of life as well.
        delay_s: time on the way, by the listener's clock.
        tamper: takes each message's bytes, gives what arrives in its place: nothing, the same twice, something else.
    """

    def __init__(self, *, clock: Clock, changed: threading.Condition, max_queued: int) -> None:
        self.is_cut = False
        self.delay_s = 0.0
        self.tamper: Callable[[bytes], Iterable[bytes]] | None = None
        self._clock, self._changed, self._max_queued = clock, changed, max_queued
        self._under_way: list[tuple[float, int, bytes]] = []
        self._held: list[bytes] | None = None
        self._order = itertools.count()

    def hold(self) -> None:
        """Keep messages back until `release`."""
        with self._changed:
            self._held = self._held or []

    def release(self, reorder: Callable[[list[bytes]], Iterable[bytes]] = list) -> None:
        """Let go of what was held back, in the order (or with the losses) that `reorder` gives it."""
        with self._changed:
            held, self._held = self._held or [], None
            for data in reorder(held):
                self._start(data)

    def send(self, data: bytes) -> bool:
        """Put bytes on the way; False if the queue is full."""
        with self._changed:
            if len(self._under_way) + len(self._held or ()) >= self._max_queued:
                return False
            if self.is_cut:
                return True
            for piece in (data,) if self.tamper is None else self.tamper(data):
                if self._held is None:
                    self._start(piece)
                else:
                    self._held.append(piece)
            return True

    def take(self) -> list[bytes]:
        """What has arrived by now."""
        arrived = []
        while self._under_way and self._under_way[0][0] <= self._clock.now_s():
            arrived.append(heapq.heappop(self._under_way)[2])
        return arrived

    def _start(self, data: bytes) -> None:
        heapq.heappush(self._under_way, (self._clock.now_s() + self.delay_s, next(self._order), data))
        self._changed.notify_all()


class MemoryChannel:
    """The verifier's end; see `channel.Channel`. Made by `MemoryListener.connect`.

    Attributes:
        peer: what the listener calls this connection.
        uplink: the way to the listener.
        downlink: the way back.
    """

    def __init__(self, peer: PeerId, *, clock: Clock, changed: threading.Condition, max_queued: int) -> None:
        self.peer = peer
        self.uplink = Link(clock=clock, changed=changed, max_queued=max_queued)
        self.downlink = Link(clock=clock, changed=changed, max_queued=max_queued)
        self.is_closed = self.is_listener_closed = False
        self._clock, self._changed, self._counters = clock, changed, Counters()
        self._last_heard_s = -math.inf

    def send(self, message: Message) -> bool:
        """As in `channel.Channel`."""
        return _send(None if self.is_closed else self.uplink, message, self._counters)

    def receive(self, timeout_s: float = 0.0) -> list[Message]:
        """As in `channel.Channel`."""
        return _wait(self._changed, self._take, timeout_s, lambda: self.is_closed)

    @property
    def last_heard_s(self) -> float:
        """As in `channel.Channel`: a real channel would have got a pong."""
        if not (self.uplink.is_cut or self.downlink.is_cut or self.is_closed or self.is_listener_closed):
            self._last_heard_s = self._clock.now_s()
        return self._last_heard_s

    @property
    def traffic(self) -> Traffic:
        """As in `channel.Channel`."""
        return self._counters.snapshot()

    def close(self) -> None:
        """As in `channel.Channel`."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _take(self) -> list[Message]:
        if self.is_closed:
            return []
        messages = _arrived(self.downlink, self.uplink, self._counters)
        if messages:
            self._last_heard_s = self._clock.now_s()
        return [message for message in messages if not isinstance(message, Ping | Pong)]


class MemoryListener:
    """The drafter's end; see `channel.Listener`.

    Args:
        clock: of delays and silence; a manual one makes them testable.
        peer_timeout_s: silence after which a peer is gone.
        max_queued: longest queue in each direction of a connection, in messages.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        peer_timeout_s: float = PEER_TIMEOUT_S,
        max_queued: int = MAX_QUEUED_MESSAGES,
    ) -> None:
        self.address = Address(node_id="memory")
        self._clock, self._peer_timeout_s, self._max_queued = clock or MonotonicClock(), peer_timeout_s, max_queued
        self._changed = threading.Condition()
        self._counters = Counters()
        self._channels: dict[PeerId, MemoryChannel] = {}
        self._heard_s: dict[PeerId, float] = {}
        self._numbers = itertools.count(1)
        self._is_closed = False

    def connect(self) -> MemoryChannel:
        """The other end of a new connection."""
        with self._changed:
            peer = b"memory-%d" % next(self._numbers)
            channel = MemoryChannel(peer, clock=self._clock, changed=self._changed, max_queued=self._max_queued)
            channel.is_listener_closed = self._is_closed
            self._channels[peer] = channel
            return channel

    def send(self, peer: PeerId, message: Message) -> bool:
        """As in `channel.Listener`."""
        with self._changed:
            self._hear()
            is_known = peer in self._heard_s and not (self._is_closed or self._channels[peer].is_closed)
            return _send(self._channels[peer].downlink if is_known else None, message, self._counters)

    def receive(self, timeout_s: float = 0.0) -> list[tuple[PeerId, Message | PeerGone]]:
        """As in `channel.Listener`."""
        return _wait(self._changed, self._take, timeout_s, lambda: self._is_closed)

    @property
    def traffic(self) -> Traffic:
        """As in `channel.Listener`."""
        return self._counters.snapshot()

    def close(self) -> None:
        """As in `channel.Listener`."""
        with self._changed:
            self._is_closed = True
            for channel in self._channels.values():
                channel.is_listener_closed = True
            self._changed.notify_all()

    def _hear(self) -> None:
        """Stands for the pings that a real channel sends by itself."""
        now_s = self._clock.now_s()
        for peer, channel in self._channels.items():
            if not (channel.is_closed or channel.uplink.is_cut):
                self._heard_s[peer] = now_s

    def _take(self) -> list[tuple[PeerId, Message | PeerGone]]:
        if self._is_closed:
            return []
        self._hear()
        now_s = self._clock.now_s()
        items: list[tuple[PeerId, Message | PeerGone]] = []
        for peer, channel in list(self._channels.items()):
            messages = _arrived(channel.uplink, channel.downlink, self._counters)
            items += [(peer, message) for message in messages if not isinstance(message, Ping | Pong)]
            if messages:
                self._heard_s[peer] = now_s
            if now_s - self._heard_s.get(peer, now_s) > self._peer_timeout_s:
                items.append((peer, PeerGone()))
                del self._heard_s[peer]
            if channel.is_closed and peer not in self._heard_s:
                del self._channels[peer]
        return items


def memory_pair(*, clock: Clock | None = None) -> tuple[MemoryListener, MemoryChannel]:
    """A listener and one channel to it."""
    listener = MemoryListener(clock=clock)
    return listener, listener.connect()


def _send(link: Link | None, message: Message, counters: Counters) -> bool:
    data = encode_counted(message, counters)
    if data is None:
        return False
    if link is not None and link.send(data):
        counters.count_sent(len(data))
        return True
    counters.count_dropped()
    return False


def _arrived(link: Link, way_back: Link, counters: Counters) -> list[Message]:
    """Valid messages on a link, counted; pings are answered."""
    messages = []
    for data in link.take():
        message = decode_counted(data, counters)
        if message is None:
            continue
        messages.append(message)
        if isinstance(message, Ping):
            way_back.send(encode(Pong(number=message.number)))
        elif not isinstance(message, Pong):
            counters.count_received(len(data))
    return messages


def _wait(
    changed: threading.Condition, take: Callable[[], list[Item]], timeout_s: float, is_closed: Callable[[], bool]
) -> list[Item]:
    deadline_s = time.monotonic() + timeout_s
    with changed:
        while True:
            items = take()
            left_s = deadline_s - time.monotonic()
            if items or left_s <= 0.0 or is_closed():
                return items
            changed.wait(min(left_s, _LOOK_S))
