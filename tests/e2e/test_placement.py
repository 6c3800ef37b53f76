"""Placements on a cluster of two nodes, by a real Ray."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PATIENT = {"RAY_raylet_start_wait_time_s": "120"}
"""A busy machine needs longer than Ray's 30 seconds to start a node."""

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SCRIPT = """
import json
import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from deployments.placement import Placement, VerifierPlacement, drafter_options, rank_order, verifier_options

cluster = Cluster(
    initialize_head=True,
    head_node_args={
        "num_cpus": 2, "object_store_memory": 80 << 20, "labels": {"name": "a"}, "include_dashboard": False,
    },
)
cluster.add_node(num_cpus=2, num_gpus=3, object_store_memory=80 << 20, labels={"name": "b"}, resources={"fast": 1})
try:
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    names = {node["NodeID"]: node["Labels"]["name"] for node in ray.nodes()}
    serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})

    class Replica:
        def node(self):
            return ray.get_runtime_context().get_node_id()

    found = {}
    for title, num_replicas, num_cpus, placement in (
        ("labels", 2, 0.1, Placement(kind="labels", node_labels={"name": "b"})),
        ("prefer_labels", 2, 0.1, Placement(kind="prefer_labels", node_labels={"name": "b"})),
        ("prefer_labels, full", 3, 1, Placement(kind="prefer_labels", node_labels={"name": "b"})),
        ("per_node", 2, 0.1, Placement(kind="per_node")),
        ("resources", 2, 0.1, Placement(resources={"fast": 0.01})),
    ):
        options = drafter_options(placement, num_cpus=num_cpus, num_gpus=0)
        deployment = serve.deployment(Replica).options(num_replicas=num_replicas, **options)
        handle = serve.run(deployment.bind(), name="app", route_prefix=None)
        found[title] = sorted(names[node] for node in handle.broadcast("node").results(timeout_s=20))
        serve.delete("app")

    @ray.remote(num_cpus=0)
    class Rank:
        def place(self):
            return ray.get_runtime_context().get_node_id(), ray.get_gpu_ids()

    class Verifier:
        def place(self):
            group = ray.util.get_current_placement_group()
            table = ray.util.placement_group_table(group)
            nodes = [table["bundles_to_node_id"][index] for index in range(len(group.bundle_specs))]
            ranks = []
            for bundle in rank_order(nodes)[1:]:
                where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
                ranks.append(Rank.options(num_gpus=1, scheduling_strategy=where).remote())
            own = ray.get_runtime_context().get_node_id(), ray.get_gpu_ids()
            return table["strategy"], [own, *ray.get([rank.place.remote() for rank in ranks])]

    class Drafter:
        def gpus(self):
            return ray.get_gpu_ids()

    placed = VerifierPlacement(
        num_ranks=3, num_cpus=0.1, rank_cpus=0.1, node_labels={"name": "b"}, drafter_gpu_ratio=0.25
    )
    verifier = serve.deployment(Verifier).options(num_replicas=1, **verifier_options(placed))
    handle = serve.run(verifier.bind(), name="verifier", route_prefix=None)
    strategy, ranks = handle.place.remote().result(timeout_s=30)
    options = drafter_options(Placement(kind="labels", node_labels={"name": "b"}), num_cpus=0.1, num_gpus=0.25)
    drafter = serve.run(serve.deployment(Drafter).options(**options).bind(), name="drafter", route_prefix=None)
    gpus = [each for _, each in ranks]
    found["verifier"] = [strategy, sorted({names[node] for node, _ in ranks}), len({each[0] for each in gpus})]
    found["drafter on the GPU of rank 0"] = drafter.gpus.remote().result(timeout_s=20) == gpus[0]
    print("FOUND", json.dumps(found))
finally:
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()
"""


def test_replicas_land_on_the_nodes_that_a_placement_asks_for() -> None:
    with tempfile.TemporaryDirectory(prefix="or-", dir="/tmp", ignore_cleanup_errors=True) as scratch:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT],
            env=os.environ | PATIENT | {"RAY_TMPDIR": scratch, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND ")), None)
    assert line is not None, done.stderr[-3000:]
    assert json.loads(line.removeprefix("FOUND ")) == {
        "labels": ["b", "b"],
        "prefer_labels": ["b", "b"],
        "prefer_labels, full": ["a", "b", "b"],
        "per_node": ["a", "b"],
        "resources": ["b", "b"],
        "verifier": ["STRICT_PACK", ["b"], 3],
        "drafter on the GPU of rank 0": True,
    }
