"""Traces of one process: starts spans, carries their context over the wires, and exports what was sampled.

Only processes with a `TracingConfig` import this. Of a request that is not sampled nothing is kept, and no context
travels: the processes behind the gateway then do nothing at all.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cluster.clock import Clock, MonotonicClock
from cluster.telemetry import names
from cluster.telemetry import tracing_attributes as attr
from cluster.telemetry.prometheus import MetricSet
from cluster.telemetry.tracing_config import TracingConfig
from cluster.telemetry.tracing_export import SpanQueue

MAX_STATE_BYTES = 512
"""Longest `tracestate` that is passed on, as W3C asks for."""

MAX_TEXT_CHARS = 32_768
"""Longest prompt or answer that a span holds; longer ones are cut."""

_MAX_VALUE_CHARS = 8 * MAX_TEXT_CHARS  # The same texts as JSON, whatever must be escaped in them.

_IDS_BYTES = 25
_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]

_propagator = TraceContextTextMapPropagator()


class Tracing:
    """The tracer of one replica.

    Args:
        config: settings.
        component: what the replica is: "gateway", "verifier" or "drafter".
        replica: its id.
        version: of Outrider.
        clock: whose times `start` and `wall_ns` are given.
        exporter: takes spans instead of the OTLP exporter.

    Raises:
        ConfigError: the file with headers cannot be read.
    """

    def __init__(
        self,
        config: TracingConfig,
        *,
        component: str,
        replica: str,
        version: str = "",
        clock: Clock | None = None,
        exporter: SpanExporter | None = None,
    ) -> None:
        self.config, self._clock = config, clock or MonotonicClock()
        self.metrics = MetricSet((names.TRACE_SPANS,), dict(zip(names.TRACE_LABELS, (component, replica), strict=True)))
        self._queue = SpanQueue(
            exporter or _otlp_exporter(config),
            self.metrics,
            max_queue_spans=config.max_queue_spans,
            max_batch_spans=config.max_batch_spans,
            interval_s=config.export_interval_s,
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.sample_ratio)),
            resource=Resource.create(
                {
                    "service.name": config.service_name,
                    "service.version": version,
                    "service.instance.id": replica,
                    attr.COMPONENT: component,
                }
            ),
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_span_attribute_length=_MAX_VALUE_CHARS),
        )
        self._provider.add_span_processor(self._queue)
        self._tracer = self._provider.get_tracer("outrider", version or None, attr.SCHEMA_URL)

    def start(
        self,
        name: str,
        *,
        parent: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        start_s: float | None = None,
        attributes: Attributes | None = None,
    ) -> Span:
        """A span that has begun; it records nothing where the trace is not sampled.

        Args:
            name: of few different values.
            parent: from `context_of` or `context_from_headers`; None begins a trace.
            kind: its place between processes.
            start_s: clock time at which it began; None for now.
            attributes: known already.
        """
        start_ns = None if start_s is None else self.wall_ns(start_s)
        # An empty context, not None: what the current thread does otherwise is no part of the trace.
        return self._tracer.start_span(
            name, context=parent or Context(), kind=kind, start_time=start_ns, attributes=attributes
        )

    def wall_ns(self, clock_s: float) -> int:
        """Clock time as nanoseconds since 1970, as spans want it."""
        return time.time_ns() - int((self._clock.now_s() - clock_s) * 1e9)

    def flush(self) -> None:
        """Export all spans that ended."""
        self._queue.force_flush()

    def stop(self) -> None:
        """Export what there is time for, and end."""
        self._provider.shutdown()


def _otlp_exporter(config: TracingConfig) -> SpanExporter:
    # It reports every failed batch as an error, with its text; here outages are counted, and told once.
    logging.getLogger(_EXPORTER_LOG).setLevel(logging.CRITICAL)
    return OTLPSpanExporter(endpoint=config.traces_url, headers=config.read_headers(), timeout=config.export_timeout_s)


def context_from_headers(traceparent: str | None, tracestate: str | None) -> Context | None:
    """The context that a client sent, or None where it sent no valid one."""
    if not traceparent:
        return None
    carrier = {"traceparent": traceparent}
    if tracestate and len(tracestate) <= MAX_STATE_BYTES:
        carrier["tracestate"] = tracestate
    context = _propagator.extract(carrier, context=Context())
    return context or None


def traceparent_of(span: Span) -> str:
    """The W3C `traceparent` header for what hangs on a span; "" where tracing is disabled from outside."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context=set_span_in_context(span, Context()))
    return carrier.get("traceparent", "")


def pack_context(span: Span) -> bytes:
    """A span's context for another process: 25 bytes and the `tracestate`; empty where the trace is not sampled."""
    context = span.get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return b""
    state = context.trace_state.to_header().encode("ascii", errors="ignore")
    return (
        context.trace_id.to_bytes(16, "big")
        + context.span_id.to_bytes(8, "big")
        + bytes((context.trace_flags,))
        + (state if len(state) <= MAX_STATE_BYTES else b"")
    )


def unpack_context(data: bytes) -> Context | None:
    """The context behind `pack_context`, or None where the bytes hold none. Never raises."""
    if not _IDS_BYTES <= len(data) <= _IDS_BYTES + MAX_STATE_BYTES:
        return None
    context = SpanContext(
        trace_id=int.from_bytes(data[:16], "big"),
        span_id=int.from_bytes(data[16:24], "big"),
        is_remote=True,
        trace_flags=TraceFlags(data[24]),
        trace_state=TraceState.from_header([data[_IDS_BYTES:].decode("ascii", errors="ignore")]),
    )
    return set_span_in_context(NonRecordingSpan(context), Context()) if context.is_valid else None
