"""What delivered tokens cost, in money, energy and time, by pool and by domain."""

from cluster.telemetry.dashboards.model import Dashboard, Needs, Panel, PanelKind, Query, Row, Unit, good_above, stat
from cluster.telemetry.dashboards.promql import rate, ratio, rise, zero_without

TOKENS = "outrider_domain_tokens_total"
SECONDS = "outrider_domain_seconds_total"
USD = "outrider_cost_usd_total"
JOULES = "outrider_energy_joules_total"
BUSY = "outrider_busy_seconds_total"
PLAIN = "outrider_counterfactual_seconds_total"
WASTED = "outrider_wasted_seconds_total"
DRAFTER_USD = "outrider_drafter_cost_usd_total"
DRAFTER_JOULES = "outrider_drafter_energy_joules_total"
_ALL_USD = f"{rise(USD)} + ({zero_without(rise(DRAFTER_USD))})"
_ALL_JOULES = f"{rise(JOULES)} + ({zero_without(rise(DRAFTER_JOULES))})"
_OUTPUT = rise("vllm:generation_tokens_total")


def _per_million(what: str, tokens: str) -> str:
    return ratio(f"1e6 * ({what})", tokens)


def _of_domains(metric: str) -> str:
    """What is counted by role alone, divided among the domains as the time of rounds was."""
    share = f"{rise(SECONDS, by='domain, role')} / on (role) group_left () ({rise(SECONDS, by='role')} > 0)"
    return f"sum by (domain) ({share} * on (role) group_left () {rise(metric, by='role')})"


_HEADLINE = Row(
    title="In the time shown",
    panels=(
        stat(
            "Per million tokens", Unit.USD, _per_million(_ALL_USD, _OUTPUT),
            "Verifiers and drafters with their idle time, so that it adds up to the bill. It rises when replicas idle: "
            "lower pools.min_replicas, or raise pools.target_load_ratio.", needs=Needs.PRICE,
        ),
        stat(
            "Spent", Unit.USD, _ALL_USD,
            "Verifiers and drafters in the time shown, by the prices in `cost`. 0: no prices are set.",
            needs=Needs.PRICE,
        ),
        stat(
            "Energy per million tokens", Unit.JOULES, _per_million(_ALL_JOULES, _OUTPUT),
            "GPUs alone; no value where their energy cannot be read, as on CPUs.", needs=Needs.ENERGY,
        ),
        stat(
            "Drafters' share of the cost", Unit.SHARE, ratio(zero_without(rise(DRAFTER_USD)), _ALL_USD),
            "It must be less than what speculation saves, beside. If not: fewer drafters, or drafter=ngram.",
            needs=Needs.PRICE,
        ),
        stat(
            "Time saved by speculation", Unit.SHARE, f"1 - {ratio(rise(BUSY), rise(PLAIN))}",
            "Of the time that plain decoding would have needed for the same tokens, by the step times fitted while "
            "serving. Below 0 speculation loses: see the Speculation dashboard.", steps=good_above(-0.03, 0.0),
        ),
        stat(
            "Time spent on rejected drafts", Unit.SHARE, ratio(rise(WASTED), rise(BUSY)),
            "Of the time of rounds. It is the price of the tokens that were accepted; judge it with what was saved.",
        ),
    ),
)  # fmt: skip

_TABLES = Row(
    title="By pool and by domain, in the time shown",
    panels=(
        Panel(
            title="By pool", unit=Unit.COUNT, kind=PanelKind.TABLE, width=12,
            queries=(
                Query(expr=rise(TOKENS, by="role"), legend="tokens", unit=Unit.COUNT),
                Query(expr=rise(USD, by="role"), legend="$", unit=Unit.USD, needs=Needs.PRICE),
                Query(
                    expr=_per_million(rise(USD, by="role"), rise(TOKENS, by="role")), legend="$ per million",
                    unit=Unit.USD, needs=Needs.PRICE,
                ),
                Query(
                    expr=_per_million(rise(JOULES, by="role"), rise(TOKENS, by="role")), legend="J per million",
                    unit=Unit.JOULES, needs=Needs.ENERGY,
                ),
                Query(
                    expr=ratio(rise(BUSY, by="role"), rise("outrider_role_seconds_total", by="role")), legend="busy",
                    unit=Unit.SHARE,
                ),
            ),
            labels=(("role", "pool"),),
            description="Verifiers only, idle time included. A pool that is dear and seldom busy is too large: lower "
            "its minimum in `pools`.",
        ),
        Panel(
            title="By domain", unit=Unit.COUNT, kind=PanelKind.TABLE, width=12,
            queries=(
                Query(expr=rise(TOKENS, by="domain"), legend="tokens", unit=Unit.COUNT),
                Query(expr=_of_domains(USD), legend="$", unit=Unit.USD, needs=Needs.PRICE),
                Query(
                    expr=_per_million(_of_domains(USD), rise(TOKENS, by="domain")), legend="$ per million",
                    unit=Unit.USD, needs=Needs.PRICE,
                ),
                Query(
                    expr=_per_million(_of_domains(JOULES), rise(TOKENS, by="domain")), legend="J per million",
                    unit=Unit.JOULES, needs=Needs.ENERGY,
                ),
                Query(
                    expr=ratio(
                        rise(SECONDS, by="domain"), rise("outrider_domain_counterfactual_seconds_total", by="domain")
                    ),
                    legend="time against plain", unit=Unit.SHARE,
                ),
            ),
            labels=(("domain", "domain"),),
            description="A pool's cost, idle time included, is divided among the domains as the time of its rounds "
            "was. Time against plain above 100 %: drafts for this kind of text cost more than they bring; send it with "
            "speculation off or in tier flex.",
        ),
    ),
)  # fmt: skip

_MONEY = Row(
    title="Money and energy",
    panels=(
        Panel(
            title="Per hour", unit=Unit.USD, stacked=True, lowest=0,
            queries=(
                Query(expr=f"3600 * {rate(USD, by='role')}", legend="verifiers, {{role}}", needs=Needs.PRICE),
                Query(expr=f"3600 * {rate(DRAFTER_USD)}", legend="drafters", needs=Needs.DRAFTER),
            ),
            description="It follows the number of replicas, not the load. The plan on the Pools dashboard says how "
            "many the load asks for.",
        ),
        Panel(
            title="Per million tokens, by pool", unit=Unit.USD, lowest=0,
            queries=(
                Query(
                    expr=_per_million(rate(USD, by="role"), rate(TOKENS, by="role")), legend="{{role}}",
                    needs=Needs.PRICE,
                ),
            ),
            description="Peaks are hours with little traffic: the replicas cost the same.",
        ),
        Panel(
            title="Power of the GPUs", unit=Unit.WATTS, stacked=True, lowest=0,
            queries=(
                Query(expr=rate(JOULES, by="role"), legend="verifiers, {{role}}", needs=Needs.ENERGY),
                Query(expr=rate(DRAFTER_JOULES), legend="drafters", needs=Needs.ENERGY),
            ),
            description="Empty where energy cannot be read. High while nothing runs: something else uses the GPUs.",
        ),
    ),
)  # fmt: skip

_TIME = Row(
    title="Time",
    panels=(
        Panel(
            title="Used, against plain decoding", unit=Unit.SHARE, lowest=0,
            queries=(
                Query(expr=rate(BUSY, by="role"), legend="{{role}}, used"),
                Query(expr=rate(PLAIN, by="role"), legend="{{role}}, plain decoding would have used"),
            ),
            description="Busy verifiers: 1 is one verifier that is always busy. The gap in the speculative pool is "
            "what speculation saves; in batch there should be none.",
        ),
        Panel(
            title="Busy share of each pool", unit=Unit.SHARE, lowest=0, highest=1,
            queries=(
                Query(
                    expr=ratio(rate(BUSY, by="role"), rate("outrider_role_seconds_total", by="role")),
                    legend="{{role}}",
                ),
            ),
            description="Time in rounds / time in the role. Low all day: fewer verifiers would do.",
        ),
        Panel(
            title="Output by domain", unit=Unit.TOKENS_PER_S, stacked=True, lowest=0,
            queries=(Query(expr=rate(TOKENS, by="domain"), legend="{{domain}}"),),
            description="Which kinds of text are asked for. Clients can name the `domain`; otherwise it is detected.",
        ),
        Panel(
            title="Rejected draft tokens, by domain", unit=Unit.SHARE, lowest=0, highest=1, width=24,
            queries=(
                Query(
                    expr=ratio(
                        rate("outrider_domain_draft_tokens_total", 'result="rejected"', by="domain"),
                        rate("outrider_domain_draft_tokens_total", by="domain"),
                    ),
                    legend="{{domain}}",
                ),
            ),
            description="Rejected / verified. A domain far above the others is one for which drafting should be off, "
            "or for which a draft model should be trained (`outrider train`).",
        ),
    ),
)  # fmt: skip

COST = Dashboard(
    uid="outrider-cost",
    title="Outrider: cost",
    description="What do delivered tokens cost, where does the money go, and does speculation save any?",
    rows=(_HEADLINE, _TABLES, _MONEY, _TIME),
)
