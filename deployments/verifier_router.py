"""How Serve chooses a verifier replica: by `PoolView`, which lives in the process and not here.

Serve pickles this module by value into every process that holds a handle: it must not keep anything itself.
"""

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica


class VerifierRouter(RequestRouter):
    """Sends calls that name a pool (or None for any) by rank; all other calls go to any replica.

    Without `FIFOMixin` on purpose: it hands a replica that was chosen for one call to the oldest one that waits, so
    that calls for one pool would end in the other.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Groups of replicas, best first; whatever goes wrong, all candidates are as good as each other."""
        if pending_request is None or "pool" not in pending_request.kwargs:
            return [candidate_replicas]
        from deployments.pool_view import VIEW

        try:
            by_id = {each.replica_id.unique_id: each for each in candidate_replicas}
            call_id = pending_request.metadata.internal_request_id
            groups = VIEW.rank(tuple(by_id), call_id, pending_request.kwargs)
            return [[by_id[replica_id] for replica_id in group] for group in groups]
        except Exception:  # noqa: BLE001 -- a call that nobody can route would hang for ever
            VIEW.degrade("error")
            return [candidate_replicas]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Serve's notice that the running replicas, or their stats, changed."""
        super().update_replicas(replicas)
        from deployments.pool_view import VIEW

        try:
            VIEW.publish([(each.replica_id.unique_id, each.routing_stats) for each in replicas])
        except Exception:  # noqa: BLE001 -- Serve's own list of replicas must be kept, whatever they say
            VIEW.degrade("error")

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """A call ended, in whatever way."""
        from deployments.pool_view import VIEW

        VIEW.done(internal_request_id)
