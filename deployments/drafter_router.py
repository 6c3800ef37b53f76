"""Serve's view of the drafter replicas, kept where verifiers can read it.

Serve pickles this module by value into every process that holds a handle: it must not keep anything itself.
"""

from typing import Any

from ray.serve.request_router import FIFOMixin, PendingRequest, RequestRouter, RunningReplica


class DrafterRouter(FIFOMixin, RequestRouter):
    """Routes calls to any drafter, and publishes their metadata in this process.

    Serve pushes each change of the running replicas to every handle's router, with what the replicas returned from
    `record_replica_metadata`. Nothing is polled, and a replaced replica is known here as soon as it runs.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """All candidates, equally good: only control calls come this way."""
        return [candidate_replicas]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Serve's notice that the running replicas changed."""
        super().update_replicas(replicas)
        from deployments.discovery import BOARD

        metadata: list[dict[str, Any]] = [replica.replica_metadata for replica in replicas]
        BOARD.publish(metadata)
