"""Where Serve puts drafter replicas.

Serve places a replica without knowing where another deployment's replicas are, so "on the node of its verifier" cannot
be asked for directly. What it offers (Ray 2.60), and what each is good for here:

| kind | asks Serve for | use |
| --- | --- | --- |
| `anywhere` | nothing | one node, or drafters that are reached over tcp |
| `per_node` | `max_replicas_per_node` | as many drafters as nodes: each verifier finds one on its own node |
| `labels` | `label_selector` | only on nodes with these labels |
| `prefer_labels` | the same with `fallback_strategy` | those nodes first, any other when they are full |

`node_labels` may be given to verifiers too (`AppArgs.verifier_node_labels`); then both stay on the same nodes. Whatever
the placement, a verifier pairs with a drafter on its own node before any other.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from cluster.errors import ConfigError

PlacementKind = Literal["anywhere", "per_node", "labels", "prefer_labels"]
MAX_PER_NODE = 100
"""Serve's own limit."""

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
