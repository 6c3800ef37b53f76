"""The Serve deployment around `VerifierCore`, and its place in a pool."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from autoscaling.pool_config import PoolConfig
from cluster.telemetry.prometheus import MetricSet
from deployments.discovery import watch
from deployments.drafting import drafting_for
from deployments.heartbeat import sender
from deployments.live_settings import LiveSettings
from deployments.logs import configure_logging
from deployments.pool_member import PoolMember
from deployments.ray_metrics import RayMetrics
from deployments.replica_resources import own_holding
from deployments.tracing import tracing_for
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

logger = logging.getLogger(__name__)

VERIFIER_KNOBS = ("admission", "stream_interval_s")
"""Settings of `VerifierConfig` that change while a verifier serves."""

SWITCH_INTERVAL_S = 0.001
"""The engine's thread holds the interpreter most of the time; the default of 5 ms would delay each delivery as much."""

LEAVE_S = 1.0
"""After its engine has died, a replica lives this much longer: its calls hear of it, and go on elsewhere."""


class VerifierReplica:
    """The Serve deployment around `VerifierCore`.

    Args:
        config: settings.
        drafter: handle to the drafter deployment; None where there is none.
        pools: how replicas are divided between the roles; None where there is nothing to divide.
        controller: handle to the controller deployment; None exactly where `pools` is.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        config: VerifierConfig,
        drafter: "DeploymentHandle[Any] | None" = None,
        pools: PoolConfig | None = None,
        controller: "DeploymentHandle[Any] | None" = None,
    ) -> None:
        from ray import serve

        configure_logging()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # Ray starts an actor with OMP_NUM_THREADS = its num_cpus, which is an accounting number here.
        os.environ["OMP_NUM_THREADS"] = str(config.engine.num_threads or len(os.sched_getaffinity(0)))
        replica = serve.get_replica_context().replica_id.unique_id
        self._drafting = await drafting_for(config, drafter, name=replica)
        self._tracing = tracing_for(config.tracing, component="verifier", replica=replica)
        self._core = VerifierCore(
            config,
            self._drafting.build_engine,
            replica=replica,
            drafting=self._drafting,
            holding=own_holding(),
            tracing=self._tracing,
            on_death=_leave,
        )
        await self._core.start()
        self._live = LiveSettings(config, VERIFIER_KNOBS, self._core.configure, deployment="Verifier", replica=replica)
        self._member = PoolMember(self._core, pools, None if controller is None else sender(controller))
        await self._member.join()
        if config.ray_metrics:
            copy = RayMetrics(self._metric_sets)
            self._copying = asyncio.create_task(copy.run())
        # Only where an actor is used: an unused one hears nothing, and so does nothing.
        if drafter is not None and self._drafting.layout.kind == "actor":
            self._watch = asyncio.create_task(watch(drafter, self._drafting.set_drafters))

    async def generate(
        self,
        data: bytes,
        pool: str | None = None,
        prefix: tuple[int, ...] = (),
        num_tokens: int = 0,
        call_id: str = "",
    ) -> AsyncIterator[bytes]:
        """Serve one call; see `VerifierCore.generate`. The other arguments are for the router on the caller's side."""
        async with aclosing(self._core.generate(data)) as stream:
            async for item in stream:
                yield item

    async def abort(self, call_id: str) -> None:
        """End a call; see `VerifierCore.abort`."""
        self._core.abort(call_id)

    async def card(self) -> bytes:
        """The engine's card, encoded."""
        return self._core.card()

    async def ping(self, timeout_s: float) -> None:
        """Wait for a live engine round."""
        await self._core.ping(timeout_s)

    async def metrics(self) -> str:
        """This replica's scrape."""
        return "".join(metrics.render() for metrics in self._metric_sets())

    async def reconfigure(self, user_config: Any) -> None:
        """Take Serve's `user_config`: settings among `VERIFIER_KNOBS`."""
        self._live.change(user_config)

    async def record_routing_stats(self) -> dict[str, Any]:
        """What routers know of this replica."""
        return self._member.routing_stats()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What the autoscaling policy decides on."""
        return self._member.autoscaling_stats()

    async def check_health(self) -> None:
        """Raise when the engine cannot serve; Serve then replaces this replica."""
        await self._core.ping()
        self._live.started()

    def _metric_sets(self) -> tuple[MetricSet, ...]:
        """What the scrape is made of, brought up to date."""
        return (*self._core.metric_sets(), *self._member.metric_sets(), self._live.metrics)

    def __del__(self) -> None:
        """Serve's way to end a replica: export the last spans."""
        tracing = getattr(self, "_tracing", None)
        if tracing is not None:
            tracing.stop()


def _leave() -> None:
    """End this process: an idle replica would be chosen for all that comes until Serve's third health check failed."""
    logger.error("the engine has died; this replica ends, and Serve starts another one")
    asyncio.get_running_loop().call_later(LEAVE_S, os._exit, 1)
