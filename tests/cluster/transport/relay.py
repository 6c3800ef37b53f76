"""A tcp relay between the two ends: counts what crosses the wire, cuts connections, refuses new ones."""

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self


class Relay:
    """Passes bytes on until it is closed; use it as a context manager.

    Attributes:
        bytes_up: bytes that clients sent.
        bytes_down: bytes that the server sent.
        port: where clients connect.
        is_open: False lets no new connection through.
        on_bytes: sees all that is passed on.
    """

    def __init__(self, host: str, port: int) -> None:
        self.bytes_up = self.bytes_down = 0
        self.is_open = True
        self.on_bytes: Callable[[bytes], object] = len
        self._target = (host, port)
        self._selector = selectors.DefaultSelector()
        self._partners: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._orphans: list[socket.socket] = []
        self._must_cut = self._is_closed = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._selector.register(self._server, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        self._thread.join()
        self._cut()
        for orphan in self._orphans:
            orphan.close()
        self._server.close()
        self._selector.close()

    def cut(self, *, is_server_told: bool = True) -> None:
        """Drop every connection; a server that is not told goes on believing in it."""
        if not is_server_told:
            self._orphans += [target for source, target in self._partners.items() if source in self._clients]
        self._must_cut = True

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._server:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._pass_on(key.fileobj)
            if self._must_cut:
                self._must_cut = False
                self._cut()

    def _accept(self) -> None:
        client, _ = self._server.accept()
        if not self.is_open:
            client.close()
            return
        target = socket.create_connection(self._target)
        for one, other in ((client, target), (target, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._partners[one] = other
            self._selector.register(one, selectors.EVENT_READ)
        self._clients.add(client)

    def _pass_on(self, source: socket.socket) -> None:
        if source not in self._partners:
            return
        try:
            data = source.recv(1 << 16)
            if data:
                self.on_bytes(data)
                self._partners[source].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(source)
        elif source in self._clients:
            self.bytes_up += len(data)
        else:
            self.bytes_down += len(data)

    def _drop(self, one: socket.socket) -> None:
        for each in (self._partners.pop(one), one):
            self._partners.pop(each, None)
            self._clients.discard(each)
            with suppress(KeyError):
                self._selector.unregister(each)
            if each not in self._orphans:
                each.close()

    def _cut(self) -> None:
        while self._partners:
            self._drop(next(iter(self._partners)))
