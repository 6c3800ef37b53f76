"""Lost connections, processes that pause and die, owners that are busy."""

import json
import os
import signal
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.clock import ManualClock
from cluster.messages import Message
from cluster.transport.channel import PeerGone
from cluster.transport.zmq import ZmqChannel, ZmqListener, connect
from tests.cluster.transport.ends import PEER_TIMEOUT_S, PING_INTERVAL_S, Ends, open_channel, port_of
from tests.cluster.transport.helpers import LONG_S, introduce, take, take_from, wait_until
from tests.cluster.transport.peer_process import PeerProcess
from tests.cluster.transport.relay import Relay
from tests.cluster.transport.samples import round_of, table_of


def test_connecting_to_an_absent_listener_does_not_wait_and_works_when_it_comes(stack: ExitStack) -> None:
    with (
        closing(ZmqListener("here", host="127.0.0.1", ipc_dir=None)) as listener,
        Relay("127.0.0.1", port_of(listener)) as relay,
    ):
        relay.is_open = False
        started_s = time.monotonic()
        channel = open_channel(stack, replace(listener.address, tcp=f"tcp://127.0.0.1:{relay.port}"))
        assert channel.send(round_of(1))
        assert channel.receive() == []
        assert time.monotonic() - started_s < 5.0
        assert listener.receive(0.5) == []
        relay.is_open = True
        assert [message for _, message in take_from(listener, 1)] == [round_of(1)]


def test_connecting_to_a_host_that_does_not_answer_does_not_wait(stack: ExitStack, listener: ZmqListener) -> None:
    started_s = time.monotonic()
    channel = open_channel(stack, replace(listener.address, tcp="tcp://192.0.2.1:9"))
    assert channel.send(round_of(1)) and channel.receive() == []
    channel.close()
    assert time.monotonic() - started_s < 5.0


def test_a_lost_connection_is_made_again_with_the_same_peer(stack: ExitStack, listener: ZmqListener) -> None:
    with Relay("127.0.0.1", port_of(listener)) as relay:
        channel = open_channel(stack, replace(listener.address, tcp=f"tcp://127.0.0.1:{relay.port}"))
        peer = introduce(channel, listener)
        for number in range(1, 4):
            relay.cut()
            deadline_s = time.monotonic() + LONG_S
            while not (items := listener.receive(0.05)):
                channel.send(round_of(number))
                assert time.monotonic() < deadline_s
            assert items[0] == (peer, round_of(number))
            listener.receive(0.2)
            assert listener.send(peer, table_of(number))
            assert take(channel, 1) == [table_of(number)]


def test_a_long_outage_ends_in_gone_and_the_peer_comes_back_by_itself(stack: ExitStack, listener: ZmqListener) -> None:
    with Relay("127.0.0.1", port_of(listener)) as relay:
        channel = open_channel(stack, replace(listener.address, tcp=f"tcp://127.0.0.1:{relay.port}"))
        peer = introduce(channel, listener)
        relay.is_open = False
        relay.cut()
        assert take_from(listener, 1) == [(peer, PeerGone())]
        heard_s = channel.last_heard_s
        relay.is_open = True
        wait_until(lambda: channel.last_heard_s > heard_s, "a pong")
        assert introduce(channel, listener) == peer


def test_pings_that_nobody_answers_do_not_fill_the_queue(stack: ExitStack) -> None:
    with (
        closing(ZmqListener("here", host="127.0.0.1", ipc_dir=None)) as listener,
        Relay("127.0.0.1", port_of(listener)) as relay,
    ):
        relay.is_open = False
        address = replace(listener.address, tcp=f"tcp://127.0.0.1:{relay.port}")
        channel = stack.enter_context(closing(connect(address, "x", ping_interval_s=0.01, max_queued=40)))
        time.sleep(2.0)
        assert channel.send(round_of(1))


def test_a_peer_with_a_busy_owner_looks_alive_both_ways(zmq_pair: Ends) -> None:
    channel = zmq_pair.connect()
    introduce(channel, zmq_pair.listener)
    until_s = time.monotonic() + 2.5 * PEER_TIMEOUT_S
    while time.monotonic() < until_s:  # holds the interpreter as a busy engine does
        sum(range(1000))
    assert zmq_pair.listener.receive() == []
    assert zmq_pair.listener.receive(PEER_TIMEOUT_S / 2) == []


def test_last_heard_is_told_by_the_clock_that_was_given(stack: ExitStack, listener: ZmqListener) -> None:
    clock = ManualClock(100.0)
    channel = stack.enter_context(
        closing(connect(listener.address, "here", clock=clock, ping_interval_s=PING_INTERVAL_S))
    )
    wait_until(lambda: channel.last_heard_s == 100.0, "a pong")
    clock.advance(5.0)
    wait_until(lambda: channel.last_heard_s == 105.0, "another pong")


def test_a_connection_that_only_one_side_knows_to_be_lost_is_taken_over(
    stack: ExitStack, listener: ZmqListener
) -> None:
    relay = stack.enter_context(Relay("127.0.0.1", port_of(listener)))
    channel = open_channel(stack, replace(listener.address, tcp=f"tcp://127.0.0.1:{relay.port}"))
    peer = introduce(channel, listener)
    relay.cut(is_server_told=False)
    heard_s = channel.last_heard_s
    wait_until(lambda: channel.last_heard_s > heard_s + PEER_TIMEOUT_S, "pongs over a new connection")
    listener.receive()
    assert introduce(channel, listener) == peer


@pytest.fixture
def lazy(stack: ExitStack, tmp_path: Path) -> tuple[ZmqListener, ZmqChannel, bytes]:
    """A pair whose threads sleep for minutes: the owners are on their own; and the channel's peer id."""
    listener = stack.enter_context(
        closing(ZmqListener("here", host=None, ipc_dir=tmp_path, peer_timeout_s=3_000.0, max_queued=8))
    )
    channel = stack.enter_context(
        closing(connect(listener.address, "here", ping_interval_s=1_000.0, peer_timeout_s=3_000.0))
    )
    return listener, channel, introduce(channel, listener)


def test_a_sender_that_uses_up_a_signal_wakes_the_owner(
    lazy: tuple[ZmqListener, ZmqChannel, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, channel, peer = lazy
    is_about_to_sleep, may_sleep = threading.Event(), threading.Event()
    fall_asleep = channel._loop._sleep

    def sleep(timeout_s: float) -> None:
        is_about_to_sleep.set()
        may_sleep.wait(LONG_S)
        fall_asleep(timeout_s)

    monkeypatch.setattr(channel._loop, "_sleep", sleep)
    received: list[Message] = []
    owner = threading.Thread(target=lambda: received.extend(channel.receive(LONG_S)))
    started_s = time.monotonic()
    owner.start()
    assert is_about_to_sleep.wait(LONG_S)
    assert listener.send(peer, table_of(1))
    time.sleep(0.5)  # for libzmq's threads: the table lies in the channel's socket now
    assert channel.send(round_of(1))
    may_sleep.set()
    owner.join()
    assert received == [table_of(1)]
    assert time.monotonic() - started_s < LONG_S / 2


def test_an_owner_that_reads_loses_nothing_however_short_its_queue(lazy: tuple[ZmqListener, ZmqChannel, bytes]) -> None:
    listener, channel, _ = lazy
    for number in range(100):
        assert channel.send(round_of(number))
    messages = [message for _, message in take_from(listener, 100)]
    assert messages == [round_of(number) for number in range(100)]
    assert listener.traffic.dropped == 0


def test_a_killed_peer_is_gone_within_two_seconds(listener: ZmqListener) -> None:
    with PeerProcess("connect", json.dumps(listener.address.to_json()), "there", "0.01") as process:
        ((peer, _), *_) = take_from(listener, 1)
        process.kill()
        started_s = time.monotonic()
        assert _until_gone(listener)[-1] == (peer, PeerGone())
        assert time.monotonic() - started_s < PEER_TIMEOUT_S + 3.0


def _until_gone(listener: ZmqListener) -> list[tuple[bytes, object]]:
    items: list[tuple[bytes, object]] = []
    while not items or items[-1][1] != PeerGone():
        items += take_from(listener, 1)
    return items


def test_a_paused_peer_is_gone_and_comes_back_when_it_goes_on(listener: ZmqListener) -> None:
    with PeerProcess("connect", json.dumps(listener.address.to_json()), "here", "0.01") as process:
        ((peer, _), *_) = take_from(listener, 1)
        os.kill(process.pid, signal.SIGSTOP)
        assert _until_gone(listener)[-1] == (peer, PeerGone())
        os.kill(process.pid, signal.SIGCONT)
        assert take_from(listener, 1)[0][0] == peer


@pytest.mark.parametrize("node_id", ["here", "there"])
def test_a_paused_listener_blocks_nobody_and_takes_nobody_for_gone(
    stack: ExitStack, tmp_path: Path, node_id: str
) -> None:
    process = stack.enter_context(PeerProcess("listen", "127.0.0.1", "here", str(tmp_path), str(PEER_TIMEOUT_S)))
    channel = open_channel(stack, process.address(), node_id)
    channel.send(round_of(1))
    assert take(channel, 1) == [table_of(1)]
    os.kill(process.pid, signal.SIGSTOP)
    heard_s = channel.last_heard_s
    longest_s, until_s = 0.0, time.monotonic() + 2.5 * PEER_TIMEOUT_S
    number = 2
    while time.monotonic() < until_s:
        started_s = time.monotonic()
        channel.send(round_of(number))
        channel.receive()
        longest_s = max(longest_s, time.monotonic() - started_s)
        number += 1
        time.sleep(0.01)
    assert longest_s < 1.0
    assert channel.last_heard_s <= heard_s + PEER_TIMEOUT_S
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: channel.send(round_of(number)) and channel.receive(0.05) != [], "an answer")
    wait_until(lambda: process.report().get("last_number", 0) >= 2, "a report")
    assert process.report()["num_gone"] == 0
    assert process.report()["num_wrong"] <= process.report()["num_received"]
