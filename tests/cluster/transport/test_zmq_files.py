"""Addresses, unix sockets, and what a closed end leaves behind."""

import stat
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.transport import zmq_ipc
from cluster.transport.address import Address
from cluster.transport.zmq import ZmqListener, connect
from tests.cluster.transport.ends import open_channel, port_of, zmq_ends
from tests.cluster.transport.helpers import introduce, wait_until
from tests.cluster.transport.peer_process import PeerProcess


def test_a_process_that_ends_leaves_no_file(tmp_path: Path) -> None:
    with PeerProcess("listen", "127.0.0.1", "here", str(tmp_path), "1.5") as process:
        assert process.address().ipc
        assert list(tmp_path.iterdir())
        assert process.finish() == 0
    assert list(tmp_path.iterdir()) == []


def test_the_sockets_folder_is_private(listener: ZmqListener) -> None:
    path = zmq_ipc.path_of(listener.address.ipc or "")
    assert path.is_socket()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_new_ipc_folder_is_private(stack: ExitStack, tmp_path: Path) -> None:
    stack.enter_context(closing(ZmqListener("here", host=None, ipc_dir=tmp_path / "a")))
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_only_sockets_of_dead_listeners_are_swept(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PeerProcess("listen", "", "here", str(tmp_path), "1.5") as process:
        dead = zmq_ipc.path_of(process.address().ipc or "")
    alive = stack.enter_context(closing(ZmqListener("here", host=None, ipc_dir=tmp_path)))
    assert dead.exists(), "young sockets are left alone: their owner may be about to listen"
    monkeypatch.setattr(zmq_ipc, "_MIN_AGE_S", -1.0)
    zmq_ipc.sweep(tmp_path)
    assert not dead.parent.exists()
    introduce(open_channel(stack, alive.address, "here"), alive)


def test_the_unix_socket_is_used_on_the_listeners_node_only(stack: ExitStack, listener: ZmqListener) -> None:
    only_ipc = replace(listener.address, tcp="tcp://127.0.0.1:1")
    introduce(open_channel(stack, only_ipc, "here"), listener)
    only_tcp = replace(listener.address, ipc="ipc:///nonexistent/s")
    introduce(open_channel(stack, only_tcp, "there"), listener)
    introduce(open_channel(stack, only_tcp, "here"), listener)


@pytest.mark.parametrize(
    "address",
    [
        Address(node_id="here", ipc="ipc:///x/s"),
        Address(node_id="there", tcp="tcp://127.0.0.1:1"),
        Address(
            node_id="there",
            tcp="tcp://127.0.0.1:1",
            server_public_key="x",
            client_public_key="y",
            client_secret_key="z",
        ),
        Address(node_id="there"),
    ],
)
def test_an_address_without_keys_or_a_way_is_refused(address: Address) -> None:
    with pytest.raises(ConfigError):
        connect(address, "there")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "*", "", None])
def test_a_listener_needs_one_interface(host: str | None) -> None:
    with pytest.raises(ConfigError, match="host"):
        ZmqListener("here", host=host, ipc_dir=None)


def test_a_listener_that_cannot_be_made_says_why_and_leaves_nothing(tmp_path: Path, listener: ZmqListener) -> None:
    num_before = _count("/proc/self/fd")
    with pytest.raises(ConfigError, match="host"):
        ZmqListener("here", host="192.0.2.1", ipc_dir=tmp_path / "a")
    with pytest.raises(ConfigError, match="host"):
        ZmqListener("here", host="127.0.0.1", port=port_of(listener), ipc_dir=tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == []
    with pytest.raises(ConfigError, match="ipc_dir"):
        ZmqListener("here", host=None, ipc_dir=tmp_path / ("x" * 100))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="ipc_dir"):
        ZmqListener("here", host=None, ipc_dir=tmp_path / "file")
    assert _count("/proc/self/fd") == num_before


def test_a_listener_on_ipv6_works(stack: ExitStack) -> None:
    try:
        listener = stack.enter_context(closing(ZmqListener("here", host="::1", ipc_dir=None)))
    except ConfigError:
        pytest.skip("no IPv6 on this machine")
    introduce(open_channel(stack, listener.address), listener)


def test_opening_and_closing_leaves_no_thread_descriptor_or_file(tmp_path: Path) -> None:
    def once() -> None:
        with ExitStack() as stack:
            for node_id in ("here", "there"):
                ends = zmq_ends(stack, tmp_path, node_id=node_id)
                introduce(ends.connect(), ends.listener)

    once()
    before = _resources()
    for _ in range(5):
        once()
    wait_until(lambda: _resources() <= before, "all threads and descriptors are gone")
    assert list(tmp_path.iterdir()) == []


def _resources() -> tuple[int, int]:
    return _count("/proc/self/task"), _count("/proc/self/fd")


def _count(folder: str) -> int:
    return len(list(Path(folder).iterdir()))
