"""The Serve deployment around `ControllerCore`: one replica, named and supervised by Serve."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from autoscaling.pool_config import PoolConfig
from cluster.errors import ConfigError
from cluster.telemetry.prometheus import MetricSet
from deployments.controller_core import ControllerCore
from deployments.live_settings import LiveSettings
from deployments.logs import configure_logging
from deployments.ray_metrics import RayMetrics

logger = logging.getLogger(__name__)

CONTROLLER_NAME = "Controller"
"""Of the deployment."""

CONTROLLER_KNOBS = (
    "mode", "min_speculative", "max_speculative", "min_batch", "ttft_slo_s", "tpot_slo_s", "stale_after_s", "hold_s",
    "cooldown_s", "margin_ratio", "move_timeout_s", "leave_alone_s", "dry_run", "target_load_ratio",
    "scale_up_hold_s", "scale_down_hold_s",
)  # fmt: skip
"""Settings of `PoolConfig` that change while a controller decides: all that verifiers need not know as well."""

TOUCH_TIMEOUT_S = 5.0


class ControllerReplica:
    """Hears verifiers, decides once in each heartbeat's period, and answers operators.

    Args:
        config: of the pools.
        verifier_name: of the deployment whose replicas report.
        ray_metrics: copy metrics to Ray's.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, config: PoolConfig, verifier_name: str, *, ray_metrics: bool = True
    ) -> None:
        from ray import serve

        from deployments.pool_view import VIEW

        configure_logging()
        context = serve.get_replica_context()
        replica = context.replica_id.unique_id
        self._core = ControllerCore(config, replica=replica, running=lambda: VIEW.replica_ids)
        self._ticks = asyncio.create_task(self._tick(config.heartbeat_s))
        self._touch = asyncio.create_task(_touch(verifier_name, context.app_name))
        self._live = LiveSettings(
            config, CONTROLLER_KNOBS, self._core.configure, deployment=CONTROLLER_NAME, replica=replica
        )
        if ray_metrics:
            self._copying = asyncio.create_task(RayMetrics(self._metric_sets).run())

    async def heartbeat(self, data: bytes) -> bytes:
        """The encoded reply to an encoded report."""
        return self._core.heartbeat(data)

    async def status(self) -> dict[str, Any]:
        """Everything that is known, as plain values."""
        return self._core.status()

    async def pin(self, num_speculative: int, seconds: float) -> dict[str, Any]:
        """Fix the split for a time; the new status, or an error by name."""
        return _answer(lambda: self._core.pin(num_speculative, seconds))

    async def unpin(self) -> dict[str, Any]:
        """Let the load decide again; the new status."""
        return self._core.unpin()

    async def shift(self, num_speculative: int, dry_run: bool) -> dict[str, Any]:
        """Move to a split, or tell what would move; an error by name."""
        return _answer(lambda: self._core.shift(num_speculative, dry_run=dry_run))

    async def metrics(self) -> str:
        """The scrape."""
        return "".join(metrics.render() for metrics in self._metric_sets())

    async def reconfigure(self, user_config: Any) -> None:
        """Take Serve's `user_config`: settings among `CONTROLLER_KNOBS`."""
        self._live.change(user_config)

    async def check_health(self) -> None:
        """Raise when nothing is decided any more; Serve then replaces this replica."""
        if self._ticks.done():
            self._ticks.result()
        self._live.started()

    def _metric_sets(self) -> tuple[MetricSet, ...]:
        """What the scrape is made of."""
        return (*self._core.metric_sets(), self._live.metrics)

    async def _tick(self, period_s: float) -> None:
        while True:
            await asyncio.sleep(period_s)
            self._core.tick()


def _answer(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` returns. Errors travel as values: their classes take named arguments, which pickle does not."""
    try:
        return make()
    except ConfigError as error:
        return {"error": {"field": error.field, "value": error.value, "allowed": error.allowed}}


async def _touch(verifier_name: str, app_name: str) -> None:
    """Use a handle to the verifiers once: from then on Serve tells this process which of them take work."""
    from ray import serve

    handle: Any = serve.get_deployment_handle(verifier_name, app_name=app_name)
    with contextlib.suppress(Exception):  # No verifier runs yet: the handle is connected anyway.
        await handle.broadcast("card").results_async(timeout_s=TOUCH_TIMEOUT_S, return_exceptions=True)
    # The handle must live as long as this replica.
    await asyncio.Event().wait()
    del handle
