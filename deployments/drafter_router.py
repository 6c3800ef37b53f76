"""Serve's view of the drafter replicas, kept where verifiers can read it.

Serve pickles this module by value into every process that holds a handle: it must not keep anything itself.
"""

from typing import Any

from ray.serve.request_router import FIFOMixin, PendingRequest, RequestRouter, RunningReplica


class DrafterRouter(FIFOMixin, RequestRouter):
    """Routes calls to any drafter, and publishes their metadata in this process.

    Serve pushes each change of the running replicas to every handle's router, with what the replicas returned from
    `record_replica_metadata`, and their load from `record_routing_stats`. Nothing is polled here, and a replaced
    replica is known as soon as it runs.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """All candidates, equally good: only control calls come this way."""
        return [candidate_replicas]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Serve's notice that the running replicas, or their loads, changed."""
        super().update_replicas(replicas)
        from deployments.discovery import BOARD

        published: list[dict[str, Any]] = [{**each.replica_metadata, **each.routing_stats} for each in replicas]
        BOARD.publish(published)
