"""Alert rules: a figure, when it is wrong, and what to do then."""

from cluster.telemetry.dashboards.model import Needs
from cluster.telemetry.dashboards.rule import Rule, Severity, Thresholds
from cluster.telemetry.dashboards.rules_speculation import POOLS, SPECULATION

_API = 'route=~"/v1/.+"'
_ALL_REQUESTS = f"sum by (job) (rate(outrider_http_requests_total{{{_API}}}[5m]))"
_OUTPUT = "sum by (job) (rate(vllm:generation_tokens_total[30m]))"
_USD = (
    "(sum by (job) (rate(outrider_cost_usd_total[30m])) + on (job) "
    "(sum by (job) (rate(outrider_drafter_cost_usd_total[30m])) or 0 * sum by (job) (outrider_http_active_requests)))"
)


def rules(thresholds: Thresholds | None = None) -> tuple[Rule, ...]:
    """All rules."""
    limits = thresholds or Thresholds()
    return (*AVAILABILITY, *_slo_rules(limits), *LOAD, *SPECULATION, *POOLS, _cost_rule(limits))


def _share_of_status(status: str) -> str:
    found = f'sum by (job) (rate(outrider_http_requests_total{{{_API},status=~"{status}"}}[5m]))'
    return f"({found} or 0 * {_ALL_REQUESTS}) / ({_ALL_REQUESTS} > 0)"


AVAILABILITY = (
    Rule(
        name="OutriderUnreachable",
        signal="count(outrider_http_active_requests) or vector(0)",
        wrong="== 0",
        lasting="2m",
        severity=Severity.CRITICAL,
        summary="No gateway can be scraped.",
        runbook="No gateway answers /metrics, or Prometheus has no target for them. Ask GET /health by hand. 401: "
        "the scrape's key is wrong. 404: the application is not deployed; see `serve status`. No answer: see the "
        "Serve page of the Ray dashboard and the head node.",
    ),
    Rule(
        name="OutriderNoReadyVerifier",
        signal="min by (job) (sum by (job, gateway) (outrider_router_replicas))",
        wrong="== 0",
        lasting="1m",
        severity=Severity.CRITICAL,
        summary="A gateway knows no verifier that takes work: its clients get 503.",
        runbook="Look at the Verifier deployment on the Serve page of the Ray dashboard. Replicas that start and "
        "die: read their log; the memory plan at its top names the setting to change. Replicas that wait: GPUs or "
        "nodes are missing, see `ray status`. After a bad update: deploy the last configuration again.",
    ),
    Rule(
        name="OutriderVerifiersMissing",
        signal="max by (job) (outrider_planned_replicas) - on (job) sum by (job) (outrider_pool_replicas)",
        wrong="> 0",
        lasting="10m",
        severity=Severity.WARNING,
        summary="{{ $value }} verifiers fewer than the load asks for.",
        runbook="The controller's plan is not met. See `ray status` for resources that are asked for and not "
        "there, and pods that are pending; the cluster may be at the limit of its autoscaler. Until then lower "
        "pools.max_replicas, so that the plan is honest.",
        needs=Needs.POOLS,
    ),
    Rule(
        name="OutriderErrors",
        signal=_share_of_status("5.."),
        wrong="> 0.01",
        lasting="5m",
        severity=Severity.CRITICAL,
        summary="{{ $value | humanizePercentage }} of the requests fail.",
        runbook="503: no replica took the request; see OutriderNoReadyVerifier. 500: the gateway's log has the "
        "request id and the cause. If it began with an update, deploy the last configuration again.",
    ),
    Rule(
        name="OutriderAnswersLost",
        signal='sum by (job) (increase(outrider_resumes_total{result="gave_up"}[15m]))',
        wrong="> 0",
        lasting="0m",
        severity=Severity.CRITICAL,
        summary="{{ $value }} answers broke off in the middle: no replica could go on with them.",
        runbook="Replicas were lost faster than answers could be resumed. Look for the cause at "
        "OutriderAnswersResumed. More verifiers, or a higher max_resumes, make it rarer.",
        needs=Needs.TROUBLE,
    ),
    Rule(
        name="OutriderAnswersResumed",
        signal='sum by (job) (increase(outrider_resumes_total{result="resumed"}[15m]))',
        wrong="> 10",
        lasting="0m",
        severity=Severity.WARNING,
        summary="{{ $value }} answers went on at another replica in 15 minutes.",
        runbook="Clients saw nothing of it, but verifiers are being lost. On the Serve page of the Ray dashboard "
        "look at replicas that died lately, and why: out of memory, a node that went away, a failed health check.",
        needs=Needs.TROUBLE,
    ),
    Rule(
        name="OutriderSettingsRefused",
        signal="sum by (job) (outrider_user_config_refused)",
        wrong="> 0",
        lasting="2m",
        severity=Severity.WARNING,
        summary="{{ $value }} replicas refused the last user_config and go on with the one before it.",
        runbook="The replica's log names the field, its value and what is allowed. Mend user_config in the Serve "
        "configuration and deploy it again; until then replicas that start anew may behave otherwise than the rest.",
    ),
)

LOAD = (
    Rule(
        name="OutriderOverload",
        signal=_share_of_status("429"),
        wrong="> 0.05",
        lasting="5m",
        severity=Severity.WARNING,
        summary="{{ $value | humanizePercentage }} of the requests are refused with 429.",
        runbook="More work comes in than is done. Clients that honour Retry-After come back. Add verifiers (raise "
        "pools.max_replicas or num_verifiers); raise admission.max_queued_requests only if waiting is better than "
        "being refused.",
    ),
    Rule(
        name="OutriderPreemptions",
        signal="sum by (job) (rate(vllm:num_preemptions_total[10m]))",
        wrong="> 0.1",
        lasting="10m",
        severity=Severity.WARNING,
        summary="{{ $value | humanize }} choices a second lose their KV blocks and are computed again.",
        runbook="KV memory is too small for the batch. Raise engine.kv_cache_tokens if memory allows (start-up "
        "prints the plan), lower the seats in pools, or add verifiers.",
    ),
)


def _slo_rules(limits: Thresholds) -> tuple[Rule, ...]:
    return (
        _slo_rule(
            name="OutriderTimeToFirstToken",
            buckets="rate(vllm:time_to_first_token_seconds_bucket[5m])",
            kind="ttft",
            default_s=limits.ttft_slo_s,
            what="time to the first token",
            runbook="Requests wait. If 429s rise as well, there are too few verifiers: raise pools.max_replicas or "
            "num_verifiers. If the queue is short, prompts are long: see prefix cache hits, and "
            "engine.prefill_chunk_tokens.",
        ),
        _slo_rule(
            name="OutriderTimePerOutputToken",
            buckets="(rate(vllm:request_time_per_output_token_seconds_bucket[5m]) and on (job, engine) "
            '(outrider_role{role="speculative"} == 1))',
            kind="tpot",
            default_s=limits.tpot_slo_s,
            what="time per output token of speculative verifiers",
            runbook="Batches are too large for interactive work, or drafts are not accepted. Lower "
            "pools.speculative_max_num_seqs, add verifiers, or see OutriderSpeculationDoesNotPay. On a shared machine "
            "look at its other load first.",
        ),
    )


def _slo_rule(*, name: str, buckets: str, kind: str, default_s: float, what: str, runbook: str) -> Rule:
    """p95 against the controller's objective, or against the default where there is no controller."""
    objective = (
        f'(max by (job) (outrider_pool_objective_seconds{{kind="{kind}"}}) '
        f"or {default_s:g} + 0 * max by (job) (vllm:num_requests_running))"
    )
    return Rule(
        name=name,
        signal=f"histogram_quantile(0.95, sum by (job, le) ({buckets})) / on (job) {objective}",
        wrong="> 1",
        lasting="10m",
        severity=Severity.WARNING,
        summary=f"The p95 of the {what} is {{{{ $value | humanize }}}} times its objective.",
        runbook=runbook,
    )


def _cost_rule(limits: Thresholds) -> Rule:
    return Rule(
        name="OutriderCost",
        signal=f"1e6 * {_USD} / on (job) ({_OUTPUT} > 0)",
        wrong=f"> {limits.usd_per_million_tokens:g}",
        lasting="30m",
        severity=Severity.WARNING,
        summary="A million delivered tokens cost {{ $value | humanize }} USD.",
        runbook="Idle time is included. Busy share low (Cost dashboard): fewer verifiers, lower "
        "pools.min_replicas. Busy share high: does speculation pay? Are the prices in `cost` right? The limit is set "
        "by `outrider dashboards --usd-per-million-tokens`.",
        needs=Needs.PRICE,
    )
