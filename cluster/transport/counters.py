"""Counts what an end of a channel carries, and the codec with its failures counted."""

import threading

from cluster.messages import Message
from cluster.transport.channel import Traffic
from cluster.transport.codec import MalformedMessageError, decode, encode


class Counters:
    """Counts from several threads, `Traffic` as the picture of a moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent = self._received = self._dropped = self._malformed = 0
        self._bytes_sent = self._bytes_received = 0

    def snapshot(self) -> Traffic:
        """The counts so far."""
        with self._lock:
            return Traffic(
                sent=self._sent,
                received=self._received,
                dropped=self._dropped,
                malformed=self._malformed,
                bytes_sent=self._bytes_sent,
                bytes_received=self._bytes_received,
            )

    def count_sent(self, num_bytes: int) -> None:
        """One message was taken over for sending."""
        with self._lock:
            self._sent += 1
            self._bytes_sent += num_bytes

    def count_received(self, num_bytes: int) -> None:
        """One valid message came in."""
        with self._lock:
            self._received += 1
            self._bytes_received += num_bytes

    def count_dropped(self) -> None:
        """One message found no place."""
        with self._lock:
            self._dropped += 1

    def count_malformed(self) -> None:
        """Something came in that is no message."""
        with self._lock:
            self._malformed += 1


def encode_counted(message: Message, counters: Counters) -> bytes | None:
    """The message as bytes; None, counted as dropped, where it cannot be: an error would cost a round, a loss not."""
    try:
        return encode(message)
    except MalformedMessageError:
        counters.count_dropped()
        return None


def decode_counted(data: bytes, counters: Counters) -> Message | None:
    """The message in `data`; None, counted as malformed, if there is none."""
    try:
        return decode(data)
    except MalformedMessageError:
        counters.count_malformed()
        return None
