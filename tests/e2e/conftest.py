"""A real server: the `outrider` command, Ray, HAProxy, and the engine with a tiny random model."""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

KEY = "end-to-end-key"
START_S = 180.0


@dataclass(slots=True, kw_only=True)
class Outrider:
    """A running server.

    Attributes:
        url: without a path.
        marker: in the environment of every process it started.
        process: the command.
        ready_line: what it printed.
        scratch: Ray's folder for it.
    """

    url: str
    marker: str
    process: subprocess.Popen[str]
    ready_line: str
    scratch: Path

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {KEY}"}, timeout=60)

    def get(self, path: str) -> httpx.Response:
        with self.http() as http:
            return http.get(path)

    def post(self, path: str, body: dict[str, object], **headers: str) -> httpx.Response:
        with self.http() as http:
            return http.post(
                path, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
            )

    def gcs_address(self) -> str:
        """Where its Ray is found."""
        found = (re.search(r"--gcs-address=(\S+)", line) for line in marked_processes(self.marker))
        return next(match.group(1) for match in found if match)

    def pools(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """`outrider pools` against this server's Ray."""
        command = [sys.executable, "-W", "ignore", "-m", "deployments.cli", "pools", *argv]
        return subprocess.run(
            [*command, "--address", self.gcs_address()],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def interrupt(self, timeout_s: float = 60.0) -> int:
        """Ctrl-C; the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout_s)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def marked_processes(marker: str) -> list[str]:
    """Command lines of living processes that inherited the marker."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def start_outrider(model: Path, *arguments: str) -> Outrider:
    """Start the command and wait for its line."""
    port, marker = free_port(), f"outrider-test-{uuid.uuid4().hex}"
    # Unix sockets have short paths: not pytest's own long folder.
    scratch = tempfile.mkdtemp(prefix="or-", dir="/tmp")
    environment = os.environ | {
        "OUTRIDER_API_KEYS": KEY,
        "OUTRIDER_TEST": marker,
        "RAY_TMPDIR": scratch,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, "-m", "deployments.cli", "serve", "--port", str(port), "--model", str(model)]
    # What `reference.undisturbed` computes in; on the CPU kernels "auto" would keep the KV cache in bfloat16.
    command += ["--dtype", "float32", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline() if readable else ""
    if not line:
        process.kill()
        assert process.stderr is not None
        pytest.fail(f"the server did not start: {process.stderr.read()[-3000:]}")
    return Outrider(
        url=f"http://127.0.0.1:{port}", marker=marker, process=process, ready_line=line, scratch=Path(scratch)
    )


def stop_for_sure(server: Outrider) -> None:
    """Stop a server whatever state it is in, and wait until its processes are gone."""
    if server.process.poll() is None:
        try:
            server.interrupt()
        except subprocess.TimeoutExpired:
            server.process.kill()
    end_s = time.monotonic() + 30
    while marked_processes(server.marker) and time.monotonic() < end_s:
        time.sleep(0.2)
    for pipe in (server.process.stdout, server.process.stderr):
        if pipe is not None:
            pipe.close()
    shutil.rmtree(server.scratch, ignore_errors=True)


def gauge(server: Outrider, name: str) -> float:
    """Value of a gauge in the scrape, added up over replicas."""
    text = server.get("/metrics").text
    return sum(float(value) for value in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, flags=re.MULTILINE))


def wait_for_zero(server: Outrider, name: str, timeout_s: float = 5.0) -> None:
    """Wait until a gauge is 0."""
    end_s = time.monotonic() + timeout_s
    while (value := gauge(server, name)) != 0:
        assert time.monotonic() < end_s, f"{name} stays at {value}"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def outrider(tiny_model_dir: Path) -> Iterator[Outrider]:
    server = start_outrider(tiny_model_dir, "--served-model-name", "tiny")
    yield server
    stop_for_sure(server)
