import re

from prometheus_client.parser import text_string_to_metric_families

from cluster.telemetry import names
from cluster.telemetry.prometheus import EngineRecorder, MetricSet, merge_texts
from cluster.types import DrafterStats, FinishReason, RequestOutput, SourceStats, StepStats

LABELS = {"model_name": "m", "engine": "a"}


def _recorder(engine: str = "a") -> EngineRecorder:
    return EngineRecorder(model_name="m", engine=engine)


def _samples(text: str) -> dict[tuple[str, str | None], float]:
    """Value by sample name and by the one label that is not constant."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            own = [value for name, value in sample.labels.items() if name not in ("model_name", "engine", "gateway")]
            found[sample.name, own[0] if own else None] = sample.value
    return found


def scrape_as_vllm_bench(text: str) -> dict[str, object]:
    """Read the counters the way `vllm bench serve` does: line by line, by substring, adding up."""
    totals = {"num_drafts": 0, "num_draft_tokens": 0, "num_accepted_tokens": 0}
    per_position: dict[int, int] = {}
    for line in text.split("\n"):
        if not line.startswith("vllm:spec_decode"):
            continue
        parts = line.split()
        name, value = parts[0], int(float(parts[-1]))
        if "num_drafts" in name:
            totals["num_drafts"] += value
        elif "num_draft_tokens" in name:
            totals["num_draft_tokens"] += value
        elif "num_accepted_tokens_per_pos" in name:
            match = re.search(r'position="(\d+)"', name)
            assert match is not None
            position = int(match[1])
            per_position[position] = per_position.get(position, 0) + value
        elif "num_accepted_tokens" in name:
            totals["num_accepted_tokens"] += value
    return totals | {"per_position": per_position}


def test_a_step_with_drafts_reads_in_vllm_benchs_parser_as_what_happened() -> None:
    recorder = _recorder()
    step = StepStats(num_rows=9, num_drafts=2, num_draft_tokens=7, accepted_per_position=(2, 1, 0))
    recorder.record_step(step)
    recorder.record_step(step)
    assert scrape_as_vllm_bench(recorder.metrics.render()) == {
        "num_drafts": 4,
        "num_draft_tokens": 14,
        "num_accepted_tokens": 6,
        "per_position": {0: 4, 1: 2, 2: 0},
    }


def test_drafts_are_counted_by_who_made_them_beside_the_totals() -> None:
    recorder = _recorder()
    sources = (
        SourceStats(source="drafter", num_drafts=2, num_draft_tokens=8, num_accepted_tokens=5),
        SourceStats(source="ngram", num_drafts=1, num_draft_tokens=3, num_accepted_tokens=0),
    )
    step = StepStats(
        num_rows=14,
        num_drafts=3,
        num_draft_tokens=11,
        accepted_per_position=(2, 2, 1),
        draft_sources=sources,
        draft_wait_s=0.25,
        is_overlapped=True,
        hidden_draft_s=0.5,
        num_drafter_failures=1,
    )
    recorder.record_step(step)
    recorder.record_step(step)
    found = _samples(recorder.metrics.render())
    assert found["outrider_overlap_active", None] == 1
    assert found["outrider_hidden_draft_seconds_total", None] == 1.0
    assert found["outrider_draft_tokens_total", "drafter"] == 16
    assert found["outrider_accepted_draft_tokens_total", "drafter"] == 10
    assert found["outrider_accepted_draft_tokens_total", "ngram"] == 0
    assert found["outrider_drafts_total", "ngram"] == 2
    assert found["outrider_draft_wait_seconds_total", None] == 0.5
    assert found["outrider_draft_fallbacks_total", "error"] == 2
    assert scrape_as_vllm_bench(recorder.metrics.render())["num_draft_tokens"] == 22


def test_counts_of_the_drafter_actors_are_added_once_however_often_they_are_read() -> None:
    recorder = _recorder()
    first = DrafterStats(lookups={"hit": 3, "miss": 1}, transitions={"connected": 1}, is_connected=True, num_sent=9)
    later = DrafterStats(
        lookups={"hit": 5, "miss": 1},
        fallbacks={"quarantined": 2},
        transitions={"connected": 1, "late": 1},
        is_quarantined=True,
        num_sent=10,
        num_received_bytes=70,
    )
    for stats in (first, first, later, later):
        recorder.record_drafter(stats)
    found = _samples(recorder.metrics.render())
    assert (found["outrider_draft_lookups_total", "hit"], found["outrider_draft_lookups_total", "miss"]) == (5, 1)
    assert found["outrider_draft_fallbacks_total", "quarantined"] == 2
    assert found["outrider_drafter_transitions_total", "connected"] == 1
    assert (found["outrider_drafter_connected", None], found["outrider_drafter_quarantined", None]) == (0, 1)
    assert found["outrider_draft_channel_messages_total", "out"] == 10
    assert found["outrider_draft_channel_bytes_total", "in"] == 70


def test_no_created_series_are_exposed() -> None:
    recorder = _recorder()
    recorder.record_step(StepStats(num_rows=1, num_drafts=1, num_draft_tokens=1, accepted_per_position=(1,)))
    assert "_created" not in recorder.metrics.render()


def test_every_metric_of_the_table_is_exposed_under_its_name_before_anything_happened() -> None:
    text = _recorder().metrics.render()
    typed = set(re.findall(r"^# TYPE (\S+) ", text, flags=re.MULTILINE))
    assert typed == {metric.name for metric in names.ENGINE_METRICS}


def test_names_are_unique_and_counters_end_in_total() -> None:
    table = (*names.ENGINE_METRICS, *names.GATEWAY_METRICS)
    assert len({metric.name for metric in table}) == len(table)
    for metric in table:
        assert (metric.kind is names.MetricKind.COUNTER) == metric.name.endswith("_total")
        assert bool(metric.buckets) == (metric.kind is names.MetricKind.HISTOGRAM)
        assert list(metric.buckets) == sorted(metric.buckets)


def test_latencies_follow_arrival_first_and_later_tokens() -> None:
    recorder = _recorder()
    recorder.record_arrival("r", 10.0)
    recorder.record_outputs([RequestOutput(request_id="r", token_ids=(1,), num_output_tokens=1)], 10.5)
    recorder.record_outputs([RequestOutput(request_id="r", token_ids=(2, 3), num_output_tokens=3)], 10.7)
    end = RequestOutput(request_id="r", token_ids=(4,), num_output_tokens=4, finish_reason=FinishReason.STOP)
    recorder.record_outputs([end], 11.1)
    samples = _samples(recorder.metrics.render())
    assert samples["vllm:time_to_first_token_seconds_sum", None] == 0.5
    assert abs(samples["vllm:inter_token_latency_seconds_sum", None] - 0.6) < 1e-9
    assert samples["vllm:inter_token_latency_seconds_count", None] == 2
    assert abs(samples["vllm:request_time_per_output_token_seconds_sum", None] - 0.2) < 1e-9
    assert abs(samples["vllm:e2e_request_latency_seconds_sum", None] - 1.1) < 1e-9
    assert samples["vllm:request_success_total", "stop"] == 1
    assert recorder.num_in_flight == 0


def test_a_dropped_choice_counts_once_and_leaves_nothing_behind() -> None:
    recorder = _recorder()
    recorder.record_arrival("r", 0.0)
    recorder.record_drop("r")
    recorder.record_drop("r")
    recorder.record_outputs([RequestOutput(request_id="r", finish_reason=FinishReason.ABORT)], 1.0)
    assert _samples(recorder.metrics.render())["vllm:request_success_total", "abort"] == 1
    assert recorder.num_in_flight == 0


def test_gauges_follow_the_last_step() -> None:
    recorder = _recorder()
    recorder.record_step(StepStats(num_rows=1, num_running=3, num_waiting=2, kv_cache_usage_ratio=0.5))
    recorder.record_step(StepStats())
    samples = _samples(recorder.metrics.render())
    assert samples["vllm:num_requests_running", None] == 0
    assert samples["vllm:num_requests_waiting", None] == 0
    assert samples["vllm:kv_cache_usage_perc", None] == 0
    assert samples["outrider_step_seconds_count", None] == 1


def test_merged_scrapes_hold_each_family_once_and_every_sample() -> None:
    first, second = _recorder("a"), _recorder("b")
    first.metrics.add(names.GENERATION_TOKENS, 3)
    second.metrics.add(names.GENERATION_TOKENS, 4)
    gateway = MetricSet(names.GATEWAY_METRICS, {"gateway": "g"})
    text = merge_texts([first.metrics.render(), second.metrics.render(), gateway.render()])
    types = re.findall(r"^# TYPE (\S+) ", text, flags=re.MULTILINE)
    assert len(types) == len(set(types)) == len(names.ENGINE_METRICS) + len(names.GATEWAY_METRICS)
    assert 'vllm:generation_tokens_total{engine="a",model_name="m"} 3.0' in text
    assert 'vllm:generation_tokens_total{engine="b",model_name="m"} 4.0' in text
    # The format wants the samples of a family in one block.
    order = re.findall(r"^(vllm:generation_tokens_total|vllm:prompt_tokens_total)\{", text, flags=re.MULTILINE)
    assert order == sorted(order, reverse=True)
