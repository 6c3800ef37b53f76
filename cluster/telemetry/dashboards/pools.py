"""Which verifier does what, and why: roles, decisions, moves, routing."""

from cluster.telemetry.dashboards.model import (
    Dashboard,
    Needs,
    Panel,
    PanelKind,
    Query,
    Row,
    Unit,
    good_below,
    stat,
)
from cluster.telemetry.dashboards.promql import (
    EVENT_STEP,
    age,
    mean,
    pick,
    quantile,
    rate,
    rise,
    seconds_since,
    total,
)

DECISIONS = "outrider_pool_decisions_total"
MOVES = "outrider_pool_moves_total"
INPUTS = "outrider_pool_decision_input"
REASONS = (
    "steady: the split is right. waiting: another looks better, not for long enough yet. cooldown: the last move was "
    "too short ago. moving: a move is not confirmed yet. slo, throughput, headroom: a move began, to keep an "
    "objective, for more tokens, or because nothing is lost by it. bounds: a pool was smaller or larger than allowed. "
    "pinned: an operator or pools.mode fixed it. dry_run: it would move. single_replica: nothing to divide. stale, "
    "no_replicas: too little was heard."
)
_SPECULATIVE, _BATCH = 'role="speculative"', 'role="batch"'
_BECAME = (
    f"({pick('outrider_role')} == 1) unless on (job, engine, role) ({pick('outrider_role')} offset {EVENT_STEP} == 1)"
)


def _figures(which: str) -> str:
    """The figures of a decision; those that it went without are NaN, which equals nothing."""
    figures = pick(INPUTS, which)
    return f"max by (input) ({figures} == {figures})"


_NOW = Row(
    title="The pools now",
    panels=(
        stat(
            "Speculative, wanted", Unit.COUNT, total("outrider_pool_target_replicas", _SPECULATIVE),
            "What the controller wants. It differs from what is there only while a replica moves.", needs=Needs.POOLS,
        ),
        stat(
            "Batch, wanted", Unit.COUNT, total("outrider_pool_target_replicas", _BATCH),
            "What the controller wants. It differs from what is there only while a replica moves.", needs=Needs.POOLS,
        ),
        stat(
            "Verifiers that the load asks for", Unit.COUNT, f"max({pick('outrider_planned_replicas')})",
            "The plan for the number of verifiers; Serve follows it between pools.min_replicas and max_replicas. Above "
            "what runs for minutes: nodes or GPUs are missing, see `ray status`.", needs=Needs.POOLS,
        ),
        stat(
            "Verifiers that leave", Unit.COUNT, total("outrider_pool_leaving_replicas"),
            "They finish their streams and go; what is left after drain_timeout_s is cut.", needs=Needs.POOLS,
        ),
        stat(
            "Split pinned", Unit.COUNT, f"max({pick('outrider_pool_pinned')})",
            "1 while an operator has fixed the split; `outrider pools unpin` lets the load decide again.",
            steps=good_below(1, 2), needs=Needs.POOLS,
        ),
        stat(
            "Controller's last answer", Unit.SECONDS, f"max({pick('outrider_heartbeat_reply_age_seconds')})",
            "Age at the verifier that waits longest. Above 10 s the controller is gone: roles stay as they are, and "
            "clients notice nothing. Look at the Controller deployment on the Serve page of the Ray dashboard.",
            steps=good_below(3, 10), needs=Needs.POOLS,
        ),
    ),
)  # fmt: skip

_WHY = Row(
    title="Last decisions, and why",
    panels=(
        Panel(
            title="Last decisions", unit=Unit.SECONDS, kind=PanelKind.TABLE, latest_first=True,
            queries=(
                Query(expr=age("outrider_pool_last_decision_timestamp_seconds", "reason"), legend="ago",
                      needs=Needs.POOLS),
            ),
            labels=(("reason", "reason"),),
            description=f"When each reason was last given; the first one is in force. {REASONS}",
        ),
        Panel(
            title="Last changes of role", unit=Unit.SECONDS, kind=PanelKind.TABLE, latest_first=True,
            queries=(Query(expr=seconds_since(_BECAME, "engine, role"), legend="ago"),),
            labels=(("engine", "verifier"), ("role", "became")),
            description="Which verifier took which role, and when; a start counts as a change.",
        ),
        Panel(
            title="Last moves, and why", unit=Unit.SECONDS, kind=PanelKind.TABLE, latest_first=True,
            queries=(
                Query(expr=age("outrider_pool_last_move_timestamp_seconds", "role, reason"), legend="ago",
                      needs=Needs.MOVES),
            ),
            labels=(("role", "a verifier became"), ("reason", "because of")),
            description="Moves that the controller began, and the reason of each. Every decision "
            "with its figures stands in the controller's log and in `outrider pools status --json`.",
        ),
        Panel(
            title="Figures behind the decisions", unit=Unit.COUNT, kind=PanelKind.TABLE, width=12,
            queries=(
                Query(expr=_figures('decision="now"'), legend="now", needs=Needs.POOLS),
                Query(expr=_figures('decision="move"'), legend="at the last move", needs=Needs.MOVES),
            ),
            labels=(("input", "figure"),),
            description="What the controller saw. num_*: verifiers by role. sequences_*: choices in hand. *_now: "
            "predicted for the split in force, *_target: for the one it wants, of which target_speculative verifiers "
            "are speculative; a pin or a bound predicts nothing. missing_*: sequences outside an objective; a split "
            "with fewer of them wins, then the one with more tokens_per_s.",
        ),
        Panel(
            title="Moves begun", unit=Unit.COUNT, kind=PanelKind.BARS, width=12, lowest=0,
            queries=(Query(expr=rise(MOVES, by="role, reason"), legend="{{role}}: {{reason}}", needs=Needs.POOLS),),
            description="How many replicas were moved in the time shown, and why. Many slo and headroom in turn: the "
            "controller oscillates; raise pools.cooldown_s or pools.hold_s.",
        ),
        Panel(
            title="Role of each verifier", unit=Unit.COUNT, kind=PanelKind.STATES, width=12,
            queries=(Query(expr=pick("outrider_role", _BATCH), legend="{{engine}}"),),
            names=(("0", "speculative", "blue"), ("1", "batch", "orange")),
            description="A bar that ends is a verifier that went away. Roles that alternate every minute or so cost "
            "more than they bring: see the alert OutriderControllerOscillates.",
        ),
        Panel(
            title="Decisions by reason", unit=Unit.PER_S, width=12, stacked=True, lowest=0,
            queries=(Query(expr=rate(DECISIONS, by="reason"), legend="{{reason}}", needs=Needs.POOLS),),
            description=REASONS,
        ),
    ),
)  # fmt: skip


def _against_objective(kind: str, title: str, advice: str) -> Panel:
    worst = pick("outrider_pool_latency_p95_seconds", f'kind="{kind}"')
    objective = pick("outrider_pool_objective_seconds", f'kind="{kind}"')
    return Panel(
        title=title, unit=Unit.SECONDS, lowest=0,
        queries=(
            Query(expr=f"max by (role) ({worst})", legend="{{role}}, p95 of the worst replica", needs=Needs.POOLS),
            Query(expr=f"max({objective})", legend="objective", needs=Needs.POOLS),
        ),
        description=f"Of the last seconds; 0 while nothing ended. {advice}",
    )  # fmt: skip


_LOAD = Row(
    title="Pools under load",
    panels=(
        Panel(
            title="Running and waiting", unit=Unit.COUNT, lowest=0,
            queries=(
                Query(expr=total("outrider_pool_running_requests", by="role"), legend="{{role}} running",
                      needs=Needs.POOLS),
                Query(expr=total("outrider_pool_waiting_requests", by="role"), legend="{{role}} waiting",
                      needs=Needs.POOLS),
            ),
            description="Waiting in one pool while the other has room: requests ask for that pool; see Routing.",
        ),
        _against_objective(
            "ttft", "Time to first token against the objective",
            "Above it (pools.ttft_slo_s) in the speculative pool: the controller moves verifiers to batch; if all are, "
            "add verifiers.",
        ),
        _against_objective(
            "tpot", "Time per output token against the objective",
            "It is meant for interactive work (pools.tpot_slo_s): the batch pool may be above it.",
        ),
        Panel(
            title="Output by pool", unit=Unit.TOKENS_PER_S, stacked=True, lowest=0,
            queries=(
                Query(expr=total("outrider_pool_tokens_per_second", by="role"), legend="{{role}}", needs=Needs.POOLS),
            ),
            description="Of the last seconds, as the controller heard it. 0 with running requests: heartbeats stopped.",
        ),
        Panel(
            title="Size of the pools", unit=Unit.COUNT, lowest=0,
            queries=(
                Query(expr=total("outrider_pool_replicas", by="role"), legend="{{role}}", needs=Needs.POOLS),
                Query(expr=total("outrider_pool_target_replicas", by="role"), legend="{{role}}, wanted",
                      needs=Needs.POOLS),
            ),
            description="Verifiers heard of lately. Fewer than the Serve page shows: their heartbeats do not arrive.",
        ),
        Panel(
            title="Time that a change of role takes", unit=Unit.SECONDS, lowest=0,
            queries=(
                Query(expr=quantile(0.95, "outrider_role_flip_seconds"), legend="p95", needs=Needs.MOVES),
                Query(expr=mean("outrider_role_flip_seconds"), legend="mean", needs=Needs.MOVES),
            ),
            description="From the order to its effect, between two rounds; under 0.1 s. Longer: rounds are long, so "
            "lower engine.max_num_batched_tokens.",
        ),
    ),
)  # fmt: skip

_ROUTING = Row(
    title="Routing and replicas",
    panels=(
        Panel(
            title="Routing decisions", unit=Unit.REQUESTS_PER_S, stacked=True, lowest=0,
            queries=(
                Query(expr=rate("outrider_route_decisions_total", by="pool, reason"), legend="{{pool}}: {{reason}}"),
            ),
            description="Why requests go where they go. no_choice: one pool is empty. overflow: the pool that was "
            "asked for is full. `outrider explain --prompt TEXT --url URL` shows every input for one request.",
        ),
        Panel(
            title="Where calls went", unit=Unit.REQUESTS_PER_S, lowest=0,
            queries=(
                Query(
                    expr=rate("outrider_router_calls_total", by="pool, role"),
                    legend="asked for {{pool}}, went to {{role}}",
                ),
                Query(expr=rate("outrider_router_prefix_hits_total"), legend="to a replica that knows the prefix"),
                Query(
                    expr=rate("outrider_router_degraded_total", by="reason"), legend="by load alone: {{reason}}",
                    needs=Needs.TROUBLE,
                ),
            ),
            description="A call goes to the other pool when its own is empty. By load alone: a call or a replica's "
            "report could not be read; the gateway's log names it.",
        ),
        Panel(
            title="KV tax of speculation", unit=Unit.TOKENS, lowest=0,
            queries=(Query(expr=total("outrider_kv_tax_tokens"), legend="withheld from new sequences"),),
            description="KV capacity that speculative verifiers keep free for drafts. Large against "
            "engine.kv_cache_tokens: fewer seats (pools.speculative_max_num_seqs) or shorter drafts.",
        ),
        Panel(
            title="Heartbeats", unit=Unit.PER_S, lowest=0,
            queries=(
                Query(expr=rate("outrider_heartbeats_total", by="result"), legend="sent: {{result}}",
                      needs=Needs.POOLS),
                Query(expr=rate("outrider_controller_heartbeats_total", by="result"), legend="heard: {{result}}",
                      needs=Needs.POOLS),
            ),
            description="Two a second for each verifier. failed: no controller. malformed: verifiers and controller "
            "run different versions, as for a moment in a rolling update.",
        ),
        Panel(
            title="Age of what routing stands on", unit=Unit.SECONDS, lowest=0,
            queries=(Query(expr=pick("outrider_router_stats_age_seconds"), legend="{{gateway}}"),),
            description="Of the oldest replica's report, by gateway. Above 3 s reports are not trusted, and load alone "
            "decides: Serve's controller is slow; look at its process on the head node.",
        ),
        Panel(
            title="Gateways that drain", unit=Unit.COUNT, lowest=0,
            queries=(Query(expr=total("outrider_gateway_draining"), legend="draining"),),
            description="They finish their streams and take no new work, as in a rolling update. Longer than "
            "drain_timeout_s: streams that no client reads; see Requests at the gateways on the overview.",
        ),
    ),
)  # fmt: skip

POOLS = Dashboard(
    uid="outrider-pools",
    title="Outrider: pools and controller",
    description="Which verifier does what, since when, and why?",
    rows=(_NOW, _WHY, _LOAD, _ROUTING),
)
