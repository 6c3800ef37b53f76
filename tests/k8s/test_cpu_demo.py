"""The cpu-demo overlay's Serve configuration, deployed on a local Ray in the way KubeRay deploys it."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from tests.e2e.conftest import free_port
from tests.k8s.manifests import K8S, application, serve_config
from tests.k8s.ray_node import RayNode, ray_node

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

START_S = 240.0
READY = K8S / "base" / "scripts" / "ready.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The running demo.

    Attributes:
        node: where it runs.
        url: of its endpoint.
        folder: for files.
        keys: the file with its API keys.
        config: what was deployed.
    """

    node: RayNode
    url: str
    folder: Path
    keys: Path
    config: dict[str, Any]

    def deploy(self) -> None:
        file = self.folder / "serve.yaml"
        file.write_text(yaml.safe_dump(self.config))
        self.node.deploy(file)

    def get(self, path: str, key: str) -> int:
        """Status of an answer; 0 where nobody listens."""
        try:
            return httpx.get(f"{self.url}{path}", headers={"authorization": f"Bearer {key}"}, timeout=30).status_code
        except httpx.HTTPError:
            return 0

    def wait_for(self, path: str, key: str, status: int) -> None:
        end_s = time.monotonic() + START_S
        while (found := self.get(path, key)) != status:
            (app,) = self.node.applications().values()
            is_over = app["status"] == "DEPLOY_FAILED" or time.monotonic() > end_s
            assert not is_over, (found, app["status"], app["message"][-3000:], app["deployments"])
            time.sleep(0.5)

    def ready_script(self) -> int:
        """Exit status of the readiness probe of a worker pod."""
        environment = {"OUTRIDER_URL": self.url, "OUTRIDER_KEYS": str(self.keys), "PATH": "/usr/bin:/bin"}
        return subprocess.run(["bash", str(READY)], env=environment, timeout=30, check=False).returncode


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder, port = tmp_path_factory.mktemp("cpu-demo"), free_port()
    keys = folder / "api_keys"
    keys.write_text("# written by hand\nthe-first-key\n")
    config = serve_config("cpu-demo")
    # What only a pod has: its own network, and the mounted secret. Everything else is deployed as it stands.
    config["http_options"] = {"host": "127.0.0.1", "port": port}
    config["applications"][0]["args"]["api_keys_file"] = str(keys)
    with ray_node(num_cpus=4) as node:
        running = Demo(node=node, url=f"http://127.0.0.1:{port}", folder=folder, keys=keys, config=config)
        running.deploy()
        running.wait_for("/ready", "the-first-key", 200)
        yield running


def test_the_deployed_configuration_answers_a_chat_request(demo: Demo) -> None:
    body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
    answer = httpx.post(
        f"{demo.url}/v1/chat/completions", json=body, headers={"authorization": "Bearer the-first-key"}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"].strip()


def test_all_deployments_run_with_the_replicas_that_the_overlay_asks_for(demo: Demo) -> None:
    (app,) = demo.node.applications().values()
    args = application("cpu-demo")["args"]
    wanted = {"Gateway": args["num_gateways"], "Verifier": args["num_verifiers"], "Drafter": 1, "Controller": 1}
    assert app["status"] == "RUNNING"
    assert {name: len(demo.node.replicas("outrider", name)) for name in app["deployments"]} == wanted


def test_the_readiness_probe_tells_a_service_that_generates_from_one_that_refuses(demo: Demo) -> None:
    assert demo.ready_script() == 0
    demo.keys.write_text("an-unknown-key\n")
    assert demo.ready_script() != 0
    demo.keys.write_text("the-first-key\n")


def test_new_keys_need_new_gateways_and_nothing_else(demo: Demo) -> None:
    before = {name: demo.node.replicas("outrider", name) for name in ("Verifier", "Drafter", "Controller", "Gateway")}
    demo.keys.write_text("the-second-key\n")
    (gateway,) = [each for each in demo.config["applications"][0]["deployments"] if each["name"] == "Gateway"]
    gateway["ray_actor_options"]["runtime_env"]["env_vars"]["OUTRIDER_KEYS_VERSION"] = "2"
    demo.deploy()
    demo.wait_for("/v1/models", "the-first-key", 401)
    demo.wait_for("/v1/models", "the-second-key", 200)
    # Gateways are replaced one after the other, and the old ones end their streams first.
    old, deadline_s = before.pop("Gateway"), time.monotonic() + 90
    while demo.node.replicas("outrider", "Gateway") & old:
        assert time.monotonic() < deadline_s, "an old gateway stays"
        time.sleep(0.5)
    assert {name: demo.node.replicas("outrider", name) for name in before} == before
