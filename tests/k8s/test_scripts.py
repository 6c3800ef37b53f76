"""The scripts inside pods, run for real; what they call is put into their PATH."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.k8s.manifests import K8S

SCRIPTS = K8S / "base" / "scripts"
MODELS = "# a remark\n\nowner/first 1111\nowner/second 2222\n"


def run(script: str, timeout_s: float = 20.0, **environment: object) -> "subprocess.CompletedProcess[str]":
    values = os.environ | {name: str(value) for name, value in environment.items()}
    command = ["bash", str(SCRIPTS / script)]
    return subprocess.run(command, env=values, capture_output=True, text=True, timeout=timeout_s, check=False)


def program(folder: Path, name: str, text: str) -> str:
    """A PATH in which a program does what `text` says."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@contextmanager
def service(unwell: str) -> Iterator[str]:
    """Answers like a proxy and a gateway behind it; 503 on one path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path == "/-/healthz" or self.headers.get("authorization") == "Bearer the-key-of-probes"
            self.send_response(503 if self.path == unwell else 200 if is_known else 401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.iterdir()))
def test_a_script_is_well_formed(script: str) -> None:
    assert subprocess.run(["bash", "-n", str(SCRIPTS / script)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("unwell", "key", "is_ready"),
    [
        ("", "the-key-of-probes", True),
        ("/-/healthz", "the-key-of-probes", False),
        ("/ready", "the-key-of-probes", False),
        ("", "another-key", False),
    ],
)
def test_readiness_is_the_proxy_and_the_service(tmp_path: Path, unwell: str, key: str, *, is_ready: bool) -> None:
    keys = tmp_path / "api_keys"
    keys.write_text(f"# a remark\n\n{key}\nsecond-key\n")
    with service(unwell) as url:
        assert (run("ready.sh", OUTRIDER_URL=url, OUTRIDER_KEYS=keys).returncode == 0) == is_ready


@pytest.mark.parametrize(
    ("name", "num_waits"), [("ray::ServeReplica:outrider:Verifier", 1), ("ray::ProxyActor", 1), ("ray::IDLE", 0)]
)
def test_draining_asks_ray_and_waits_for_replicas_and_proxy(tmp_path: Path, name: str, num_waits: int) -> None:
    calls, process = tmp_path / "calls", tmp_path / "proc" / "17"
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(name.encode() + b"\0\0")
    path = program(tmp_path / "bin", "ray", f'echo "$@" >> {calls}')
    # The first wait of the script ends the process.
    path = program(tmp_path / "bin", "sleep", f"echo waited >> {calls}; rm -r {process}")
    done = run("drain.sh", PATH=path, PROC_FOLDER=tmp_path / "proc", DRAIN_DEADLINE_S=77)
    first, *waits = calls.read_text().splitlines()
    assert done.returncode == 0
    assert first.startswith("drain-node --reason DRAIN_NODE_REASON_PREEMPTION")
    assert first.endswith("--deadline-remaining-seconds 77")
    assert waits == ["waited"] * num_waits


def test_draining_ends_at_its_deadline(tmp_path: Path) -> None:
    (tmp_path / "proc" / "1").mkdir(parents=True)
    (tmp_path / "proc" / "1" / "cmdline").write_bytes(b"ray::ServeReplica:outrider:Verifier\0")
    path = program(tmp_path / "bin", "ray", "true")
    assert run("drain.sh", PATH=path, PROC_FOLDER=tmp_path / "proc", DRAIN_DEADLINE_S=0).returncode == 0


def test_a_pod_without_a_head_stops_at_once(tmp_path: Path) -> None:
    path = program(tmp_path / "bin", "ray", "exit 1")
    path = program(tmp_path / "bin", "sleep", "exit 1")
    assert run("drain.sh", PATH=path, PROC_FOLDER="/proc").returncode == 0


def fetch(tmp_path: Path, download: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "models.txt").write_text(MODELS)
    path = program(tmp_path / "bin", "hf", f'echo "$@" >> {tmp_path}/calls; {download}')
    return run("fetch-models.sh", PATH=path, MODELS_FOLDER=tmp_path / "models", MODELS_LIST=tmp_path / "models.txt")


MAKE_FOLDER = 'while [ "$1" != --local-dir ]; do shift; done; mkdir -p "$2"'


def test_models_are_fetched_once_each_at_its_commit(tmp_path: Path) -> None:
    assert fetch(tmp_path, MAKE_FOLDER).returncode == 0
    assert fetch(tmp_path, MAKE_FOLDER).returncode == 0
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert first.startswith(f"download owner/first --revision 1111 --local-dir {tmp_path}/models/first/1111 ")
    assert second.startswith(f"download owner/second --revision 2222 --local-dir {tmp_path}/models/second/2222 ")
    assert "--include *.safetensors" in first


def test_a_download_that_fails_is_not_complete(tmp_path: Path) -> None:
    assert fetch(tmp_path, MAKE_FOLDER + "; exit 1").returncode != 0
    assert not list((tmp_path / "models").rglob(".complete"))


def test_replicas_wait_for_every_model(tmp_path: Path) -> None:
    models = tmp_path / "models"
    (tmp_path / "models.txt").write_text(MODELS)
    (models / "first" / "1111").mkdir(parents=True)
    (models / "first" / "1111" / ".complete").touch()
    # What is missing turns up during the first wait.
    later = f"mkdir -p {models}/second/2222; touch {models}/second/2222/.complete"
    path = program(tmp_path / "bin", "sleep", later)
    done = run("wait-for-models.sh", PATH=path, MODELS_FOLDER=models, MODELS_LIST=tmp_path / "models.txt")
    assert done.stdout == "waiting for owner/second at 2222\n"
    assert done.returncode == 0
