"""The application with a drafter actor: the same text as without, whatever happens to the drafter."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deployments.cli_serve import BEFORE_RAY
from tests.e2e.conftest import Outrider, marked_processes, start_outrider, stop_for_sure

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROMPT = "An outrider rides ahead of the carriage"
STATUS = (
    "import json, os, ray; from ray import serve; "
    "ray.init(address=os.environ['ADDRESS'], log_to_driver=False, logging_level='ERROR'); "
    "app = serve.status().applications['outrider']; "
    "print('STATUS', json.dumps({name: d.replica_states for name, d in app.deployments.items()}))"
)


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path, tiny_draft_dir: Path) -> Iterator[Outrider]:
    # The draft model is as large as this tiny target, so rounds wait for it: without, its tables would all be late.
    server = start_outrider(
        tiny_model_dir, "--drafter", "actor", "--draft-model", str(tiny_draft_dir), "--num-threads", "1",
        "--set", "draft.draft_wait_s=0.5", "--set", "draft.kv_cache_tokens=8192", "--set", "engine.drafter=off",
    )  # fmt: skip
    yield server
    stop_for_sure(server)


def generate(server: Outrider, mode: str, *, temperature: float = 0.7, num_tokens: int = 40) -> str:
    body = {"prompt": PROMPT, "max_tokens": num_tokens, "temperature": temperature, "seed": 5, "ignore_eos": True}
    answer = server.post("/v1/completions", body | {"speculation": {"mode": mode}})
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text


def lookups(server: Outrider, result: str) -> float:
    text = server.get("/metrics").text
    found = re.findall(rf'^outrider_draft_lookups_total{{[^}}]*result="{result}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return sum(map(float, found))


def drafter_pids(server: Outrider) -> list[int]:
    """Living drafter replicas of this server."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_drafter = b":Drafter" in (folder / "cmdline").read_bytes()
            if is_drafter and server.marker.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_for_hits(server: Outrider, timeout_s: float) -> None:
    """Generate until a table holds the outcome of a round."""
    before, end_s = lookups(server, "hit"), time.monotonic() + timeout_s
    while lookups(server, "hit") == before:
        assert time.monotonic() < end_s, server.get("/metrics").text
        generate(server, "on", num_tokens=12)


def deployments(server: Outrider) -> dict[str, Any]:
    """Replica states by deployment, as Serve's controller says."""
    found = (re.search(r"--gcs-address=(\S+)", line) for line in marked_processes(server.marker))
    address = next(match.group(1) for match in found if match)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STATUS],
        env=os.environ | BEFORE_RAY | {"ADDRESS": address, "RAY_AUTH_MODE": "token"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("STATUS ")), None)
    assert line is not None, done.stderr[-2000:]
    states: dict[str, Any] = json.loads(line.removeprefix("STATUS "))
    return states


def test_serve_shows_gateway_verifier_and_drafter(server: Outrider) -> None:
    assert deployments(server) == {name: {"RUNNING": 1} for name in ("Gateway", "Verifier", "Drafter")}


def test_the_model_card_and_the_metrics_say_who_drafts(server: Outrider) -> None:
    (card,) = server.get("/v1/models").json()["data"]
    assert (card["drafter"], card["drafter_reason"]) == ("actor", "drafter = 'actor'")
    text = server.get("/metrics").text
    values = dict(re.findall(r'^outrider_layout{[^}]*kind="(\w+)"[^}]*} (\S+)$', text, re.MULTILINE))
    assert values == {"actor": "1.0", "local": "0.0", "ngram": "0.0", "off": "0.0"}
    assert re.search(r'^outrider_drafter_model_loaded{drafter="\w+"} 1.0$', text, re.MULTILINE)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_text_is_the_same_with_the_drafter_and_its_tables_are_hit(server: Outrider, temperature: float) -> None:
    wait_for_hits(server, 40)
    hits = lookups(server, "hit")
    with_drafter = generate(server, "on", temperature=temperature)
    assert with_drafter == generate(server, "off", temperature=temperature)
    assert lookups(server, "hit") > hits


@pytest.mark.chaos
def test_a_killed_drafter_costs_no_error_and_no_token_and_comes_back(server: Outrider) -> None:
    expected = generate(server, "off", num_tokens=120)
    wait_for_hits(server, 40)
    texts: list[str] = []
    errors: list[Exception] = []
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            try:
                texts.append(generate(server, "on", num_tokens=120))
            except (AssertionError, httpx.HTTPError) as error:
                errors.append(error)

    thread = threading.Thread(target=client)
    thread.start()
    try:
        (pid,) = drafter_pids(server)
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        end_s = time.monotonic() + 90
        while not any("model_loaded" in line and line.endswith(" 1.0") for line in drafter_lines(server, pid)):
            assert time.monotonic() < end_s, "Serve did not replace the drafter"
            time.sleep(0.05)
        wait_for_hits(server, 20)
    finally:
        stop.set()
        thread.join()
    assert errors == []
    assert len(texts) > 1
    assert set(texts) == {expected}


def drafter_lines(server: Outrider, dead_pid: int) -> list[str]:
    """The scrape of drafters, once the dead one has a successor."""
    if not set(drafter_pids(server)) - {dead_pid}:
        return []
    return [line for line in server.get("/metrics").text.splitlines() if line.startswith("outrider_drafter_")]


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_where_another_layout_wins_the_drafter_stays_up_and_does_nothing(
    tiny_model_dir: Path, tiny_draft_dir: Path
) -> None:
    # Drafting with a model as large as the target cannot pay, in whatever layout.
    server = start_outrider(
        tiny_model_dir, "--draft-model", str(tiny_draft_dir), "--num-threads", "1",
        "--set", "draft.kv_cache_tokens=8192",
    )  # fmt: skip
    try:
        (card,) = server.get("/v1/models").json()["data"]
        assert card["drafter"] == "ngram"
        assert "expected tokens/s: actor" in card["drafter_reason"]
        assert "outrider_layout_expected_tokens_per_second{" in server.get("/metrics").text
        assert deployments(server)["Drafter"] == {"RUNNING": 1}
        (pid,) = drafter_pids(server)
        before_s = cpu_s(pid)
        assert generate(server, "on", num_tokens=200) == generate(server, "off", num_tokens=200)
        time.sleep(3)
        assert cpu_s(pid) - before_s < 0.5
        assert re.search(
            r'^outrider_drafter_model_loaded{drafter="\w+"} 0.0$', server.get("/metrics").text, re.MULTILINE
        )
    finally:
        stop_for_sure(server)
