"""Copies a replica's metrics into Ray's every few seconds, so that Ray's exporter and dashboard have them as well.

Ray's names hold no colons and get a prefix: `vllm:num_requests_running` is `ray_vllm_num_requests_running` there. Of a
histogram there are the sum and the count, as gauges. `/metrics` of a gateway stays the place that has everything.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cluster.telemetry.prometheus import MetricSet

PERIOD_S = 5.0
"""Between two copies; Ray's own exporter is not faster."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Series:
    """One series as Ray knows it.

    Attributes:
        record: takes what is new of a counter, or a gauge's value.
        is_counter: Ray wants what was added.
        tags: the labels.
        last: value at the last copy.
    """

    record: Callable[..., None]
    is_counter: bool
    tags: dict[str, str]
    last: float = 0.0


class RayMetrics:
    """The copy of one replica's metrics. Never raises for what Ray thinks of them.

    Args:
        sets: the metrics, brought up to date by the call.
    """

    def __init__(self, sets: Callable[[], Iterable[MetricSet]]) -> None:
        self._sets = sets
        self._metrics: dict[str, Any] = {}
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], _Series] = {}

    async def run(self, period_s: float = PERIOD_S) -> None:
        """Copy for ever."""
        while True:
            await asyncio.sleep(period_s)
            try:
                self.copy()
            except Exception:
                _logger.exception("metrics are not copied to Ray any more")
                return

    def copy(self) -> None:
        """Copy everything once."""
        for metrics in self._sets():
            for family in metrics.registry.collect():
                for sample in family.samples:
                    if not sample.name.endswith("_bucket"):
                        self._copy(sample.name, sample.labels, sample.value, family.documentation, family.type)

    def _copy(self, name: str, labels: dict[str, str], value: float, text: str, kind: str) -> None:
        key = (name, tuple(labels.items()))
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = self._new_series(name, labels, text, is_counter=kind == "counter")
        if not series.is_counter:
            series.record(value, series.tags)
        elif value > series.last:
            series.record(value - series.last, series.tags)
        series.last = value

    def _new_series(self, name: str, labels: dict[str, str], text: str, *, is_counter: bool) -> _Series:
        from ray.util.metrics import Counter, Gauge

        metric = self._metrics.get(name)
        if metric is None:
            # Ray's exporter puts `_total` behind the name of each counter itself.
            shown = name.removesuffix("_total") if is_counter else name
            kind: Any = Counter if is_counter else Gauge
            metric = self._metrics[name] = kind(shown.replace(":", "_"), description=text, tag_keys=tuple(labels))
        return _Series(record=metric.inc if is_counter else metric.set, is_counter=is_counter, tags=dict(labels))
