"""What a drafter replica says about its load reaches the process of a verifier by itself."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SCRIPT = """
import json, time
import ray
from ray import serve
from deployments.discovery import BOARD, ROUTER_CLASS, DrafterRecord

ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.start(proxy_location="Disabled")

router = {"request_router_class": ROUTER_CLASS, "request_routing_stats_period_s": 0.2}


@serve.deployment(name="Drafter", num_replicas=2, request_router_config=router, ray_actor_options={"num_cpus": 0.1})
class Replica:
    def __init__(self):
        self.load = 0

    async def record_replica_metadata(self):
        replica = serve.get_replica_context().replica_id.unique_id
        return DrafterRecord(
            replica=replica, node_id="n", incarnation=1, address={}, model_id="m", target="t", tokenizer_hash="h",
            max_sequences=64,
        ).to_json()

    async def record_routing_stats(self):
        return {"num_sequences": self.load}

    async def contact(self):
        self.load += 5


handle = serve.run(Replica.bind(), name="x", route_prefix=None)
end_s = time.monotonic() + 60
for expected in ([0, 5], None):
    handle.contact.remote().result()
    wanted = lambda loads: loads in ([0, 10], [5, 5]) if expected is None else loads == expected
    while not wanted(loads := sorted(record.num_sequences for record in BOARD.records)):
        assert time.monotonic() < end_s, loads
        time.sleep(0.1)
print("LOADS", json.dumps(loads))
serve.shutdown()
ray.shutdown()
"""


def test_loads_of_drafters_are_pushed_to_whoever_holds_a_handle() -> None:
    with tempfile.TemporaryDirectory(prefix="or-", dir="/tmp") as scratch:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "RAY_TMPDIR": scratch},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    line = next((line for line in done.stdout.splitlines() if line.startswith("LOADS ")), None)
    assert line is not None, done.stderr[-3000:]
    assert sum(json.loads(line.removeprefix("LOADS "))) == 10
