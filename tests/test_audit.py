"""The audit against a service in this process: what it finds, what it does not, and what it does when there is none."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import audit
from tests.e2e.conftest import free_port

AFFECTED = {
    "package": {"name": "leaky", "ecosystem": "PyPI"},
    "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}],
}
FLAW = {"id": "TEST-2026-1", "details": "reads what it should not", "affected": [AFFECTED]}


class _Service(BaseHTTPRequestHandler):
    """Knows one flaw of one package."""

    def do_POST(self) -> None:
        question: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not question:
            self.send_error(400)
            return
        answer = json.dumps({"vulns": [FLAW]} if question["package"]["name"] == "leaky" else {}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(("pins", "status"), [("sound==1.0\nleaky==2.0\n", 1), ("sound==1.0\n", 0)])
def test_a_known_flaw_of_a_pinned_package_fails_the_audit(
    service: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], pins: str, status: int
) -> None:
    file = tmp_path / "pins.txt"
    file.write_text(f"# a comment, as the real file has some\n{pins}")
    assert audit.main(["--pins", str(file), "--service", service]) == status
    assert ("TEST-2026-1" in capfd.readouterr().out) == bool(status)


def test_without_the_service_the_audit_is_skipped_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--service", f"http://127.0.0.1:{free_port()}/v1/query"]) == 0
    assert "audit skipped" in capsys.readouterr().out
