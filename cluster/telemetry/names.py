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
        optional: without labels of its own, it has no sample before its first value.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    optional: bool = False


ENGINE_LABELS = ("model_name", "engine")
"""Carried by every metric of a verifier; `engine` is the replica."""

_LATENCY_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0)
_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)
_STEP_BUCKETS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2, 0.4, 0.8, 2.0)
_ENTROPY_BUCKETS = (0.01, 0.1, 0.3, 0.6, 1.2, 2.0, 2.75, 3.5, 5.0, 7.0, 10.0)


def _counter(name: str, text: str, *labels: str, optional: bool = False) -> Metric:
    return Metric(name=name, kind=MetricKind.COUNTER, help=text, labels=labels, optional=optional)


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
SOURCE_DRAFTS = _counter("outrider_drafts_total", "Drafts verified, by who made them.", "source")
SOURCE_DRAFT_TOKENS = _counter("outrider_draft_tokens_total", "Draft tokens verified, by who made them.", "source")
SOURCE_ACCEPTED_TOKENS = _counter(
    "outrider_accepted_draft_tokens_total", "Draft tokens accepted, by who made them.", "source"
)
DRAFT_LIMITS = _counter(
    "outrider_draft_limits_total",
    "Sequences that could have drafted in a round and did not, by reason: budget, batch, context or acceptance.",
    "reason",
)
CALIBRATION_ERROR = _gauge(
    "outrider_acceptance_calibration_error",
    "Expected calibration error of the chances that drafts are ranked by, over the latest 2000 draft tokens, 0..1.",
    "source",
)
DRAFT_WAIT_SECONDS = _counter("outrider_draft_wait_seconds_total", "Time in which rounds waited for drafts.")
OVERLAP_ACTIVE = _gauge(
    "outrider_overlap_active", "1 while drafts for half of the batch are made as the other half is verified, else 0."
)
HIDDEN_DRAFT_SECONDS = _counter(
    "outrider_hidden_draft_seconds_total", "Time in which drafts were made and others verified at once."
)
DRAFT_LOOKUPS = _counter(
    "outrider_draft_lookups_total",
    "Sequences that looked for a drafter actor's draft: hit, late, stale, miss or none.",
    "result",
)
DRAFT_FALLBACKS = _counter(
    "outrider_draft_fallbacks_total",
    "Sequences that did without the preferred drafter in a round, by reason.",
    "reason",
)
DRAFTER_TRANSITIONS = _counter(
    "outrider_drafter_transitions_total", "Changes of what the verifier thinks of its drafter actor.", "reason"
)
DRAFTER_CONNECTED = _gauge("outrider_drafter_connected", "1 while a drafter actor has welcomed the verifier.")
DRAFTER_QUARANTINED = _gauge("outrider_drafter_quarantined", "1 while the drafter actor is left alone or on probation.")
CHANNEL_MESSAGES = _counter(
    "outrider_draft_channel_messages_total", "Messages to and from drafter actors.", "direction"
)
CHANNEL_BYTES = _counter("outrider_draft_channel_bytes_total", "Encoded bytes of those messages.", "direction")
CHANNEL_DROPPED = _counter("outrider_draft_channel_dropped_total", "Messages that found no place in a queue.")
CHANNEL_MALFORMED = _counter(
    "outrider_draft_channel_malformed_total", "Pieces from drafter actors that were no valid message or draft."
)
LAYOUT = _gauge("outrider_layout", "1 for the layout in force: who drafts for this verifier.", "kind")
LAYOUT_TOKENS_PER_S = _gauge(
    "outrider_layout_expected_tokens_per_second",
    "Tokens per second of one sequence that each layout was expected to give, from the passes timed at start-up.",
    "kind",
)
ENTROPY_BITS = _histogram("outrider_target_entropy_bits", "Entropy of the target at emitted tokens.", _ENTROPY_BUCKETS)
QUEUED_REQUESTS = _gauge("outrider_queued_requests", "Choices admitted that have no token yet.")
QUEUED_TOKENS = _gauge("outrider_queued_tokens", "Prompt tokens of choices admitted that have no token yet.")
ADMISSION_REJECTIONS = _counter("outrider_admission_rejections_total", "Requests refused with 429, by limit.", "reason")
ROLE = _gauge("outrider_role", "1 for the role in force: what this verifier does now.", "role")
ROLE_FLIPS = _counter("outrider_role_flips_total", "Changes of role.")
ROLE_FLIP_SECONDS = _histogram(
    "outrider_role_flip_seconds", "From the order to change the role to its effect in the engine.", _LATENCY_BUCKETS
)
KV_TAX_TOKENS = _gauge(
    "outrider_kv_tax_tokens", "KV capacity in tokens that is withheld from new sequences for speculation."
)
ROLE_SECONDS = _counter("outrider_role_seconds_total", "Wall time since the replica started, by its role.", "role")
BUSY_SECONDS = _counter("outrider_busy_seconds_total", "Wall time of rounds, by role.", "role")
WASTED_SECONDS = _counter(
    "outrider_wasted_seconds_total",
    "Of the time of rounds, what rejected draft tokens added, from the fitted step times, by role.",
    "role",
)
COUNTERFACTUAL_SECONDS = _counter(
    "outrider_counterfactual_seconds_total",
    "Time that plain decoding would have needed for the same tokens, from the fitted step times, by role.",
    "role",
)
COST_USD = _counter(
    "outrider_cost_usd_total", "Price of the replica since it started, idle time included, by role.", "role"
)
ENERGY_JOULES = _counter(
    "outrider_energy_joules_total", "Energy of the replica's GPUs by role; absent without such counters.", "role"
)
DOMAIN_TOKENS = _counter("outrider_domain_tokens_total", "Tokens delivered, by domain and role.", "domain", "role")
DOMAIN_SECONDS = _counter(
    "outrider_domain_seconds_total",
    "Wall time of rounds, divided among the domains of their sequences, by domain and role.",
    "domain",
    "role",
)
DOMAIN_WASTED_SECONDS = _counter(
    "outrider_domain_wasted_seconds_total", "`outrider_wasted_seconds_total` by domain and role.", "domain", "role"
)
DOMAIN_COUNTERFACTUAL_SECONDS = _counter(
    "outrider_domain_counterfactual_seconds_total",
    "`outrider_counterfactual_seconds_total` by domain and role.",
    "domain",
    "role",
)
DOMAIN_DRAFT_TOKENS = _counter(
    "outrider_domain_draft_tokens_total",
    "Draft tokens verified, by domain, role and result: accepted or rejected.",
    "domain",
    "role",
    "result",
)

ENGINE_METRICS = (
    NUM_DRAFTS, NUM_DRAFT_TOKENS, NUM_ACCEPTED_TOKENS, NUM_ACCEPTED_PER_POS, TIME_TO_FIRST_TOKEN, INTER_TOKEN_LATENCY,
    TIME_PER_OUTPUT_TOKEN, E2E_LATENCY, REQUEST_SUCCESS, NUM_RUNNING, NUM_WAITING, KV_CACHE_USAGE, PROMPT_TOKENS,
    GENERATION_TOKENS, PREFIX_CACHE_QUERIES, PREFIX_CACHE_HITS, NUM_PREEMPTIONS, STEP_SECONDS, FORWARD_SECONDS,
    FORWARD_ROWS, WASTED_DRAFT_TOKENS, SOURCE_DRAFTS, SOURCE_DRAFT_TOKENS, SOURCE_ACCEPTED_TOKENS, DRAFT_WAIT_SECONDS,
    OVERLAP_ACTIVE, HIDDEN_DRAFT_SECONDS,
    DRAFT_LOOKUPS, DRAFT_FALLBACKS, DRAFTER_TRANSITIONS, DRAFTER_CONNECTED, DRAFTER_QUARANTINED, CHANNEL_MESSAGES,
    CHANNEL_BYTES, CHANNEL_DROPPED, CHANNEL_MALFORMED, LAYOUT, LAYOUT_TOKENS_PER_S, ENTROPY_BITS, QUEUED_REQUESTS,
    QUEUED_TOKENS, ADMISSION_REJECTIONS, ROLE, ROLE_FLIPS, ROLE_FLIP_SECONDS, KV_TAX_TOKENS,
    DRAFT_LIMITS, CALIBRATION_ERROR, ROLE_SECONDS, BUSY_SECONDS, WASTED_SECONDS, COUNTERFACTUAL_SECONDS, COST_USD,
    ENERGY_JOULES, DOMAIN_TOKENS, DOMAIN_SECONDS, DOMAIN_WASTED_SECONDS, DOMAIN_COUNTERFACTUAL_SECONDS,
    DOMAIN_DRAFT_TOKENS,
)  # fmt: skip
"""Recorded by each verifier replica, with `ENGINE_LABELS`."""

MEMBER_LABELS = ("engine",)
"""Carried by every metric of a verifier about its pool; the value is the replica."""

HEARTBEATS = _counter("outrider_heartbeats_total", "Heartbeats to the controller: answered or failed.", "result")
HEARTBEAT_AGE = _gauge("outrider_heartbeat_reply_age_seconds", "Time since the controller's last reply.")

MEMBER_METRICS = (HEARTBEATS, HEARTBEAT_AGE)
"""Recorded by each verifier replica that has a controller, with `MEMBER_LABELS`."""

CONFIG_LABELS = ("deployment", "replica")
"""Carried by every metric about a replica's settings."""

USER_CONFIG_REFUSED = _gauge(
    "outrider_user_config_refused", "1 while the last `user_config` was wrong, so that what came before it is in force."
)

CONFIG_METRICS = (USER_CONFIG_REFUSED,)
"""Recorded by each replica whose settings can change while it serves, with `CONFIG_LABELS`."""

HTTP_REQUESTS = _counter("outrider_http_requests_total", "HTTP requests answered.", "route", "status")
HTTP_SECONDS = _histogram(
    "outrider_http_request_seconds",
    "From the request's headers to the last byte of the answer.",
    _LATENCY_BUCKETS,
    "route",
)
HTTP_ACTIVE = _gauge("outrider_http_active_requests", "Generation requests in progress at the gateway.")
ROUTE_DECISIONS = _counter("outrider_route_decisions_total", "Routing decisions.", "pool", "reason")
RESUMES = _counter(
    "outrider_resumes_total",
    "Requests that lost their verifier, by why, and by whether another one went on: resumed or gave_up.",
    "reason",
    "result",
)

DRAINING = _gauge(
    "outrider_gateway_draining", "1 once the gateway is about to go: it finishes what it has, and is not ready."
)

GATEWAY_LABELS = ("gateway",)
"""Carried by every metric of a gateway; the value is the replica."""

GATEWAY_METRICS = (HTTP_REQUESTS, HTTP_SECONDS, HTTP_ACTIVE, ROUTE_DECISIONS, RESUMES, DRAINING)
"""Recorded by each gateway replica, with `GATEWAY_LABELS`."""

ROUTER_CALLS = _counter(
    "outrider_router_calls_total", "Calls by the pool asked for and the role of the replica chosen.", "pool", "role"
)
ROUTER_PREFIX_HITS = _counter(
    "outrider_router_prefix_hits_total", "Calls that went to a replica which computed their prefix before."
)
ROUTER_DEGRADED = _counter(
    "outrider_router_degraded_total",
    "Calls and replicas' reports that could not be read, so that load alone decided, by what was wrong.",
    "reason",
)
ROUTER_REPLICAS = _gauge("outrider_router_replicas", "Verifiers that the gateway's router knows, by role.", "role")
ROUTER_STATS_AGE = _gauge("outrider_router_stats_age_seconds", "Age of the oldest report that routing stands on.")

ROUTER_METRICS = (ROUTER_CALLS, ROUTER_PREFIX_HITS, ROUTER_DEGRADED, ROUTER_REPLICAS, ROUTER_STATS_AGE)
"""Recorded by each gateway replica for its router, with `GATEWAY_LABELS`."""

DRAFTER_LABELS = ("drafter",)
"""Carried by every metric of a drafter actor; the value is the replica."""

DRAFTER_LOADED = _gauge("outrider_drafter_model_loaded", "1 once the draft model is loaded.")
DRAFTER_VERIFIERS = _gauge("outrider_drafter_verifiers", "Verifiers that are connected.")
DRAFTER_SEQUENCES = _gauge("outrider_drafter_sequences", "Sequences followed.")
DRAFTER_KV_USAGE = _gauge("outrider_drafter_kv_cache_usage_ratio", "Used share of the draft model's KV blocks, 0..1.")
DRAFTER_BUSY = _gauge("outrider_drafter_busy_ratio", "Share of time in which the draft model ran, 0..1.")
DRAFTER_STEPS = _counter("outrider_drafter_steps_total", "Forward passes of the draft model.")
DRAFTER_FORWARD_SECONDS = _counter("outrider_drafter_forward_seconds_total", "Time in those passes.")
DRAFTER_ROUNDS = _counter("outrider_drafter_rounds_total", "Rounds that verifiers announced.")
DRAFTER_TABLES = _counter("outrider_drafter_tables_total", "Tables of one sequence sent.")
DRAFTER_LATE_TABLES = _counter("outrider_drafter_late_tables_total", "Those of them sent after the verdict was due.")
DRAFTER_SHORT_TABLES = _counter("outrider_drafter_short_tables_total", "Those of them cut short because time was up.")
DRAFTER_CANCELLED = _counter("outrider_drafter_cancelled_jobs_total", "Jobs that newer rounds made stale.")
DRAFTER_BRANCHES = _counter("outrider_drafter_branches_total", "Outcomes that tables held.")
DRAFTER_DRAFT_TOKENS = _counter("outrider_drafter_draft_tokens_total", "Draft tokens that tables held.")
DRAFTER_EVICTED = _counter("outrider_drafter_evicted_sequences_total", "Sequences dropped for being idle.")
DRAFTER_LOST = _counter("outrider_drafter_lost_sequences_total", "Sequences reported lost, by reason.", "reason")
DRAFTER_FAILURES = _counter("outrider_drafter_failures_total", "Messages and passes that failed.")
DRAFTER_SECONDS = _counter("outrider_drafter_seconds_total", "Wall time since the drafter started.")
DRAFTER_COST_USD = _counter(
    "outrider_drafter_cost_usd_total", "Price of the drafter since it started, idle time included."
)
DRAFTER_ENERGY_JOULES = _counter(
    "outrider_drafter_energy_joules_total", "Energy of the drafter's GPUs; absent without such counters.", optional=True
)

DRAFTER_METRICS = (
    DRAFTER_LOADED, DRAFTER_VERIFIERS, DRAFTER_SEQUENCES, DRAFTER_KV_USAGE, DRAFTER_BUSY, DRAFTER_STEPS,
    DRAFTER_FORWARD_SECONDS, DRAFTER_ROUNDS, DRAFTER_TABLES, DRAFTER_LATE_TABLES, DRAFTER_SHORT_TABLES,
    DRAFTER_CANCELLED, DRAFTER_BRANCHES, DRAFTER_DRAFT_TOKENS, DRAFTER_EVICTED, DRAFTER_LOST, DRAFTER_FAILURES,
    DRAFTER_SECONDS, DRAFTER_COST_USD, DRAFTER_ENERGY_JOULES,
)  # fmt: skip
"""Recorded by each drafter replica, with `DRAFTER_LABELS`."""

CONTROLLER_LABELS = ("controller",)
"""Carried by every metric of the controller; the value is the replica."""

POOL_REPLICAS = _gauge("outrider_pool_replicas", "Verifiers heard of lately, by the role that they have.", "role")
POOL_TARGET = _gauge("outrider_pool_target_replicas", "Verifiers by the role that they should have.", "role")
POOL_RUNNING = _gauge("outrider_pool_running_requests", "Choices in running batches, by role.", "role")
POOL_WAITING = _gauge("outrider_pool_waiting_requests", "Choices that wait for a place in a batch, by role.", "role")
POOL_TOKENS_PER_S = _gauge("outrider_pool_tokens_per_second", "Output of the last seconds, by role.", "role")
POOL_LATENCY = _gauge(
    "outrider_pool_latency_p95_seconds",
    "The worst replica's p95 of the last seconds, by role: time to the first token (ttft) or per output token (tpot).",
    "role",
    "kind",
)
POOL_OBJECTIVE = _gauge("outrider_pool_objective_seconds", "Objective for ttft and tpot.", "kind")
POOL_LEAVING = _gauge("outrider_pool_leaving_replicas", "Verifiers that only finish what they began, and go away.")
POOL_DECISIONS = _counter("outrider_pool_decisions_total", "Decisions of the controller, by reason.", "reason")
POOL_MOVES = _counter(
    "outrider_pool_moves_total", "Changes of role that the controller began, by new role and why.", "role", "reason"
)
POOL_LAST_DECISION = _gauge(
    "outrider_pool_last_decision_timestamp_seconds", "Unix time of the controller's last decision, by reason.", "reason"
)
POOL_LAST_MOVE = _gauge(
    "outrider_pool_last_move_timestamp_seconds",
    "Unix time of the last change of role that the controller began, by new role and why.",
    "role",
    "reason",
)
POOL_DECISION_INPUT = _gauge(
    "outrider_pool_decision_input",
    "The figures behind the controller's latest decision (now) and its latest change of role (move), by name; NaN for "
    "those that it went without.",
    "input",
    "decision",
)
POOL_PINNED = _gauge("outrider_pool_pinned", "1 while an operator has fixed the split.")
PLANNED_REPLICAS = _gauge("outrider_planned_replicas", "How many verifiers the load asks for.")
HEARTBEATS_HEARD = _counter(
    "outrider_controller_heartbeats_total", "Heartbeats that came in: ok or malformed.", "result"
)

CONTROLLER_METRICS = (
    POOL_REPLICAS, POOL_TARGET, POOL_RUNNING, POOL_WAITING, POOL_TOKENS_PER_S, POOL_LATENCY, POOL_OBJECTIVE,
    POOL_LEAVING, POOL_DECISIONS, POOL_MOVES, POOL_LAST_DECISION, POOL_LAST_MOVE,
    POOL_DECISION_INPUT, POOL_PINNED, PLANNED_REPLICAS, HEARTBEATS_HEARD,
)  # fmt: skip
"""Recorded by the controller, with `CONTROLLER_LABELS`."""

TRACE_LABELS = ("component", "replica")
"""Carried by the metric of traces: gateway, verifier or drafter, and which one."""

TRACE_SPANS = _counter(
    "outrider_trace_spans_total",
    "Ended spans of sampled traces, by what became of them: exported, failed or dropped.",
    "result",
)

TRACE_METRICS = (TRACE_SPANS,)
"""Recorded by each gateway, verifier and drafter that traces, with `TRACE_LABELS`."""
