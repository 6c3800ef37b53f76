"""Waiting for what other threads and processes do, without a sleep that hopes."""

import time
from collections.abc import Callable

from cluster.messages import Message
from cluster.transport.channel import Channel, Listener, PeerGone, PeerId

LONG_S = 30.0
"""Longer than anything takes on a busy machine; reached only when a test fails."""


def wait_until(is_true: Callable[[], bool], what: str, *, timeout_s: float = LONG_S) -> None:
    """Return as soon as the condition holds."""
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.005)


def take(channel: Channel, num: int, *, timeout_s: float = LONG_S) -> list[Message]:
    """The next `num` messages of a channel."""
    messages: list[Message] = []
    deadline_s = time.monotonic() + timeout_s
    while len(messages) < num:
        left_s = deadline_s - time.monotonic()
        assert left_s > 0, f"only {len(messages)} of {num} messages came"
        messages += channel.receive(left_s)
    return messages


def take_from(listener: Listener, num: int, *, timeout_s: float = LONG_S) -> list[tuple[PeerId, Message | PeerGone]]:
    """The next `num` items of a listener."""
    items: list[tuple[PeerId, Message | PeerGone]] = []
    deadline_s = time.monotonic() + timeout_s
    while len(items) < num:
        left_s = deadline_s - time.monotonic()
        assert left_s > 0, f"only {len(items)} of {num} items came"
        items += listener.receive(left_s)
    return items


def introduce(channel: Channel, listener: Listener) -> PeerId:
    """Send one message, so that both ends know each other; the peer's id."""
    from tests.cluster.transport.samples import round_of

    assert channel.send(round_of(0))
    ((peer, message),) = take_from(listener, 1)
    assert message == round_of(0)
    return peer
