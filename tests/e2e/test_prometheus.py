"""A real Prometheus scrapes a real application under load and runs every query of every dashboard and rule."""

import json
import math
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from cluster.telemetry.dashboards.files import DASHBOARDS, render
from cluster.telemetry.dashboards.grafana import dashboard_json
from cluster.telemetry.dashboards.model import Needs
from cluster.telemetry.dashboards.rules import rules
from tests.e2e.conftest import KEY, Outrider, free_port, start_outrider, stop_for_sure
from tests.prometheus_package import Prometheus, UnavailableError, find

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NUM_CLIENTS = 10
PATIENCE_S = 90.0
THERE = {Needs.TRAFFIC, Needs.POOLS, Needs.MOVES, Needs.PRICE}
"""What the application under test has: no drafter actor, no GPU, and nothing goes wrong."""

GRAFANA_VARIABLES = {"$job": ".*", "$__rate_interval": "1m", "$__range": "5m"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A Prometheus that scrapes and evaluates every other second."""

    http: httpx.Client

    def ask(self, path: str, **parameters: str) -> dict[str, Any]:
        answer = self.http.get(f"/api/v1/{path}", params=parameters)
        assert answer.status_code == 200, f"{parameters}: {answer.text}"
        told: dict[str, Any] = answer.json()["data"]
        return told

    def has_data(self, query: str) -> bool:
        """The query parses, and answers with a number."""
        result = self.ask("query", query=query)["result"]
        return any(math.isfinite(float(series["value"][1])) for series in result)


@pytest.fixture(scope="module")
def programs() -> Prometheus:
    try:
        return find()
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path, programs: Prometheus) -> Iterator[Outrider]:
    del programs  # Without it nothing needs to be started.
    settings = {
        "num_verifiers": 2,
        "verifier_cpus": 0.2,
        "cost.usd_per_cpu_hour": 1,
    }
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    server = start_outrider(tiny_model_dir, "--drafter", "ngram", "--num-threads", "1", *flags)
    yield server
    stop_for_sure(server)


@pytest.fixture(scope="module")
def configuration(server: Outrider, programs: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rendered files, with the key in its file and everything every other second."""
    folder = tmp_path_factory.mktemp("prometheus")
    for name, text in render(target=server.url.removeprefix("http://")).items():
        if name.startswith("prometheus/"):
            (folder / Path(name).name).write_text(text)
    key = folder / "key"
    key.write_text(KEY)
    values = yaml.safe_load((folder / "prometheus.yml").read_text())
    values["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "2s")
    values["scrape_configs"][0]["authorization"]["credentials_file"] = str(key)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(values))
    return folder


@pytest.fixture(scope="module")
def prometheus(configuration: Path, programs: Prometheus) -> Iterator[Running]:
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            programs.server, f"--config.file={configuration / 'prometheus.yml'}", "--log.level=error",
            f"--storage.tsdb.path={configuration / 'data'}", f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=30) as http:
            wait_until_ready(http)
            yield Running(http=http)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def load(server: Outrider) -> Iterator[None]:
    stop = threading.Event()

    def client(index: int) -> None:
        prompt = f"def rider_{index}(n):\n    return rider_{index}(n - 1)\n"
        body = {"prompt": prompt, "max_tokens": 160, "temperature": 0.3, "ignore_eos": True}
        with server.http() as http:
            while not stop.is_set():
                assert http.post("/v1/completions", json=body).status_code == 200

    with ThreadPoolExecutor(NUM_CLIENTS) as threads:
        clients = [threads.submit(client, index) for index in range(NUM_CLIENTS)]
        yield
        stop.set()
    for each in clients:
        each.result()


def wait_for_data(prometheus: Running, queries: dict[str, str]) -> None:
    """Wait until every query has data; those that stay without are named."""
    end_s = time.monotonic() + PATIENCE_S
    left = dict(queries)
    while left := {name: query for name, query in left.items() if not prometheus.has_data(query)}:
        assert time.monotonic() < end_s, json.dumps(left, indent=1)
        time.sleep(1)


def wait_until_ready(http: httpx.Client) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        with suppress(httpx.HTTPError):
            if http.get("/-/ready").status_code == 200:
                return
        time.sleep(0.1)
    pytest.fail("Prometheus does not start")


def filled(expr: str) -> str:
    """A panel's query with the values that Grafana would put in."""
    for variable, value in GRAFANA_VARIABLES.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr, expr
    return expr


def test_promtool_accepts_the_configuration_and_the_rules(configuration: Path, programs: Prometheus) -> None:
    for what in (("config", "prometheus.yml"), ("rules", "rules.yml")):
        done = subprocess.run(
            [programs.promtool, "check", *what], cwd=configuration, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def move(server: Outrider, prometheus: Running) -> None:
    """A verifier changes its role: by an operator's word, so that no machine is too quick or too slow for it."""
    wait_for_data(prometheus, {"a scrape before the move": "outrider_pool_moves_total"})
    done = server.pools("pin", "1", "--seconds", "600")
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("move", "load")
def test_every_query_of_every_dashboard_and_rule_parses_and_has_data_where_it_should(prometheus: Running) -> None:
    panels = {
        f"{dashboard.title} / {panel.title} / {query.legend}": (filled(query.expr), query.needs)
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        for query in panel.queries
    }
    signals = {rule.name: (rule.signal, rule.needs) for rule in rules()}
    (moves,) = dashboard_json(DASHBOARDS[0])["annotations"]["list"]
    wanted = panels | signals | {"moves between pools": (filled(moves["expr"]), Needs.MOVES)}
    wait_for_data(prometheus, {name: query for name, (query, needs) in wanted.items() if needs in THERE})
    for query, needs in wanted.values():
        if needs not in THERE:  # It has to parse nevertheless.
            prometheus.ask("query", query=query)
    (group,) = prometheus.ask("rules")["groups"]
    assert [rule["name"] for rule in group["rules"]] == [rule.name for rule in rules()]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}, group
    (target,) = (each for each in prometheus.ask("targets")["activeTargets"] if each["labels"]["job"] == "outrider")
    assert target["health"] == "up", target
