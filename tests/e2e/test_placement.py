"""Placements on a cluster of two nodes, by a real Ray."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SCRIPT = """
import json
import ray
from ray import serve
from ray.cluster_utils import Cluster
from deployments.placement import Placement, drafter_options

cluster = Cluster(
    initialize_head=True,
    head_node_args={
        "num_cpus": 2, "object_store_memory": 80 << 20, "labels": {"name": "a"}, "include_dashboard": False,
    },
)
cluster.add_node(num_cpus=2, object_store_memory=80 << 20, labels={"name": "b"}, resources={"fast": 1})
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
            env=os.environ | {"RAY_TMPDIR": scratch, "PYTHONPATH": str(Path(__file__).parents[2])},
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
    }
