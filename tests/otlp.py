"""A real OTLP/HTTP receiver: an HTTP server that parses what exporters send, and gives it back as plain values."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpan:
    """A span as it arrived."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: Sequence[tuple[str, int, Mapping[str, Any]]]
    is_error: bool
    resource: Mapping[str, Any]
    schema_url: str

    @property
    def component(self) -> str:
        found: str = self.resource["outrider.component"]
        return found


class OtlpReceiver:
    """What has arrived."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.url = ""

    def take(self, data: bytes, headers: Mapping[str, str]) -> None:
        self.headers.append({name.lower(): value for name, value in headers.items()})
        request = ExportTraceServiceRequest.FromString(data)
        for resource_spans in request.resource_spans:
            resource = _plain(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                self.spans += [_received(span, resource, scope_spans.schema_url) for span in scope_spans.spans]

    def wait_for(self, num_spans: int, timeout_s: float = 20.0) -> list[ReceivedSpan]:
        end_s = time.monotonic() + timeout_s
        while len(self.spans) < num_spans and time.monotonic() < end_s:
            time.sleep(0.02)
        assert len(self.spans) >= num_spans, [span.name for span in self.spans]
        return self.spans

    def trace(self, trace_id: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace_id == trace_id]


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if receiver.status == 200 and self.path == "/v1/traces":
                receiver.take(data, dict(self.headers))
            self.send_response(receiver.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _received(span: SpanMessage, resource: Mapping[str, Any], schema_url: str) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        trace_state=span.trace_state,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_plain(span.attributes),
        events=[(event.name, event.time_unix_nano, _plain(event.attributes)) for event in span.events],
        is_error=span.status.code == 2,
        resource=resource,
        schema_url=schema_url,
    )


def _plain(attributes: Sequence[KeyValue]) -> dict[str, Any]:
    return {item.key: _value(item.value) for item in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)
