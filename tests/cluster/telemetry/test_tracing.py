import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from opentelemetry.trace import SpanKind, get_current_span

from cluster.clock import ManualClock
from cluster.messages import MAX_TRACE_BYTES
from cluster.telemetry import names
from cluster.telemetry.tracing import (
    MAX_STATE_BYTES,
    Tracing,
    context_from_headers,
    pack_context,
    traceparent_of,
    unpack_context,
)
from cluster.telemetry.tracing_attributes import SCHEMA_URL
from cluster.telemetry.tracing_config import TracingConfig
from tests.otlp import OtlpReceiver, otlp_receiver

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"


@contextmanager
def tracing_to(url: str, **values: Any) -> Iterator[Tracing]:
    clock = values.pop("clock", None)
    settings: dict[str, Any] = {"endpoint": url, "export_interval_s": 60.0} | values
    config = TracingConfig(**settings)
    tracing = Tracing(config, component="gateway", replica="r1", version="1.2", clock=clock)
    try:
        yield tracing
    finally:
        tracing.stop()


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


def results(tracing: Tracing) -> dict[str, float]:
    return {
        sample.labels["result"]: sample.value
        for family in tracing.metrics.registry.collect()
        for sample in family.samples
        if sample.name == names.TRACE_SPANS.name
    }


def test_a_span_reaches_the_collector_with_its_resource_and_schema(receiver: OtlpReceiver, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("Authorization: Bearer secret")
    with tracing_to(receiver.url, headers_file=str(tmp_path / "headers"), service_name="mine") as tracing:
        tracing.start("chat m", kind=SpanKind.SERVER, attributes={"a": 1}).end()
        tracing.flush()
        assert results(tracing) == {"exported": 1, "failed": 0, "dropped": 0}
    (span,) = receiver.spans
    assert (span.name, span.kind, span.attributes, span.parent_id) == ("chat m", 2, {"a": 1}, "")
    assert span.schema_url == SCHEMA_URL
    assert (
        span.resource.items()
        >= {
            "service.name": "mine",
            "service.version": "1.2",
            "service.instance.id": "r1",
            "outrider.component": "gateway",
        }.items()
    )
    assert receiver.headers[0]["authorization"] == "Bearer secret"


def test_clock_times_become_times_of_the_world(receiver: OtlpReceiver) -> None:
    clock = ManualClock(1000.0)
    with tracing_to(receiver.url, clock=clock) as tracing:
        before_ns = time.time_ns()
        tracing.start("a", start_s=990.0).end(tracing.wall_ns(995.0))
        tracing.flush()
    (span,) = receiver.spans
    assert span.start_ns == pytest.approx(before_ns - 10e9, abs=5e9)
    assert span.end_ns - span.start_ns == pytest.approx(5e9, abs=1e9)


def test_a_context_goes_through_bytes_and_back(receiver: OtlpReceiver) -> None:
    with tracing_to(receiver.url) as tracing:
        parent = tracing.start("parent", parent=context_from_headers(f"00-{IDS}-01", "vendor=x,other=y"))
        data = pack_context(parent)
        assert len(data) < 25 + 20
        child = tracing.start("child", parent=unpack_context(data))
        child.end()
        parent.end()
        tracing.flush()
    by_name = {span.name: span for span in receiver.spans}
    assert by_name["child"].parent_id == by_name["parent"].span_id
    assert by_name["parent"].parent_id == IDS[33:]
    assert {span.trace_id for span in receiver.spans} == {IDS[:32]}
    assert {span.trace_state for span in receiver.spans} == {"vendor=x,other=y"}


def test_what_the_client_decided_about_sampling_holds(receiver: OtlpReceiver) -> None:
    with tracing_to(receiver.url, sample_ratio=0.0) as never, tracing_to(receiver.url) as always:
        assert never.start("a", parent=context_from_headers(f"00-{IDS}-01", None)).is_recording()
        refused = always.start("b", parent=context_from_headers(f"00-{IDS}-00", None))
        assert not refused.is_recording()
        assert not never.start("c").is_recording()
        assert always.start("d").is_recording()
        assert pack_context(refused) == b""
        assert traceparent_of(refused).startswith(f"00-{IDS[:33]}") and traceparent_of(refused).endswith("-00")


@pytest.mark.parametrize(
    "header", [None, "", "00-0-0-01", f"00-{'0' * 32}-{'1' * 16}-01", f"ff-{IDS}-01", "\x00" * 55, "00-" + "z" * 52]
)
def test_a_wrong_traceparent_begins_a_trace_of_its_own(header: str | None) -> None:
    assert context_from_headers(header, "a=b") is None


def test_a_tracestate_beyond_the_limit_is_left_out(receiver: OtlpReceiver) -> None:
    context = context_from_headers(f"00-{IDS}-01", ",".join(f"k{i}=v" for i in range(32)) + "=" * MAX_STATE_BYTES)
    assert context is not None
    assert get_current_span(context).get_span_context().trace_state.to_header() == ""


@hypothesis_settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600))
def test_bytes_of_any_kind_are_a_context_or_none(data: bytes) -> None:
    context = unpack_context(data)
    if context is not None:
        assert 25 <= len(data) <= MAX_TRACE_BYTES
        assert get_current_span(context).get_span_context().is_valid


def test_a_collector_that_is_gone_costs_a_count_and_one_line(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), tracing_to(receiver.url, export_timeout_s=0.2) as tracing:
        receiver.status = 400
        for _ in range(3):
            tracing.start("a").end()
            tracing.flush()
        assert results(tracing) == {"exported": 0, "failed": 3, "dropped": 0}
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        receiver.status = 200
        tracing.start("a").end()
        tracing.flush()
        assert results(tracing) == {"exported": 1, "failed": 3, "dropped": 0}
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_nobody_listens_and_ending_a_span_takes_no_time(caplog: pytest.LogCaptureFixture) -> None:
    with tracing_to("http://127.0.0.1:9", export_timeout_s=0.1, export_interval_s=0.01) as tracing:
        spans = [tracing.start("a") for _ in range(200)]
        started_s = time.monotonic()
        for span in spans:
            span.end()
        assert time.monotonic() - started_s < 5.0
        tracing.flush()
        assert results(tracing)["failed"] == 200


def test_spans_beyond_the_queue_are_counted_and_dropped(receiver: OtlpReceiver) -> None:
    with tracing_to(receiver.url, max_queue_spans=3, max_batch_spans=3, export_interval_s=3600.0) as tracing:
        # The exporter's thread wakes at a full batch: hold it, so that the queue stays full.
        with tracing._queue._exporting:
            for _ in range(5):
                tracing.start("a").end()
        tracing.flush()
        assert results(tracing) == {"exported": 3, "failed": 0, "dropped": 2}


def test_stopping_exports_what_waits_and_leaves_no_thread(receiver: OtlpReceiver) -> None:
    with tracing_to(receiver.url) as tracing:
        tracing.start("last").end()
    assert [span.name for span in receiver.spans] == ["last"]
    assert "span-export" not in {thread.name for thread in threading.enumerate()}
