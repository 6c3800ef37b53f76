"""A drafter without Ray: one thread that moves messages between a listener and the draft model."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from cluster.errors import EngineDeadError
from cluster.messages import Close, Hello, Lost, Message, Open, Refusal, Round
from cluster.transport.channel import Listener, PeerGone, PeerId

IDLE_WAIT_S = 0.5
"""How long the thread sleeps when nothing comes; after it, idle sequences are looked for."""

MAX_FAILED_STEPS = 20
"""This many failed steps in a row mean that the model is broken, and not one sequence."""

BUSY_WINDOW_S = 10.0

_logger = logging.getLogger(__name__)

Outgoing = Iterable[tuple[PeerId, Message]]


class Ahead(Protocol):
    """What the thread needs of `RunAhead`."""

    @property
    def has_work(self) -> bool:
        """True while `step` would do something."""
        ...

    def handle(self, peer: PeerId, message: Message) -> Outgoing:
        """Take a message in; returns answers."""
        ...

    def step(self) -> Outgoing:
        """One forward pass; returns what is ready to be sent."""
        ...

    def drop_peer(self, peer: PeerId) -> None:
        """Free everything of a verifier."""
        ...

    def evict_idle(self) -> int:
        """Drop what nobody speaks of any more."""
        ...


class BusyShare:
    """The share of time in which something ran, over the last full window."""

    def __init__(self, window_s: float = BUSY_WINDOW_S) -> None:
        self._window_s, self._begin_s, self._busy_s, self.value = window_s, time.monotonic(), 0.0, 0.0

    def add(self, busy_s: float) -> None:
        """Something ran for so long, or nothing did; ends the window when it is full."""
        self._busy_s += busy_s
        elapsed_s = time.monotonic() - self._begin_s
        if elapsed_s >= self._window_s:
            self.value = min(1.0, self._busy_s / elapsed_s)
            self._begin_s, self._busy_s = time.monotonic(), 0.0


class DrafterCore:
    """Runs a draft model for the verifiers behind a listener.

    A failing message or step costs drafts of the sequences that it is about. A dead thread is known by `check_health`.

    Args:
        listener: the private channel; closed by `stop`.
        build: loads the model. Called in the thread, at once or when the first verifier says hello.
        release: called when the thread ends, whatever was built.
        loads_at_start: load before the first verifier comes; `start` then waits, and raises what went wrong.
    """

    def __init__(
        self,
        listener: Listener,
        build: Callable[[], Ahead],
        *,
        release: Callable[[], None] = lambda: None,
        loads_at_start: bool = True,
    ) -> None:
        self._listener, self._build, self._release = listener, build, release
        self._loads_at_start = loads_at_start
        self._ahead: Ahead | None = None
        self._error: BaseException | None = None
        self._stopping = False
        self._ready = threading.Event()
        self._busy = BusyShare()
        self._num_failed_steps = 0
        self._next_eviction_s = 0.0
        self.num_failures = 0
        self._thread = threading.Thread(target=self._run, name="drafter", daemon=True)

    @property
    def is_loaded(self) -> bool:
        """True once the model is at work."""
        return self._ahead is not None

    @property
    def busy_ratio(self) -> float:
        """Share of time in which the model ran, over the last ten seconds or so."""
        return self._busy.value

    def start(self) -> None:
        """Start the thread; with `loads_at_start`, return when the model is loaded.

        Raises:
            Exception: whatever loading raised.
        """
        self._thread.start()
        if self._loads_at_start:
            self._ready.wait()
            if self._error is not None:
                raise self._error

    def stop(self) -> None:
        """End the thread and close the listener. May be called again."""
        self._stopping = True
        self._listener.close()
        if self._thread.is_alive():
            self._thread.join()

    def check_health(self) -> None:
        """Raise when nothing can be drafted any more.

        Raises:
            EngineDeadError: the thread stopped.
        """
        if self._error is not None or not self._thread.is_alive():
            raise EngineDeadError("the drafter's thread stopped") from self._error

    def _run(self) -> None:
        try:
            if self._loads_at_start:
                self._load()
            self._ready.set()
            while not self._stopping:
                self._round()
        except BaseException as error:
            _logger.error("the drafter stopped", exc_info=error)
            self._error = error
        finally:
            self._ready.set()
            self._release()

    def _round(self) -> None:
        """Take in what came, then run one pass."""
        has_work = self._has_work
        for peer, message in self._listener.receive(0.0 if has_work else IDLE_WAIT_S):
            if isinstance(message, PeerGone):
                if self._ahead is not None:
                    self._ahead.drop_peer(peer)
            else:
                self._send(self._handle(peer, message))
        if self._has_work:
            self._step()
        else:
            self._busy.add(0.0)
        self._evict_idle()

    def _handle(self, peer: PeerId, message: Message) -> Outgoing:
        if self._ahead is None:
            if not isinstance(message, Hello):
                return ()  # a verifier of a lost connection: it hears nothing and says hello again
            self._load()
        assert self._ahead is not None
        try:
            return tuple(self._ahead.handle(peer, message))
        except Exception as error:  # noqa: BLE001 -- one bad message must not end the drafting for all
            self._count_failure("a message failed", error)
            return self._give_up(peer, message)

    def _give_up(self, peer: PeerId, message: Message) -> Outgoing:
        """Drop what a failed message is about, and say so."""
        if isinstance(message, Hello):
            return ((peer, Refusal(reason="the drafter cannot serve this verifier")),)
        sequences = _sequences_of(message)
        if sequences and self._ahead is not None:
            try:
                tuple(self._ahead.handle(peer, Close(sequences=sequences)))
            except Exception as error:  # noqa: BLE001 -- as above
                self._count_failure("closing failed", error)
        return ((peer, Lost(sequences=sequences, reason="unknown")),) if sequences else ()

    @property
    def _has_work(self) -> bool:
        return self._ahead is not None and self._ahead.has_work

    def _step(self) -> None:
        assert self._ahead is not None
        started_s = time.monotonic()
        try:
            self._send(self._ahead.step())
            self._num_failed_steps = 0
        except Exception as error:
            self._count_failure("a step failed", error)
            self._num_failed_steps += 1
            if self._num_failed_steps >= MAX_FAILED_STEPS:
                raise
        self._busy.add(time.monotonic() - started_s)

    def _evict_idle(self) -> None:
        if self._ahead is not None and time.monotonic() >= self._next_eviction_s:
            self._next_eviction_s = time.monotonic() + IDLE_WAIT_S
            self._ahead.evict_idle()

    def _send(self, outgoing: Outgoing) -> None:
        for peer, message in outgoing:
            self._listener.send(peer, message)  # what is dropped is counted there, and missed by nobody but speed

    def _load(self) -> None:
        self._ahead = self._build()

    def _count_failure(self, what: str, error: Exception) -> None:
        self.num_failures += 1
        if self.num_failures & (self.num_failures - 1) == 0:  # 1, 2, 4, 8, ...: a flood must not fill the log
            _logger.error("%s (failure %d)", what, self.num_failures, exc_info=error)


def _sequences_of(message: Message) -> tuple[int, ...]:
    """The sequences that a message is about."""
    if isinstance(message, Round):
        return tuple(row.sequence for row in message.rows)
    if isinstance(message, Open):
        return (message.sequence,)
    return ()
