"""Snapshots become counters that only rise, and the share of late tables since the last look."""

from dataclasses import replace

from cluster.engine.drafters.run_ahead_state import Counters, RunAheadSnapshot
from cluster.telemetry import names
from deployments.drafter_metrics import DrafterRecorder, LateShare

SNAPSHOT = RunAheadSnapshot(
    num_sequences=3,
    num_jobs=1,
    num_steps=10,
    forward_s=0.5,
    kv_cache_usage_ratio=0.25,
    pass_s=0.001,
    counters=Counters(num_rounds=8, num_tables=6, num_late_tables=2, num_lost_capacity=1),
    peers=(),
)


def value(recorder: DrafterRecorder, name: str, **labels: str) -> float | None:
    return recorder.metrics.registry.get_sample_value(name, {"drafter": "d1", **labels})


def test_counts_rise_by_what_is_new_and_gauges_are_as_they_are() -> None:
    recorder = DrafterRecorder("d1")
    recorder.record(SNAPSHOT, busy_ratio=0.5, num_failures=1)
    later = replace(
        SNAPSHOT, num_steps=15, num_sequences=1, counters=replace(SNAPSHOT.counters, num_tables=9, num_lost_capacity=4)
    )
    recorder.record(later, busy_ratio=0.75, num_failures=3)
    recorder.record(later, busy_ratio=0.75, num_failures=3)
    assert value(recorder, "outrider_drafter_tables_total") == 9
    assert value(recorder, "outrider_drafter_steps_total") == 15
    assert value(recorder, "outrider_drafter_lost_sequences_total", reason="capacity") == 4
    assert value(recorder, "outrider_drafter_failures_total") == 3
    assert value(recorder, "outrider_drafter_sequences") == 1
    assert value(recorder, "outrider_drafter_busy_ratio") == 0.75
    assert value(recorder, "outrider_drafter_model_loaded") == 1


def test_a_drafter_that_nobody_asked_has_its_whole_scrape() -> None:
    recorder = DrafterRecorder("d1")
    recorder.record(None, busy_ratio=0.0, num_failures=0)
    text = recorder.metrics.render()
    assert value(recorder, "outrider_drafter_model_loaded") == 0
    assert all(metric.name in text for metric in names.DRAFTER_METRICS)


def test_the_late_share_is_over_what_is_new_and_counts_tables_that_never_came() -> None:
    share = LateShare()
    assert share.take(Counters()) == 0.0
    assert share.take(Counters(num_tables=8, num_late_tables=2)) == 0.25
    assert share.take(Counters(num_tables=8, num_late_tables=2)) == 0.0
    assert share.take(Counters(num_tables=9, num_late_tables=2, num_cancelled_jobs=3)) == 0.75
