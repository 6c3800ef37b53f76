"""Placement wishes become options that Serve takes, or are refused by name."""

from typing import Any

import pytest
from ray import serve

from cluster.errors import ConfigError
from deployments.placement import Placement, check_gpus, drafter_options


class Replica:
    pass


@pytest.mark.parametrize(
    ("placement", "actor", "other"),
    [
        (Placement(), {}, {}),
        (Placement(kind="per_node", per_node=2), {}, {"max_replicas_per_node": 2}),
        (Placement(kind="labels", node_labels={"zone": "a"}), {"label_selector": {"zone": "a"}}, {}),
        (
            Placement(kind="prefer_labels", node_labels={"zone": "a"}),
            {"label_selector": {"zone": "a"}, "fallback_strategy": [{"label_selector": {}}]},
            {},
        ),
        (Placement(resources={"fast": 0.01}), {"resources": {"fast": 0.01}}, {}),
    ],
)
def test_each_placement_is_one_that_serve_accepts(
    placement: Placement, actor: dict[str, Any], other: dict[str, Any]
) -> None:
    options = drafter_options(placement, num_cpus=0.5, num_gpus=0.25)
    assert options == {"ray_actor_options": {"num_cpus": 0.5, "num_gpus": 0.25, **actor}, **other}
    deployment: Any = serve.deployment
    deployment(Replica).options(name="x", **options)


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"kind": "same_node"}, "kind", "per_node"),
        ({"kind": "node_affinity"}, "kind", "labels"),
        ({"kind": "placement_group"}, "kind", "placement group"),
        ({"kind": "elsewhere"}, "kind", "one of anywhere"),
        ({"kind": "labels"}, "node_labels", "at least one"),
        ({"kind": "per_node", "node_labels": {"a": "b"}}, "node_labels", "none with kind"),
        ({"per_node": 0}, "per_node", "1 to 100"),
        ({"per_node": 101}, "per_node", "1 to 100"),
        ({"resources": {"fast": 0.0}}, "resources.fast", "more than 0"),
    ],
)
def test_what_serve_does_not_offer_is_refused_by_name(values: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Placement(**values)
    assert caught.value.field == f"drafter_placement.{field}"
    assert words in caught.value.allowed


def test_gpus_are_shares_of_one_or_whole_ones() -> None:
    for fine in (0, 0.25, 1, 2, 4.0):
        check_gpus("drafter_gpus", fine)
    with pytest.raises(ConfigError, match=r"drafter_gpus = 1.5 .* whole number"):
        check_gpus("drafter_gpus", 1.5)
