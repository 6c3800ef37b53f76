"""Ray and Serve in a process of their own, which deploys what it is told: the short way of `serve deploy`.

The command sends a Serve file to Ray's dashboard, and that to Serve's controller; here it goes to the controller at
once, since a dashboard takes longer to start than all else. Each line of the process' standard input is a Serve
configuration as JSON, or empty, which asks what Serve says of its applications.
"""

import json
import os
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

import pytest

from deployments.cli_serve import BEFORE_RAY
from tests.e2e.conftest import marked_processes

START_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeDriver:
    """The process, as a test sees it."""

    process: subprocess.Popen[str]

    def deploy(self, config: dict[str, Any]) -> None:
        """Deploy a Serve configuration; returns once Serve has taken it."""
        self._ask(json.dumps(config))

    def applications(self) -> dict[str, Any]:
        """What `serve status` stands on."""
        found: dict[str, Any] = json.loads(self._ask(""))
        return found

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            assert self.process.stderr is not None
            pytest.fail(f"Serve's driver ended: {self.process.stderr.read()[-3000:]}")
        return answer


@contextmanager
def serve_driver(port: int) -> Iterator[ServeDriver]:
    """Start Ray and Serve, and stop them with everything that they started.

    Args:
        port: of Serve's proxy.
    """
    marker, scratch = f"outrider-test-{uuid.uuid4().hex}", tempfile.mkdtemp(prefix="or-", dir="/tmp")
    root = str(Path(__file__).parents[2])
    environment = os.environ | BEFORE_RAY | {"OUTRIDER_TEST": marker, "RAY_TMPDIR": scratch, "PYTHONPATH": root}
    for name in ("OMP_NUM_THREADS", "OUTRIDER_API_KEYS", "RAY_ADDRESS"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.e2e.serve_driver", str(port)], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        with process:
            yield ServeDriver(process=process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(START_S)
    finally:
        process.kill()
        end_s = time.monotonic() + 30
        while marked_processes(marker) and time.monotonic() < end_s:
            time.sleep(0.2)


def main() -> None:
    """Serve standard input until it ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # Ray writes its own remarks to standard output.
    import ray
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    ray.init(address="local", num_cpus=4, include_dashboard=False, object_store_memory=128 << 20, log_to_driver=False)
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    client: Any = _get_global_client()
    for line in sys.stdin:
        if line.strip():
            client.deploy_apps(ServeDeploySchema.model_validate_json(line), _blocking=False)
            print("{}", file=answers, flush=True)
        else:
            print(json.dumps(client.get_serve_details()["applications"], default=str), file=answers, flush=True)
    serve.shutdown()  # type: ignore[no-untyped-call]
    ray.shutdown()


if __name__ == "__main__":
    main()
