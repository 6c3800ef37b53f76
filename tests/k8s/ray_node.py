"""A Ray head as KubeRay starts one: `ray start --block` with a token, and `serve deploy` through its dashboard."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.conftest import free_port, marked_processes
from tests.k8s.manifests import ROOT

BIN = Path(sys.executable).parent
TOKEN = "a-token-for-ray-of-32-characters"
START_S = 150.0
STOP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A running head.

    Attributes:
        dashboard: its address.
        environment: for commands that speak to it.
        log: what it printed.
    """

    dashboard: str
    environment: dict[str, str]
    log: Path

    def deploy(self, config: Path) -> None:
        """`serve deploy`, which sends what KubeRay's operator sends."""
        command = [str(BIN / "serve"), "deploy", str(config), "--address", self.dashboard]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def applications(self) -> dict[str, Any]:
        """What Serve says about its applications; the operator reads the same."""
        answer = httpx.get(
            f"{self.dashboard}/api/serve/applications/", headers={"authorization": f"Bearer {TOKEN}"}, timeout=30
        )
        found: dict[str, Any] = answer.raise_for_status().json()["applications"]
        return found

    def replicas(self, app: str, deployment: str) -> set[str]:
        """Ids of a deployment's running replicas."""
        found = self.applications()[app]["deployments"][deployment]["replicas"]
        return {replica["replica_id"] for replica in found if replica["state"] == "RUNNING"}


@contextmanager
def ray_node(num_cpus: int) -> Iterator[RayNode]:
    """Start a head and stop it with everything that it started.

    Args:
        num_cpus: that Ray believes in.
    """
    # Unix sockets have short paths: not pytest's own long folder.
    scratch = Path(tempfile.mkdtemp(prefix="or-", dir="/tmp"))
    marker, port = f"outrider-test-{uuid.uuid4().hex}", free_port()
    environment = os.environ | {
        "OUTRIDER_TEST": marker,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": str(round(START_S)),  # of the 30 s that it allows, a busy machine needs more
        "PYTHONPATH": str(ROOT),
    }
    for name in ("OMP_NUM_THREADS", "OUTRIDER_API_KEYS", "RAY_ADDRESS"):
        environment.pop(name, None)
    ports = {
        "port": free_port(),
        "dashboard-port": port,
        "dashboard-agent-listen-port": free_port(),
        "metrics-export-port": free_port(),
        "ray-client-server-port": free_port(),
    }
    command = [str(BIN / "ray"), "start", "--head", "--block", f"--num-cpus={num_cpus}", f"--temp-dir={scratch}"]
    command += ["--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", f"--object-store-memory={128 << 20}"]
    command += [f"--{name}={value}" for name, value in ports.items()]
    log = scratch / "ray-start.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    node = RayNode(dashboard=f"http://127.0.0.1:{port}", environment=environment, log=log)
    try:
        _wait_for_dashboard(node, process)
        yield node
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)
        end_s = time.monotonic() + STOP_S
        while marked_processes(marker) and time.monotonic() < end_s:
            time.sleep(0.2)
        shutil.rmtree(scratch, ignore_errors=True)


def _wait_for_dashboard(node: RayNode, process: "subprocess.Popen[bytes]") -> None:
    end_s = time.monotonic() + START_S
    while True:
        try:
            # The part of the dashboard that takes Serve configurations is the last to come up.
            node.applications()
            return
        except httpx.HTTPError:
            pass
        is_over = process.poll() is not None or time.monotonic() > end_s
        assert not is_over, node.log.read_text()[-3000:]
        time.sleep(0.3)
