"""Ended spans on their way to the collector: a bounded queue, a thread of its own, counters for what became of them."""

import logging
import threading
from collections import deque
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet

_RESULTS = ("exported", "failed", "dropped")

_logger = logging.getLogger(__name__)


class SpanQueue(SpanProcessor):
    """Takes ended spans without ever waiting, and exports them in batches. A collector that is gone costs spans only.

    Args:
        exporter: sends a batch; closed by `shutdown`.
        metrics: holds `names.TRACE_SPANS`.
        max_queue_spans: spans that may wait.
        max_batch_spans: most spans of one export.
        interval_s: longest wait before an export.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        metrics: MetricSet,
        *,
        max_queue_spans: int,
        max_batch_spans: int,
        interval_s: float,
    ) -> None:
        self._exporter, self._metrics = exporter, metrics
        self._max_queue_spans, self._max_batch_spans, self._interval_s = max_queue_spans, max_batch_spans, interval_s
        self._queue: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._exporting = threading.Lock()
        self._is_stopping = self._is_failing = False
        for result in _RESULTS:
            metrics.add(names.TRACE_SPANS, 0, result)
        self._thread = threading.Thread(target=self._run, name="span-export", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or count it as dropped."""
        if self._is_stopping or len(self._queue) >= self._max_queue_spans:
            self._metrics.add(names.TRACE_SPANS, 1, "dropped")
            return
        self._queue.append(span)
        if len(self._queue) >= self._max_batch_spans:
            self._wake.set()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export everything that waits, in this thread."""
        self._export_all()
        return True

    def shutdown(self, timeout_s: float = 2.0) -> None:
        """Export what waits for as long as `timeout_s`; what is left then is lost."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            self._export_all()
        self._export_all()

    def _export_all(self) -> None:
        with self._exporting:
            while self._queue:
                num_spans = min(len(self._queue), self._max_batch_spans)
                self._export([self._queue.popleft() for _ in range(num_spans)])

    def _export(self, spans: Sequence[ReadableSpan]) -> None:
        try:
            is_done = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # noqa: BLE001 -- whatever an exporter does, spans are all that may be lost
            is_done = False
        self._metrics.add(names.TRACE_SPANS, len(spans), "exported" if is_done else "failed")
        if is_done == self._is_failing:
            # Once per outage: an export is tried every few seconds.
            self._is_failing = not is_done
            _logger.log(
                logging.INFO if is_done else logging.WARNING,
                "spans are exported again" if is_done else "spans cannot be exported; they are counted and dropped",
            )
