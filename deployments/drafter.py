"""The Serve deployment around `DrafterCore`: one replica drafts for many verifiers, over its own channel."""

import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.config import DraftConfig, EngineConfig
from cluster.telemetry.cost import CostConfig
from cluster.telemetry.prometheus import MetricSet
from cluster.telemetry.tracing_config import TracingConfig
from deployments.drafter_core import Ahead, DrafterCore
from deployments.drafter_policy import BUSY_RATIO, LATE_RATIO
from deployments.logs import configure_logging
from deployments.pairing import coarse_load
from deployments.ray_metrics import RayMetrics
from deployments.replica_resources import own_holding
from deployments.tracing import tracing_for

if TYPE_CHECKING:
    from cluster.engine.drafters.run_ahead import RunAhead
    from deployments.drafter_spans import TracedAhead

SWITCH_INTERVAL_S = 0.001
"""The drafter's thread must not keep the channel's from the interpreter for the default of 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterSettings:
    """Settings of a drafter replica.

    Attributes:
        engine: names the target, whose embeddings and vocabulary the draft model shares.
        draft: the draft model, resolved: `draft.model` is not None.
        on_gpu: run on the GPU that Ray gives.
        loads_at_start: load the model before the first verifier asks for it.
        cost: prices of what a replica holds.
        tracing: where spans go; None for no traces.
        ray_metrics: copy metrics to Ray's.
    """

    engine: EngineConfig = field(default_factory=EngineConfig)
    draft: DraftConfig = field(default_factory=DraftConfig)
    on_gpu: bool = False
    loads_at_start: bool = True
    cost: CostConfig = field(default_factory=CostConfig)
    tracing: TracingConfig | None = None
    ray_metrics: bool = True


class DrafterReplica:
    """Listens for verifiers, and publishes where.

    Args:
        settings: the drafter's.
    """

    def __init__(self, settings: DrafterSettings) -> None:
        import ray
        from ray import serve

        configure_logging()
        # Ray sets this to num_cpus, an accounting number here; it must be set before torch is imported.
        os.environ["OMP_NUM_THREADS"] = str(settings.draft.num_threads)
        from cluster.telemetry.cost_recorder import Allocation
        from cluster.transport.zmq import ZmqListener
        from deployments.drafter_metrics import DrafterRecorder, LateShare
        from deployments.drafter_model import DrafterModel

        sys.setswitchinterval(SWITCH_INTERVAL_S)
        node_address: Any = ray.util.get_node_ip_address  # untyped
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._node_id = ray.get_runtime_context().get_node_id()
        self._max_sequences = settings.draft.max_sequences
        self._recorder, self._late = DrafterRecorder(self._replica), LateShare()
        holding = own_holding()
        self._allocation = Allocation(settings.cost, holding.resources, time.monotonic(), holding.energy)
        self._ahead: RunAhead | None = None
        self._tracing = tracing_for(settings.tracing, component="drafter", replica=self._replica)
        self._traced: TracedAhead | None = None
        self._model = DrafterModel(settings.engine, settings.draft, on_gpu=settings.on_gpu)
        listener = ZmqListener(
            self._node_id,
            host=node_address(),
            ipc_dir=Path(tempfile.gettempdir()),
            port=settings.draft.port,
        )
        self._address = listener.address
        self._core = DrafterCore(
            listener, self._build, release=self._model.release, loads_at_start=settings.loads_at_start
        )
        self._core.start()
        if settings.ray_metrics:
            self._copying = asyncio.get_running_loop().create_task(RayMetrics(self.metric_sets).run())

    async def record_replica_metadata(self) -> dict[str, Any]:
        """What verifiers need to find this replica; Serve hands it to them."""
        record = self._model.record(replica=self._replica, node_id=self._node_id, address=self._address)
        return record.to_json()

    async def record_routing_stats(self) -> dict[str, int]:
        """Its load, for verifiers that choose a drafter; coarse, since Serve tells all of them of each change."""
        num_sequences = 0 if self._ahead is None else self._ahead.snapshot().num_sequences
        return {"num_sequences": coarse_load(num_sequences, self._max_sequences)}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What `drafter_policy` decides on."""
        late = 0.0 if self._ahead is None else self._late.take(self._ahead.snapshot().counters)
        return {LATE_RATIO: late, BUSY_RATIO: self._core.busy_ratio}

    async def contact(self) -> str:
        """This replica's id: a call that proves the way to it."""
        return self._replica

    async def metrics(self) -> str:
        """This replica's scrape."""
        return "".join(metrics.render() for metrics in self.metric_sets())

    def metric_sets(self) -> tuple[MetricSet, ...]:
        """What the scrape is made of, brought up to date."""
        snapshot = None if self._ahead is None else self._ahead.snapshot()
        self._recorder.record(snapshot, busy_ratio=self._core.busy_ratio, num_failures=self._core.num_failures)
        self._recorder.record_spent(self._allocation.take(time.monotonic()))
        own = self._recorder.metrics
        return (own,) if self._tracing is None else (own, self._tracing.metrics)

    async def check_health(self) -> None:
        """Raise when the drafter's thread is dead; Serve then replaces this replica."""
        self._core.check_health()

    def __del__(self) -> None:
        """Serve's way to end a replica."""
        for part in ("_core", "_traced", "_tracing"):
            if (ending := getattr(self, part, None)) is not None:
                ending.stop()

    def _build(self) -> Ahead:
        self._ahead = self._model.build()
        if self._tracing is None:
            return self._ahead
        from deployments.drafter_spans import TracedAhead

        self._traced = TracedAhead(self._ahead, self._tracing, model=self._model.model_id)
        return self._traced
