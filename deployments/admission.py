"""Admission: a queue bounded by requests and tokens, and when a refused client should come back.

Pure: the clock is an argument. A choice is queued from its admission to its first token (or its end).
"""

from collections import deque
from dataclasses import dataclass

from cluster.clock import Clock
from cluster.errors import ConfigError, OverloadedError

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """Bounds of the queue of one replica.

    Attributes:
        max_queued_requests: choices without a first token.
        max_queued_tokens: their prompt tokens. A single larger request is still admitted to an empty queue.
        window_s: span over which the drain rate is measured.
    """

    max_queued_requests: int = 512
    max_queued_tokens: int = 262_144
    window_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse bounds below 1."""
        for name in ("max_queued_requests", "max_queued_tokens", "window_s"):
            if getattr(self, name) < 1:
                raise ConfigError(field=f"admission.{name}", value=getattr(self, name), allowed="at least 1")


class Admission:
    """The books of the queue.

    Args:
        config: bounds; others may take their place at any time.
        clock: for the drain rate.
    """

    def __init__(self, config: AdmissionConfig, clock: Clock) -> None:
        self.config, self._clock = config, clock
        self._queued: dict[str, int] = {}
        self._num_tokens = 0
        self._drained: deque[tuple[float, int]] = deque()

    @property
    def num_requests(self) -> int:
        """Choices in the queue."""
        return len(self._queued)

    @property
    def num_tokens(self) -> int:
        """Prompt tokens in the queue."""
        return self._num_tokens

    def admit(self, sizes: dict[str, int]) -> None:
        """Take all choices of a request into the queue, or none.

        Args:
            sizes: prompt tokens by choice id.

        Raises:
            OverloadedError: a bound would be exceeded; carries when to retry. `code` is the bound's name.
        """
        over_requests = len(self._queued) + len(sizes) - self.config.max_queued_requests
        over_tokens = self._num_tokens + sum(sizes.values()) - self.config.max_queued_tokens
        if self._queued and over_requests > 0:
            raise self._refusal("max_queued_requests", over_requests, self._rate(count_tokens=False))
        if self._queued and over_tokens > 0:
            raise self._refusal("max_queued_tokens", over_tokens, self._rate(count_tokens=True))
        self._queued.update(sizes)
        self._num_tokens += sum(sizes.values())

    def start(self, request_id: str) -> None:
        """A choice has its first token: it leaves the queue and counts as drained. Unknown ids are ignored."""
        size = self._queued.get(request_id)
        if size is not None:
            self._drained.append((self._clock.now_s(), size))
            self.drop(request_id)

    def drop(self, request_id: str) -> None:
        """A choice ended without a token. Unknown ids are ignored."""
        self._num_tokens -= self._queued.pop(request_id, 0)

    def _rate(self, *, count_tokens: bool) -> float:
        """Requests or tokens per second that left the queue within the window; 0 if none did."""
        now_s = self._clock.now_s()
        while self._drained and self._drained[0][0] < now_s - self.config.window_s:
            self._drained.popleft()
        if not self._drained:
            return 0.0
        # A young window must not dilute the rate: measure from its first entry, but over no less than a second.
        span_s = max(1.0, now_s - self._drained[0][0])
        return sum(size if count_tokens else 1 for _, size in self._drained) / span_s

    def _refusal(self, bound: str, excess: int, rate: float) -> OverloadedError:
        wait_s = excess / rate if rate > 0 else MAX_RETRY_AFTER_S
        error = OverloadedError(
            "the server is at capacity; retry later",
            retry_after_s=min(MAX_RETRY_AFTER_S, max(MIN_RETRY_AFTER_S, wait_s)),
        )
        error.param = bound
        return error
