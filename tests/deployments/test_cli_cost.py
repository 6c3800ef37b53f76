"""`outrider cost` against a server's `/metrics`, and against the API of a Prometheus."""

import csv
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cluster.telemetry import names
from cluster.telemetry.cost_recorder import CostRecorder, Spent
from cluster.telemetry.cost_report import METRICS
from cluster.telemetry.prometheus import MetricSet, merge_texts
from cluster.types import Role
from deployments import cli
from deployments.drafter_metrics import DrafterRecorder
from tests.cluster.telemetry.test_cost import LINEAR, a_round, work

Answer = Callable[[str, str | None], tuple[int, str]]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """A server that answers a path and a key with a status and a text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer(self.path, self.headers["Authorization"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def scrape(usd: float = 3.0) -> str:
    """Two verifiers and a drafter, as their recorders write it."""
    texts = []
    for engine in ("e1", "e2"):
        metrics = MetricSet(names.ENGINE_METRICS, {"model_name": "m", "engine": engine})
        costs = CostRecorder(metrics)
        costs.record_spent(Spent(seconds=60.0, usd=usd, joules=None), Role.SPECULATIVE)
        costs.record_spent(Spent(seconds=30.0, usd=usd / 2, joules=None), Role.BATCH)
        costs.record_step(a_round(work("code_synthesis", 1, drafted=4, accepted=3)), Role.SPECULATIVE, LINEAR)
        costs.record_step(a_round(work("general_chat", 2)), Role.BATCH, LINEAR)
        texts.append(metrics.render())
    drafter = DrafterRecorder("d1")
    drafter.record_spent(Spent(seconds=60.0, usd=usd / 4, joules=None))
    return merge_texts([*texts, drafter.metrics.render()])


def metrics_server(text: str) -> Answer:
    def answer(path: str, key: str | None) -> tuple[int, str]:
        if key != "Bearer secret-key":
            return 401, "who are you"
        return (200, text) if path == "/metrics" else (404, "")

    return answer


def prometheus(values: dict[str, list[tuple[dict[str, str], str]]], asked: list[str]) -> Answer:
    """Answers `sum by (...) (increase(NAME[...]))` with the values of the name."""

    def answer(path: str, _: str | None) -> tuple[int, str]:
        parts = urllib.parse.urlsplit(path)
        (query,) = urllib.parse.parse_qs(parts.query)["query"]
        asked.append(query)
        found = re.fullmatch(r"sum by \(role, domain, result\) \(increase\((\w+)(\{.*\})?\[\w+\]\)\)", query)
        if parts.path != "/api/v1/query" or found is None:
            return 400, '{"status": "error", "error": "bad query"}'
        rows = [{"metric": labels, "value": [1.0, value]} for labels, value in values.get(found[1], [])]
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})

    return answer


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_API_KEYS", "secret-key,other")


def cost(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert cli.main(["cost", *argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_servers_counters_become_costs_by_pool_and_domain(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(metrics_server(scrape())) as url:
        found = cost(capsys, "--url", f"{url}/v1")
    speculative, batch = found["pools"]
    assert (speculative["pool"], batch["pool"]) == ("speculative", "batch")
    assert (speculative["verifier_usd"], speculative["drafter_usd"], batch["usd"]) == (6.0, 0.75, 3.0)
    assert (speculative["num_tokens"], batch["num_tokens"]) == (8.0, 4.0)
    assert speculative["usd_per_million_tokens"] == pytest.approx(6.75 / 8 * 1e6)
    assert speculative["wasted_ratio"] == pytest.approx(0.2)
    assert speculative["counterfactual_usd"] == pytest.approx(6.0 * 0.8)
    assert found["total"]["usd"] == sum(line["usd"] for line in found["domains"]) == 9.75
    assert found["total"]["joules"] is None
    spent_s = datetime.fromisoformat(found["end"]) - datetime.fromisoformat(found["begin"])
    assert spent_s.total_seconds() == pytest.approx(90, abs=1)


def test_prometheus_is_asked_for_increases_over_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    values: dict[str, list[tuple[dict[str, str], str]]] = {
        "outrider_role_seconds_total": [({"role": "speculative"}, "3600")],
        "outrider_cost_usd_total": [({"role": "speculative"}, "2.5")],
        "outrider_energy_joules_total": [({"role": "speculative"}, "500")],
        "outrider_domain_seconds_total": [({"role": "speculative", "domain": "general_chat"}, "60")],
        "outrider_domain_tokens_total": [({"role": "speculative", "domain": "general_chat"}, "1000000")],
        "outrider_drafter_cost_usd_total": [({}, "NaN")],
    }
    asked: list[str] = []
    with serving(prometheus(values, asked)) as url:
        found = cost(capsys, "--prometheus", url, "--since", "2h", "--match", 'namespace="prod"')
    assert len(asked) == len(METRICS)
    assert all('{namespace="prod"}[2h]' in query for query in asked)
    assert found["total"]["usd_per_million_tokens"] == 2.5
    assert found["total"]["joules_per_million_tokens"] == 500
    spent_s = datetime.fromisoformat(found["end"]) - datetime.fromisoformat(found["begin"])
    assert spent_s.total_seconds() == pytest.approx(7200, abs=1)


def test_rows_of_focus_add_up_to_the_bill(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "focus.csv"
    with serving(metrics_server(scrape())) as url:
        found = cost(capsys, "--url", url, "--csv", str(path), "--account", "team")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(float(row["BilledCost"]) for row in rows) == pytest.approx(found["total"]["usd"])
    assert sum(float(row["ConsumedQuantity"]) for row in rows) == found["total"]["num_tokens"] == 12
    assert {row["BillingAccountId"] for row in rows} == {"team"}
    assert {(row["x_Pool"], row["x_Domain"]) for row in rows} == {
        ("speculative", "code_synthesis"),
        ("batch", "general_chat"),
    }


@pytest.mark.parametrize("usd", [3.0, 0.0])
def test_the_tables_hold_each_pool_and_domain_and_say_when_no_price_is_set(
    capsys: pytest.CaptureFixture[str], usd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    with serving(metrics_server(scrape(usd))) as url:
        assert cli.main(["cost", "--url", url]) == 0
    out = capsys.readouterr().out
    for word in ("speculative", "batch", "code_synthesis", "general_chat", "total", "UTC"):
        assert word in out
    assert ("No prices are set" in out) == (usd == 0)
    # Without prices the time alone is compared; with them the drafter is part of it.
    assert ("(-28.9%)" if usd else "(-20.0%)") in out
    assert ("6.7500" in out) == (usd > 0)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--url", "127.0.0.1:1"], "--url"),
        (["--url", "http://127.0.0.1:1"], "--url"),
        (["--url", "http://127.0.0.1:1", "--since", "24h"], "--since"),
        (["--prometheus", "http://127.0.0.1:1"], "--prometheus"),
        (["--prometheus", "http://127.0.0.1:1", "--since", "yesterday"], "--since"),
        (["--prometheus", "http://127.0.0.1:1", "--since", "0h"], "--since"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_name(
    capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert cli.main(["cost", *argv]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (200, "", "name none"),
        (200, "not { metrics", "Outrider server"),
        (500, "", "500"),
        (401, "", "OUTRIDER_API_KEYS"),
    ],
)
def test_an_answer_without_metrics_is_told(
    capsys: pytest.CaptureFixture[str], status: int, text: str, said: str
) -> None:
    with serving(lambda *_: (status, text)) as url:
        assert cli.main(["cost", "--url", url]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (200, '{"data": {"result": []}}', "knows no verifier"),
        (200, '{"data": 3}', "TypeError"),
        (200, "<html>", "JSONDecodeError"),
        (400, "parse error", "parse error"),
    ],
)
def test_a_prometheus_without_answers_is_told(
    capsys: pytest.CaptureFixture[str], status: int, text: str, said: str
) -> None:
    with serving(lambda *_: (status, text)) as url:
        assert cli.main(["cost", "--prometheus", url]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with serving(metrics_server(scrape())) as url:
        assert cli.main(["cost", "--url", url, "--csv", str(tmp_path / "no" / "f.csv")]) == 2
    assert "--csv" in capsys.readouterr().err
