"""`serve run` with the default application: what the Ray dashboard shows, and a first answer of the bundled model."""

import os
import re
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

from tests.e2e.conftest import marked_processes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.long]

PORT = 8000  # Of `serve run`, which knows no other.
START_S = 240.0
TOKEN = "a-token-for-ray-of-32-characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRun:
    """A running `serve run`.

    Attributes:
        process: the command.
        output: what it printed, a file.
        marker: in the environment of every process it started.
    """

    process: subprocess.Popen[bytes]
    output: Path
    marker: str

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{PORT}{path}", timeout=30)

    def dashboard(self) -> str:
        found = re.search(r"dashboard at.*?(\d+\.\d+\.\d+\.\d+:\d+)", self.output.read_text())
        assert found, self.output.read_text()[-3000:]
        return f"http://{found.group(1)}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeRun]:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            pytest.skip(f"port {PORT} is taken")
    marker, output = f"outrider-test-{uuid.uuid4().hex}", tmp_path_factory.mktemp("serve-run") / "output"
    environment = os.environ | {
        "OUTRIDER_TEST": marker,
        "RAY_TMPDIR": tempfile.mkdtemp(prefix="or-", dir="/tmp"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": TOKEN,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    environment.pop("OMP_NUM_THREADS", None)
    command = [str(Path(sys.executable).parent / "serve"), "run", "deployments.app:app"]
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    run = ServeRun(process=process, output=output, marker=marker)
    try:
        _wait_until_ready(run)
        yield run
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)
        end_s = time.monotonic() + 30
        while marked_processes(marker) and time.monotonic() < end_s:
            time.sleep(0.2)


def _wait_until_ready(run: ServeRun) -> None:
    end_s = time.monotonic() + START_S
    while True:
        try:
            if run.get("/ready").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        is_over = run.process.poll() is not None or time.monotonic() > end_s
        assert not is_over, run.output.read_text()[-3000:]
        time.sleep(0.5)


def test_the_dashboard_shows_gateway_verifier_and_drafter(served: ServeRun) -> None:
    answer = httpx.get(
        f"{served.dashboard()}/api/serve/applications/", headers={"authorization": f"Bearer {TOKEN}"}, timeout=30
    )
    shown = answer.json()
    (application,) = shown["applications"].values()
    states = {
        name: [replica["state"] for replica in deployment["replicas"]]
        for name, deployment in application["deployments"].items()
    }
    assert states == {name: ["RUNNING"] for name in ("Gateway", "Verifier", "Drafter")}


def test_the_bundled_model_answers_and_says_who_drafts(served: ServeRun) -> None:
    (card,) = served.get("/v1/models").json()["data"]
    assert card["drafter"] in ("actor", "local", "ngram")
    assert "expected tokens/s" in card["drafter_reason"]
    body = {"model": card["id"], "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12}
    answer = httpx.post(f"http://127.0.0.1:{PORT}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"].strip()
