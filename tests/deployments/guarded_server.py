"""The app behind uvicorn and the guard, on a real socket, in a thread with an event loop of its own."""

import asyncio
import http.client
import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from deployments.http_guard import Bounds, GuardedProtocol, ReadableHeaders
from deployments.service import GatewaySettings
from tests.deployments.conftest import Server, _serve
from tests.deployments.fake_engine import FakeEngine

ANSWER_S = 10.0


def app_server(app: ASGIApp, bounds: Bounds) -> uvicorn.Server:
    """A server with bounds of its own; the class itself stays as it is."""
    protocol = type("Guarded", (GuardedProtocol,), {"bounds": bounds})
    return uvicorn.Server(uvicorn.Config(app, http=protocol, log_level="critical", lifespan="off"))


class GuardedServer:
    """A gateway with a fake engine, running inside a `with`."""

    def __init__(
        self, bounds: Bounds, *, engine: FakeEngine | None = None, settings: GatewaySettings | None = None
    ) -> None:
        self._bounds, self._engine, self._settings = bounds, engine or FakeEngine(), settings
        self._listener = socket.socket()
        # Little room in the kernel: a client that does not read is noticed after a few kilobytes.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._started = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(20)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._uvicorn.should_exit = True
        self._thread.join(20)

    @property
    def num_connections(self) -> int:
        return len(self._uvicorn.server_state.connections)

    def connect(self, *, receive_bytes: int | None = None) -> socket.socket:
        client = socket.socket()
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(ANSWER_S)
        client.connect(("127.0.0.1", self.port))
        return client

    async def _run(self) -> None:
        async with _serve(engine=self._engine, settings=self._settings) as server:
            self.gateway: Server = server
            app: ASGIApp = server.app  # type: ignore[assignment]
            self._uvicorn = app_server(ReadableHeaders(app), self._bounds)
            serving = asyncio.ensure_future(self._uvicorn.serve([self._listener]))
            while not self._uvicorn.started:  # noqa: ASYNC110 -- uvicorn has no event for it
                await asyncio.sleep(0.01)
            self._started.set()
            await serving


def read_all(client: socket.socket) -> bytes:
    """What a server sends until it closes; a reset ends it as well."""
    data = b""
    try:
        while chunk := client.recv(65_536):
            data += chunk
    except ConnectionError:
        pass
    return data


def read_answer(client: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next answer on a connection that stays open."""
    answer = http.client.HTTPResponse(client)
    answer.begin()
    return answer.status, answer.read()


def request_bytes(path: str, body: bytes = b"", *headers: bytes, method: str = "POST") -> bytes:
    """A request, as it goes over the wire."""
    head = [f"{method} {path} HTTP/1.1".encode(), b"host: x", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body
