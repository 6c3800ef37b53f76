import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deployments import cli
from deployments.cli_explain import PATH

CODE = "Write a Python function that reverses a list."
SNAPSHOT = {
    "num_active": 33,
    "acceptance_rate": 0.6,
    "pools": {
        "speculative": {"num_replicas": 1, "num_running": 16, "num_waiting": 4, "tpot_s": 0.03},
        "batch": {"num_replicas": 2, "num_running": 40, "tpot_s": 0.03},
    },
    "domains": {"code_synthesis": {"num_draft_tokens": 744, "num_accepted_tokens": 600, "entropy_bits": 0.9}},
}


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(SNAPSHOT))
    return path


@pytest.fixture
def server() -> Iterator[tuple[str, list[str | None]]]:
    """A server that knows one path and one key."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            found = self.path == PATH and seen[-1] == "Bearer secret-key"
            self.send_response(200 if found else 401)
            self.end_headers()
            self.wfile.write(json.dumps({"policy": "rules", "snapshot": SNAPSHOT | {"age_s": None}}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", seen
        http.shutdown()
        thread.join()


def _explain(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert cli.main(["explain", *argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _row(found: dict[str, Any], name: str) -> dict[str, str]:
    return next(row for row in found["thresholds"] if row["name"].startswith(name))


def test_both_policies_are_set_side_by_side_with_their_inputs(
    capsys: pytest.CaptureFixture[str], snapshot: Path
) -> None:
    found = _explain(capsys, "--prompt", CODE, "--snapshot", str(snapshot))
    assert found["detected"]["domain"] == found["request"]["domain"] == "code_synthesis"
    assert ["word: python", "code_synthesis", 2.5] in found["detected"]["evidence"]
    assert {name: (route["pool"], route["reason"]) for name, route in found["routes"].items()} == {
        "learned": ("speculative", "goodput"),
        "rules": ("batch", "concurrency_guard"),
    }
    assert dict(found["routes"]["learned"]["inputs"])["domain_acceptance"] == "0.800 (744 drafted)"
    assert dict(found["routes"]["rules"]["inputs"]) == {"active_requests": "33"}


def test_the_distance_to_each_threshold_is_shown(capsys: pytest.CaptureFixture[str], snapshot: Path) -> None:
    found = _explain(capsys, "--prompt", CODE, "--snapshot", str(snapshot), "--temperature", "0.8")
    assert (_row(found, "rules: active")["threshold"], _row(found, "rules: active")["distance"]) == (
        "batch from 32",
        "1 above",
    )
    assert _row(found, "rules: temperature")["distance"] == "at it"
    assert _row(found, "rules: recent acceptance")["distance"] == "0.05 below"
    assert _row(found, "learned: entropy")["distance"] == "0.3 below"
    assert _row(found, "learned: goodput")["value"] != "unknown"


def test_what_the_request_says_decides(capsys: pytest.CaptureFixture[str], snapshot: Path) -> None:
    for argv, pool, reason in (
        (("--service-tier", "flex"), "batch", "service_tier"),
        (("--speculation", "off"), "batch", "caller_override"),
        (("--domain", "creative_writing"), "batch", "goodput"),
        (("--max-tokens", "4096"), "batch", "goodput"),
        ((), "speculative", "goodput"),
    ):
        route = _explain(capsys, "--prompt", CODE, "--snapshot", str(snapshot), *argv)["routes"]["learned"]
        assert (route["pool"], route["reason"]) == (pool, reason), argv


def test_a_prompt_can_come_from_a_file_and_a_demanded_form_counts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("Name three rivers.")
    assert _explain(capsys, "--prompt-file", str(path))["detected"]["domain"] == "general_chat"
    found = _explain(capsys, "--prompt-file", str(path), "--response-format", "json_object", "--policy", "rules")
    assert (found["detected"]["domain"], list(found["routes"])) == ("structured_json", ["rules"])
    for choice, domain in (("required", "structured_json"), ("auto", "general_chat")):
        found = _explain(capsys, "--prompt-file", str(path), "--tool-choice", choice)
        assert found["detected"]["domain"] == domain


def test_without_a_server_nothing_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    found = _explain(capsys, "--prompt", CODE)
    assert (found["snapshot"]["pools"], found["snapshot"]["age_s"]) == ({}, None)
    assert found["routes"]["learned"]["reason"] == "no_choice"


def test_a_running_server_is_asked_with_the_key_from_the_environment(
    capsys: pytest.CaptureFixture[str], server: tuple[str, list[str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, seen = server
    monkeypatch.setenv("OUTRIDER_API_KEYS", "secret-key,another-key")
    for address in (url, f"{url}/", f"{url}/v1"):
        found = _explain(capsys, "--prompt", CODE, "--url", address)
        assert (found["policy_in_force"], found["snapshot"]["num_active"]) == ("rules", 33)
    assert found["routes"]["learned"]["reason"] == "standard"  # the age was null: nothing to trust
    monkeypatch.delenv("OUTRIDER_API_KEYS")
    assert cli.main(["explain", "--prompt", CODE, "--url", url]) == 2
    assert "set OUTRIDER_API_KEYS" in capsys.readouterr().err
    assert seen == ["Bearer secret-key"] * 3 + [None]


def test_people_get_tables(capsys: pytest.CaptureFixture[str], snapshot: Path) -> None:
    assert cli.main(["explain", "--prompt", CODE, "--snapshot", str(snapshot)]) == 0
    shown = capsys.readouterr().out
    for text in ("code_synthesis (detected", "word: python (2.5)", "concurrency_guard", "goodput_batch", "1 above"):
        assert text in shown


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--temperature", "2.1"), "--temperature = 2.1"),
        (("--temperature", "nan"), "--temperature = nan"),
        (("--max-tokens", "0"), "--max-tokens = 0"),
        (("--snapshot", "/nothing/here.json"), "--snapshot"),
        (("--url", "127.0.0.1:8000"), "http://"),
        (("--url", "http://127.0.0.1:9"), "--url"),
    ],
)
def test_a_wrong_argument_is_named(argv: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--prompt", "a", *argv]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("nonsense", "JSON of a routing snapshot"),
        ("[1]", "not an object"),
        ('{"poolz": {}}', "unknown field 'poolz'"),
        ('{"pools": {"slow": {}}}', "slow"),
        ('{"num_active": "many"}', "num_active"),
        ('{"snapshot": {"age_s": "old"}}', "float"),
    ],
)
def test_a_snapshot_that_is_none_is_refused_with_the_reason(
    content: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(content)
    assert cli.main(["explain", "--prompt", "a", "--snapshot", str(path)]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("--prompt", "a", "--prompt-file", "b"),
        ("--prompt", "a", "--domain", "poetry"),
        ("--prompt", "a", "--url", "http://x", "--snapshot", "y"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["explain", *argv])
    assert caught.value.code == 2


def test_an_unreadable_prompt_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "prompt.bin"
    path.write_bytes(b"\xff\xfe\x00")
    for missing in (path, tmp_path / "none"):
        assert cli.main(["explain", "--prompt-file", str(missing)]) == 2
        assert "--prompt-file" in capsys.readouterr().err
