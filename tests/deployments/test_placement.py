"""Placement wishes become options that Serve takes, or are refused by name."""

from typing import Any

import pytest
from ray import serve
from ray.serve.schema import DeploymentSchema

from cluster.errors import ConfigError
from deployments.placement import (
    Placement,
    VerifierPlacement,
    check_gpus,
    drafter_options,
    rank_order,
    verifier_options,
)


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


def _config(options: dict[str, Any]) -> DeploymentSchema:
    """Options as Ray's own schema and its checks of a deployment take them."""
    deployment: Any = serve.deployment
    deployment(Replica).options(name="Verifier", **options)
    return DeploymentSchema.model_validate({"name": "Verifier", **options})


def test_a_verifier_is_one_strictly_packed_group_with_the_replica_in_its_first_bundle() -> None:
    placed = VerifierPlacement(num_ranks=3, num_cpus=4, accelerator_type="H100", node_labels={"zone": "a"})
    options = verifier_options(placed)
    assert options == {
        "ray_actor_options": {"num_cpus": 4, "num_gpus": 1},
        "placement_group_bundles": [{"CPU": 4, "GPU": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}],
        "placement_group_strategy": "STRICT_PACK",
        "placement_group_bundle_label_selector": [{"zone": "a", "ray.io/accelerator-type": "H100"}],
    }
    _config(options)


def test_a_verifier_over_two_nodes_asks_for_its_gpus_as_a_resource() -> None:
    # Serve's scheduler does not take label selectors with PACK.
    options = verifier_options(VerifierPlacement(num_ranks=4, gpus_per_node=2, accelerator_type="H200"))
    assert options["placement_group_strategy"] == "PACK"
    assert "placement_group_bundle_label_selector" not in options
    assert all(bundle["accelerator_type:H200"] == 0.001 for bundle in options["placement_group_bundles"])
    _config(options)


def test_a_drafter_may_have_the_rest_of_the_first_gpu() -> None:
    options = verifier_options(VerifierPlacement(num_ranks=2, drafter_gpu_ratio=0.15))
    assert options["placement_group_bundles"] == [{"CPU": 1, "GPU": 0.85}, {"CPU": 1, "GPU": 1}]
    assert options["ray_actor_options"]["num_gpus"] == 0.85
    assert "placement_group_bundle_label_selector" not in options
    _config(options)


def test_ray_refuses_a_replica_that_its_first_bundle_does_not_hold() -> None:
    options = verifier_options(VerifierPlacement(num_ranks=2))
    options["ray_actor_options"] = {"num_gpus": 2}
    with pytest.raises(ValueError, match="first bundle"):
        _config(options)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"num_ranks": 0}, "num_ranks"),
        ({"num_ranks": 2, "gpus_per_node": 0}, "gpus_per_node"),
        ({"num_ranks": 2, "num_cpus": -1}, "num_cpus"),
        ({"num_ranks": 2, "rank_cpus": float("nan")}, "rank_cpus"),
        ({"num_ranks": 2, "drafter_gpu_ratio": 1.0}, "drafter_gpu_ratio"),
        ({"num_ranks": 16, "node_labels": {"zone": "a"}}, "node_labels"),
    ],
)
def test_a_verifier_that_cannot_be_placed_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        VerifierPlacement(**values)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        ("aaaa", (0, 1, 2, 3)),
        ("baba", (0, 2, 1, 3)),
        ("cabcab", (0, 3, 1, 4, 2, 5)),
        ("a", (0,)),
    ],
)
def test_ranks_of_a_node_are_side_by_side_and_rank_0_is_in_the_first_bundle(nodes: str, order: tuple[int, ...]) -> None:
    assert rank_order(tuple(nodes)) == order
