"""The bounds before the app, each over a real socket."""

import json
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import uvicorn.config

from deployments import http_guard
from deployments.http_guard import Bounds, GuardedProtocol, install
from deployments.limits import Limits
from deployments.service import GatewaySettings
from tests.deployments.fake_engine import FakeEngine
from tests.deployments.guarded_server import GuardedServer, read_all, read_answer, request_bytes

BOUNDS = Bounds(head_bytes=4096, body_bytes=1 << 20, head_timeout_s=0.4, write_timeout_s=0.4, connections=40)
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
PROMPT = json.dumps({"prompt": "a", "max_tokens": 1}).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[GuardedServer]:
    settings = GatewaySettings(limits=Limits(body_timeout_s=0.4))
    with GuardedServer(BOUNDS, engine=FakeEngine(tokens_per_step=64), settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def patient_server() -> Iterator[GuardedServer]:
    """Where only the number of bytes can end a connection."""
    with GuardedServer(replace(BOUNDS, head_timeout_s=60.0, write_timeout_s=60.0)) as running:
        yield running


def _flood(server: GuardedServer, first: bytes, more: bytes, *, most_bytes: int) -> tuple[int, bytes]:
    """Send `more` again and again until the server closes; how many bytes went out, and what came back."""
    with server.connect() as client:
        client.sendall(first)
        num_bytes = 0
        try:
            while num_bytes < most_bytes:
                client.sendall(more)
                num_bytes += len(more)
        except ConnectionError:
            pass
        return num_bytes, read_all(client)


def _wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def _is_well(server: GuardedServer) -> bool:
    with server.connect() as client:
        client.sendall(request_bytes("/v1/completions", PROMPT, b"connection: close"))
        return read_all(client).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("first", "more"),
    [
        pytest.param(b"GET /health HTTP/1.1\r\nx: ", b"a" * 16_384, id="an endless value"),
        pytest.param(b"GET /health HTTP/1.1\r\n", b"x: y\r\n" * 2048, id="endless headers"),
        pytest.param(b"GET /", b"a" * 16_384, id="an endless path"),
        pytest.param(CHUNKED + b"1\r\na\r\n0\r\n", b"x: y\r\n" * 2048, id="endless trailers"),
        pytest.param(CHUNKED + b"1\r\na\r\n0\r\nx: ", b"a" * 16_384, id="an endless trailer"),
        pytest.param(CHUNKED + b"1;", b"a" * 16_384, id="an endless chunk extension"),
    ],
)
def test_what_a_parser_would_collect_is_cut_off(patient_server: GuardedServer, first: bytes, more: bytes) -> None:
    # Much more goes out than what is kept: socket buffers take it while the server has not looked yet.
    num_bytes, answer = _flood(patient_server, first, more, most_bytes=64 << 20)
    assert num_bytes < 32 << 20
    # Trailers may also end in the app's own refusal, before the guard's.
    assert set(re.findall(rb"HTTP/1.1 (\d+)", answer)) <= {b"413", b"431"}
    assert _is_well(patient_server)


def test_a_head_that_is_too_long_is_told_so(patient_server: GuardedServer) -> None:
    with patient_server.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nx: " + b"a" * 5000)
        assert read_all(client).startswith(b"HTTP/1.1 431 ")


def test_a_body_that_nobody_reads_is_cut_off(patient_server: GuardedServer) -> None:
    head = b"GET /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n"
    num_bytes, answer = _flood(patient_server, head, b"a" * 65_536, most_bytes=512 << 20)
    assert num_bytes < 64 << 20
    assert answer == b"" or answer.startswith(b"HTTP/1.1 404 ")
    assert _is_well(patient_server)


def test_a_long_body_in_small_chunks_is_fine(server: GuardedServer) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 1, "user": "u" * 20_000}).encode()
    chunks = b"".join(b"2\r\n%s\r\n" % body[at : at + 2] for at in range(0, len(body) - 1, 2))
    tail = b"1\r\n%s\r\n" % body[-1:] if len(body) % 2 else b""
    with server.connect() as client:
        client.sendall(CHUNKED.replace(b"host: x", b"connection: close") + chunks + tail + b"0\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("begin", [b"", b"GET /health HTTP/1.1\r\nx: y\r\n"], ids=["silence", "half a head"])
def test_a_connection_without_a_request_does_not_stay(server: GuardedServer, begin: bytes) -> None:
    with server.connect() as client:
        client.sendall(begin)
        assert read_all(client) == b""


def test_half_a_head_after_a_request_does_not_stay_either(server: GuardedServer) -> None:
    with server.connect() as client:
        client.sendall(request_bytes("/health", method="GET"))
        assert read_answer(client)[0] == 200
        client.sendall(b"GET /health HTTP/1.1\r\nx: y\r\n")
        assert read_all(client) == b""


def test_a_connection_that_is_kept_alive_may_idle_longer_than_a_head_may_take(server: GuardedServer) -> None:
    with server.connect() as client:
        client.sendall(request_bytes("/health", method="GET"))
        assert read_answer(client)[0] == 200
        time.sleep(1.5 * BOUNDS.head_timeout_s)
        client.sendall(request_bytes("/health", method="GET"))
        assert read_answer(client)[0] == 200


def test_a_body_that_does_not_arrive_is_a_408(server: GuardedServer) -> None:
    with server.connect() as client:
        client.sendall(request_bytes("/v1/completions", PROMPT)[:-3])
        status, answer = read_answer(client)
    assert status == 408
    assert b'"code":"body_timeout_s"' in answer


def test_one_connection_too_many_is_closed_at_once_and_a_free_place_is_taken_again(server: GuardedServer) -> None:
    clients: list[socket.socket] = []
    try:
        for _ in range(BOUNDS.connections):
            clients.append(server.connect())
            # Kept alive, so that none of them runs into the time limit for a head.
            clients[-1].sendall(request_bytes("/health", method="GET"))
            assert read_answer(clients[-1])[0] == 200
        with server.connect() as client:
            assert read_all(client) == b""
        clients.pop().close()
        _wait_until(lambda: server.num_connections < BOUNDS.connections)
        clients.append(server.connect())
        clients[-1].sendall(request_bytes("/health", method="GET"))
        assert read_answer(clients[-1])[0] == 200
    finally:
        for client in clients:
            client.close()
    _wait_until(lambda: not server.num_connections)


def test_a_client_that_stops_reading_is_cut_off_and_its_work_ends() -> None:
    engine = FakeEngine(step_s=0.002, tokens_per_step=32)
    engine.max_model_len = 1 << 20
    with GuardedServer(BOUNDS, engine=engine) as server, server.connect(receive_bytes=4096) as client:
        body = {"prompt": "a", "max_tokens": 500_000, "logprobs": 20, "stream": True}
        client.sendall(request_bytes("/v1/completions", json.dumps(body).encode()))
        _wait_until(lambda: engine.num_steps > 0 and not engine.requests)
        assert engine.lengths.popitem()[1] < 500_000
        assert server.num_connections == 0


def test_a_client_that_reads_slowly_but_steadily_gets_its_whole_answer() -> None:
    with (
        GuardedServer(BOUNDS, engine=FakeEngine(tokens_per_step=64)) as server,
        server.connect(receive_bytes=4096) as client,
    ):
        body = {"prompt": "a", "max_tokens": 200, "logprobs": 20, "stream": True, "n": 4}
        client.sendall(request_bytes("/v1/completions", json.dumps(body).encode(), b"connection: close"))
        data = b""
        while chunk := client.recv(40_000):
            data += chunk
            time.sleep(0.005)
    assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "header", [b"x-request-id: \xff", b"x-request-timeout-seconds: \xff\xfe", b"user-agent: caf\xe9"]
)
def test_header_values_that_are_not_utf_8_are_a_400(server: GuardedServer, header: bytes) -> None:
    with server.connect() as client:
        client.sendall(request_bytes("/v1/completions", PROMPT, header))
        status, answer = read_answer(client)
    assert status == 400
    assert b'"code":"invalid_header"' in answer


def test_header_values_beyond_ascii_are_fine(server: GuardedServer) -> None:
    with server.connect() as client:
        client.sendall(request_bytes("/v1/completions", PROMPT, "user-agent: café 🐎".encode()))
        assert read_answer(client)[0] == 200


def test_installing_guards_the_servers_that_ray_serve_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedProtocol, "bounds", Bounds())
    monkeypatch.setitem(uvicorn.config.HTTP_PROTOCOLS, "auto", "somewhere:else")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    middleware = install()
    config = uvicorn.Config(lambda: None, factory=True)
    config.load()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert config.http_protocol_class is GuardedProtocol
    assert GuardedProtocol.bounds.connections == hard * 3 // 4
    assert [each.cls for each in middleware] == [http_guard.ReadableHeaders]
