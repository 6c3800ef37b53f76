"""The faults that the channel in memory makes on demand."""

import threading
import time

import pytest

from cluster.clock import ManualClock
from cluster.messages import Message
from cluster.transport.channel import PEER_TIMEOUT_S, PeerGone
from cluster.transport.codec import encode
from cluster.transport.memory import MemoryChannel, MemoryListener, garble, lose, memory_pair
from tests.cluster.transport.helpers import LONG_S
from tests.cluster.transport.samples import round_of, table_of


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def pair(clock: ManualClock) -> tuple[MemoryListener, MemoryChannel]:
    return memory_pair(clock=clock)


def _messages(listener: MemoryListener) -> list[Message | PeerGone]:
    return [message for _, message in listener.receive()]


def test_the_bytes_pass_the_codec(pair: tuple[MemoryListener, MemoryChannel]) -> None:
    listener, channel = pair
    sent = round_of(1)
    channel.send(sent)
    (received,) = _messages(listener)
    assert received == sent and received is not sent


def test_lost_messages_vanish_without_a_trace_at_the_sender(pair: tuple[MemoryListener, MemoryChannel]) -> None:
    listener, channel = pair
    channel.uplink.tamper = lose
    assert channel.send(round_of(1))
    channel.uplink.tamper = None
    assert channel.send(round_of(2))
    assert _messages(listener) == [round_of(2)]
    assert (channel.traffic.sent, listener.traffic.received, listener.traffic.malformed) == (2, 1, 0)


def test_garbled_messages_are_malformed(pair: tuple[MemoryListener, MemoryChannel]) -> None:
    listener, channel = pair
    listener.send(channel.peer, table_of(1))
    channel.downlink.tamper = garble
    for number in range(3):
        listener.send(channel.peer, table_of(number))
    assert channel.receive() == [table_of(1)]
    assert channel.traffic.malformed == 3


def test_a_message_can_be_doubled_and_replaced(pair: tuple[MemoryListener, MemoryChannel]) -> None:
    listener, channel = pair
    channel.uplink.tamper = lambda data: (data, encode(round_of(9)), data)
    channel.send(round_of(1))
    assert _messages(listener) == [round_of(1), round_of(9), round_of(1)]


def test_delayed_messages_come_when_the_clock_says_so(
    pair: tuple[MemoryListener, MemoryChannel], clock: ManualClock
) -> None:
    listener, channel = pair
    channel.uplink.delay_s = 1.0
    channel.send(round_of(1))
    channel.uplink.delay_s = 0.0
    channel.send(round_of(2))
    assert _messages(listener) == [round_of(2)]
    clock.advance(0.99)
    assert _messages(listener) == []
    clock.advance(0.01)
    assert _messages(listener) == [round_of(1)]


def test_a_waiting_end_notices_that_a_manual_clock_moved(
    pair: tuple[MemoryListener, MemoryChannel], clock: ManualClock
) -> None:
    listener, channel = pair
    channel.uplink.delay_s = 5.0
    channel.send(round_of(1))
    threading.Timer(0.05, clock.advance, (5.0,)).start()
    started_s = time.monotonic()
    assert [message for _, message in listener.receive(LONG_S)] == [round_of(1)]
    assert time.monotonic() - started_s < LONG_S / 2


def test_held_messages_come_in_the_order_of_the_release(pair: tuple[MemoryListener, MemoryChannel]) -> None:
    listener, channel = pair
    channel.uplink.hold()
    for number in range(3):
        channel.send(round_of(number))
    assert _messages(listener) == []
    channel.uplink.release(reversed)
    channel.send(round_of(3))
    assert _messages(listener) == [round_of(2), round_of(1), round_of(0), round_of(3)]


def test_a_cut_link_is_silent_until_the_peer_is_gone_and_back_when_it_is_mended(
    pair: tuple[MemoryListener, MemoryChannel], clock: ManualClock
) -> None:
    listener, channel = pair
    channel.send(round_of(1))
    assert listener.receive() == [(channel.peer, round_of(1))]
    assert channel.last_heard_s == 100.0
    channel.uplink.is_cut = channel.downlink.is_cut = True
    assert channel.send(round_of(2))
    clock.advance(PEER_TIMEOUT_S)
    assert listener.receive() == []
    clock.advance(0.01)
    assert listener.receive() == [(channel.peer, PeerGone())]
    assert listener.receive() == []
    assert not listener.send(channel.peer, table_of(1))
    assert channel.last_heard_s == 100.0
    channel.uplink.is_cut = channel.downlink.is_cut = False
    assert channel.last_heard_s == clock.now_s()
    assert listener.send(channel.peer, table_of(1))
    assert channel.receive() == [table_of(1)]


def test_a_cut_way_back_is_noticed_by_the_verifier_alone(
    pair: tuple[MemoryListener, MemoryChannel], clock: ManualClock
) -> None:
    listener, channel = pair
    assert channel.last_heard_s == 100.0
    channel.downlink.is_cut = True
    clock.advance(10.0)
    assert listener.receive() == []
    assert channel.last_heard_s == 100.0


def test_an_idle_peer_is_not_gone_however_long_it_takes(
    pair: tuple[MemoryListener, MemoryChannel], clock: ManualClock
) -> None:
    listener, _ = pair
    for _ in range(3):
        clock.advance(100.0)
        assert listener.receive() == []


def test_a_closed_listener_is_not_heard(pair: tuple[MemoryListener, MemoryChannel], clock: ManualClock) -> None:
    listener, channel = pair
    assert channel.last_heard_s == 100.0
    listener.close()
    clock.advance(1.0)
    assert channel.last_heard_s == 100.0
