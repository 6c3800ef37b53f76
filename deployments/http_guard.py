"""What stands before the HTTP app, in the process that holds the connections: bounds that uvicorn does not have.

uvicorn's protocol collects a request head or trailers of any length, waits for ever for a head, for ever for a client
that does not read, and takes connections until no file descriptor is left. Ray Serve has no place to say so, but calls
the function that RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names, both in its proxies and in gateways that listen
themselves. `outrider serve` sets it to `deployments.http_guard:install`; other clusters set it for all their nodes.
"""

import asyncio
import resource
from dataclasses import dataclass
from typing import Any, ClassVar

import uvicorn.config
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cluster.errors import InvalidRequestError
from deployments.edge import error_response
from deployments.limits import MOST_BODY_BYTES, MOST_HEADER_BYTES

CALLBACK = f"{__name__}:install"
"""What the environment variable names."""

_FILES_FOR_CONNECTIONS = 0.75
"""Share of the file descriptors that clients may take; the process needs the others to talk to its cluster."""

_REFUSALS = {413: b"Content Too Large", 431: b"Request Header Fields Too Large"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one process takes from clients before, and besides, what the app checks.

    Attributes:
        head_bytes: of a request line with its headers, or of trailers.
        body_bytes: of a body, whether the app reads it or not.
        head_timeout_s: for a head to be complete, from the connection or from its first byte on.
        write_timeout_s: for a client that has stopped reading to take what waits for it.
        connections: at a time; further ones are closed at once.
    """

    head_bytes: int = MOST_HEADER_BYTES
    body_bytes: int = MOST_BODY_BYTES
    head_timeout_s: float = 60.0
    write_timeout_s: float = 120.0
    connections: int = 768


class _Alarm:
    """Cuts a connection off unless it is stopped in time."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def set(self, protocol: HttpToolsProtocol, delay_s: float) -> None:
        """Set it, unless it is set."""
        if self._timer is None:
            self._timer = protocol.loop.call_later(delay_s, protocol.transport.abort)

    def stop(self) -> None:
        """Stop it; it can be set again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class GuardedProtocol(HttpToolsProtocol):
    """One connection, within the bounds of the class."""

    bounds: ClassVar[Bounds] = Bounds()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_alarm, self._write_alarm = _Alarm(), _Alarm()
        self._has_moved, self._num_still_bytes, self._num_body_bytes = False, 0, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head, unless there are too many connections."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
            transport.abort()
        self._head_alarm.set(self, self.bounds.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave no timer behind."""
        self._head_alarm.stop()
        self._write_alarm.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and see whether it came to a next part of the request."""
        self._has_moved = False
        super().data_received(data)
        # All that the parser keeps by itself is what came since the last part that it told of.
        self._num_still_bytes = 0 if self._has_moved else self._num_still_bytes + len(data)
        if self._num_still_bytes > self.bounds.head_bytes:
            self._refuse(431)
        elif self._num_body_bytes > self.bounds.body_bytes:
            self._refuse(413)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._head_alarm.set(self, self.bounds.head_timeout_s)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._head_alarm.stop()
        self._has_moved, self._num_body_bytes = True, 0
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """A chunk begins, or the trailers."""
        self._has_moved = True

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._has_moved = True
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        self._has_moved = True
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client reads more slowly than the app writes, or not at all."""
        super().pause_writing()
        self._write_alarm.set(self, self.bounds.write_timeout_s)

    def resume_writing(self) -> None:
        """The client has taken most of what waited."""
        self._write_alarm.stop()
        super().resume_writing()

    def _refuse(self, status: int) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            head = b"HTTP/1.1 %d %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head % (status, _REFUSALS[status]))
        self.transport.close()


class ReadableHeaders:
    """ASGI layer that refuses header values which are not UTF-8: Ray Serve decodes some, and would answer 500.

    Args:
        app: what is wrapped.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not _are_readable(scope["headers"]):
            error = InvalidRequestError("request headers must be UTF-8", code="invalid_header")
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _are_readable(headers: list[tuple[bytes, bytes]]) -> bool:
    values = b"\n".join(value for _, value in headers)
    try:
        values.decode()
    except UnicodeDecodeError:
        return False
    return True


def raise_file_limit() -> int:
    """Let this process open as many files as it may by itself; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def install() -> list[Any]:
    """Guard every HTTP server that this process starts from now on.

    Returns:
        The middleware that Ray Serve puts around the app.
    """
    GuardedProtocol.bounds = Bounds(connections=int(raise_file_limit() * _FILES_FOR_CONNECTIONS))
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:{GuardedProtocol.__name__}"
    return [Middleware(ReadableHeaders)]
