"""Recorders: one `Recorder` per replica turns rounds and outputs into a Prometheus registry of its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from cluster.telemetry import names
from cluster.telemetry.names import Metric, MetricKind
from cluster.types import DrafterStats, FinishReason, RequestOutput, Role, StepStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricSet:
    """Metrics of one replica: a registry in which every sample carries the same constant labels.

    Args:
        metrics: rows of the table to register.
        constant_labels: name and value of the labels that every sample carries.
    """

    def __init__(self, metrics: Iterable[Metric], constant_labels: Mapping[str, str]) -> None:
        # `_created` series share the prefix of their counter; vLLM's benchmark parser would add them up as counts.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._labels = dict(constant_labels)
        self._by_name: dict[str, MetricWrapperBase] = {}
        self._children: dict[tuple[str, tuple[str, ...]], MetricWrapperBase] = {}
        for metric in metrics:
            self._by_name[metric.name] = self._build(metric)
            if not metric.labels and not metric.optional:
                self._child(metric, ())

    def add(self, metric: Metric, amount: float = 1.0, *values: str) -> None:
        """Add to a counter; `values` are those of its own labels."""
        child = self._child(metric, values)
        assert isinstance(child, Counter)
        child.inc(amount)

    def set(self, metric: Metric, value: float, *values: str) -> None:
        """Set a gauge; `values` are those of its own labels."""
        child = self._child(metric, values)
        assert isinstance(child, Gauge)
        child.set(value)

    def observe(self, metric: Metric, value: float, *values: str) -> None:
        """Put a value into a histogram."""
        child = self._child(metric, values)
        assert isinstance(child, Histogram)
        child.observe(value)

    def render(self) -> str:
        """The registry as Prometheus text."""
        return generate_latest(self.registry).decode()

    def _build(self, metric: Metric) -> MetricWrapperBase:
        label_names = (*self._labels, *metric.labels)
        if metric.kind is MetricKind.HISTOGRAM:
            return Histogram(metric.name, metric.help, label_names, buckets=metric.buckets, registry=self.registry)
        if metric.kind is MetricKind.GAUGE:
            return Gauge(metric.name, metric.help, label_names, registry=self.registry)
        return Counter(metric.name, metric.help, label_names, registry=self.registry)

    def _child(self, metric: Metric, values: tuple[str, ...]) -> MetricWrapperBase:
        key = (metric.name, values)
        child = self._children.get(key)
        if child is None:
            child = self._by_name[metric.name].labels(*self._labels.values(), *values)
            self._children[key] = child
        return child


@dataclass(slots=True)
class _Progress:
    """What is known of a choice in flight."""

    arrival_s: float
    first_token_s: float | None = None
    last_token_s: float = 0.0
    num_tokens: int = 0


class EngineRecorder:
    """Records the rounds and outputs of one engine. Not thread safe: one thread records.

    Args:
        model_name: value of the label `model_name`; without blanks, since scrapers split lines at them.
        engine: value of the label `engine`: the replica.
    """

    def __init__(self, *, model_name: str, engine: str) -> None:
        self.metrics = MetricSet(names.ENGINE_METRICS, {"model_name": model_name, "engine": engine})
        self._in_flight: dict[str, _Progress] = {}
        self._drafter = DrafterStats()
        for reason in FinishReason:
            self.metrics.add(names.REQUEST_SUCCESS, 0, reason.value)

    @property
    def num_in_flight(self) -> int:
        """Choices added and neither finished nor dropped."""
        return len(self._in_flight)

    def record_arrival(self, request_id: str, now_s: float) -> None:
        """A choice was handed to the engine."""
        self._in_flight[request_id] = _Progress(arrival_s=now_s)

    def record_drop(self, request_id: str, reason: FinishReason = FinishReason.ABORT) -> None:
        """A choice is gone without a last output that reaches this recorder; unknown ids are ignored."""
        if self._in_flight.pop(request_id, None) is not None:
            self.metrics.add(names.REQUEST_SUCCESS, 1, reason.value)

    def record_step(self, stats: StepStats) -> None:
        """Add one round."""
        metrics, num_accepted = self.metrics, sum(stats.accepted_per_position)
        metrics.set(names.NUM_RUNNING, stats.num_running)
        metrics.set(names.NUM_WAITING, stats.num_waiting)
        metrics.set(names.KV_CACHE_USAGE, stats.kv_cache_usage_ratio)
        if stats.num_rows:
            metrics.observe(names.STEP_SECONDS, stats.duration_s)
            metrics.observe(names.FORWARD_SECONDS, stats.forward_s)
            metrics.add(names.FORWARD_ROWS, stats.num_rows)
        metrics.add(names.PROMPT_TOKENS, stats.num_prompt_tokens + stats.num_cached_tokens)
        metrics.add(names.PREFIX_CACHE_QUERIES, stats.num_prompt_tokens + stats.num_cached_tokens)
        metrics.add(names.PREFIX_CACHE_HITS, stats.num_cached_tokens)
        metrics.add(names.GENERATION_TOKENS, stats.num_output_tokens)
        metrics.add(names.NUM_PREEMPTIONS, stats.num_preempted)
        if stats.num_drafts:
            metrics.add(names.NUM_DRAFTS, stats.num_drafts)
            metrics.add(names.NUM_DRAFT_TOKENS, stats.num_draft_tokens)
            metrics.add(names.NUM_ACCEPTED_TOKENS, num_accepted)
            metrics.add(names.WASTED_DRAFT_TOKENS, stats.num_draft_tokens - num_accepted)
            for position, accepted in enumerate(stats.accepted_per_position):
                metrics.add(names.NUM_ACCEPTED_PER_POS, accepted, str(position))
            for source in stats.draft_sources:
                metrics.add(names.SOURCE_DRAFTS, source.num_drafts, source.source)
                metrics.add(names.SOURCE_DRAFT_TOKENS, source.num_draft_tokens, source.source)
                metrics.add(names.SOURCE_ACCEPTED_TOKENS, source.num_accepted_tokens, source.source)
        metrics.add(names.DRAFT_WAIT_SECONDS, stats.draft_wait_s)
        metrics.set(names.OVERLAP_ACTIVE, stats.is_overlapped)
        metrics.add(names.HIDDEN_DRAFT_SECONDS, stats.hidden_draft_s)
        for reason, count in stats.draft_limits.items():
            metrics.add(names.DRAFT_LIMITS, count, reason)
        for name, calibration_error in stats.calibration_errors.items():
            metrics.set(names.CALIBRATION_ERROR, calibration_error, name)
        if stats.num_drafter_failures:
            metrics.add(names.DRAFT_FALLBACKS, stats.num_drafter_failures, "error")
        for bits in stats.entropy_bits:
            metrics.observe(names.ENTROPY_BITS, bits)

    def record_role(self, role: Role) -> None:
        """The role in force."""
        for each in Role:
            self.metrics.set(names.ROLE, each is role, each.value)

    def record_flip(self, role: Role, taken_s: float) -> None:
        """The role has changed to this one, so long after that was asked for."""
        self.record_role(role)
        self.metrics.add(names.ROLE_FLIPS)
        self.metrics.observe(names.ROLE_FLIP_SECONDS, taken_s)

    def record_drafter(self, stats: DrafterStats) -> None:
        """Add what happened with drafter actors since the last call; of one source, whose counts only rise."""
        metrics, before, self._drafter = self.metrics, self._drafter, stats
        for metric, now, last in (
            (names.DRAFT_LOOKUPS, stats.lookups, before.lookups),
            (names.DRAFT_FALLBACKS, stats.fallbacks, before.fallbacks),
            (names.DRAFTER_TRANSITIONS, stats.transitions, before.transitions),
        ):
            for value, count in now.items():
                metrics.add(metric, count - last.get(value, 0), value)
        metrics.set(names.DRAFTER_CONNECTED, stats.is_connected)
        metrics.set(names.DRAFTER_QUARANTINED, stats.is_quarantined)
        metrics.add(names.CHANNEL_MESSAGES, stats.num_sent - before.num_sent, "out")
        metrics.add(names.CHANNEL_MESSAGES, stats.num_received - before.num_received, "in")
        metrics.add(names.CHANNEL_BYTES, stats.num_sent_bytes - before.num_sent_bytes, "out")
        metrics.add(names.CHANNEL_BYTES, stats.num_received_bytes - before.num_received_bytes, "in")
        metrics.add(names.CHANNEL_DROPPED, stats.num_dropped - before.num_dropped)
        metrics.add(names.CHANNEL_MALFORMED, stats.num_malformed - before.num_malformed)

    def record_outputs(self, outputs: Sequence[RequestOutput], now_s: float) -> None:
        """Add what one round emitted; outputs of unknown (dropped) choices are ignored."""
        for output in outputs:
            progress = self._in_flight.get(output.request_id)
            if progress is None:
                continue
            if output.token_ids:
                self._record_tokens(progress, len(output.token_ids), now_s)
            if output.finish_reason is not None:
                self._record_end(output, progress, now_s)

    def _record_tokens(self, progress: _Progress, num_tokens: int, now_s: float) -> None:
        progress.num_tokens += num_tokens
        if progress.first_token_s is None:
            progress.first_token_s = now_s
            self.metrics.observe(names.TIME_TO_FIRST_TOKEN, now_s - progress.arrival_s)
        else:
            self.metrics.observe(names.INTER_TOKEN_LATENCY, now_s - progress.last_token_s)
        progress.last_token_s = now_s

    def _record_end(self, output: RequestOutput, progress: _Progress, now_s: float) -> None:
        assert output.finish_reason is not None
        del self._in_flight[output.request_id]
        self.metrics.add(names.REQUEST_SUCCESS, 1, output.finish_reason.value)
        self.metrics.observe(names.E2E_LATENCY, now_s - progress.arrival_s)
        # Only tokens of this engine: another one may have begun the choice.
        if progress.first_token_s is not None and progress.num_tokens > 1:
            span_s = progress.last_token_s - progress.first_token_s
            self.metrics.observe(names.TIME_PER_OUTPUT_TOKEN, span_s / (progress.num_tokens - 1))


class _Families:
    """A collector over families that were parsed from text."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Family]:
        return self._families


def merge_texts(texts: Sequence[str]) -> str:
    """One valid scrape out of several: each family occurs once, its samples follow each other.

    Samples must differ in a label (the replica's); nothing is added up.
    """
    if len(texts) == 1:
        return texts[0]
    families: dict[str, Family] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            known = families.setdefault(family.name, family)
            if known is not family:
                known.samples.extend(family.samples)
    registry = CollectorRegistry()
    registry.register(_Families(families.values()))
    return generate_latest(registry).decode()
