"""A real server and clients that mean no good: right statuses, bounded memory, and everyone else is still served."""

import json
import re
import resource
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deployments.guarded_server import read_all, read_answer, request_bytes
from tests.e2e.conftest import KEY, Outrider, start_outrider, stop_for_sure, wait_for_zero

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MIB = 1 << 20
PATH = "/v1/completions"
PROMPT = {"prompt": "a", "max_tokens": 8, "temperature": 0}
AUTHORIZED = b"authorization: Bearer " + KEY.encode()
GAUGES = (
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "outrider_queued_requests",
    "outrider_queued_tokens", "outrider_http_active_requests",
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path) -> Iterator[Outrider]:
    running = start_outrider(
        tiny_model_dir, "--served-model-name", "tiny", "--drafter", "ngram", "--set", "limits.body_timeout_s=1.5"
    )
    yield running
    stop_for_sure(running)


@pytest.fixture(autouse=True)
def stays_well(server: Outrider) -> Iterator[None]:
    """Whatever a test does to the server, it answers the same afterwards, and nothing is left."""
    before = _text(server)
    yield
    assert _text(server) == before
    end_s = time.monotonic() + 20
    while left := _busy_gauges(server):
        assert time.monotonic() < end_s, left
        time.sleep(0.05)


def _busy_gauges(server: Outrider) -> list[str]:
    found = re.findall(r"^([\w:]+){[^}]*} (\S+)$", server.get("/metrics").text, flags=re.MULTILINE)
    return [name for name, value in found if name in GAUGES and float(value)]


def _text(server: Outrider) -> str:
    text: str = server.post(PATH, PROMPT).json()["choices"][0]["text"]
    return text


def _connect(server: Outrider, *, receive_bytes: int | None = None) -> socket.socket:
    client = socket.socket()
    if receive_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(120)
    client.connect(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
    return client


def _replicas(server: Outrider) -> dict[int, str]:
    """The processes that hold what clients send and are sent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
            if b"ray::ServeReplica" in title and server.marker.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = title.decode()
        except OSError:
            continue
    return found


def _gateway(server: Outrider) -> int:
    return next(pid for pid, title in _replicas(server).items() if "Gateway" in title)


def _memory_bytes(pids: Sequence[int]) -> int:
    pattern = re.compile(r"^VmRSS:\s+(\d+) kB$", flags=re.MULTILINE)
    found = (pattern.search(Path(f"/proc/{pid}/status").read_text()) for pid in pids)
    return sum(int(match[1]) << 10 for match in found if match)


def _num_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_ten_thousand_idle_connections_cost_little_and_others_are_served(server: Outrider) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    num_connections = min(10_000, (hard - 1000) * 3 // 4)
    gateway = _gateway(server)
    files, memory = _num_files(gateway), _memory_bytes([gateway])
    try:
        with ExitStack() as stack:
            for _ in range(num_connections):
                stack.enter_context(_connect(server))
            _text(server)
            assert _num_files(gateway) >= files + num_connections
            cost = (_memory_bytes([gateway]) - memory) / num_connections
            assert cost < 32 << 10
        end_s = time.monotonic() + 20
        while _num_files(gateway) > files + 50:
            assert time.monotonic() < end_s
            time.sleep(0.1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        pytest.param(b"GET /health HTTP/1.1\r\nx: ", b"a" * 65_536, id="an endless header"),
        pytest.param(b"GET /health HTTP/1.1\r\n", b"x: y\r\n" * 10_000, id="endless headers"),
        pytest.param(
            b"GET /health HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", b"a" * 65_536, id="an endless body"
        ),
    ],
)
def test_a_client_without_a_key_cannot_fill_the_memory(server: Outrider, begin: bytes, more: bytes) -> None:
    gateway = _gateway(server)
    memory, num_bytes = _memory_bytes([gateway]), 0
    with _connect(server) as client:
        client.sendall(begin)
        try:
            while num_bytes < 200 * MIB:
                client.sendall(more)
                num_bytes += len(more)
        except ConnectionError:
            pass
        assert num_bytes < 200 * MIB
        assert _memory_bytes([gateway]) - memory < 100 * MIB
        assert b" 500 " not in read_all(client)


BODY = json.dumps(PROMPT).encode()
CONTROLS = '{"prompt":"\u202e\u0000😀é\\u0000","max_tokens":2}'.encode()
ODDITIES = '{"prompt":"\u202e😀é\u0301\\u0000\ufffe","max_tokens":2}'.encode()
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n" + AUTHORIZED + b"\r\n\r\n"


def _post(body: bytes, *headers: bytes) -> bytes:
    return request_bytes(PATH, body, AUTHORIZED, *headers)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(_post(b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400, id="deep JSON"),
        pytest.param(_post(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400, id="deep objects"),
        pytest.param(_post(b'{"prompt":"\xff\xfe"}'), 400, id="invalid UTF-8"),
        pytest.param(_post(b'{"prompt":"\\ud800"}'), 400, id="a lone surrogate"),
        pytest.param(_post(b'{"prompt":"a","temperature":NaN}'), 400, id="NaN"),
        pytest.param(_post(b'{"prompt":"a","temperature":1e999}'), 400, id="infinity"),
        pytest.param(_post(b'{"prompt":"a","seed":' + b"9" * 5000 + b"}"), 400, id="a huge number"),
        pytest.param(_post(b'{"prompt":"a","prompt":1}'), 400, id="a key twice"),
        pytest.param(_post(CONTROLS), 400, id="raw control characters"),
        pytest.param(_post(ODDITIES), 200, id="odd characters"),
        pytest.param(_post(b'{"prompt":"' + b"a" * (5 * MIB) + b'"}'), 413, id="a huge body"),
        pytest.param(_post(b'{"prompt":"' + b"a" * (3 * MIB) + b'"}'), 400, id="a huge prompt"),
        pytest.param(_post(b'{"prompt":"a","n":65536}'), 400, id="many choices"),
        pytest.param(_post(BODY, *(b"x-%d: y" % n for n in range(200))), 413, id="many headers"),
        pytest.param(_post(BODY, b"x: " + b"y" * 40_000), 413, id="a large header"),
        pytest.param(_post(BODY, b"x-request-id: \xff\xfe"), 400, id="a request id that is no text"),
        pytest.param(_post(BODY, b"x-request-timeout-seconds: \xff"), 400, id="a deadline that is no text"),
        pytest.param(_post(BODY, b"x-request-id: a\tb"), 200, id="a strange request id"),
        pytest.param(request_bytes(PATH, BODY, b"authorization: Bearer \xc3\xa9"), 401, id="a strange key"),
        pytest.param(request_bytes(PATH, BODY), 401, id="no key"),
        pytest.param(_post(BODY, b"content-encoding: gzip"), 200, id="a claim of compression"),
        pytest.param(_post(b"\x1f\x8b\x08\x00" + b"\x00" * 100, b"content-encoding: gzip"), 400, id="compression"),
        pytest.param(_post(BODY, b"transfer-encoding: chunked"), 400, id="two lengths"),
        pytest.param(CHUNKED + b"zz\r\nabc\r\n", 400, id="a chunk without a length"),
        pytest.param(_post(BODY)[:-4], 408, id="a body that does not arrive"),
        pytest.param(b"\x16\x03\x01\x00\xa5\x01\x00\x00" + b"\x00" * 200, 400, id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
        pytest.param(request_bytes("/%00/../%ff%zz", b"", AUTHORIZED, method="GET"), 404, id="a strange path"),
        pytest.param(request_bytes("*", b"", AUTHORIZED, method="OPTIONS"), 404, id="no path"),
        pytest.param(request_bytes(PATH, b"", AUTHORIZED, method="DELETE"), 405, id="another method"),
    ],
)  # fmt: skip
def test_malformed_input_has_its_status(server: Outrider, data: bytes, status: int) -> None:
    with _connect(server) as client:
        client.sendall(data)
        assert read_answer(client)[0] == status


def test_garbage_behind_a_request_ends_the_connection_and_harms_no_other(server: Outrider) -> None:
    with _connect(server) as client:
        client.sendall(_post(BODY) + b"\xff\xfe garbage\r\n\r\n" * 1000)
        assert re.findall(rb"HTTP/1.1 (\d+)", read_all(client)) in ([b"400"], [b"200", b"400"])


def test_requests_behind_each_other_on_one_connection_are_answered_in_order(server: Outrider) -> None:
    with _connect(server) as client:
        client.sendall(b"".join(_post(BODY, b"x-request-id: id-%d" % n) for n in range(8)))
        answers = [read_answer(client) for _ in range(8)]
    assert [status for status, _ in answers] == [200] * 8
    assert [json.loads(body)["id"] for _, body in answers] == [f"cmpl-id-{n}" for n in range(8)]


def test_clients_that_do_not_read_cost_no_more_than_their_answers_and_hold_up_nobody(server: Outrider) -> None:
    replicas = list(_replicas(server))
    memory = _memory_bytes(replicas)
    body = PROMPT | {"max_tokens": 150, "n": 4, "logprobs": 20, "stream": True, "ignore_eos": True}
    with ExitStack() as stack:
        clients = [stack.enter_context(_connect(server, receive_bytes=4096)) for _ in range(4)]
        for client in clients:
            client.sendall(_post(json.dumps(body).encode()))
        for _ in range(3):
            _text(server)
        # The engine does not wait for them either: all that was asked for is made.
        wait_for_zero(server, "vllm:num_requests_running", timeout_s=60)
        growth = _memory_bytes(replicas) - memory
        assert growth < 200 * MIB
        # What waited is not lost.
        assert _ends_well(clients[0])


def test_chunks_of_a_padded_stream_have_one_size_over_the_real_engine(server: Outrider) -> None:
    body = PROMPT | {"max_tokens": 60, "stream": True, "ignore_eos": True, "speculation": {"mode": "on"}}
    answer = server.post(PATH, body | {"stream_options": {"include_obfuscation": True, "include_usage": True}})
    *events, usage, done, nothing = answer.text.split("\n\n")
    assert '"usage"' in usage
    assert (done, nothing) == ("data: [DONE]", "")
    assert len({len(event.encode()) for event in events}) == 1
    # There was something to hide.
    assert len({len(json.loads(event[6:])["choices"][0]["text"].encode()) for event in events}) > 1


def _ends_well(client: socket.socket) -> bool:
    data = b""
    while not data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
        chunk = client.recv(65_536)
        if not chunk:
            return False
        data = data[-100:] + chunk
    return True
