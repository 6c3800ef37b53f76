"""The one table of all metrics: name as scraped, type, help, labels, buckets.

vLLM's names are used verbatim where they exist, so that its benchmark, dashboards and cost tools work unchanged; ours
start with `outrider_`. Time is in seconds, entropy in bits.
"""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """Prometheus type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table.

    Attributes:
        name: as it stands in the scrape; counters end in `_total`.
        kind: Prometheus type.
        help: one sentence with the unit.
        labels: label names besides those that every metric of a registry carries.
        buckets: upper bounds of a histogram, without +Inf.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


ENGINE_LABELS = ("model_name", "engine")
"""Carried by every metric of a verifier; `engine` is the replica."""

_LATENCY_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0)
_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)
_STEP_BUCKETS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2, 0.4, 0.8, 2.0)
_ENTROPY_BUCKETS = (0.01, 0.1, 0.3, 0.6, 1.2, 2.0, 2.75, 3.5, 5.0, 7.0, 10.0)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind=MetricKind.COUNTER, help=text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind=MetricKind.GAUGE, help=text, labels=labels)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name=name, kind=MetricKind.HISTOGRAM, help=text, labels=labels, buckets=buckets)


NUM_DRAFTS = _counter(
    "vllm:spec_decode_num_drafts_total", "Drafts verified: sequences with a draft, summed over rounds."
)
NUM_DRAFT_TOKENS = _counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens verified.")
NUM_ACCEPTED_TOKENS = _counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted.")
NUM_ACCEPTED_PER_POS = _counter(
    "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Draft tokens accepted, by position in the draft.", "position"
)
TIME_TO_FIRST_TOKEN = _histogram(
    "vllm:time_to_first_token_seconds", "From arrival at the verifier to the first token.", _LATENCY_BUCKETS
)
INTER_TOKEN_LATENCY = _histogram(
    "vllm:inter_token_latency_seconds", "Gap between rounds that emitted tokens of one choice.", _TOKEN_BUCKETS
)
TIME_PER_OUTPUT_TOKEN = _histogram(
    "vllm:request_time_per_output_token_seconds",
    "(last token - first token) / (tokens - 1) of a finished choice.",
    _TOKEN_BUCKETS,
)
E2E_LATENCY = _histogram(
    "vllm:e2e_request_latency_seconds", "From arrival at the verifier to the end of a choice.", _LATENCY_BUCKETS
)
REQUEST_SUCCESS = _counter("vllm:request_success_total", "Finished choices, by reason.", "finished_reason")
NUM_RUNNING = _gauge("vllm:num_requests_running", "Choices in the running batch.")
NUM_WAITING = _gauge("vllm:num_requests_waiting", "Choices that wait for a place in the batch.")
KV_CACHE_USAGE = _gauge("vllm:kv_cache_usage_perc", "Used share of the KV blocks, 0..1.")
PROMPT_TOKENS = _counter("vllm:prompt_tokens_total", "Prompt tokens processed, those from the prefix cache included.")
GENERATION_TOKENS = _counter("vllm:generation_tokens_total", "Tokens generated.")
PREFIX_CACHE_QUERIES = _counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.")
PREFIX_CACHE_HITS = _counter("vllm:prefix_cache_hits_total", "Prompt tokens taken from the prefix cache.")
NUM_PREEMPTIONS = _counter("vllm:num_preemptions_total", "Choices that lost their KV blocks and start again.")
STEP_SECONDS = _histogram("outrider_step_seconds", "Wall time of one round.", _STEP_BUCKETS)
FORWARD_SECONDS = _histogram(
    "outrider_forward_seconds", "Time of the target's forward pass in one round.", _STEP_BUCKETS
)
FORWARD_ROWS = _counter("outrider_forward_rows_total", "Rows that went through the target.")
WASTED_DRAFT_TOKENS = _counter("outrider_wasted_draft_tokens_total", "Draft tokens verified and rejected.")
ENTROPY_BITS = _histogram("outrider_target_entropy_bits", "Entropy of the target at emitted tokens.", _ENTROPY_BUCKETS)
QUEUED_REQUESTS = _gauge("outrider_queued_requests", "Choices admitted that have no token yet.")
QUEUED_TOKENS = _gauge("outrider_queued_tokens", "Prompt tokens of choices admitted that have no token yet.")
ADMISSION_REJECTIONS = _counter("outrider_admission_rejections_total", "Requests refused with 429, by limit.", "reason")

ENGINE_METRICS = (
    NUM_DRAFTS, NUM_DRAFT_TOKENS, NUM_ACCEPTED_TOKENS, NUM_ACCEPTED_PER_POS, TIME_TO_FIRST_TOKEN, INTER_TOKEN_LATENCY,
    TIME_PER_OUTPUT_TOKEN, E2E_LATENCY, REQUEST_SUCCESS, NUM_RUNNING, NUM_WAITING, KV_CACHE_USAGE, PROMPT_TOKENS,
    GENERATION_TOKENS, PREFIX_CACHE_QUERIES, PREFIX_CACHE_HITS, NUM_PREEMPTIONS, STEP_SECONDS, FORWARD_SECONDS,
    FORWARD_ROWS, WASTED_DRAFT_TOKENS, ENTROPY_BITS, QUEUED_REQUESTS, QUEUED_TOKENS, ADMISSION_REJECTIONS,
)  # fmt: skip
"""Recorded by each verifier replica, with `ENGINE_LABELS`."""

HTTP_REQUESTS = _counter("outrider_http_requests_total", "HTTP requests answered.", "route", "status")
HTTP_SECONDS = _histogram(
    "outrider_http_request_seconds",
    "From the request's headers to the last byte of the answer.",
    _LATENCY_BUCKETS,
    "route",
)
HTTP_ACTIVE = _gauge("outrider_http_active_requests", "Generation requests in progress at the gateway.")
ROUTE_DECISIONS = _counter("outrider_route_decisions_total", "Routing decisions.", "pool", "reason")

GATEWAY_LABELS = ("gateway",)
"""Carried by every metric of a gateway; the value is the replica."""

GATEWAY_METRICS = (HTTP_REQUESTS, HTTP_SECONDS, HTTP_ACTIVE, ROUTE_DECISIONS)
"""Recorded by each gateway replica, with `GATEWAY_LABELS`."""
