"""Two hosts: one end in each of two network namespaces, virtual cables between them that lose, delay and break."""

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from cluster.transport.channel import PEER_TIMEOUT_S
from tests.cluster.transport.helpers import LONG_S, wait_until
from tests.cluster.transport.lossy_line import DEVICE, LossyLine
from tests.cluster.transport.peer_process import PeerProcess

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

RETURN_S = 5.0
CALL_S = 1.0
"""Far more than a call takes on a busy machine, and less than any time-out of the channel."""

LOSS, DELAY_S = 0.05, 0.02
NETEM = ("netem", "loss", "5%", "delay", "20ms")
CABLE = ("10.213.0.1", "10.213.0.2")
LOSSY_LINE = ("10.214.0.1", "10.214.0.2")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@dataclass(frozen=True, slots=True)
class Hosts:
    """Two network namespaces and the ends of their cable, which carry the same names.

    Attributes:
        near: namespace of the verifier.
        far: namespace of the drafter.
    """

    near: str
    far: str

    def spoil_with_netem(self) -> None:
        """Let both ends of the cable lose and delay what they send."""
        for name in (self.near, self.far):
            command = ("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", name, "root")
            done = subprocess.run((*command, *NETEM), capture_output=True, text=True, check=False)
            if "qdisc kind is unknown" in done.stderr:
                pytest.skip("this kernel has no netem")
            assert done.returncode == 0, done.stderr

    def set_link(self, state: str) -> None:
        """Plug or unplug the drafter's end."""
        _run("ip", "-n", self.far, "link", "set", self.far, state)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation between two hosts."""

    hosts: Hosts
    drafter: PeerProcess
    verifier: PeerProcess

    def wait_for_tables(self, num: int, timeout_s: float = LONG_S) -> None:
        """Wait until so many more tables have come back."""
        goal = self.num_tables() + num
        wait_until(lambda: self.num_tables() >= goal, f"{num} more tables", timeout_s=timeout_s)

    def num_tables(self) -> int:
        """Tables that the verifier has got."""
        return int(self.verifier.report().get("num_received", 0))

    def check_whole(self) -> None:
        """Nothing came damaged, twice or out of order, and no call waited."""
        assert self.verifier.report()["num_wrong"] == self.drafter.report()["num_wrong"] == 0
        assert self.verifier.report()["longest_call_s"] < CALL_S


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0:
        pytest.skip("making network namespaces needs root")
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(missing)} missing: apt-get install iproute2")
    mark = uuid.uuid4().hex[:8]
    hosts = Hosts(f"or-n-{mark}", f"or-f-{mark}")
    with ExitStack() as stack:
        for name in (hosts.near, hosts.far):
            made = subprocess.run(("ip", "netns", "add", name), capture_output=True, text=True, check=False)
            if made.returncode != 0:
                pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
            stack.callback(_run, "ip", "netns", "delete", name)
        _run(
            "ip", "link", "add", hosts.near, "netns", hosts.near, "type", "veth", "peer", hosts.far, "netns", hosts.far
        )
        for name, own, other in ((hosts.near, *CABLE), (hosts.far, *CABLE[::-1])):
            _set_up(name, name, own, other)
        yield hosts


def _set_up(namespace: str, device: str, own: str, other: str) -> None:
    _run("ip", "-n", namespace, "address", "add", own, "peer", other, "dev", device)
    _run("ip", "-n", namespace, "link", "set", device, "up")


@contextmanager
def _talk(hosts: Hosts, host: str) -> Iterator[Talk]:
    with ExitStack() as stack:
        inside = ("ip", "netns", "exec")
        drafter = stack.enter_context(
            PeerProcess("listen", host, "far", "", str(PEER_TIMEOUT_S), prefix=(*inside, hosts.far))
        )
        address = json.dumps(drafter.address().to_json())
        verifier = stack.enter_context(PeerProcess("connect", address, "near", "0.01", prefix=(*inside, hosts.near)))
        yield Talk(hosts, drafter, verifier)


@pytest.fixture
def talk(hosts: Hosts) -> Iterator[Talk]:
    with _talk(hosts, CABLE[1]) as talk:
        yield talk


def test_two_hosts_exchange_rounds_and_tables(talk: Talk) -> None:
    talk.wait_for_tables(200)
    talk.check_whole()
    assert talk.verifier.report()["num_dropped"] == 0
    assert talk.drafter.report()["num_gone"] == 0


@contextmanager
def _lossy_talk(hosts: Hosts, *, loss: float) -> Iterator[tuple[LossyLine, Talk]]:
    if not DEVICE.exists():
        pytest.skip(f"no {DEVICE}")
    devices = (f"{hosts.near}t", f"{hosts.far}t")
    with LossyLine(devices, loss=loss, delay_s=DELAY_S) as line:
        ends = zip((hosts.near, hosts.far), devices, LOSSY_LINE, LOSSY_LINE[::-1], strict=True)
        for namespace, device, own, other in ends:
            _run("ip", "link", "set", device, "netns", namespace)
            _set_up(namespace, device, own, other)
        with _talk(hosts, LOSSY_LINE[1]) as talk:
            yield line, talk


def _check_a_bad_line(talk: Talk) -> None:
    talk.wait_for_tables(500, timeout_s=4 * LONG_S)
    talk.check_whole()
    assert talk.drafter.report()["num_gone"] == 0


def test_what_arrives_under_netem_is_whole_and_in_order(talk: Talk) -> None:
    talk.wait_for_tables(10)
    talk.hosts.spoil_with_netem()
    _check_a_bad_line(talk)


def test_what_arrives_over_a_lossy_slow_line_is_whole_and_in_order(hosts: Hosts) -> None:
    with _lossy_talk(hosts, loss=LOSS) as (line, talk):
        _check_a_bad_line(talk)
    assert line.num_lost >= 10


def _check_an_outage(talk: Talk, start: Callable[[], None], stop: Callable[[], None], *, outage_s: float) -> None:
    talk.wait_for_tables(10)
    num_gone = talk.drafter.report()["num_gone"]
    start()
    cut_s = time.monotonic()
    wait_until(lambda: talk.drafter.report()["num_gone"] == num_gone + 1, "gone")
    assert talk.drafter.report()["gone_at_s"] - cut_s < PEER_TIMEOUT_S + 1.0
    time.sleep(cut_s + outage_s - time.monotonic())
    stop()
    talk.wait_for_tables(10, timeout_s=RETURN_S)
    talk.check_whole()


def test_a_cut_line_ends_in_gone_blocks_nobody_and_heals_by_itself(talk: Talk) -> None:
    for outage_s in (3.0, 5.0):
        _check_an_outage(
            talk, lambda: talk.hosts.set_link("down"), lambda: talk.hosts.set_link("up"), outage_s=outage_s
        )


def test_a_line_that_swallows_everything_for_long_heals_by_itself(hosts: Hosts) -> None:
    # After 40 s tcp by itself, connected or connecting, would wait for 20 s and more until it tries again.
    with _lossy_talk(hosts, loss=0.0) as (line, talk):
        _check_an_outage(talk, lambda: setattr(line, "loss", 1.0), lambda: setattr(line, "loss", 0.0), outage_s=40.0)


def test_a_short_cut_is_not_noticed_but_for_the_delay(talk: Talk) -> None:
    talk.wait_for_tables(10)
    num_sent = talk.verifier.report()["num_sent"]
    talk.hosts.set_link("down")
    time.sleep(0.3)
    talk.hosts.set_link("up")
    talk.wait_for_tables(10, timeout_s=RETURN_S)
    talk.check_whole()
    assert talk.drafter.report()["num_gone"] == 0
    assert talk.verifier.report()["num_sent"] > num_sent
