"""Where the outputs of one client request wait for their reader, and when they are worth a stream item.

Every item costs 0.1 ms or more in each of three processes. The first output of a choice leaves at once; later ones
leave with every round while few streams run, and at most every `interval_s()` under load.
"""

import asyncio
from collections.abc import Callable, Sequence

from cluster.errors import OutriderError
from cluster.types import Request, RequestOutput
from deployments.wire import Delta, delta

FEW_STREAMS = 8


def stream_interval(num_streams: int, longest_s: float) -> float:
    """Seconds between the items of one stream: 0 up to 8 streams, growing to `longest_s` at 16."""
    return longest_s * min(1.0, max(0.0, (num_streams - FEW_STREAMS) / FEW_STREAMS))


class Mailbox:
    """Outputs of the choices of one call. Lives on the event loop's thread.

    Args:
        requests: the choices, in order of their index.
        interval_s: shortest time between two items now.
    """

    def __init__(self, requests: Sequence[Request], interval_s: Callable[[], float]) -> None:
        self._index = {request.request_id: index for index, request in enumerate(requests)}
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, list[RequestOutput]] = {}
        self._silent = set(self._index)
        self._open = set(self._index)
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._last_sent_s = 0.0
        self._error: OutriderError | None = None

    @property
    def open_ids(self) -> tuple[str, ...]:
        """Choices that are not finished."""
        return tuple(self._open)

    def put(self, output: RequestOutput) -> None:
        """Add an output of one of the choices; those of finished choices are dropped."""
        request_id = output.request_id
        if request_id not in self._open:
            return
        self._pending.setdefault(self._index[request_id], []).append(output)
        urgent = request_id in self._silent
        self._silent.discard(request_id)
        if output.finish_reason is not None:
            self._open.discard(request_id)
            urgent = urgent or not self._open
        self._schedule(urgent=urgent)

    def fail(self, error: OutriderError) -> None:
        """End the call with an error, after what is pending."""
        self._error = self._error or error
        self._open.clear()
        self._schedule(urgent=True)

    async def take(self) -> tuple[Delta, ...]:
        """The next item: one delta for each choice that has something; empty when all is said.

        Raises:
            OutriderError: the call failed.
        """
        # A timer set before the last item left may still fire: a wake-up alone does not mean that all is said.
        while self._open or self._pending or self._error:
            await self._wake.wait()
            self._wake.clear()
            if self._pending or self._error or not self._open:
                break
        deltas = tuple(delta(index, outputs) for index, outputs in self._pending.items())
        self._pending.clear()
        self._last_sent_s = self._loop.time()
        if self._error is not None:
            if not deltas:
                raise self._error
            self._wake.set()
        return deltas

    def close(self) -> None:
        """Drop what is pending and end the reader's wait."""
        self._pending.clear()
        self._open.clear()
        self._wake_now()

    def _schedule(self, *, urgent: bool) -> None:
        wait_s = 0.0 if urgent else self._last_sent_s + self._interval_s() - self._loop.time()
        if wait_s <= 0:
            self._wake_now()
        elif self._timer is None:
            self._timer = self._loop.call_later(wait_s, self._wake_now)

    def _wake_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake.set()
