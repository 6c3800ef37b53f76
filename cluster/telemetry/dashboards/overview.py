"""The first look: is it well, how fast is it, what does it do now."""

from cluster.telemetry.dashboards.model import (
    Dashboard,
    Needs,
    Panel,
    PanelKind,
    Query,
    Row,
    Step,
    Unit,
    good_below,
    stat,
)
from cluster.telemetry.dashboards.promql import API, in_role, pick, quantile, rate, ratio, total, zero_without

DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
REQUESTS = "outrider_http_requests_total"
TTFT = "vllm:time_to_first_token_seconds"
GAP = "vllm:inter_token_latency_seconds"
FIRING = pick("ALERTS", 'alertstate="firing"')
TPOT = "vllm:request_time_per_output_token_seconds"


def _share_of_status(status: str) -> str:
    return ratio(zero_without(rate(REQUESTS, API, f'status=~"{status}"')), rate(REQUESTS, API))


_HEALTH = Row(
    title="Is it well?",
    panels=(
        stat(
            "Verifiers ready", Unit.COUNT, f"min(sum by (gateway) ({pick('outrider_router_replicas')}))",
            "Verifiers that the gateways can send work to; the gateway that knows fewest counts. 0: nobody is served. "
            "Look at the Serve page of the Ray dashboard for replicas that do not start, and at their logs.",
            steps=(Step(value=None, color="red"), Step(value=1, color="green")),
        ),
        stat(
            "Answers that failed", Unit.SHARE, _share_of_status("5.."),
            "Share of requests answered 5xx. Above 0 for long: the body's `code` and the gateway's log name the cause; "
            "compare with Resumed answers below, which counts replicas that were lost.",
            steps=good_below(0.001, 0.01),
        ),
        stat(
            "Refused for load", Unit.SHARE, _share_of_status("429"),
            "Share of requests answered 429. Clients were told when to come again. Above a few percent for long: add "
            "verifiers (num_verifiers or pools.max_replicas), or raise the limits in `admission` if latency allows.",
            steps=good_below(0.01, 0.05),
        ),
        stat(
            "Time to first token, p95", Unit.SECONDS, quantile(0.95, TTFT),
            "From arrival at a verifier to the first token. It grows with the queue first: look at Waiting below and "
            "at the objective on the Pools dashboard.",
        ),
        stat(
            "Time per output token, p95", Unit.SECONDS, quantile(0.95, TPOT),
            "Of finished choices. It grows with the batch. If it is too long while replicas are free, look at the "
            "Speculation dashboard: drafts may not be accepted.",
        ),
        stat(
            "Alerts firing", Unit.COUNT, zero_without(f"count({FIRING})"),
            "How many alert rules fire; the table below names them. It stays 0 where the rules are not loaded.",
            steps=good_below(1, 3),
        ),
    ),
)  # fmt: skip

_NOW = Row(
    title="What it does now",
    panels=(
        stat(
            "Output", Unit.TOKENS_PER_S, rate("vllm:generation_tokens_total"),
            "Tokens delivered per second by all verifiers. It falls with the load; if it falls while requests wait, "
            "look for lost replicas.",
        ),
        stat(
            "Speculative verifiers", Unit.COUNT, total("outrider_role", 'role="speculative"'),
            "Verifiers that draft now: few sequences, short latency. The Pools dashboard says why there are so many.",
        ),
        stat(
            "Batch verifiers", Unit.COUNT, total("outrider_role", 'role="batch"'),
            "Verifiers that do not draft now: many sequences, much throughput. The Pools dashboard says why.",
        ),
        stat(
            "Draft tokens accepted", Unit.SHARE, ratio(rate(ACCEPTED), rate(DRAFTED)),
            "Accepted / drafted. What is usual depends on the text: more for code and JSON than for chat. Near 0 or 1 "
            "something is wrong: see the Speculation dashboard.",
        ),
        stat(
            "Mean acceptance length", Unit.TOKENS,
            f"1 + {ratio(rate(ACCEPTED), rate('vllm:spec_decode_num_drafts_total'))}",
            "Tokens that a round with a draft brings, the target's own included. 1 means that drafts bring nothing.",
        ),
        stat(
            "Cost per million tokens", Unit.USD,
            ratio(
                f"1e6 * ({rate('outrider_cost_usd_total')} + "
                f"({zero_without(rate('outrider_drafter_cost_usd_total'))}))",
                rate("vllm:generation_tokens_total"),
            ),
            "Delivered tokens, idle time included; 0 without prices in `cost`. It rises when replicas idle: let "
            "pools.min_replicas be smaller. The Cost dashboard divides it.",
            needs=Needs.PRICE,
        ),
    ),
)  # fmt: skip

_TRAFFIC = Row(
    title="Load",
    panels=(
        Panel(
            title="Requests by status", unit=Unit.REQUESTS_PER_S, stacked=True, lowest=0,
            queries=(Query(expr=rate(REQUESTS, API, by="status, route"), legend="{{status}} {{route}}"),),
            description="4xx are the clients' mistakes, 429 is overload, 5xx are ours. A step in 401 is a rotated key.",
        ),
        Panel(
            title="Running and waiting choices", unit=Unit.COUNT, lowest=0,
            queries=(
                Query(expr=total("vllm:num_requests_running"), legend="running"),
                Query(expr=total("vllm:num_requests_waiting"), legend="waiting"),
                Query(expr=total("outrider_queued_requests"), legend="without a token yet"),
                Query(expr=total("outrider_http_active_requests"), legend="requests at the gateways"),
            ),
            description="Waiting above 0 for long means that seats or KV blocks are missing: more verifiers, or more "
            "seats in `pools`. Requests without choices at the verifiers are being resumed or wait for a replica.",
        ),
        Panel(
            title="Tokens", unit=Unit.TOKENS_PER_S, lowest=0,
            queries=(
                Query(expr=rate("vllm:generation_tokens_total"), legend="output"),
                Query(expr=rate("vllm:prompt_tokens_total"), legend="prompts"),
                Query(expr=rate("vllm:prefix_cache_hits_total"), legend="prompts from the prefix cache"),
            ),
            description="If few prompt tokens come from the cache although prompts repeat, check that requests of one "
            "conversation use one API key or `cache_salt`: the cache is not shared between keys.",
        ),
    ),
)  # fmt: skip

_LATENCY = Row(
    title="Latency",
    panels=(
        Panel(
            title="Time to first token", unit=Unit.SECONDS, lowest=0, width=12,
            queries=tuple(Query(expr=quantile(q, TTFT), legend=f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
            description="Queue and prefill. p50 high: prompts are long or replicas few. Only p99 high: bursts; look at "
            "Waiting.",
        ),
        Panel(
            title="Time per output token, by role", unit=Unit.SECONDS, lowest=0, width=12,
            queries=tuple(
                Query(
                    expr="histogram_quantile(0.95, sum by (le) ("
                    + in_role(f"rate({pick(f'{TPOT}_bucket')}[$__rate_interval])", role) + "))",
                    legend=f"{role} p95",
                    needs=Needs.TRAFFIC if role == "speculative" else Needs.MOVES,
                )
                for role in ("speculative", "batch")
            ),
            description="By the role that the verifier has now. Batch is slower on purpose. If speculative is no "
            "quicker than batch, drafts do not pay: see the Speculation dashboard.",
        ),
        Panel(
            title="Gap between rounds that brought tokens", unit=Unit.SECONDS, lowest=0, width=12,
            queries=tuple(Query(expr=quantile(q, GAP), legend=f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
            description="What a reader feels as stuttering. p99 far above p50: long prompts are read in between; lower "
            "engine.prefill_chunk_tokens.",
        ),
        Panel(
            title="Whole requests, p95 by route", unit=Unit.SECONDS, lowest=0, width=12,
            queries=(
                Query(expr=quantile(0.95, "outrider_http_request_seconds", API, by="route"), legend="{{route}}"),
            ),
            description="From the headers to the last byte at the gateway. Much longer than the verifiers' own times: "
            "clients read slowly, or the gateway is short of CPU (gateway_cpus, num_gateways).",
        ),
    ),
)  # fmt: skip

_CAPACITY = Row(
    title="Capacity and faults",
    panels=(
        Panel(
            title="KV blocks in use", unit=Unit.SHARE, lowest=0, highest=1, width=12,
            queries=(Query(expr=pick("vllm:kv_cache_usage_perc"), legend="{{engine}}"),),
            description="By verifier. Near 1 with preemptions: more KV memory (engine.kv_cache_tokens), fewer seats, "
            "or more verifiers. Not back at 0 while idle: report it, something leaks.",
        ),
        Panel(
            title="Preemptions, aborted and failed choices", unit=Unit.PER_S, lowest=0, width=12,
            queries=(
                Query(expr=rate("vllm:num_preemptions_total"), legend="preempted"),
                Query(
                    expr=rate("vllm:request_success_total", 'finished_reason=~"abort|deadline|error"',
                              by="finished_reason"),
                    legend="{{finished_reason}}",
                ),
            ),
            description="Preempted choices are computed again: KV blocks are short. `abort` are clients that hung up, "
            "`deadline` requests that took longer than they allow, `error` passes that failed: see the log.",
        ),
        Panel(
            title="Refused for load, by limit", unit=Unit.PER_S, lowest=0, width=12,
            queries=(
                Query(
                    expr=rate("outrider_admission_rejections_total", by="reason"), legend="{{reason}}",
                    needs=Needs.TROUBLE,
                ),
            ),
            description="Which limit in `admission` refuses requests with 429. max_queued_tokens before "
            "max_queued_requests: few but long prompts.",
        ),
        Panel(
            title="Resumed answers", unit=Unit.PER_S, lowest=0, width=12,
            queries=(
                Query(
                    expr=rate("outrider_resumes_total", by="result, reason"), legend="{{result}}: {{reason}}",
                    needs=Needs.TROUBLE,
                ),
            ),
            description="Answers that went on at another replica because theirs was lost; clients saw nothing of "
            "`resumed`, and an error after `gave_up`. Look for the lost replica on the Serve page of the Ray "
            "dashboard.",
        ),
        Panel(
            title="Alerts that fire", unit=Unit.COUNT, kind=PanelKind.TABLE, width=24,
            queries=(
                Query(
                    expr=f"count by (alertname, severity) ({FIRING})", legend="how many",
                    needs=Needs.TROUBLE,
                ),
            ),
            labels=(("alertname", "alert"), ("severity", "severity")),
            description="Each alert carries its runbook in the annotation `runbook`: what it means and what to do. "
            "Empty: nothing is wrong, or the rules are not loaded in this Prometheus.",
        ),
    ),
)  # fmt: skip

OVERVIEW = Dashboard(
    uid="outrider-overview",
    title="Outrider: overview",
    description="Is it well, how fast is it, and what does it do now?",
    rows=(_HEALTH, _NOW, _TRAFFIC, _LATENCY, _CAPACITY),
)
