"""A gateway that is about to go: it says so, finishes what it has, and ends in words what would be cut off."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from cluster.clock import Clock
from cluster.errors import UnavailableError
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet

CUT_MARGIN_S = 2.0
"""What is still open so long before Serve's own deadline is ended with an error, while it can still be sent."""

ResultT = TypeVar("ResultT")


class DrainingError(UnavailableError):
    """The gateway is about to go (503).

    Args:
        retry_after_s: when it will be gone.
    """

    def __init__(self, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__("this server is shutting down; try again later", code="draining")


class Drain:
    """What a gateway knows of its end. Belongs to the event loop's thread.

    Args:
        metrics: the gateway's registry.
        clock: for the time that is left.
    """

    def __init__(self, metrics: MetricSet, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._end_s: float | None = None
        self._refuses = False
        self._timer: asyncio.TimerHandle | None = None
        self._cut = asyncio.Event()
        metrics.set(names.DRAINING, 0)

    def begin(self, grace_s: float, *, refuse: bool) -> None:
        """The gateway goes; work that is still open after `grace_s` ends with an error.

        Args:
            grace_s: seconds.
            refuse: take no new work. False where others take it, so that only latecomers arrive here.
        """
        self.revoke()
        self._end_s, self._refuses = self._clock.now_s() + grace_s, refuse
        self._timer = asyncio.get_running_loop().call_later(grace_s, self._cut.set)
        self._metrics.set(names.DRAINING, 1)

    def revoke(self) -> None:
        """The gateway stays after all."""
        if self._timer is not None:
            self._timer.cancel()
        self._cut.clear()
        self._end_s, self._timer, self._refuses = None, None, False
        self._metrics.set(names.DRAINING, 0)

    @property
    def is_draining(self) -> bool:
        """Whether the gateway is about to go."""
        return self._end_s is not None

    @property
    def refuses(self) -> bool:
        """Whether new work is refused, as `check_work` does."""
        return self._refuses

    def check_work(self) -> None:
        """Refuse new work where that is wanted.

        Raises:
            DrainingError: it is.
        """
        if self._refuses:
            raise self._error()

    def check_ready(self) -> None:
        """Say whether the gateway should get work.

        Raises:
            DrainingError: it should not.
        """
        if self.is_draining:
            raise self._error()

    async def bounded(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Await work, but cancel it when time is up.

        Raises:
            DrainingError: time is up; the work was cancelled and has ended.
        """
        task = asyncio.ensure_future(work)
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait({task, cut}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._error()
            return task.result()
        finally:
            cut.cancel()
            task.cancel()
            await asyncio.wait({task, cut})

    def _error(self) -> DrainingError:
        left_s = 0.0 if self._end_s is None else self._end_s - self._clock.now_s()
        return DrainingError(max(0.0, left_s))
