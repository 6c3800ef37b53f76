"""Time as an argument: engine and policies read a `Clock`, tests drive a `ManualClock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of monotonic seconds."""

    def now_s(self) -> float:
        """Seconds since an arbitrary, fixed origin; never goes backwards."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now_s(self) -> float:
        """Seconds since an arbitrary, fixed origin; never goes backwards."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        """The time set so far."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds` (>= 0)."""
        assert seconds >= 0
        self._now_s += seconds
