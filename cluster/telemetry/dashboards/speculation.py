"""Does speculation pay: what is drafted, by whom, what is accepted, and what it costs."""

from cluster.telemetry.dashboards.model import (
    Dashboard,
    Needs,
    Panel,
    Query,
    Row,
    Unit,
    good_above,
    good_below,
    stat,
)
from cluster.telemetry.dashboards.promql import mean, mean_in_role, pick, quantile, rate, ratio, total

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
OUTPUT = "vllm:generation_tokens_total"
SPECULATIVE = 'role="speculative"'
ACCEPTANCE_LENGTH = f"1 + {ratio(rate(ACCEPTED), rate(DRAFTS))}"
SPEED_UP = ratio(
    rate("outrider_counterfactual_seconds_total", SPECULATIVE), rate("outrider_busy_seconds_total", SPECULATIVE)
)
BREAK_EVEN_LENGTH = f"({ACCEPTANCE_LENGTH}) / ({SPEED_UP})"
LOOKUPS = "outrider_draft_lookups_total"
FALLBACKS = "outrider_draft_fallbacks_total"


_HEADLINE = Row(
    title="Does it pay?",
    panels=(
        stat(
            "Gain over plain decoding", Unit.FACTOR, SPEED_UP,
            "Time that plain decoding would have needed for the same tokens, by the step times fitted while serving, "
            "divided by the time that was used. Under 1 speculation loses: see Acceptance below, and who drafts.",
            steps=good_above(0.97, 1.0),
        ),
        stat(
            "Acceptance rate", Unit.SHARE, ratio(rate(ACCEPTED), rate(DRAFTED)),
            "Accepted / drafted. Near 0: the drafter guesses another kind of text, or another model's. Near 1: look "
            "at the answers, they may repeat themselves.",
        ),
        stat(
            "Mean acceptance length", Unit.TOKENS, ACCEPTANCE_LENGTH,
            "Tokens per verified draft, the target's own included.",
        ),
        stat(
            "Output that came from drafts", Unit.SHARE, ratio(rate(ACCEPTED), rate(OUTPUT)),
            "Share of delivered tokens that were guessed before. Low with a good acceptance rate: few sequences draft; "
            "see Why sequences did not draft.",
        ),
        stat(
            "Drafted", Unit.TOKENS_PER_S, rate(DRAFTED),
            "Draft tokens verified per second. 0 under full load is right: the budget spends the rows on sequences.",
        ),
        stat(
            "Wasted", Unit.SHARE,
            ratio(rate("outrider_wasted_draft_tokens_total"), rate("outrider_forward_rows_total")),
            "Share of the target's rows that verified a rejected draft token. Idle rows are free, busy ones are not: "
            "judge it together with the gain.",
            steps=good_below(0.5, 0.8),
        ),
    ),
)  # fmt: skip

_ACCEPTANCE = Row(
    title="Acceptance",
    panels=(
        Panel(
            title="Acceptance length and break-even", unit=Unit.TOKENS, lowest=0,
            queries=(
                Query(expr=ACCEPTANCE_LENGTH, legend="mean acceptance length"),
                Query(expr=BREAK_EVEN_LENGTH, legend="break-even"),
            ),
            description="Below break-even a round with drafts costs more than it brings. The budget cuts drafts by "
            "itself; if it stays below, set engine.draft_budget to measured, or calibrate with `outrider calibrate`.",
        ),
        Panel(
            title="Acceptance by position", unit=Unit.SHARE, lowest=0, highest=1,
            queries=(
                Query(
                    expr=f"{rate(BY_POSITION, by='position')} / on () group_left () ({rate(DRAFTS)} > 0)",
                    legend="position {{position}}",
                ),
            ),
            description="Accepted draft tokens at a position, for each verified draft. Where it falls to near 0, later "
            "positions are wasted: num_speculative_tokens is too high.",
        ),
        Panel(
            title="Acceptance by drafter", unit=Unit.SHARE, lowest=0, highest=1,
            queries=(
                Query(
                    expr=ratio(
                        rate("outrider_accepted_draft_tokens_total", by="source"),
                        rate("outrider_draft_tokens_total", by="source"),
                    ),
                    legend="{{source}}",
                ),
            ),
            description="One drafter far below its usual value: it drafts with the wrong weights or tokenizer, or the "
            "traffic has changed. Nothing but speed depends on it.",
        ),
        Panel(
            title="Draft tokens by drafter", unit=Unit.TOKENS_PER_S, stacked=True, lowest=0,
            queries=(Query(expr=rate("outrider_draft_tokens_total", by="source"), legend="{{source}}"),),
            description="Whose drafts win the rounds. The draft model gone from here while ngram stays: see Drafter "
            "actors below.",
        ),
        Panel(
            title="Why sequences did not draft", unit=Unit.PER_S, lowest=0,
            queries=(
                Query(
                    expr=rate("outrider_draft_limits_total", by="reason"), legend="{{reason}}", needs=Needs.TROUBLE
                ),
            ),
            description="budget: rows were worth more elsewhere. batch, context, acceptance: the limits "
            "engine.max_draft_sequences, max_draft_context and min_acceptance_rate. Only the budget is measured; the "
            "others are yours.",
        ),
        Panel(
            title="Calibration error", unit=Unit.SHARE, lowest=0,
            queries=(
                Query(
                    expr=f"max by (source) ({pick('outrider_acceptance_calibration_error')})", legend="{{source}}",
                    needs=Needs.DRAFTER,
                ),
            ),
            description="How far the chances by which drafts are ranked are from what happens. Above 0.1 the budget "
            "chooses worse drafts than it could; text stays the same.",
        ),
    ),
)  # fmt: skip

_ROUNDS = Row(
    title="Rounds",
    panels=(
        Panel(
            title="Mean time of a round, by role", unit=Unit.SECONDS, lowest=0,
            queries=tuple(
                Query(expr=mean_in_role("outrider_step_seconds", role), legend=role, needs=needs)
                for role, needs in (("speculative", Needs.TRAFFIC), ("batch", Needs.MOVES))
            ),
            description="A round is one pass of the target over a batch. It grows with the rows; if it grows alone, "
            "the machine is shared: check its CPU and GPU.",
        ),
        Panel(
            title="Where a round's time goes", unit=Unit.SHARE, lowest=0, highest=1,
            queries=(
                Query(
                    expr=ratio(rate("outrider_forward_seconds_sum"), rate("outrider_step_seconds_sum")),
                    legend="forward pass",
                ),
                Query(
                    expr=ratio(rate("outrider_draft_wait_seconds_total"), rate("outrider_step_seconds_sum")),
                    legend="waiting for drafts",
                ),
                Query(
                    expr=ratio(rate("outrider_hidden_draft_seconds_total"), rate("outrider_step_seconds_sum")),
                    legend="drafting beside the pass",
                ),
                Query(
                    expr=ratio(rate("outrider_wasted_seconds_total"), rate("outrider_busy_seconds_total")),
                    legend="verifying rejected drafts",
                ),
            ),
            description="Waiting above a few percent: set draft.draft_wait_s to 0, or look at the drafters. The rest "
            "beside the forward pass is planning, sampling and output; drafting beside the pass takes "
            "no time of its own.",
        ),
        Panel(
            title="Entropy of the target", unit=Unit.BITS, lowest=0,
            queries=(
                Query(expr=mean("outrider_target_entropy_bits"), legend="mean"),
                Query(expr=quantile(0.9, "outrider_target_entropy_bits"), legend="p90"),
            ),
            description="How open the next token is. Above about 3.5 bits drafts are rarely accepted, below 1.2 often: "
            "a change here explains a change of acceptance that no drafter caused.",
        ),
    ),
)  # fmt: skip

_ACTORS = Row(
    title="Drafter actors",
    panels=(
        Panel(
            title="Connections", unit=Unit.COUNT, lowest=0,
            queries=(
                Query(expr=total("outrider_drafter_connected"), legend="verifiers with a drafter"),
                Query(expr=total("outrider_drafter_quarantined"), legend="verifiers that leave theirs alone"),
                Query(expr=total("outrider_layout", 'kind="actor"'), legend="verifiers that want one"),
                Query(
                    expr=total("outrider_drafter_model_loaded"), legend="drafters with a model", needs=Needs.DRAFTER
                ),
            ),
            description="Wanted but not connected for minutes: look at the Drafter deployment on the Serve page of the "
            "Ray dashboard. Left alone: it was silent, late, wrong or malformed; it is tried again by itself.",
        ),
        Panel(
            title="What sequences found when they asked", unit=Unit.PER_S, stacked=True, lowest=0,
            queries=(Query(expr=rate("outrider_draft_lookups_total", by="result"), legend="{{result}}",
                           needs=Needs.DRAFTER),),
            description="hit: a draft for exactly this outcome was there. late, none: the drafter is too slow or the "
            "network is; add drafters. miss: it guessed other outcomes; draft.max_fan_out is too low, or the model too "
            "weak.",
        ),
        Panel(
            title="Why sequences did without", unit=Unit.PER_S, stacked=True, lowest=0,
            queries=(Query(expr=rate("outrider_draft_fallbacks_total", by="reason"), legend="{{reason}}",
                           needs=Needs.DRAFTER),),
            description="disconnected: no drafter. quarantined: left alone. opening: new sequences, harmless. lost, "
            "capacity: raise draft.max_sequences or draft.kv_cache_tokens, or add drafters. length: longer than "
            "draft.max_model_len. unprofitable: decided. error: see the log.",
        ),
        Panel(
            title="Drafters' load", unit=Unit.SHARE, lowest=0, highest=1,
            queries=(
                Query(expr=pick("outrider_drafter_busy_ratio"), legend="{{drafter}} busy", needs=Needs.DRAFTER),
                Query(
                    expr=pick("outrider_drafter_kv_cache_usage_ratio"), legend="{{drafter}} KV blocks",
                    needs=Needs.DRAFTER,
                ),
                Query(
                    expr=ratio(
                        rate("outrider_drafter_late_tables_total", by="drafter"),
                        rate("outrider_drafter_tables_total", by="drafter"),
                    ),
                    legend="{{drafter}} late tables",
                    needs=Needs.DRAFTER,
                ),
            ),
            description="Busy near 1 with late tables: add drafters (num_drafters, or drafter_scaling). One drafter "
            "busier than the rest: verifiers are paired by load when they connect.",
        ),
        Panel(
            title="Changes of a verifier's mind about its drafter", unit=Unit.PER_S, lowest=0,
            queries=(Query(expr=rate("outrider_drafter_transitions_total", by="reason"), legend="{{reason}}",
                           needs=Needs.DRAFTER),),
            description="silent, malformed, late, wrong: why it was left alone; probing and recovered: the way back. A "
            "pattern that repeats every few seconds is a drafter that should be replaced.",
        ),
        Panel(
            title="Draft channel", unit=Unit.PER_S, lowest=0,
            queries=(
                Query(
                    expr=rate("outrider_draft_channel_messages_total", by="direction"),
                    legend="messages {{direction}}", needs=Needs.DRAFTER,
                ),
                Query(expr=rate("outrider_draft_channel_dropped_total"), legend="dropped"),
                Query(expr=rate("outrider_draft_channel_malformed_total"), legend="malformed"),
            ),
            description="Dropped: a queue was full, so the drafter is slower than the verifier. Malformed above 0: the "
            "two run different versions, or somebody else speaks to the port.",
        ),
    ),
)  # fmt: skip

SPECULATION = Dashboard(
    uid="outrider-speculation",
    title="Outrider: speculation",
    description="Does speculation pay, and if not, whose fault is it?",
    rows=(_HEADLINE, _ACCEPTANCE, _ROUNDS, _ACTORS),
)
