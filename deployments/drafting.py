"""A verifier's source of drafts, as its Serve replica sees it: who shares its node, which drafters run, how they did.

The engine and everything that needs torch is built by `engine_build`, in the engine's own thread.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.types import DrafterStats
from deployments.discovery import DrafterRecord, first_records
from deployments.layout import Layout, NodeShare

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from cluster.engine.engine import Engine
    from deployments.engine_build import BuiltEngine
    from deployments.verifier_config import VerifierConfig

DRAFTERS_WAIT_S = 30.0
"""How long a verifier in a cluster of several nodes waits to see whether a drafter is on its own."""

_logger = logging.getLogger(__name__)


class Drafting:
    """One verifier's source of drafts.

    Args:
        config: the verifier's.
        node: who shares its node.
        name: of the verifier, for drafters' logs.
    """

    def __init__(self, config: "VerifierConfig", node: NodeShare, *, name: str) -> None:
        self._config, self._node, self._name = config, node, name
        self._built: BuiltEngine | None = None
        self._replicas: tuple[str, ...] | None = None

    @property
    def layout(self) -> Layout:
        """The layout in force; known once the engine is built."""
        assert self._built is not None
        return self._built.layout

    def build_engine(self) -> "Engine":
        """Load the models and settle the layout. Runs in the engine's thread.

        Raises:
            ConfigError: a setting does not fit the model or the machine.
            LoadError: a model is refused or damaged.
        """
        from deployments.engine_build import build_engine

        self._built = build_engine(self._config, self._node, name=self._name)
        return self._built.engine

    def stats(self) -> DrafterStats | None:
        """What happened with drafter actors; None where none is used."""
        if self._built is None or self._built.client is None:
            return None
        return self._built.client.stats()

    def set_drafters(self, records: Sequence[DrafterRecord]) -> None:
        """The drafter actors that run now."""
        from deployments.pairing import candidates_of

        replicas = tuple(record.replica for record in records)
        if replicas != self._replicas:
            self._replicas = replicas
            _logger.info("drafters: %s", ", ".join(replicas) or "none")
        if self._built is not None and self._built.client is not None:
            self._built.client.set_peers(candidates_of(records))


async def drafting_for(config: "VerifierConfig", drafter: "DeploymentHandle[Any] | None", *, name: str) -> Drafting:
    """The source of drafts of the replica that this runs in.

    Args:
        config: the verifier's.
        drafter: handle to the drafter deployment; None without one.
        name: of the verifier.
    """
    import ray

    list_nodes: Any = ray.nodes  # untyped
    node_id = ray.get_runtime_context().get_node_id()
    nodes = [node for node in list_nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if len(nodes) == 1:
        num_drafters = 0 if drafter is None else config.num_drafters
        return Drafting(
            config,
            NodeShare(node_id=node_id, num_verifiers=config.num_verifiers, num_drafters=num_drafters),
            name=name,
        )
    records = () if drafter is None else await first_records(drafter, DRAFTERS_WAIT_S)
    num_drafters = sum(record.node_id == node_id for record in records)
    return Drafting(config, NodeShare(node_id=node_id, num_drafters=num_drafters), name=name)
