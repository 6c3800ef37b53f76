"""The Serve deployment around `DrafterCore`: one replica drafts for many verifiers, over its own channel."""

import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.config import DraftConfig, EngineConfig
from deployments.drafter_core import DrafterCore
from deployments.drafter_policy import BUSY_RATIO, LATE_RATIO
from deployments.logs import configure_logging
from deployments.pairing import coarse_load

if TYPE_CHECKING:
    from cluster.engine.drafters.run_ahead import RunAhead

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
    """

    engine: EngineConfig = field(default_factory=EngineConfig)
    draft: DraftConfig = field(default_factory=DraftConfig)
    on_gpu: bool = False
    loads_at_start: bool = True


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
        from cluster.transport.zmq import ZmqListener
        from deployments.drafter_metrics import DrafterRecorder, LateShare
        from deployments.drafter_model import DrafterModel

        sys.setswitchinterval(SWITCH_INTERVAL_S)
        node_address: Any = ray.util.get_node_ip_address  # untyped
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._node_id = ray.get_runtime_context().get_node_id()
        self._max_sequences = settings.draft.max_sequences
        self._recorder, self._late = DrafterRecorder(self._replica), LateShare()
        self._ahead: RunAhead | None = None
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
        snapshot = None if self._ahead is None else self._ahead.snapshot()
        self._recorder.record(snapshot, busy_ratio=self._core.busy_ratio, num_failures=self._core.num_failures)
        return self._recorder.metrics.render()

    async def check_health(self) -> None:
        """Raise when the drafter's thread is dead; Serve then replaces this replica."""
        self._core.check_health()

    def __del__(self) -> None:
        """Serve's way to end a replica."""
        core = getattr(self, "_core", None)
        if core is not None:
            core.stop()

    def _build(self) -> "RunAhead":
        self._ahead = self._model.build()
        return self._ahead
