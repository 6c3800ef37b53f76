"""Which gateways take work, as Serve says: a gateway that is missing there, and was not, is about to go.

Serve tells every process that holds a handle to the gateways, where `GatewayRouter` hands it to `MEMBERS`.
"""

import threading
from collections.abc import Callable

from deployments.draining import CUT_MARGIN_S, Drain

ROUTER_CLASS = "deployments.gateway_router.GatewayRouter"

Listener = Callable[[frozenset[str]], object]


class Membership:
    """One gateway among them.

    Args:
        replica: Serve's id of it.
        drain: begins when Serve counts it no more.
        drain_timeout_s: what Serve allows it then.
    """

    def __init__(self, replica: str, drain: Drain, drain_timeout_s: float) -> None:
        self._replica, self._drain = replica, drain
        self._grace_s = max(0.0, drain_timeout_s - CUT_MARGIN_S)
        self._was_member = False

    def hear(self, replica_ids: frozenset[str]) -> None:
        """The gateways that take work now. One that has just started is not yet among them."""
        is_member, drain = self._replica in replica_ids, self._drain
        if self._was_member and not is_member and not drain.is_draining:
            # Serve's proxies send what comes now to others; a latecomer is served.
            drain.begin(self._grace_s, refuse=False)
        elif is_member and drain.is_draining and not drain.refuses:
            drain.revoke()
        self._was_member = self._was_member or is_member


class Members:
    """The gateways that take work. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replica_ids: frozenset[str] = frozenset()
        self._listener: Listener | None = None

    def publish(self, replica_ids: frozenset[str]) -> None:
        """Serve's news."""
        with self._lock:
            self._replica_ids = replica_ids
            if self._listener is not None:
                self._listener(replica_ids)

    def watch(self, listener: Listener) -> None:
        """Call `listener` now and at every change, on the publisher's thread."""
        with self._lock:
            self._listener = listener
            listener(self._replica_ids)


MEMBERS = Members()
"""This process's."""
