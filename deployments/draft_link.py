"""One connection from a verifier to a drafter: introduction, restarts of the other side, and what it has carried."""

import math
from collections.abc import Iterable

from msgspec.structs import replace

from cluster.messages import PROTOCOL_VERSION, Hello, Lost, Message, Refusal, SequenceTable, Table, Welcome
from cluster.transport.channel import Channel, Traffic
from deployments.pairing import Candidate

HELLO_INTERVAL_S = 1.0
"""How often a verifier introduces itself to a drafter that does not answer."""

DOUBT_INTERVAL_S = 0.1
"""How often, at most, while there are signs that the drafter does not know the verifier any more."""

UNANSWERED_S = 2.0
"""A drafter that is asked and answers nothing for this long may have forgotten who we are."""

_NO_EPOCH = -1


class DraftLink:
    """A channel with its drafter's side of the story. Belongs to the engine's thread.

    Args:
        candidate: whom it leads to.
        channel: the connection.
        hello: how the verifier introduces itself.
        now_s: clock time.

    Attributes:
        welcome: what the drafter said when it took us; None before.
        refusal: why it will not have us; None while it might.
        num_restarts: how often another drafter was found behind the same connection.
    """

    def __init__(self, candidate: Candidate, channel: Channel, hello: Hello, now_s: float) -> None:
        self.candidate = candidate
        self.welcome: Welcome | None = None
        self.refusal: str | None = None
        self.num_restarts = 0
        self._channel, self._hello = channel, hello
        self._connected_s = now_s
        self._said_hello_s = -math.inf
        # Clock time of the first message since the last answer; None while nothing is owed.
        self._waiting_since_s: float | None = None
        self._num_malformed = 0

    @property
    def last_heard_s(self) -> float:
        """Clock time of the drafter's last sign of life, the time of connecting before the first one."""
        return max(self._channel.last_heard_s, self._connected_s)

    @property
    def traffic(self) -> Traffic:
        """What the channel has carried."""
        return self._channel.traffic

    def send(self, message: Message, now_s: float) -> bool:
        """Hand a message over; False when it found no place."""
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        return self._channel.send(message)

    def receive(self, now_s: float, timeout_s: float = 0.0) -> list[SequenceTable | Lost]:
        """What came in about sequences; the introduction is dealt with here.

        Args:
            now_s: clock time.
            timeout_s: how long to wait when nothing is there.
        """
        self._introduce(now_s)
        found: list[SequenceTable | Lost] = []
        for message in self._channel.receive(timeout_s):
            self._waiting_since_s = None
            match message:
                case Welcome():
                    self._take_welcome(message, found)
                case Refusal():
                    self.refusal = message.reason
                case Table():
                    found += self._tables(message, now_s)
                case Lost():
                    # Perhaps it was started anew and does not know us; a second introduction does no harm.
                    self._introduce(now_s, is_due=message.reason == "unknown")
                    found.append(message)
                case _:
                    pass  # What only verifiers send means nothing here.
        return found

    def rest(self) -> None:
        """Nothing will be asked for a while."""
        self._waiting_since_s = None

    def introduce(self, now_s: float) -> None:
        """Say hello once more: the drafter may have forgotten us."""
        self._introduce(now_s, is_due=True)

    def take_malformed(self) -> int:
        """Malformed messages since the last call."""
        before, self._num_malformed = self._num_malformed, self._channel.traffic.malformed
        return self._num_malformed - before

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _introduce(self, now_s: float, *, is_due: bool = False) -> None:
        waiting_since_s = self._waiting_since_s
        is_unanswered = waiting_since_s is not None and now_s - waiting_since_s >= UNANSWERED_S
        is_due = is_due and now_s - self._said_hello_s >= DOUBT_INTERVAL_S
        is_overdue = now_s - self._said_hello_s >= HELLO_INTERVAL_S
        if is_due or (is_overdue and (self.welcome is None or is_unanswered)):
            self._said_hello_s = now_s
            self._channel.send(self._hello)

    def _take_welcome(self, message: Welcome, found: list[SequenceTable | Lost]) -> None:
        if message.version != PROTOCOL_VERSION:
            self.refusal = f"it speaks version {message.version} of the protocol, not {PROTOCOL_VERSION}"
            return
        if self.welcome is not None and message.incarnation != self.welcome.incarnation:
            self.num_restarts += 1
            found.clear()  # Said by the one before.
        self.welcome = message

    def _tables(self, message: Table, now_s: float) -> Iterable[SequenceTable]:
        if self.welcome is not None and message.incarnation == self.welcome.incarnation:
            return message.sequences
        self._introduce(now_s, is_due=True)
        # Made by a drafter from before: no sequence ever has this epoch, so they count as stale.
        return (replace(table, epoch=_NO_EPOCH) for table in message.sequences)
