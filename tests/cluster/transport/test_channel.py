"""What every kind of channel must do: in memory, over a unix socket, over tcp."""

import math
import threading
import time

import pytest

from cluster.messages import MAX_MESSAGE_BYTES, Close, Message, Ping, Pong
from cluster.transport.channel import Channel, PeerGone
from cluster.transport.codec import encode
from tests.cluster.transport.ends import MAX_QUEUED, PEER_TIMEOUT_S, Ends
from tests.cluster.transport.helpers import LONG_S, introduce, take, take_from, wait_until
from tests.cluster.transport.samples import SAMPLES, round_of, table_of

SHOWN = [sample for sample in SAMPLES if not isinstance(sample, Ping | Pong)]


def test_messages_of_every_kind_arrive_whole_and_in_order_both_ways(ends: Ends) -> None:
    channel = ends.connect()
    for message in SHOWN:
        assert channel.send(message)
    items = take_from(ends.listener, len(SHOWN))
    assert [message for _, message in items] == SHOWN
    ((peer),) = {peer for peer, _ in items}
    for message in SHOWN:
        assert ends.listener.send(peer, message)
    assert take(channel, len(SHOWN)) == SHOWN


def test_answers_go_to_the_peer_that_asked(ends: Ends) -> None:
    channels = [ends.connect() for _ in range(3)]
    peers = [introduce(channel, ends.listener) for channel in channels]
    assert len(set(peers)) == 3
    for number, peer in enumerate(peers):
        ends.listener.send(peer, table_of(number))
    assert [take(channel, 1) for channel in channels] == [[table_of(number)] for number in range(3)]


def test_receiving_without_a_timeout_returns_at_once_when_nothing_is_there(ends: Ends) -> None:
    channel = ends.connect()
    started_s = time.monotonic()
    for _ in range(100):
        assert channel.receive() == [] and ends.listener.receive() == []
    assert time.monotonic() - started_s < 5.0


def test_receiving_waits_for_the_timeout_and_no_longer(ends: Ends) -> None:
    channel = ends.connect()
    started_s = time.monotonic()
    assert channel.receive(0.3) == []
    assert 0.25 < time.monotonic() - started_s < 10.0


def test_a_message_wakes_the_end_that_waits(ends: Ends) -> None:
    channel = ends.connect()
    peer = introduce(channel, ends.listener)
    for _ in range(20):
        timer = threading.Timer(0.02, ends.listener.send, (peer, table_of(1)))
        timer.start()
        started_s = time.monotonic()
        assert channel.receive(LONG_S) == [table_of(1)]
        assert time.monotonic() - started_s < LONG_S / 2
        timer.join()


def test_an_end_that_sends_from_another_thread_while_it_waits_misses_nothing(ends: Ends) -> None:
    channel, num = ends.connect(), 2000
    peer = introduce(channel, ends.listener)
    received: list[Message] = []

    def receive() -> None:
        while len(received) < num:
            received.extend(channel.receive(LONG_S))

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    for number in range(num):
        assert channel.send(round_of(number)) and ends.listener.send(peer, table_of(number))
        ends.listener.receive()
        if number % 16 == 0:
            wait_until(lambda: len(received) > number - 16, f"message {number}")  # noqa: B023
    thread.join(LONG_S)
    assert received == [table_of(number) for number in range(num)]


def test_several_threads_may_send(ends: Ends) -> None:
    channel, num_threads, num_messages = ends.connect(), 4, 10
    introduce(channel, ends.listener)

    def send(first: int) -> None:
        for number in range(num_messages):
            assert channel.send(round_of(first + number))

    threads = [threading.Thread(target=send, args=(100 * index,)) for index in range(num_threads)]
    for thread in threads:
        thread.start()
    messages = [message for _, message in take_from(ends.listener, num_threads * num_messages)]
    for index in range(num_threads):
        mine = [each for each in messages if each.number // 100 == index]  # type: ignore[union-attr]
        assert mine == [round_of(100 * index + number) for number in range(num_messages)]
    for thread in threads:
        thread.join()


def test_a_sender_is_never_held_up_by_an_end_that_does_not_read(ends: Ends) -> None:
    channel = ends.connect()
    peer = introduce(channel, ends.listener)
    started_s, num = time.monotonic(), 100 * MAX_QUEUED
    up = [channel.send(round_of(number)) for number in range(num)]
    down = [ends.listener.send(peer, table_of(number)) for number in range(num)]
    assert time.monotonic() - started_s < LONG_S
    for end, results in ((channel, up), (ends.listener, down)):
        traffic = end.traffic
        assert traffic.dropped >= results.count(False)
        assert traffic.sent >= results.count(True)


def test_what_does_not_fit_is_dropped_and_counted_and_the_rest_arrives_in_order(ends: Ends) -> None:
    channel, num = ends.connect(), 50 * MAX_QUEUED
    introduce(channel, ends.listener)
    sent = [number for number in range(num) if channel.send(round_of(number))]
    items: list[Message | PeerGone] = []
    while new := ends.listener.receive(1.0):
        items += [message for _, message in new]
    numbers = [message.number for message in items]  # type: ignore[union-attr]
    assert numbers == sorted(set(numbers)) and set(numbers) <= set(sent)
    num_dropped = channel.traffic.dropped + ends.listener.traffic.dropped
    assert len(numbers) + num_dropped == num
    assert num_dropped > 0


def test_both_ends_count_the_same_messages_and_bytes(ends: Ends) -> None:
    channel = ends.connect()
    peer = introduce(channel, ends.listener)
    for number in range(10):
        channel.send(round_of(number))
        ends.listener.send(peer, table_of(number))
    take_from(ends.listener, 10)
    take(channel, 10)
    up = sum(len(encode(round_of(number))) for number in (0, *range(10)))
    down = sum(len(encode(table_of(number))) for number in range(10))
    near, far = channel.traffic, ends.listener.traffic
    assert (near.sent, near.bytes_sent, near.received, near.bytes_received) == (11, up, 10, down)
    assert (far.sent, far.bytes_sent, far.received, far.bytes_received) == (10, down, 11, up)
    assert (near.dropped, near.malformed, far.dropped, far.malformed) == (0, 0, 0, 0)


def test_a_message_that_is_too_long_is_dropped_at_the_sender_and_harms_no_other(ends: Ends) -> None:
    channel = ends.connect()
    assert not channel.send(Close(sequences=(2**31 - 1,) * (MAX_MESSAGE_BYTES // 5 + 1)))
    assert channel.traffic.dropped == 1
    introduce(channel, ends.listener)


def test_the_longest_message_arrives(ends: Ends) -> None:
    channel = ends.connect()
    message = Close(sequences=(2**31 - 1,) * ((MAX_MESSAGE_BYTES - 100) // 5))
    assert channel.send(message)
    ((_, received),) = take_from(ends.listener, 1)
    assert received == message


def test_a_ping_is_answered_and_neither_is_shown(ends: Ends) -> None:
    channel = ends.connect()
    peer = introduce(channel, ends.listener)
    for number in range(3):
        channel.send(Ping(number=number))
        ends.listener.send(peer, Ping(number=number))
    channel.send(round_of(1))
    ends.listener.send(peer, table_of(1))
    assert take_from(ends.listener, 1) == [(peer, round_of(1))]
    assert take(channel, 1) == [table_of(1)]
    assert channel.traffic.received == ends.listener.traffic.received - 1 == 1


def test_an_idle_pair_hears_from_each_other(ends: Ends) -> None:
    channel = ends.connect()
    wait_until(lambda: channel.last_heard_s > -math.inf, "a first pong")
    for _ in range(3):
        heard_s = channel.last_heard_s
        wait_until(lambda: channel.last_heard_s > heard_s, "another pong")  # noqa: B023
    assert ends.listener.receive() == [] and channel.receive() == []


def test_a_peer_whose_owner_does_nothing_stays(ends: Ends) -> None:
    channel = ends.connect()
    peer = introduce(channel, ends.listener)
    assert ends.listener.receive(2.5 * PEER_TIMEOUT_S) == []
    assert ends.listener.send(peer, table_of(1))
    assert take(channel, 1) == [table_of(1)]


def test_a_closed_channel_is_gone_once_after_its_last_message(ends: Ends) -> None:
    other, channel = ends.connect(), ends.connect()
    introduce(other, ends.listener)
    peer = introduce(channel, ends.listener)
    channel.send(round_of(1))
    assert take_from(ends.listener, 1) == [(peer, round_of(1))]
    channel.close()
    started_s = time.monotonic()
    assert take_from(ends.listener, 1) == [(peer, PeerGone())]
    assert time.monotonic() - started_s < 10.0
    assert ends.listener.receive(1.5 * PEER_TIMEOUT_S) == []


def test_nothing_can_be_sent_to_a_peer_that_is_gone_or_was_never_there(ends: Ends) -> None:
    channel = ends.connect()
    peer = introduce(channel, ends.listener)
    channel.close()
    started_s = time.monotonic()
    assert take_from(ends.listener, 1) == [(peer, PeerGone())]
    assert time.monotonic() - started_s < 10.0, "an owner that sleeps must be woken"
    assert not ends.listener.send(peer, table_of(1))
    assert not ends.listener.send(b"nobody", table_of(1))
    assert (ends.listener.traffic.dropped, ends.listener.traffic.sent) == (2, 0)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_closed_end_takes_nothing_gives_nothing_and_lets_go_of_its_owner(ends: Ends, is_waiting: bool) -> None:
    channel = ends.connect()
    peer = introduce(channel, ends.listener)
    threads = [threading.Thread(target=end.receive, args=(LONG_S,)) for end in (channel, ends.listener)]
    if is_waiting:
        for thread in threads:
            thread.start()
        time.sleep(0.1)
    for end in (channel, ends.listener):
        end.close()
        end.close()
    for thread in threads:
        if is_waiting:
            thread.join(LONG_S)
            assert not thread.is_alive()
    started_s = time.monotonic()
    assert not channel.send(round_of(1)) and not ends.listener.send(peer, table_of(1))
    assert channel.receive(LONG_S) == [] and ends.listener.receive(LONG_S) == []
    assert time.monotonic() - started_s < LONG_S / 2


def test_a_channel_whose_listener_closed_hears_nothing_more_and_still_never_waits(ends: Ends) -> None:
    channel = ends.connect()
    introduce(channel, ends.listener)
    ends.listener.close()
    channel.receive(0.2)
    heard_s = channel.last_heard_s
    started_s = time.monotonic()
    results = [channel.send(round_of(number)) for number in range(10 * MAX_QUEUED)]
    assert not all(results)
    assert time.monotonic() - started_s < LONG_S
    assert channel.receive(0.5) == []
    assert channel.last_heard_s == heard_s


def test_closing_many_channels_while_they_are_in_use_is_safe(ends: Ends) -> None:
    stop = threading.Event()

    def chatter(channel: Channel) -> None:
        while not stop.is_set():
            channel.send(round_of(1))
            channel.receive(0.001)

    channels = [ends.connect() for _ in range(4)]
    threads = [threading.Thread(target=chatter, args=(channel,)) for channel in channels]
    for thread in threads:
        thread.start()
    take_from(ends.listener, 20)
    for channel in channels:
        channel.close()
    stop.set()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
