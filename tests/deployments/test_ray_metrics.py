"""The copy for Ray, against metrics that keep what they are told. A real Ray is in `tests/e2e/test_tracing.py`."""

import asyncio
from typing import Any

import pytest
from ray.util import metrics as ray_metrics

from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from deployments.ray_metrics import RayMetrics

pytestmark = pytest.mark.anyio


class Recorded:
    """One of Ray's metrics."""

    made: dict[str, "Recorded"] = {}  # noqa: RUF012 -- emptied by the fixture

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] = ()) -> None:
        assert name not in self.made, "Ray is told of a metric once"
        self.tag_keys, self.kind = tag_keys, type(self).__name__
        self.values: list[tuple[float, dict[str, str]]] = []
        self.made[name] = self

    def _take(self, value: float, tags: dict[str, str]) -> None:
        assert set(tags) == set(self.tag_keys)
        self.values.append((value, tags))


class Counter(Recorded):
    def inc(self, value: float, tags: dict[str, str]) -> None:
        assert value > 0
        self._take(value, tags)


class Gauge(Recorded):
    def set(self, value: float, tags: dict[str, str]) -> None:
        self._take(value, tags)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Recorded]:
    monkeypatch.setattr(ray_metrics, "Counter", Counter)
    monkeypatch.setattr(ray_metrics, "Gauge", Gauge)
    monkeypatch.setattr(Recorded, "made", {})
    return Recorded.made


def engine_metrics() -> MetricSet:
    return MetricSet(names.ENGINE_METRICS, {"model_name": "m", "engine": "e"})


def test_every_name_is_one_that_ray_takes(made: dict[str, Recorded]) -> None:
    RayMetrics(lambda: [engine_metrics()]).copy()
    assert made
    assert all(":" not in name and not name.endswith("_total") for name in made)


def test_counters_are_copied_by_what_is_new_and_gauges_as_they_are(made: dict[str, Recorded]) -> None:
    metrics = engine_metrics()
    copy = RayMetrics(lambda: [metrics])
    metrics.add(names.NUM_DRAFTS, 5)
    metrics.set(names.NUM_RUNNING, 3)
    copy.copy()
    copy.copy()
    metrics.add(names.NUM_DRAFTS, 2)
    metrics.set(names.NUM_RUNNING, 0)
    copy.copy()
    tags = {"model_name": "m", "engine": "e"}
    drafts, running = made["vllm_spec_decode_num_drafts"], made["vllm_num_requests_running"]
    assert (drafts.kind, drafts.values) == ("Counter", [(5, tags), (2, tags)])
    assert (running.kind, running.values) == ("Gauge", [(3, tags), (3, tags), (0, tags)])


def test_histograms_are_copied_as_sum_and_count(made: dict[str, Recorded]) -> None:
    metrics = engine_metrics()
    metrics.observe(names.STEP_SECONDS, 0.5)
    metrics.observe(names.STEP_SECONDS, 0.25)
    RayMetrics(lambda: [metrics]).copy()
    assert made["outrider_step_seconds_sum"].values[-1][0] == 0.75
    assert made["outrider_step_seconds_count"].values[-1][0] == 2
    assert not any("bucket" in name for name in made)


def test_labels_that_appear_later_are_series_of_the_same_metric(made: dict[str, Recorded]) -> None:
    metrics = engine_metrics()
    copy = RayMetrics(lambda: [metrics])
    metrics.add(names.SOURCE_DRAFTS, 1, "ngram")
    copy.copy()
    metrics.add(names.SOURCE_DRAFTS, 4, "drafter")
    copy.copy()
    assert [(value, tags["source"]) for value, tags in made["outrider_drafts"].values] == [(1, "ngram"), (4, "drafter")]


async def test_a_failure_ends_the_copy_with_one_line_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise ZeroDivisionError

    await asyncio.wait_for(RayMetrics(broken).run(period_s=0.01), 5)
    assert [record.message for record in caplog.records] == ["metrics are not copied to Ray any more"]
