"""Drafts that the check cannot make by itself: what their owner hands in, and how they are taken away on the way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from cluster.engine.drafters.base import Drafter
from cluster.engine.lossless.serving import Served


class Outage(Protocol):
    """Takes away what the drafter in use depends on. Both are called between two rounds."""

    def begin(self) -> None:
        """Break it without a warning."""
        ...

    def end(self) -> None:
        """Repair it; returns when drafts are to be expected again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSource:
    """Where drafts come from.

    Attributes:
        open: makes a drafter that is ready to draft; the check closes it before it opens the next one.
        outage: how it may be lost; None when it runs in this process. What can be lost also comes when it likes, so
            it is checked in more ways.
    """

    open: Callable[[], Drafter]
    outage: Outage | None = None


class _Phase(Enum):
    BEFORE = auto()
    DURING = auto()
    AFTER = auto()


class OutageClock:
    """Lets an outage begin once a third of the requests has ended, and end after two thirds.

    Args:
        outage: what happens.
        num_requests: that are served.
    """

    def __init__(self, outage: Outage, num_requests: int) -> None:
        self._outage, self._num_requests = outage, num_requests
        self._phase = _Phase.BEFORE
        self._num_drafted = dict.fromkeys(_Phase, 0)

    @property
    def is_proven(self) -> bool:
        """The outage came and went, and drafts were verified before it began and after it had ended."""
        return self._num_drafted[_Phase.BEFORE] > 0 and self._num_drafted[_Phase.AFTER] > 0

    def after_round(self, served: Mapping[str, Served]) -> None:
        """A round is over; `served` holds everything since the first one."""
        num_ended = sum(each.finish_reason is not None for each in served.values())
        num_drafted = sum(each.num_draft_tokens for each in served.values())
        self._num_drafted[self._phase] += num_drafted - sum(self._num_drafted.values())
        if self._phase is _Phase.BEFORE and 3 * num_ended >= self._num_requests:
            self._phase = _Phase.DURING
            self._outage.begin()
        elif self._phase is _Phase.DURING and 3 * num_ended >= 2 * self._num_requests:
            self._outage.end()
            self._phase = _Phase.AFTER
