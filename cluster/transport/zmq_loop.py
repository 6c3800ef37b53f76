"""One ZeroMQ socket, its owner, and a thread that keeps it alive while the owner does other things.

Handing a message from thread to thread costs more than carrying it to another process: the second thread has to wake up
and to wait for the interpreter lock. So whoever is there does the work. The owner's `send` and `receive` go straight to
the socket; the thread looks after it every `tick_s`, which is enough for pings and keeps libzmq's queues short.

libzmq lets a socket change threads behind a full memory fence: a lock around each single call, never held for long. The
socket's descriptor tells of *changes* only, and any call on the socket may use one up. So an owner that is about to
sleep says so and then looks into the socket; who uses the socket while the owner sleeps looks once more, and wakes it.
"""

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import zmq

from cluster.transport.inbox import Inbox
from cluster.transport.zmq_auth import AllowList, Context, Socket, has_input

_logger = logging.getLogger(__name__)

Item = TypeVar("Item")

# Pieces read in one go: a flood must not keep the owner in `receive`, nor the thread from its pings.
_MAX_PIECES_PER_READ = 256


class SocketLoop(Generic[Item]):
    """Runs a socket until `close`.

    Args:
        context: of the socket, terminated by `close`.
        socket: bound or connected.
        inbox: what the owner has not yet taken; filled by `on_message` and `on_tick`.
        on_message: called with the frames of each message, in order; must not raise.
        on_tick: called at least every `tick_s`; must not raise. Never runs together with `on_message`.
        tick_s: how often the thread looks after the socket.
        name: of the thread.
        allow_list: answered by the thread, and closed with the loop.
    """

    def __init__(
        self,
        context: Context,
        socket: Socket,
        *,
        inbox: Inbox[Item],
        on_message: Callable[[list[bytes]], None],
        on_tick: Callable[[], None],
        tick_s: float,
        name: str,
        allow_list: AllowList | None = None,
    ) -> None:
        self._context, self._socket, self._inbox, self._allow_list = context, socket, inbox, allow_list
        self._on_message, self._on_tick, self._tick_ms = on_message, on_tick, max(1, round(tick_s * 1e3))
        self._socket_lock = threading.Lock()  # around single calls
        self._inbox_lock = threading.Lock()  # from the socket to the inbox, which keeps the order
        self._owner_lock = threading.Lock()  # held while the owner waits, so that descriptors stay open
        self._is_closing = self._is_owner_asleep = False
        self._owner_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._owner_poller = _poller(self._owner_fd, socket.fileno())
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, frames: list[bytes]) -> bool:
        """Queue a message; False if the queue is full, the peer unknown or the loop closed. For any thread."""
        with self._socket_lock:
            if self._is_closing:
                return False
            try:
                for frame in frames[:-1]:
                    self._socket.send(frame, zmq.DONTWAIT | zmq.SNDMORE)
                self._socket.send(frames[-1], zmq.DONTWAIT)
            except zmq.ZMQError as error:
                if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                    raise
                return False
            finally:
                if self._is_owner_asleep and has_input(self._socket):
                    os.eventfd_write(self._owner_fd, 1)
            return True

    def receive(self, timeout_s: float) -> list[Item]:
        """All that has come; waits up to `timeout_s` for the first, and not at all once closed. For the owner."""
        items, _ = self._read()
        return items if items or timeout_s <= 0.0 else self._wait(timeout_s)

    def close(self) -> None:
        """Stop the thread and release everything. May be called again."""
        with self._socket_lock:
            if self._is_closing:
                return
            self._is_closing = True
        os.eventfd_write(self._thread_fd, 1)
        os.eventfd_write(self._owner_fd, 1)
        if self._thread.ident is not None:
            self._thread.join()
        with self._owner_lock:
            self._socket.close(0)
            if self._allow_list is not None:
                self._allow_list.socket.close(0)
            self._context.term()
            os.close(self._owner_fd)
            os.close(self._thread_fd)

    def _wait(self, timeout_s: float) -> list[Item]:
        deadline_s = time.monotonic() + timeout_s
        with self._owner_lock:
            self._is_owner_asleep = True
            try:
                while not self._is_closing:
                    items, is_drained = self._read()
                    left_s = deadline_s - time.monotonic()
                    if items or left_s <= 0.0:
                        return items
                    if is_drained:
                        self._sleep(left_s)
            finally:
                self._is_owner_asleep = False
        return []

    def _sleep(self, timeout_s: float) -> None:
        if any(fd == self._owner_fd for fd, _ in self._owner_poller.poll(timeout_s * 1e3)):
            os.eventfd_read(self._owner_fd)

    def _read(self) -> tuple[list[Item], bool]:
        """Take what has come; False if more is left in the socket."""
        with self._inbox_lock:
            is_drained = self._drain(may_drop=False)
            return self._inbox.take(), is_drained

    def _drain(self, *, may_drop: bool) -> bool:
        for _ in range(_MAX_PIECES_PER_READ):
            if self._inbox.is_full and not may_drop:
                return False
            with self._socket_lock:
                if self._is_closing or not has_input(self._socket):
                    return True
                frames = self._socket.recv_multipart(zmq.DONTWAIT)
            self._on_message(frames)
        return False

    def _run(self) -> None:
        descriptors = [self._thread_fd] + ([] if self._allow_list is None else [self._allow_list.socket.fileno()])
        poller = _poller(*descriptors)
        is_drained = True
        try:
            while not self._is_closing:
                poller.poll(self._tick_ms if is_drained else 0)
                if self._allow_list is not None:
                    self._allow_list.answer()
                is_drained = self._tick()
        except zmq.ZMQError:
            # The peer sees silence, as after any other death, and goes on without us.
            _logger.exception("%s stopped", self._thread.name)

    def _tick(self) -> bool:
        with self._inbox_lock:
            # An owner that does not keep up loses messages, but the pings behind them must be heard.
            is_drained = self._drain(may_drop=True)
            self._on_tick()
            if len(self._inbox) and self._is_owner_asleep:
                os.eventfd_write(self._owner_fd, 1)
        return is_drained


def _poller(*descriptors: int) -> select.poll:
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return poller
