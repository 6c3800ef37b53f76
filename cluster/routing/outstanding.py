"""What a router has sent to each replica that the replica's own word does not hold yet. Pure."""

from collections import OrderedDict

MAX_CALLS = 16_384

REPORT_DELAY_S = 0.3
"""A report was written up to this long before it arrives: calls sent within this time may be missing from it."""


class Outstanding:
    """Calls on their way to replicas, and their tokens.

    Args:
        max_calls: most calls remembered; the oldest are forgotten.
    """

    def __init__(self, max_calls: int = MAX_CALLS) -> None:
        self._max_calls = max_calls
        self._replica_of: OrderedDict[str, str] = OrderedDict()
        self._calls: dict[str, OrderedDict[str, tuple[float, int]]] = {}
        self._num_tokens: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._replica_of)

    def of(self, replica_id: str) -> tuple[int, int]:
        """(tokens, calls) that are on their way to a replica."""
        calls = self._calls.get(replica_id)
        return (0, 0) if calls is None else (self._num_tokens[replica_id], len(calls))

    def send(self, call_id: str, replica_id: str, num_tokens: int, now_s: float) -> None:
        """A call goes to a replica; a call that was sent elsewhere before is counted there no more."""
        self.done(call_id)
        self._replica_of[call_id] = replica_id
        self._calls.setdefault(replica_id, OrderedDict())[call_id] = (now_s, num_tokens)
        self._num_tokens[replica_id] = self._num_tokens.get(replica_id, 0) + num_tokens
        if len(self._replica_of) > self._max_calls:
            self.done(next(iter(self._replica_of)))

    def done(self, call_id: str) -> None:
        """A call ended; unknown ids are ignored."""
        replica_id = self._replica_of.pop(call_id, None)
        if replica_id is None:
            return
        calls = self._calls[replica_id]
        self._num_tokens[replica_id] -= calls.pop(call_id)[1]
        if not calls:
            del self._calls[replica_id], self._num_tokens[replica_id]

    def heard(self, replica_id: str, now_s: float) -> None:
        """A report of a replica came in: it holds all calls but the newest."""
        while calls := self._calls.get(replica_id):
            call_id, (sent_s, _) = next(iter(calls.items()))
            if sent_s > now_s - REPORT_DELAY_S:
                return
            self.done(call_id)
