"""How Serve chooses a gateway for a request: as it would without this class, which only listens.

Serve pickles this module by value into every process that holds a handle, its proxies too: it must not keep anything.
"""

import contextlib
import random

from ray.serve.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)


class GatewayRouter(FIFOMixin, LocalityMixin, MultiplexMixin, RequestRouter):
    """The less busy of two gateways, those on the caller's node first."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Two gateways by chance; Serve takes the one with the shorter queue."""
        near = tuple(self.apply_locality_routing(pending_request))
        chosen = random.sample(near, min(2, len(near)))
        return [[self.curr_replicas[replica_id] for replica_id in chosen]] if chosen else []

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Serve's notice of the gateways that take work."""
        super().update_replicas(replicas)
        with contextlib.suppress(Exception):  # Serve's proxies need not have this package.
            from deployments.gateway_members import MEMBERS

            MEMBERS.publish(frozenset(each.replica_id.unique_id for each in replicas))
