"""Where Serve puts verifiers and drafters.

A verifier whose target is sharded is one placement group: a bundle with a GPU for each rank, of which the first holds
the replica itself, rank 0 (Serve puts it there). On one node the group is packed strictly. Over several nodes it is
packed onto as few as possible; Ray does not order bundles by node, so `rank_order` does. Serve's scheduler refuses
label selectors for groups over several nodes (Ray 2.60), so there the bundles ask for the kind of GPU as a resource.

Serve places a replica without knowing where another deployment's replicas are, so "on the node of its verifier" cannot
be asked for directly. What it offers (Ray 2.60), and what each is good for here:

| kind | asks Serve for | use |
| --- | --- | --- |
| `anywhere` | nothing | one node, or drafters that are reached over tcp |
| `per_node` | `max_replicas_per_node` | as many drafters as nodes: each verifier finds one on its own node |
| `labels` | `label_selector` | only on nodes with these labels |
| `prefer_labels` | the same with `fallback_strategy` | those nodes first, any other when they are full |

The same `node_labels` for verifiers keep both on the same nodes. Whatever the placement, a verifier pairs with a
drafter on its own node before any other.

A drafter can also live on the GPU of its verifier's rank 0: the first bundle then asks for less than a whole GPU
(`VerifierPlacement.drafter_gpu_ratio`), the drafter (`drafter_gpus`) for the rest. Where verifiers take all GPUs of
their nodes, no other place is left for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from cluster.errors import ConfigError, check_range

PlacementKind = Literal["anywhere", "per_node", "labels", "prefer_labels"]
MAX_PER_NODE = 100
"""Serve's own limit."""

MAX_RANKS = 1024

ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Ray's own label of a node with GPUs."""

ACCELERATOR_RESOURCE = "accelerator_type:"
"""Beginning of the name of Ray's own resource of such a node, which has 1 of it."""

_SMALL_AMOUNT = 0.001
"""Of a resource that is only there to be found."""

_REFUSED = {
    "same_node": "Serve cannot place a replica beside one of another deployment; use per_node, or labels on both",
    "node_affinity": "Serve does not let replicas name a node; use labels",
    "placement_group": "Serve keeps a placement group to one replica; use labels or resources",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Wishes about the nodes of drafters.

    Attributes:
        kind: see the table above.
        node_labels: labels of the nodes that are meant by `labels` and `prefer_labels`.
        per_node: most drafters on one node, for `per_node`.
        resources: custom Ray resources that a drafter takes, such as {"fast_node": 0.01}.
    """

    kind: str = "anywhere"
    node_labels: dict[str, str] = field(default_factory=dict)
    per_node: int = 1
    resources: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what Serve does not offer, by name."""
        name = "drafter_placement"
        if self.kind in _REFUSED:
            raise ConfigError(field=f"{name}.kind", value=self.kind, allowed=_REFUSED[self.kind])
        if self.kind not in get_args(PlacementKind):
            raise ConfigError(
                field=f"{name}.kind", value=self.kind, allowed=f"one of {', '.join(get_args(PlacementKind))}"
            )
        if self.kind.endswith("labels") != bool(self.node_labels):
            allowed = "at least one label" if not self.node_labels else f"none with kind = {self.kind!r}"
            raise ConfigError(field=f"{name}.node_labels", value=self.node_labels, allowed=allowed)
        if not 1 <= self.per_node <= MAX_PER_NODE:
            raise ConfigError(
                field=f"{name}.per_node", value=self.per_node, allowed=f"an integer from 1 to {MAX_PER_NODE}"
            )
        for resource, amount in self.resources.items():
            if not amount > 0:
                raise ConfigError(field=f"{name}.resources.{resource}", value=amount, allowed="more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierPlacement:
    """What one verifier takes.

    Attributes:
        num_ranks: GPUs, each with a rank of the tensor-parallel target.
        gpus_per_node: of the nodes.
        num_cpus: CPUs of rank 0, which runs the engine too.
        rank_cpus: CPUs of each other rank.
        accelerator_type: kind of the GPUs as Ray names it, such as "H100"; None takes any.
        node_labels: labels that the node must have; for verifiers on one node only.
        drafter_gpu_ratio: share of rank 0's GPU that is left to a drafter.
    """

    num_ranks: int
    gpus_per_node: int = 8
    num_cpus: float = 1.0
    rank_cpus: float = 1.0
    accelerator_type: str | None = None
    node_labels: dict[str, str] = field(default_factory=dict)
    drafter_gpu_ratio: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be placed."""
        check_range("num_ranks", self.num_ranks, 1, MAX_RANKS)
        check_range("gpus_per_node", self.gpus_per_node, 1, MAX_RANKS)
        check_range("num_cpus", self.num_cpus, 0, 1 << 16, kind="a number")
        check_range("rank_cpus", self.rank_cpus, 0, 1 << 16, kind="a number")
        check_range("drafter_gpu_ratio", self.drafter_gpu_ratio, 0, 0.95, kind="a share")
        if self.spans_nodes and self.node_labels:
            allowed = f"none for a verifier of {self.num_ranks} GPUs on nodes of {self.gpus_per_node}"
            raise ConfigError(field="node_labels", value=self.node_labels, allowed=allowed)

    @property
    def spans_nodes(self) -> bool:
        """Whether one node is too small."""
        return self.num_ranks > self.gpus_per_node


def verifier_options(placement: VerifierPlacement) -> dict[str, Any]:
    """Options of the verifier deployment that place its replicas, each with a placement group.

    Args:
        placement: what one verifier takes.
    """
    num_gpus = round(1 - placement.drafter_gpu_ratio, 4)  # Ray counts in ten-thousandths.
    first = {"CPU": placement.num_cpus, "GPU": num_gpus}
    others = [{"CPU": placement.rank_cpus, "GPU": 1.0} for _ in range(placement.num_ranks - 1)]
    bundles, selector = [first, *others], dict(placement.node_labels)
    if placement.accelerator_type is not None:
        if placement.spans_nodes:
            resource = ACCELERATOR_RESOURCE + placement.accelerator_type
            bundles = [bundle | {resource: _SMALL_AMOUNT} for bundle in bundles]
        else:
            selector[ACCELERATOR_LABEL] = placement.accelerator_type
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": placement.num_cpus, "num_gpus": num_gpus},
        "placement_group_bundles": bundles,
        "placement_group_strategy": "PACK" if placement.spans_nodes else "STRICT_PACK",
    }
    if selector:
        options["placement_group_bundle_label_selector"] = [selector]
    return options


def rank_order(nodes: Sequence[str]) -> tuple[int, ...]:
    """The bundle of each rank: rank 0 in the first, where the replica is, and ranks of one node side by side.

    Args:
        nodes: node of each bundle of a placement group.
    """
    return tuple(sorted(range(len(nodes)), key=lambda bundle: (nodes[bundle] != nodes[0], nodes[bundle], bundle)))


def drafter_options(placement: Placement, *, num_cpus: float, num_gpus: float) -> dict[str, Any]:
    """Options of the drafter deployment that place its replicas.

    Args:
        placement: the wishes.
        num_cpus: CPUs that Ray reserves for a replica.
        num_gpus: GPUs, or a share of one.
    """
    actor: dict[str, Any] = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    if placement.resources:
        actor["resources"] = dict(placement.resources)
    options: dict[str, Any] = {"ray_actor_options": actor}
    match placement.kind:
        case "labels":
            actor["label_selector"] = dict(placement.node_labels)
        case "prefer_labels":
            actor["label_selector"] = dict(placement.node_labels)
            actor["fallback_strategy"] = [{"label_selector": {}}]
        case "per_node":
            options["max_replicas_per_node"] = placement.per_node
    return options


def check_gpus(field: str, num_gpus: float) -> None:
    """Ray shares one GPU, or gives whole ones.

    Raises:
        ConfigError: a number between.
    """
    if num_gpus > 1 and num_gpus != int(num_gpus):
        raise ConfigError(field=field, value=num_gpus, allowed="a share of one GPU (0 to 1) or a whole number")
