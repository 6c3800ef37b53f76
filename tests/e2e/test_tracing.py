"""One trace through a real application (gateway, verifier, drafter), and the copy of the metrics in Ray's exporter."""

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Outrider, marked_processes, start_outrider, stop_for_sure
from tests.otlp import OtlpReceiver, ReceivedSpan, otlp_receiver

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path, tiny_draft_dir: Path, receiver: OtlpReceiver) -> Iterator[Outrider]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_metrics_report_interval_ms", "1000")
        # The draft model is as large as this tiny target, so rounds wait for it: without, its tables would all be late.
        server = start_outrider(
            tiny_model_dir, "--drafter", "actor", "--draft-model", str(tiny_draft_dir), "--num-threads", "1",
            "--set", "draft.draft_wait_s=0.5", "--set", "draft.kv_cache_tokens=8192", "--set", "engine.drafter=off",
            "--set", f"tracing.endpoint={receiver.url}", "--set", "tracing.export_interval_s=0.2",
            "--served-model-name", "tiny",
        )  # fmt: skip
    yield server
    stop_for_sure(server)


def one_trace(server: Outrider, receiver: OtlpReceiver, trace_id: str) -> dict[str, ReceivedSpan]:
    """The spans of a request with this trace id, by component."""
    body = {"prompt": "An outrider rides", "max_tokens": 40, "seed": 5, "ignore_eos": True}
    answer = server.post("/v1/completions", body, traceparent=f"00-{trace_id}-{PARENT_ID}-01", tracestate="vendor=1")
    assert answer.status_code == 200, answer.text
    assert answer.headers["traceparent"].startswith(f"00-{trace_id}-")
    end_s = time.monotonic() + 15
    while len(receiver.trace(trace_id)) < 3 and time.monotonic() < end_s:
        time.sleep(0.05)
    return {span.component: span for span in receiver.trace(trace_id)}


def test_a_request_is_one_trace_through_gateway_verifier_and_drafter(server: Outrider, receiver: OtlpReceiver) -> None:
    # A drafter may not have welcomed the verifier before the first requests.
    for number in range(30):
        spans = one_trace(server, receiver, f"{number + 1:032x}")
        if "drafter" in spans and spans["drafter"].attributes["outrider.drafter.tables"]:
            break
    gateway, verifier, drafter = (spans[component] for component in ("gateway", "verifier", "drafter"))
    assert (gateway.name, gateway.kind, gateway.parent_id) == ("text_completion tiny", 2, PARENT_ID)
    assert (verifier.name, verifier.parent_id) == ("verifier.choice", gateway.span_id)
    assert (drafter.name, drafter.parent_id) == ("drafter.sequence", verifier.span_id)
    assert {span.trace_state for span in spans.values()} == {"vendor=1"}
    assert len({span.resource["service.instance.id"] for span in spans.values()}) == 3
    assert [name for name, _, _ in verifier.events] == ["outrider.queue", "outrider.prefill", "outrider.decode"]
    assert verifier.attributes["outrider.output_tokens"] == gateway.attributes["gen_ai.usage.output_tokens"] == 40
    assert verifier.attributes["outrider.spec.sources"] == ["drafter"]
    assert 0 < verifier.attributes["outrider.spec.accepted_tokens"] <= verifier.attributes["outrider.spec.draft_tokens"]
    assert drafter.attributes["outrider.drafter.draft_tokens"] > 0
    assert drafter.attributes["outrider.drafter.end"] == "closed"
    text = server.get("/metrics").text
    exported = re.findall(
        r'^outrider_trace_spans_total{component="(\w+)".*result="exported"} (\S+)$', text, re.MULTILINE
    )
    assert {component for component, count in exported if float(count) > 0} == {"gateway", "verifier", "drafter"}


def exporter_port(server: Outrider) -> int:
    """Where Ray's exporter of this server listens, from the file that Ray leaves about it."""
    found = (re.search(r"--session-dir[= ](\S+)", line) for line in marked_processes(server.marker))
    folder = Path(next(match.group(1) for match in found if match))
    (path,) = folder.glob("metrics_export_port*")
    return int(path.read_text())


def test_rays_exporter_has_the_metrics_of_every_replica(server: Outrider) -> None:
    port = exporter_port(server)
    names = (
        "ray_vllm_generation_tokens_total",
        "ray_outrider_http_requests_total",
        "ray_outrider_drafter_rounds_total",
    )
    end_s = time.monotonic() + 30
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        values = {name: re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE) for name in names}
        if all(values.values()):
            break
        assert time.monotonic() < end_s, values
        time.sleep(0.5)
    assert all(float(value) > 0 for found_values in values.values() for value in found_values)
    assert "ray_outrider_step_seconds_sum{" in text
