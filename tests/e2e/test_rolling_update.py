"""An application changes under load, and a server is told to end: no request notices."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import httpx
import pytest

from tests.e2e.conftest import Outrider, free_port, marked_processes, start_outrider, stop_for_sure
from tests.e2e.serve_driver import ServeDriver, serve_driver
from tests.e2e.test_pools import PROMPTS, body, stream

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

APP = "outrider"
DEPLOYMENTS = ("Gateway", "Verifier", "Controller")
UPDATE_S = 180.0
"""Bound on a busy machine."""


@dataclass(slots=True, kw_only=True)
class Application:
    """A deployed application and what was deployed."""

    driver: ServeDriver
    url: str
    config: dict[str, Any]

    def deploy(self, *, args: dict[str, Any] | None = None, user_configs: dict[str, dict[str, Any]]) -> None:
        """As `serve deploy` does, with other arguments, and a `user_config` for each deployment named."""
        app = self.config["applications"][0]
        app["args"] |= args or {}
        app["deployments"] = [{"name": name, "user_config": values} for name, values in user_configs.items()]
        self.driver.deploy(self.config)

    def replicas(self) -> dict[str, set[str]]:
        """Ids of the running replicas of each deployment; none while the application is built anew."""
        found = self.driver.applications()[APP]["deployments"]
        return {
            name: {
                each["replica_id"]
                for each in found.get(name, {"replicas": []})["replicas"]
                if each["state"] == "RUNNING"
            }
            for name in DEPLOYMENTS
        }

    def status(self) -> str:
        status: str = self.driver.applications()[APP]["status"]
        return status

    def refuses_three_choices(self) -> bool:
        """Every gateway does: proxies take them by turns or by chance."""
        asked = body(PROMPTS[0], 1) | {"n": 3}
        answers = [httpx.post(f"{self.url}/v1/completions", json=asked, timeout=60) for _ in range(8)]
        assert {answer.status_code for answer in answers} <= {200, 400}
        return all(answer.status_code == 400 for answer in answers)

    def scrape(self) -> list[str]:
        return httpx.get(f"{self.url}/metrics", timeout=60).text.splitlines()


@dataclass(slots=True)
class Clients:
    """Ask again and again until they are told to stop; every answer is kept."""

    url: str
    texts: list[tuple[str, str]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def ask(self, prompt: str) -> None:
        while not self.stop.is_set():
            try:
                with httpx.Client(base_url=self.url, timeout=120) as http:
                    self.texts.append((prompt, stream(http, prompt)))
            except (AssertionError, httpx.HTTPError) as error:
                self.errors.append(error)


def wait_until(what: str, holds: Any) -> None:
    end_s = time.monotonic() + UPDATE_S
    while not holds():
        assert time.monotonic() < end_s, what
        time.sleep(0.3)


@pytest.fixture(scope="module")
def application(tiny_model_dir: Path) -> Iterator[Application]:
    port = free_port()
    args = {
        "engine": {"model": str(tiny_model_dir), "dtype": "float32", "num_threads": 1, "num_speculative_tokens": 4},
        "drafter": "ngram", "num_verifiers": 2, "num_gateways": 2, "verifier_cpus": 0.2, "ray_metrics": False,
        "drain_timeout_s": 120.0,
    }  # fmt: skip
    app = {"name": APP, "route_prefix": "/", "import_path": "deployments.app:build_app", "args": args}
    with serve_driver(port) as driver:
        found = Application(driver=driver, url=f"http://127.0.0.1:{port}", config={"applications": [app]})
        found.deploy(user_configs={})
        wait_until("the application does not run", lambda: found.status() == "RUNNING")
        yield found


@pytest.mark.chaos
def test_no_request_fails_while_settings_change_in_place_and_arguments_replace_every_replica(
    application: Application,
) -> None:
    with httpx.Client(base_url=application.url, timeout=120) as http:
        expected = {prompt: stream(http, prompt) for prompt in PROMPTS[:3]}
    first, clients = application.replicas(), Clients(application.url)
    with ThreadPoolExecutor(len(expected)) as threads:
        try:
            for prompt in expected:
                threads.submit(clients.ask, prompt)
            application.deploy(user_configs={
                "Gateway": {"limits": {"max_n": 2}}, "Verifier": {"stream_interval_s": 0.1},
                "Controller": {"tpot_slo_s": 9.5},
            })  # fmt: skip
            wait_until("the settings did not change", application.refuses_three_choices)
            wait_until("the controller kept its own", lambda: 'kind="tpot"} 9.5' in "\n".join(application.scrape()))
            application.deploy(user_configs={"Gateway": {"limits": {"max_n": 0}}, "Verifier": {"engine": {}}})
            wait_until("nobody told of the refusal", lambda: num_refusing(application) == 4)
            assert application.refuses_three_choices()
            assert (application.replicas(), application.status()) == (first, "RUNNING")
            num_before = len(clients.texts)
            speculative = application.config["applications"][0]["args"]["engine"] | {"num_speculative_tokens": 3}
            application.deploy(args={"engine": speculative}, user_configs={})
            wait_until("a replica was not replaced", lambda: is_replaced(application, first))
            assert len(clients.texts) > num_before
        finally:
            clients.stop.set()
    assert clients.errors == []
    assert all(text == expected[prompt] for prompt, text in clients.texts)
    assert not application.refuses_three_choices()
    labels = {line.split('gateway="')[1].split('"')[0] for line in application.scrape() if 'gateway="' in line}
    assert labels == application.replicas()["Gateway"]


def num_refusing(application: Application) -> int:
    return sum(
        line.startswith("outrider_user_config_refused{") and float(line.rsplit(" ", 1)[1]) == 1
        for line in application.scrape()
    )


def is_replaced(application: Application, first: dict[str, set[str]]) -> bool:
    now = application.replicas()
    return application.status() == "RUNNING" and all(
        len(now[name]) == len(first[name]) and not now[name] & first[name] for name in DEPLOYMENTS
    )


def open_stream(server: Outrider, begun: threading.Event, num_tokens: int) -> list[str]:
    """The events of a stream; `begun` is set with the first."""
    asked = body(PROMPTS[0], num_tokens) | {"stream": True}
    lines = []
    with server.http() as http, http.stream("POST", "/v1/completions", json=asked) as answer:
        for line in answer.iter_lines():
            if line:
                lines.append(line)
                begun.set()
    return lines


def test_a_server_that_is_told_to_end_finishes_its_streams_and_refuses_what_is_new(tiny_model_dir: Path) -> None:
    server = start_outrider(tiny_model_dir, "--drafter", "off", "--num-threads", "1", "--grace-s", "120")
    try:
        refuses_strangers(server)
        begun = [threading.Event() for _ in range(3)]
        with ThreadPoolExecutor(3) as threads:
            streams = [threads.submit(open_stream, server, event, 1500) for event in begun]
            assert all(event.wait(60) for event in begun)
            server.process.send_signal(signal.SIGTERM)
            wait_until("it stayed ready", lambda: server.get("/ready").status_code == 503)
            assert server.get("/health").status_code == 200
            refused = server.post("/v1/completions", body(PROMPTS[0], 1))
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert 1 <= int(refused.headers["retry-after"]) <= 120
            assert not any(each.done() for each in streams), "the streams ended before anything was asked: no test"
            for each in streams:
                lines = each.result(timeout=120)
                assert lines[-1] == "data: [DONE]"
                assert not any('"error"' in line for line in lines)
                assert '"finish_reason":"length"' in lines[-2]
        assert server.process.wait(60) == 0
        wait_until("a process is left", lambda: marked_processes(server.marker) == [])
    finally:
        stop_for_sure(server)


def refuses_strangers(server: Outrider) -> None:
    """Ray's ports are this machine's alone; Serve's replicas listen everywhere, and send away who has no token."""
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    found = listeners(server.marker)
    assert len(found) > 5
    elsewhere = {port: name for host, port, name in found if host not in loopback}
    assert all(name.startswith("ray::ServeReplica:") for name in elsewhere.values()), elsewhere
    (gcs,) = (port for _, port, name in found if "gcs_server" in name)
    methods = dict.fromkeys(elsewhere, "/ray.serve.ASGIService/HandleRequest")
    for port, method in (methods | {gcs: "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"}).items():
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(method)
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def listeners(marker: str) -> list[tuple[str, int, str]]:
    """(address as the kernel writes it, port, command line) of the listening sockets of processes with the marker."""
    owners = dict[str, str]()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker.encode() in (folder / "environ").read_bytes():
                name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                owners |= {link.readlink().name: name for link in (folder / "fd").iterdir()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            (host, port), inode = parts[1].rsplit(":", 1), f"socket:[{parts[9]}]"
            if parts[3] == "0A" and inode in owners:
                found.append((host, int(port, 16), owners[inode]))
    return found
